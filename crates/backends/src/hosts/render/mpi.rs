//! `launch = "mpi"`: `mpirun` on the first host, over `ssh` to the others. Each rank writes a log of its own on its host.

use std::fmt::Write as _;

use weftrun_core::shell;
use weftrun_core::spec::Role;
use weftrun_core::{Error, ErrorKind, Result};

use super::Renderer;
use crate::remote::quote;

/// Writes the functions of the launcher and of a rank.
pub fn write(renderer: &Renderer<'_>, text: &mut String) -> Result<()> {
    let Some(first) = renderer.workers.first() else { return Ok(()) };
    let translated = renderer.fabric.first().and_then(|fabric| fabric.mpirun.clone());
    let (path, forward) = translated.unwrap_or_else(|| ("mpirun".to_owned(), Vec::new()));
    let _ = write!(
        text,
        "# mpirun, on the first host. `hosts` and `rsh` beside this file name the others.\nweftrun_process() {{\n{}",
        settings(renderer)
    );
    if let Some(own) = own_mpirun(renderer, first, &path, &forward)? {
        let words = quote::words(&own)?;
        let _ = write!(text, "{}exec {words}\n}}\n", renderer.change_folder()?);
        return Ok(());
    }
    let mut options = String::new();
    for name in &forward {
        let _ = write!(options, " -x {}", shell::variable(name)?);
    }
    let more = quote::words(&renderer.own.mpirun)?;
    if !more.is_empty() {
        let _ = write!(options, " {more}");
    }
    // Open MPI binds a rank to a core or a socket by default; a training rank has many threads. An option of the user's wins over these.
    text.push_str(
        "export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none\n",
    );
    // The path of the job's folder is another on each host.
    let folder = renderer.settings.folder();
    let base = if folder.starts_with('/') { folder.to_owned() } else { format!("$HOME/{folder}") };
    let _ = write!(
        text,
        "exec {}{options} -np \"$WORLD_SIZE\" /bin/sh -c 'exec /bin/sh \"{base}/hosts/$(uname -n)/jobs/{}/rank\"'\n}}\n\n",
        quote::word(&path)?,
        renderer.job.submission
    );
    renderer.function(text, "weftrun_rank", "# One rank, on its own host.\n", |index, role: &Role| {
        let mut words = String::new();
        let wrap = renderer.fabric.get(index).map(|fabric| fabric.wrap.clone()).unwrap_or_default();
        for word in wrap.iter().chain(&renderer.own_command(index, role)?) {
            let _ = write!(words, " {}", quote::word(word)?);
        }
        renderer.run(index, role, &words)
    })
}

/// Returns the user's own `mpirun`, if the command calls one. It finds the hosts in its environment, its ranks write to its output, and they
/// have no variables but those that it forwards.
fn own_mpirun(
    renderer: &Renderer<'_>,
    role: &Role,
    path: &str,
    forward: &[String],
) -> Result<Option<Vec<String>>> {
    let spec = renderer.spec();
    let own = spec.env.iter().chain(&role.env).map(|var| &var.name);
    let mut all = forward.to_vec();
    for name in own.chain(spec.secrets.iter().map(|secret| &secret.env)) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    let Some(words) = shell::complete_mpirun(&renderer.own_command(0, role)?, path, &all) else {
        return Ok(None);
    };
    if super::container_of(renderer.job, &renderer.own, role).is_none() {
        return Ok(Some(words));
    }
    let message = "the command calls mpirun itself, so its ranks would not run in the image";
    Err(Error::new(ErrorKind::InvalidSpec, message)
        .hint("write the command of one rank (`python3 train.py`), and put options of mpirun into `mpirun` of `[backend.hosts]`")
        .hint("`container = \"none\"` in `[backend.hosts]` runs the command on the hosts, without the image"))
}

/// Returns the settings of Open MPI (4 and 5) and MPICH, as environment so that they hold for the user's own `mpirun` too.
fn settings(renderer: &Renderer<'_>) -> String {
    let mut text = String::from(
        "export OMPI_MCA_orte_default_hostfile=\"$PWD/hosts\" PRTE_MCA_prte_default_hostfile=\"$PWD/hosts\" HYDRA_HOST_FILE=\"$PWD/hosts\"\n\
         export OMPI_MCA_plm_rsh_agent=\"ssh -x -F $PWD/ssh_config\" PRTE_MCA_plm_ssh_agent=\"ssh -x -F $PWD/ssh_config\" HYDRA_LAUNCHER_EXEC=\"$PWD/rsh\"\n\
         # The first host alone has the way to the others.\n\
         export OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1\n\
         export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n",
    );
    if let Some(interface) = &renderer.own.interface {
        let _ = writeln!(
            text,
            "export OMPI_MCA_btl_tcp_if_include={interface} OMPI_MCA_oob_tcp_if_include={interface} PRTE_MCA_prte_if_include={interface}"
        );
    }
    text
}
