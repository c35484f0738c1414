//! The RoCE GID index, determined inside the pod.
//!
//! A RoCE device has several GIDs; the one for RoCE v2 over IPv4 is needed. NCCL ≥ 2.21 finds it itself.
//! For older ones the command is wrapped by a POSIX sh loop over sysfs. It exports `NCCL_IB_GID_INDEX` only
//! if every device agrees on an index, keeps a value that is already set, never reads stdin, and passes the
//! user's words on unchanged.

/// `$0` of the wrapped shell, which identifies a wrapped command.
pub const NAME: &str = "fabric-gid";

/// The script. GIDs of IPv4 addresses end in `ffff:AABB:CCDD`. `FABRIC_GID_SYSFS` is for tests.
/// ("IPv4-mapped GID", Linux `Documentation/infiniband/sysfs.rst` and `show_gids` of MLNX_OFED.)
pub const SCRIPT: &str = r#"if [ -z "${NCCL_IB_GID_INDEX-}" ]; then fabric_gid=; for fabric_dir in "${FABRIC_GID_SYSFS:-/sys/class/infiniband}"/*/ports/*; do fabric_one=; for fabric_type in "$fabric_dir"/gid_attrs/types/*; do fabric_text=; read -r fabric_text 2>/dev/null <"$fabric_type" || [ -n "$fabric_text" ] || continue; [ "$fabric_text" = "RoCE v2" ] || continue; fabric_index=${fabric_type##*/}; fabric_addr=; read -r fabric_addr 2>/dev/null <"$fabric_dir/gids/$fabric_index" || [ -n "$fabric_addr" ] || continue; case $fabric_addr in 0000:0000:0000:0000:0000:ffff:*) if [ -z "$fabric_one" ] || [ "$fabric_index" -lt "$fabric_one" ]; then fabric_one=$fabric_index; fi;; esac; done; [ -n "$fabric_one" ] || continue; if [ -n "$fabric_gid" ] && [ "$fabric_gid" != "$fabric_one" ]; then fabric_gid=; break; fi; fabric_gid=$fabric_one; done; if [ -n "$fabric_gid" ]; then NCCL_IB_GID_INDEX=$fabric_gid; export NCCL_IB_GID_INDEX; fi; fi; unset fabric_gid fabric_dir fabric_one fabric_type fabric_text fabric_index fabric_addr; exec "$@""#;

/// Returns the command that finds the index and then runs the given one in its place.
pub fn wrap(argv: &[String]) -> Vec<String> {
    let mut words = prefix();
    words.extend_from_slice(argv);
    words
}

/// Returns the words that go before the user's.
pub fn prefix() -> Vec<String> {
    ["/bin/sh", "-c", SCRIPT, NAME].map(str::to_owned).to_vec()
}

/// Returns where the user's words start in a wrapped command.
pub fn wrapped_from<S: AsRef<str>>(argv: &[S]) -> Option<usize> {
    let word = |index: usize| argv.get(index).map(AsRef::as_ref);
    (word(1) == Some("-c") && word(3) == Some(NAME) && argv.len() > 4).then_some(4)
}
