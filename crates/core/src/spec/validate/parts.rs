//! Image, code, volumes, limits.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{is_label, is_subdomain};
use super::{Findings, shown};
use crate::mask;
use crate::spec::file::{MAX_SCRIPT, join};
use crate::spec::{Code, JobSpec, RestartPolicy, VolumeSource, git};

const MAX_RESTARTS: u32 = 1000;

pub(super) fn check(job: &JobSpec, out: &mut Findings) {
    let images = job.image.iter().map(|image| ("image".to_owned(), image)).chain(
        job.roles.iter().filter_map(|r| Some((join(&join("roles", &r.name), "image"), r.image.as_ref()?))),
    );
    for (path, text) in images {
        image(text, &path, out);
    }
    if let Some(code) = &job.code {
        self::code(job, code, out);
    }
    for role in &job.roles {
        let Some(place) = mask::secret_in_words(&role.command) else { continue };
        let message = format!(
            "the command ({place}) holds a secret: everyone who can read the file or the job sees it"
        );
        out.warning("SPEC-SECRET", &join(&join("roles", &role.name), "command"), message)
            .fix("put it into `secrets`, and read its variable in the program");
    }
    if let Some(dir) = &job.workdir
        && !dir.starts_with('/')
    {
        let outside = dir.is_empty() || dir.split('/').any(|part| part == "..");
        if job.code_folder().is_none() {
            out.error("SPEC-PATH", "workdir", format!("`{}` is not an absolute path", shown(dir)))
                .fix("begin it with `/`");
        } else if outside {
            out.error("SPEC-PATH", "workdir", format!("`{}` is not inside the job's folder", shown(dir)))
                .fix("name a folder below `code.dir`, or an absolute path");
        }
    }
    volumes(job, out);
    if job.time_limit.is_some_and(|limit| limit.is_zero()) {
        out.error("SPEC-DURATION", "time_limit", "a time limit of nothing").fix("leave it out for none");
    }
    if let RestartPolicy::OnFailure { max } = job.restart
        && !(1..=MAX_RESTARTS).contains(&max)
    {
        out.error("SPEC-VALUE", "restart.max", format!("{max} restarts")).fix(format!("1 to {MAX_RESTARTS}"));
    }
}

fn image(text: &str, path: &str, out: &mut Findings) {
    // A word that begins with `-` would be an option to docker and the like.
    let is_bad = |c: char| c.is_whitespace() || c.is_control();
    if text.is_empty() || text.starts_with('-') || text.contains(is_bad) {
        out.error("SPEC-IMAGE", path, format!("`{}` is not an image name", shown(text)))
            .fix("an image is `registry/name:tag` or a path of a file, without spaces");
    } else if text.starts_with("https://") || text.starts_with("http://") {
        out.error("SPEC-IMAGE", path, "an image has no `https://` before it")
            .fix("name it as `docker pull` does");
    }
}

fn code(job: &JobSpec, code: &Code, out: &mut Findings) {
    match code {
        Code::Script { name, text } => {
            if name.is_empty() || name.contains(['/', '\0', '\n']) || matches!(name.as_str(), "." | "..") {
                out.error("SPEC-CODE", "code.script", format!("`{}` is not a file name", shown(name)));
            }
            if text.len() > MAX_SCRIPT {
                let message =
                    format!("the script is {} bytes; a job carries {MAX_SCRIPT} at most", text.len());
                out.error("SPEC-CODE", "code.script", message)
                    .fix("put it into the image or on a volume, or use `code = { git = … }`");
            }
        }
        Code::Git { url, rev } => {
            // A word that begins with `-` would be an option to git.
            let bad = |text: &str| {
                text.is_empty()
                    || text.starts_with('-')
                    || text.contains(|c: char| c.is_whitespace() || c.is_control())
            };
            if git::holds_secret(url) {
                let message =
                    "the address holds a password or token, which everybody who sees the job can read";
                out.error("SPEC-SECRET", "code.git", message)
                    .fix("leave it out, and let the cluster give the credentials to git");
            } else if let Some(why) = git::refusal(url) {
                let message = format!("`{}` cannot be cloned: {why}", shown(url));
                out.error("SPEC-CODE", "code.git", message)
                    .fix("use `https://`, `ssh://`, `git@host:path`, `file:///path` or an absolute path");
            }
            if let Some(rev) = rev
                && bad(rev)
            {
                let message = format!("`{}` is not a branch, tag or commit", shown(rev));
                out.error("SPEC-CODE", "code.ref", message);
            }
        }
        Code::Folder { dir, .. } => {
            if job.roles.iter().all(|role| role.command.is_empty()) {
                out.error("SPEC-CODE", "code.dir", "the image's own command does not use the job's folder")
                    .fix("set `command`, which runs in a copy of it");
            }
            if dir.is_empty() || dir.contains('\0') {
                out.error("SPEC-CODE", "code.dir", format!("`{}` is not a folder", shown(dir)))
                    .fix("write `.` for the folder of the job file");
            }
        }
    }
}

fn volumes(job: &JobSpec, out: &mut Findings) {
    let mut mounts: BTreeMap<&str, &str> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for volume in &job.volumes {
        let path = join("volumes", &volume.name);
        if !is_label(&volume.name) {
            out.error("SPEC-VOLUME", &path, format!("`{}` cannot be a volume's name", shown(&volume.name)))
                .fix("use lower-case letters, digits and `-`, a letter first");
        }
        if !names.insert(&volume.name) {
            out.error("SPEC-DUPLICATE", &path, format!("two volumes are named `{}`", shown(&volume.name)));
        }
        let mount = volume.mount.trim_end_matches('/');
        if !volume.mount.starts_with('/') || volume.mount.contains([':', '\0']) {
            let message = format!("`{}` is not an absolute path", shown(&volume.mount));
            out.error("SPEC-PATH", &join(&path, "mount"), message);
        } else if mount.is_empty() {
            out.error("SPEC-PATH", &join(&path, "mount"), "a volume over `/` would hide the image");
        } else if let Some(other) = mounts.insert(mount, &volume.name) {
            let message = format!("`{mount}` is where `{other}` is mounted already");
            out.error("SPEC-DUPLICATE", &join(&path, "mount"), message);
        }
        if mount == "/dev/shm" && job.roles.iter().any(|role| role.shm.is_some()) {
            out.error("SPEC-DUPLICATE", &join(&path, "mount"), "`shm` is mounted at /dev/shm already")
                .fix("remove one");
        }
        source(&volume.source, &path, out);
    }
}

fn source(source: &VolumeSource, path: &str, out: &mut Findings) {
    match source {
        VolumeSource::HostPath(host) if host.is_empty() => {
            out.error("SPEC-VOLUME", path, "a volume has exactly one of `host_path`, `claim` and `memory`")
                .fix("set one");
        }
        VolumeSource::HostPath(host) if !host.starts_with('/') => {
            let message = format!("`{}` is not an absolute path", shown(host));
            out.error("SPEC-PATH", &join(path, "host_path"), message);
        }
        VolumeSource::HostPath(host) if host.split('/').any(|part| part == "..") => {
            out.error("SPEC-PATH", &join(path, "host_path"), "Kubernetes refuses `..` in a host path");
        }
        VolumeSource::Claim(claim) if !is_subdomain(claim) => {
            let message = format!("`{}` is not the name of a claim", shown(claim));
            out.error("SPEC-VOLUME", &join(path, "claim"), message);
        }
        _ => {}
    }
}
