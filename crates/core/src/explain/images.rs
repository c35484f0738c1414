//! Codes of `--check-image`.

use super::Code;

const fn code(code: &'static str, title: &'static str, meaning: &'static str, fix: &'static str) -> Code {
    Code { code, title, meaning, fix, source: "" }
}

pub(super) const IMAGES: &[Code] = &[
    code(
        "IMG-GLIBC",
        "the image's C library is older than the mounted libraries need",
        "Libraries that are mounted from the node are linked against its glibc. In an image with an older one, or with musl, the loader refuses them, and NCCL falls back to sockets or the program does not start.",
        "Take an image of Ubuntu 22.04, Debian 12, UBI 9 or later, or one that has the stack in it and `--stack bundled`.",
    ),
    code(
        "IMG-LIBRARY-PATH",
        "the fabric's LD_LIBRARY_PATH hides folders of the image's own",
        "A variable of the pod takes the place of the image's. What the program loads from those folders is then not found, or found elsewhere.",
        "Write the image's value into the job's `env`; the fabric's folders are put before it.",
    ),
    code(
        "IMG-NCCL-GID",
        "the image's NCCL does not choose the GID index",
        "From 2.21 on NCCL finds the RoCE v2 GID by itself; an older one takes the index it is told, or the first.",
        "`--gid compute` finds it inside the pod, `--gid N` sets it.",
    ),
    code(
        "IMG-NO-STACK",
        "the image lacks a part of the EFA stack, and none is mounted",
        "Without libfabric and aws-ofi-nccl NCCL finds no EFA, and uses sockets without failing.",
        "Install the stack in the image (AWS's installer has both), or name a profile that mounts it (`dgxc`).",
    ),
    code(
        "IMG-OPENMPI",
        "the image's Open MPI and the mounted mpirun are of different major versions",
        "The ranks' library and the `mpirun` that starts them must be of one.",
        "Switch `efa.mpirun` off to keep the image's own.",
    ),
    code(
        "IMG-PARTLY",
        "a layer of the image was not read",
        "It is damaged, too large, of an unknown format, or not in the registry. What stands in it is not known.",
        "Look at what it holds by hand if a library is not found.",
    ),
    code(
        "IMG-TWO-STACKS",
        "the image has an EFA stack of its own beside the mounted one",
        "The mounted one goes before it.",
        "`--stack bundled` uses the image's own.",
    ),
];
