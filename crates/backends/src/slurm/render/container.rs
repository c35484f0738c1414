//! Containers: pyxis (`srun --container-image`), or the commands `enroot`, `docker` and `apptainer` around the program.

use weftrun_core::spec::{Role, Volume, VolumeSource};
use weftrun_core::{Error, ErrorKind, Result};

use super::{RenderInput, tasks};
use crate::remote::ops::Mount;
use crate::remote::script;
use crate::slurm::config::Container;
use crate::slurm::{BACKEND, quote};

/// The variables that the script sets for every task in addition to the job's own.
const OWN: [&str; 5] = ["PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NNODES"];

/// The variables that identify a task; pyxis and apptainer pass them on, enroot and docker only the named
/// ones.
const TASK: [&str; 4] = ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID"];
/// The folder of the job's code, as a variable of the script's shell.
const SOURCE: &str = "\"$weftrun_source\"";

/// Returns the script's own folders that the container sees at their paths, as the shell writes them without quotes.
fn own_folders(draft: &RenderInput<'_>) -> impl Iterator<Item = &'static str> {
    let code = draft.job.spec.code.is_some().then_some("$weftrun_source");
    code.into_iter().chain(script::brings_library(draft.job).then_some("$weftrun_base.nccl"))
}

/// Returns srun's options for the container, and the program as it is started in it.
pub fn wrap(
    draft: &RenderInput<'_>,
    index: usize,
    role: &Role,
    program: &str,
) -> Result<(Vec<String>, String)> {
    let Some(kind) = draft.container_of(role) else {
        script::refuse_mounts(&draft.job.spec, "nodes", no_claims)?;
        return Ok((workdir_of_srun(draft)?, program.to_owned()));
    };
    let image = script::image(&draft.job.spec, role)?.unwrap_or_default();
    let mounts = script::mounts(&draft.job.spec, draft.fabric.get(index), no_claims)?;
    let around = match kind {
        Container::Pyxis | Container::None => {
            return Ok((pyxis(draft, index, role, image, &mounts)?, program.to_owned()));
        }
        Container::Enroot => enroot(draft, index, role, image, &mounts)? + &change_dir(draft)?,
        Container::Docker => docker(draft, index, role, image, &mounts)?,
        Container::Apptainer => apptainer("apptainer", draft, image, &mounts)?,
        Container::Singularity => apptainer("singularity", draft, image, &mounts)?,
    };
    Ok((Vec::new(), format!("{around} {program}")))
}

fn workdir_of_srun(draft: &RenderInput<'_>) -> Result<Vec<String>> {
    Ok(workdir(draft)?.map(|dir| format!("--chdir={dir}")).into_iter().collect())
}

/// Returns the working directory in the container, as a word of the script; none if the image decides.
pub fn workdir(draft: &RenderInput<'_>) -> Result<Option<String>> {
    if let Some(dir) = draft.job.spec.workdir_in_code() {
        return Ok(Some(format!("{SOURCE}/{}", quote::word(dir)?)));
    }
    match &draft.job.spec.workdir {
        // Without a container, it is the working directory of the whole job.
        Some(_) if draft.chdir().is_some() => Ok(None),
        Some(dir) => quote::word(dir).map(Some),
        None => Ok(draft.job.spec.code.is_some().then(|| SOURCE.to_owned())),
    }
}

fn task_variables(draft: &RenderInput<'_>) -> Vec<String> {
    let array = draft.own.array.is_some().then_some("SLURM_ARRAY_TASK_ID");
    TASK.into_iter().chain(array).map(str::to_owned).collect()
}

/// Returns a `cd`, since enroot has no option for the working directory.
fn change_dir(draft: &RenderInput<'_>) -> Result<String> {
    let change = |dir: String| format!(" sh -c 'cd \"$1\" && shift && exec \"$@\"' cd {dir}");
    Ok(workdir(draft)?.map(change).unwrap_or_default())
}

/// Returns every variable the script sets.
fn variables(draft: &RenderInput<'_>, index: usize, role: &Role) -> Result<Vec<String>> {
    let tasks = tasks::variables(&draft.job.spec);
    let own: Vec<&str> = OWN.into_iter().chain(tasks.iter().map(String::as_str)).collect();
    script::variables(&draft.job.spec, role, draft.fabric.get(index), &own)
}

/// Returns the error of a volume that is no folder.
fn no_claims(volume: &Volume) -> Error {
    let VolumeSource::Claim(claim) = &volume.source else {
        return Error::unsupported(BACKEND, "volumes of this kind").with("volume", &volume.name);
    };
    let message = format!("volume `{}` is a PersistentVolumeClaim, which Slurm does not have", volume.name);
    Error::new(ErrorKind::InvalidSpec, message)
        .with("claim", claim)
        .hint("name a folder of the shared file system instead")
}

/// Returns a mount as pyxis, docker and apptainer write it.
fn bind((from, to, read_only): &Mount) -> Result<String> {
    quote::word(&format!("{from}:{to}{}", if *read_only { ":ro" } else { "" }))
}

fn pyxis(
    draft: &RenderInput<'_>,
    index: usize,
    role: &Role,
    image: &str,
    mounts: &[Mount],
) -> Result<Vec<String>> {
    let mut words = vec![format!("--container-image={}", quote::word(&enroot_image(image))?)];
    let mut list = mounts.iter().map(bind).collect::<Result<Vec<String>>>()?;
    list.extend(own_folders(draft).map(|folder| format!("\"{folder}:{folder}\"")));
    if !list.is_empty() {
        words.push(format!("--container-mounts={}", list.join(",")));
    }
    words.extend(workdir(draft)?.map(|dir| format!("--container-workdir={dir}")));
    words.push(
        (if draft.own.mount_home { "--container-mount-home" } else { "--no-container-mount-home" })
            .to_owned(),
    );
    words.push(format!("--container-env={}", variables(draft, index, role)?.join(",")));
    Ok(words)
}

/// Returns whether an image is a file: pyxis treats `/…` and `./…` as one.
fn is_path(image: &str) -> bool {
    image.starts_with('/') || image.starts_with("./") || image.starts_with("../")
}

/// Returns the image as enroot writes it, with `#` after the registry: `nvcr.io#nvidia/pytorch:25.09-py3`. A
/// path, or a name of Docker Hub, is unchanged.
fn enroot_image(image: &str) -> String {
    let image = image.strip_prefix("docker://").unwrap_or(image);
    match image.split_once('/') {
        Some((registry, rest))
            if !is_path(image)
                && !image.contains('#')
                && (registry.contains(['.', ':']) || registry == "localhost") =>
        {
            format!("{registry}#{rest}")
        }
        _ => image.to_owned(),
    }
}

fn enroot(
    draft: &RenderInput<'_>,
    index: usize,
    role: &Role,
    image: &str,
    mounts: &[Mount],
) -> Result<String> {
    if !is_path(image) {
        return Err(Error::new(
            ErrorKind::InvalidSpec,
            "with `container = \"enroot\"` the image is a squashfs file on the shared file system",
        )
        .with("image", image)
        .hint(format!(
            "make it once with `enroot import -o image.sqsh docker://{}`, or use pyxis",
            enroot_image(image)
        )));
    }
    let mut words = vec!["enroot start --rw".to_owned()];
    for (from, to, read_only) in mounts {
        let flags = if *read_only { ",ro" } else { "" };
        words
            .push(format!("--mount {}", quote::word(&format!("{from}:{to}:none:x-create=dir,bind{flags}"))?));
    }
    let own = |folder| format!("--mount \"{folder}:{folder}:none:x-create=dir,bind\"");
    words.extend(own_folders(draft).map(own));
    words.extend(
        variables(draft, index, role)?
            .iter()
            .chain(&task_variables(draft))
            .map(|name| format!("--env {name}")),
    );
    words.push(quote::word(image)?);
    Ok(words.join(" "))
}

fn docker(
    draft: &RenderInput<'_>,
    index: usize,
    role: &Role,
    image: &str,
    mounts: &[Mount],
) -> Result<String> {
    let mut words = vec![
        "docker run --rm --gpus all --network host --ipc host --ulimit memlock=-1 --ulimit stack=67108864"
            .to_owned(),
    ];
    if draft.uses_rdma() {
        // The device nodes of EFA and InfiniBand; docker has no device plugins.
        words.push("--device /dev/infiniband".to_owned());
    }
    for mount in mounts {
        words.push(format!("-v {}", bind(mount)?));
    }
    words.extend(own_folders(draft).map(|folder| format!("-v \"{folder}:{folder}\"")));
    words.extend(workdir(draft)?.map(|dir| format!("-w {dir}")));
    words.extend(
        variables(draft, index, role)?.iter().chain(&task_variables(draft)).map(|name| format!("-e {name}")),
    );
    words.push(quote::word(image)?);
    Ok(words.join(" "))
}

fn apptainer(program: &str, draft: &RenderInput<'_>, image: &str, mounts: &[Mount]) -> Result<String> {
    let mut words = vec![format!("{program} exec --nv")];
    for mount in mounts {
        words.push(format!("--bind {}", bind(mount)?));
    }
    words.extend(own_folders(draft).map(|folder| format!("--bind \"{folder}:{folder}\"")));
    words.extend(workdir(draft)?.map(|dir| format!("--pwd {dir}")));
    let image =
        if is_path(image) || image.contains("://") { image.to_owned() } else { format!("docker://{image}") };
    words.push(quote::word(&image)?);
    Ok(words.join(" "))
}
