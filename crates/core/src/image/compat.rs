//! Compares an image with its job's plan.

use super::{ImageFacts, Library, NcclVersion, Part, numbers};
use crate::Finding;
use crate::fabric::{Change, FabricPlan, Profile};
use crate::request::{Fabric, Gid};
use crate::spec::{JobSpec, Launch};

/// The first NCCL that determines the GID index by itself
/// (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, NCCL_IB_GID_INDEX, 2026-11-21).
const FINDS_GID: [u64; 2] = [2, 21];

/// Returns the findings about the image for the plan: worst first.
pub fn judge(image: &ImageFacts, spec: &JobSpec, plan: &FabricPlan, profile: &Profile) -> Vec<Finding> {
    let mounted = plan.ops.iter().any(|op| matches!(op.change, Change::Mount { .. }));
    let mut findings = Vec::new();
    if mounted {
        findings.extend(c_library(image, profile));
        findings.extend(two_stacks(image));
        findings.extend(open_mpi(image, spec));
    } else if plan.fabric == Fabric::Efa {
        findings.extend(no_stack(image));
    }
    findings.extend(known_bad(image));
    findings.extend(unread_names(image, spec));
    findings.extend(library_path(image, plan));
    if plan.fabric == Fabric::Roce {
        findings.extend(gid(image, spec, profile));
    }
    findings.extend(image.left_out.iter().map(|what| {
        Finding::warning("IMG-PARTLY", format!("not all of the image was read: {what}"))
            .fix("this part is not checked; look at it by hand if the job fails to load a library")
    }));
    let mut findings: Vec<_> = findings.into_iter().map(|finding| finding.at(&image.reference)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// Reports versions in the image that are known to be bad.
fn known_bad(image: &ImageFacts) -> Vec<Finding> {
    let name = |part: Part| match part {
        Part::Nccl => Some("nccl"),
        Part::AwsOfiNccl => Some("aws-ofi-nccl"),
        Part::Libfabric | Part::LibfabricNote => Some("libfabric"),
        _ => None,
    };
    let found: Vec<(&str, &str)> =
        image.found.iter().filter_map(|found| Some((name(found.part)?, found.version.as_deref()?))).collect();
    crate::advisories::findings(&found)
}

/// Reports variables of the job that the image's NCCL does not read.
fn unread_names(image: &ImageFacts, spec: &JobSpec) -> Vec<Finding> {
    let versions = image.all(Part::Nccl).filter_map(|own| own.version.clone());
    let Some(version) = versions.into_iter().find(|version| !numbers(version).is_empty()) else {
        return Vec::new();
    };
    let nccl = NcclVersion { version, at_most: false };
    let env = spec.env.iter().chain(spec.roles.iter().flat_map(|role| &role.env));
    let mut names: Vec<&str> = env.map(|var| var.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(|name| nccl.unread(name, "the image")).collect()
}

/// Checks the C library, since libraries mounted from the node are linked against the node's.
fn c_library(image: &ImageFacts, profile: &Profile) -> Option<Finding> {
    let wanted = profile.stack.as_ref()?.glibc.as_deref()?;
    let fix = "take an image of Ubuntu 22.04, Debian 12, UBI 9 or later, or one that has the stack in it and `--stack bundled`";
    let Some(own) = image.all(Part::Glibc).next() else {
        let musl = image.all(Part::Musl).next()?;
        let text =
            format!("the image has musl ({}) and no glibc: the mounted EFA stack will not load", musl.path);
        return Some(Finding::error("IMG-GLIBC", text).fix(fix));
    };
    let version = own.version.as_deref()?;
    let known = numbers(version);
    (!known.is_empty() && known < numbers(wanted)).then(|| {
        let text = format!("GLIBC {version} < {wanted}: the mounted EFA stack will not load");
        Finding::error("IMG-GLIBC", text).fix(fix)
    })
}

/// Reports a stack in the image, since the mounted stack comes before it.
fn two_stacks(image: &ImageFacts) -> Option<Finding> {
    let own: Vec<String> = [Part::Libfabric, Part::AwsOfiNccl]
        .into_iter()
        .flat_map(|part| image.all(part))
        .map(Library::named)
        .collect();
    (!own.is_empty()).then(|| {
        let text =
            format!("the image contains a stack, and the mounted one is used instead: {}", own.join(", "));
        Finding::info("IMG-TWO-STACKS", text).fix("`--stack bundled` uses the image's own")
    })
}

/// Compares Open MPI: the launcher's mpirun is the mounted one, the ranks' library may be the image's.
fn open_mpi(image: &ImageFacts, spec: &JobSpec) -> Option<Finding> {
    let own = image
        .all(Part::OpenMpi)
        .find(|own| own.version.as_deref().is_some_and(|v| numbers(v).first() >= Some(&5)))?;
    (spec.launch == Launch::Mpi).then(|| {
        let text = format!("the image has {}, and the mounted `mpirun` is of Open MPI 4: they do not start each other's programs", own.named());
        Finding::warning("IMG-OPENMPI", text)
            .fix("`--no-fabric-rule efa.mpirun` keeps the image's own mpirun")
    })
}

/// Reports a missing stack, since EFA without a mounted stack needs one in the image.
fn no_stack(image: &ImageFacts) -> Option<Finding> {
    let lacks: Vec<&str> = [Part::Libfabric, Part::AwsOfiNccl]
        .into_iter()
        .filter(|part| image.all(*part).next().is_none())
        .map(Part::name)
        .collect();
    (!lacks.is_empty()).then(|| {
        let text = format!("the image has no {}, and the profile mounts none: NCCL will use sockets", lacks.join(" and no "));
        Finding::warning("IMG-NO-STACK", text)
            .fix("install the EFA stack in the image (the aws-efa-installer has both), or name a profile that mounts it (dgxc)")
    })
}

/// Reports that setting LD_LIBRARY_PATH hides the image's.
fn library_path(image: &ImageFacts, plan: &FabricPlan) -> Option<Finding> {
    let own = image.library_path.as_deref()?;
    let ours = plan.ops.iter().find_map(|op| match &op.change {
        Change::Env { name, value } if name == "LD_LIBRARY_PATH" => Some(value.as_str()),
        _ => None,
    })?;
    let lost: Vec<&str> = own
        .split(':')
        .filter(|folder| !folder.is_empty() && !ours.split(':').any(|known| known == *folder))
        .collect();
    (!lost.is_empty()).then(|| {
        let text =
            format!("LD_LIBRARY_PATH is set for the fabric, which hides the image's own: {}", lost.join(":"));
        Finding::warning("IMG-LIBRARY-PATH", text).fix(format!(
            "put `LD_LIBRARY_PATH = \"{own}\"` into the job's `env`; the fabric's folders are put before it"
        ))
    })
}

/// Reports an old NCCL without a GID index: it takes the first, which is often not RoCE v2's.
fn gid(image: &ImageFacts, spec: &JobSpec, profile: &Profile) -> Option<Finding> {
    let chosen = spec.fabric.gid.or(profile.roce.as_ref().map(|roce| roce.gid));
    let old = |version: &str| {
        let known = numbers(version);
        !known.is_empty() && known.as_slice() < FINDS_GID.as_slice()
    };
    let own = image.all(Part::Nccl).find(|own| own.version.as_deref().is_some_and(old))?;
    matches!(chosen, None | Some(Gid::Auto)).then(|| {
        let text =
            format!("{} does not find the GID index by itself, as NCCL 2.21 and later do", own.named());
        Finding::warning("IMG-NCCL-GID", text)
            .fix("`--gid compute` finds it inside the pod; `--gid N` sets it")
    })
}
