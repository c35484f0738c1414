//! The parts of a job that every script on another host has alike.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use weftrun_core::backend::PlannedJob;
use weftrun_core::fabric::PROFILER_PATH;
use weftrun_core::shell::variable;
use weftrun_core::spec::{Code, EnvVar, JobSpec, Role, RoleKind, SecretRef, Volume, VolumeSource, git};
use weftrun_core::{Error, ErrorKind, Result};

use super::ops::{Mount, Translated};
use super::quote;

/// The name of the archive of a job's folder.
pub const ARCHIVE: &str = "code.tar.gz";

/// Returns the lines that bring a job's code into `folder`, a word of the shell. `failed` is what ends the script where that
/// fails, and `archive` the file with a folder's files, a word of the shell.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a file name with a folder, and for an option in the place of a revision.
pub fn code(backend: &str, code: &Code, folder: &str, archive: &str, failed: &str) -> Result<String> {
    let not_fetched = |what: &str| {
        // A line that `weftrun why` knows, below git's own.
        let said = quote::word(&format!("weftrun: error: the code was not fetched: {what}"))?;
        Ok::<_, Error>(format!(" || {{ echo {said} >&2; {failed}; }}"))
    };
    match code {
        Code::Script { name, text } => {
            if name.is_empty()
                || name.contains('/')
                || name.starts_with(['-', '.'])
                || name.chars().any(char::is_control)
            {
                return Err(Error::new(ErrorKind::InvalidSpec, "the code's file name may hold no folder")
                    .with("name", name.escape_debug()));
            }
            quote::feed(&format!("cat > {folder}/{}", quote::word(name)?), text)
        }
        Code::Git { url, rev } => {
            let protocols = git::protocols(url);
            let checkout = match rev {
                Some(rev) if rev.starts_with('-') => {
                    return Err(Error::new(ErrorKind::InvalidSpec, "not a Git revision")
                        .with("rev", rev.escape_debug()));
                }
                Some(rev) => {
                    format!(
                        "GIT_ALLOW_PROTOCOL={protocols} git -C {folder} checkout --quiet {} --{}\n",
                        quote::word(rev)?,
                        not_fetched(&format!("revision {rev}"))?
                    )
                }
                None => String::new(),
            };
            // The address may hold a token.
            let lost = not_fetched("see git's message above")?;
            let url = quote::word(url)?;
            Ok(format!(
                "[ -d {folder}/.git ] || GIT_ALLOW_PROTOCOL={protocols} GIT_TERMINAL_PROMPT=0 \
                 $(command -v timeout > /dev/null && echo timeout {}) git clone --quiet -- {url} {folder}{lost}\n{checkout}",
                git::CLONE_LIMIT
            ))
        }
        Code::Folder { content: Some(content), .. } => {
            let absent = not_fetched(
                "`weftrun submit` sends the folder beside the script, for 30 days: submit the job (again)",
            )?;
            let damaged = not_fetched("the archive has other files than the job was submitted with")?;
            let unpacked = not_fetched("see tar's message above")?;
            // The mark is a second older than the archive's files (`CODE_FILE_TIME`).
            Ok(format!(
                "# {}\nif [ ! -f {folder}.whole ]; then\n  [ -f {archive} ]{absent}\n  \
                 [ \"$(gzip -dc {archive} | sha256sum)\" = {} ]{damaged}\n  \
                 tar -xzf {archive} -C {folder}{unpacked}\n  TZ=UTC0 touch -t 198001010000.36 {folder}.whole\nfi\n",
                content.line(),
                quote::word(&format!("{}  -", content.hash))?
            ))
        }
        _ => Err(Error::unsupported(backend, "code of this kind")),
    }
}

/// The file of weftrun's library for NCCL in its folder.
pub const LIBRARY: &str = "libweftrun-nccl.so";

/// Returns whether a job brings weftrun's library for NCCL.
pub fn brings_library(job: &PlannedJob) -> bool {
    job.plan.ops.iter().any(|op| op.change.needs_library())
}

/// Returns the lines that write weftrun's library for NCCL into `folder`, a word of the shell, if the job brings it. They end
/// nothing: NCCL runs without it.
///
/// # Errors
/// Those of [`quote::feed`].
pub fn library(job: &PlannedJob, folder: &str) -> Result<String> {
    if !brings_library(job) {
        return Ok(String::new());
    }
    // Other users may write to the folder above: a link of theirs is not followed.
    let mut text = format!(
        "# weftrun's library for NCCL's profiler interface.\n\
         mkdir -p -- {folder} && [ ! -L {folder} ] && [ -O {folder} ] && case $(uname -m) in\n"
    );
    for machine in weftrun_profiler::machines() {
        let encoded = STANDARD.encode(weftrun_profiler::library(machine).unwrap_or_default());
        let lines =
            encoded.as_bytes().chunks(1024).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n");
        let fed = quote::feed(&format!("base64 -d > {folder}/{LIBRARY}"), &format!("{lines}\n"))?;
        text.push_str(&format!("{machine})\n{fed};;\n"));
    }
    Ok(text
        + "*) echo \"weftrun: there is no NCCL profiler library for $(uname -m)\" >&2 ;;\nesac || \
           echo 'weftrun: the NCCL profiler library cannot be written; the job runs without it' >&2\n")
}

/// Returns the value of a variable as a word of the shell; the library's path is in `folder`, a word of the shell.
///
/// # Errors
/// Those of [`quote::value`].
pub fn value(value: &str, folder: &str) -> Result<String> {
    if value == PROFILER_PATH { Ok(format!("{folder}/{LIBRARY}")) } else { quote::value(value) }
}

/// Returns the path of a secret below the folder of secrets, as a word of the shell.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for one that leaves that folder.
pub fn secret(secret: &SecretRef) -> Result<String> {
    if secret.secret.contains("..") || secret.key.contains("..") {
        return Err(Error::new(ErrorKind::InvalidSpec, "a secret's name may not hold `..`")
            .with("secret", &secret.secret));
    }
    quote::word(&format!("{}/{}", secret.secret, secret.key))
}

/// Returns the roles of a job that have ranks.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] if there is none.
pub fn workers(spec: &JobSpec) -> Result<Vec<&Role>> {
    let workers: Vec<&Role> = spec.workers().filter(|role| role.nodes > 0).collect();
    if workers.is_empty() {
        let message = format!("job `{}` has no worker role: nothing would run", spec.name);
        return Err(Error::new(ErrorKind::InvalidSpec, message));
    }
    Ok(workers)
}

/// Returns the user's command: the one `rewritten` by a rule, else the launcher's if it `leads` or the role has none.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] if there is none.
pub fn command(
    spec: &JobSpec,
    role: &Role,
    leads: bool,
    rewritten: Option<&Vec<String>>,
) -> Result<Vec<String>> {
    let launcher = spec.roles.iter().find(|role| role.kind == RoleKind::Launcher && !role.command.is_empty());
    let launcher = launcher.filter(|_| leads || role.command.is_empty());
    let command = rewritten.unwrap_or(&launcher.unwrap_or(role).command);
    if command.is_empty() {
        let message = format!("role `{}` has no command: there is nothing to run", role.name);
        return Err(Error::new(ErrorKind::InvalidSpec, message));
    }
    Ok(command.clone())
}

/// Returns the lines that export variables. Values are literal.
///
/// # Errors
/// Those of [`variable`] and of [`quote::value`].
pub fn exports<'a>(variables: impl IntoIterator<Item = &'a EnvVar>) -> Result<String> {
    let line = |var: &EnvVar| Ok(format!("export {}={}\n", variable(&var.name)?, quote::value(&var.value)?));
    variables.into_iter().map(line).collect()
}

/// Returns the lines of `setup`.
///
/// # Errors
/// Those of [`quote::line`].
pub fn setup<'a>(lines: impl IntoIterator<Item = &'a String>) -> Result<String> {
    lines.into_iter().map(|line| quote::line(line).map(|()| format!("{line}\n"))).collect()
}

/// Returns the image of a role; none if it has none.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for what is not the name of an image.
pub fn image<'a>(spec: &'a JobSpec, role: &'a Role) -> Result<Option<&'a str>> {
    let Some(image) = role.image.as_deref().or(spec.image.as_deref()) else { return Ok(None) };
    if image.is_empty()
        || image.starts_with('-')
        || image.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        return Err(Error::new(ErrorKind::InvalidSpec, "`image` is not the name of an image")
            .with("value", image.escape_debug()));
    }
    Ok(Some(image))
}

/// Returns the folders that the container of a role mounts. `refused` is the error of a volume that is no folder.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a path that no option of a container can hold, and those of `refused`.
pub fn mounts(
    spec: &JobSpec,
    fabric: Option<&Translated>,
    refused: impl Fn(&Volume) -> Error,
) -> Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for volume in &spec.volumes {
        match &volume.source {
            // The host's own /dev/shm is present, in containers too.
            VolumeSource::Memory { .. } => {}
            VolumeSource::HostPath(path) => {
                mounts.push((path.clone(), volume.mount.clone(), volume.read_only));
            }
            _ => return Err(refused(volume)),
        }
    }
    mounts.extend(fabric.into_iter().flat_map(|fabric| fabric.mounts.iter().cloned()));
    let odd = |path: &&String| path.contains([':', ',']) || path.chars().any(char::is_control);
    if let Some(path) = mounts.iter().flat_map(|(from, to, _)| [from, to]).find(odd) {
        let message = "a path with `:`, `,` or control characters cannot be mounted into a container";
        return Err(Error::new(ErrorKind::InvalidSpec, message).with("path", path.escape_debug()));
    }
    Ok(mounts)
}

/// Refuses volumes that cannot appear elsewhere without a container, on machines that are called `machines`.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`], and those of `refused`.
pub fn refuse_mounts(spec: &JobSpec, machines: &str, refused: impl Fn(&Volume) -> Error) -> Result<()> {
    for volume in &spec.volumes {
        match &volume.source {
            VolumeSource::Memory { .. } => {}
            VolumeSource::HostPath(path) if *path == volume.mount => {}
            VolumeSource::HostPath(path) => {
                let message = format!("volume `{}` cannot appear elsewhere without a container", volume.name);
                return Err(Error::new(ErrorKind::InvalidSpec, message)
                    .with("path", path)
                    .with("mount", &volume.mount)
                    .hint(format!("give the job an `image`, or use the path as it is on the {machines}")));
            }
            _ => return Err(refused(volume)),
        }
    }
    Ok(())
}

/// Returns the names of all variables that a container must be given, since its image would override the others:
/// the job's, the role's and the fabric's, and `own`. Each is safe without quotes.
///
/// # Errors
/// Those of [`variable`].
pub fn variables(
    spec: &JobSpec,
    role: &Role,
    fabric: Option<&Translated>,
    own: &[&str],
) -> Result<Vec<String>> {
    let jobs = spec.env.iter().chain(&role.env).map(|var| var.name.as_str());
    let secrets = spec.secrets.iter().map(|secret| secret.env.as_str());
    let fabric = fabric.into_iter().flat_map(|fabric| fabric.env.iter().map(|(name, ..)| name.as_str()));
    let mut names: Vec<String> = Vec::new();
    for name in jobs.chain(secrets).chain(fabric).chain(own.iter().copied()) {
        if !names.iter().any(|known| known == name) {
            names.push(variable(name)?.to_owned());
        }
    }
    Ok(names)
}
