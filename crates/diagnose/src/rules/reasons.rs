//! What to do where one prefix stands before many reasons: the words behind it decide.

/// What to do for the reasons that Slurm prints behind `srun: error: Unable to allocate resources: ` and its like: any of some words
/// of src/common/slurm_errno.c, read 2026-11-26.
const REFUSALS: &[(&[&str], &str)] = &[
    (
        &[
            "Unable to contact slurm controller",
            "Socket timed out",
            "Zero Bytes were transmitted",
            "backup controller in standby",
        ],
        NO_CONTROLLER,
    ),
    (&["partition specified", "partition name"], "name a partition that exists (`sinfo -s` lists them)"),
    (
        &["inactive or drain"],
        "the partition takes no jobs now: name another one (`sinfo -s`), or ask your cluster administrator when it is up again",
    ),
    (
        &["reservation"],
        "name a reservation that is active and admits you (`scontrol show reservation`), or none",
    ),
    (
        &["(gres)", "(TRES)"],
        "ask for GPUs by the name that the nodes have for them (`sinfo -o '%P %G'` lists it for each partition)",
    ),
    (
        &["feature specification"],
        "correct `--constraint`: `sinfo -o '%P %f'` lists the features of the nodes",
    ),
    (&["node name"], "correct the names of `--nodelist` and `--exclude` (`sinfo -N` lists the nodes)"),
    (&["time limit"], "give a `--time` that the partition allows (`scontrol show partition`, MaxTime)"),
    (
        &["ependency"],
        "correct `--dependency`: the job that it names is not known, or ended in another way than it asks for",
    ),
    (&["license"], "correct `--licenses` (`scontrol show licenses` lists them)"),
    (
        &["Incompatible versions"],
        "use the commands of the controller's release of Slurm: in a container those of the host",
    ),
    (
        &["Invalid job id", "already complet", "been revoked"],
        "the allocation that the command means is over: submit the job again; outside of a job unset SLURM_JOB_ID",
    ),
    (
        &["job credential"],
        "ask your cluster administrator: the controller could not sign the step (its log, munge)",
    ),
    (
        &["nodes are busy"],
        "other steps or jobs hold what it asks for: end them or wait; steps of one job share its resources with `--overlap`",
    ),
    (
        &[
            "CPU count",
            "rocessors requested",
            "node configuration",
            "ode count",
            "Memory required",
            "partition configuration",
            "Memory specification",
        ],
        "make what the command asks for (nodes, tasks, CPUs, memory, --gres) fit into the partition, or for srun into the allocation of the job",
    ),
];

/// What to do where Slurm's controller does not answer.
pub(super) const NO_CONTROLLER: &str = "Slurm's controller (slurmctld) did not answer, so that nothing was started: try again, and if it stays so ask your cluster administrator (`scontrol ping`, `sdiag`); in a container or on another host check that its host and port can be reached";

/// Returns what to do about a job or a step that Slurm did not take.
pub(super) fn refusal(text: &str) -> Option<String> {
    let known = REFUSALS.iter().find(|(words, _)| words.iter().any(|words| text.contains(words)));
    known.map(|(_, fix)| (*fix).to_owned())
}

/// Returns what to do where a name that ssh could not resolve ends with a number of slots: `localhost:4`.
pub(super) fn name_with_slots(text: &str) -> Option<String> {
    let name = text.split_once("Could not resolve hostname ")?.1.split([' ', '\t']).next()?;
    let name = name.strip_suffix(':').unwrap_or(name);
    let (host, slots) = name.rsplit_once(':')?;
    let is_number = !slots.is_empty() && slots.len() <= 4 && slots.bytes().all(|byte| byte.is_ascii_digit());
    // An address of IPv6 has more colons.
    (is_number && !host.is_empty() && !host.contains(':')).then(|| {
        format!(
            "the launcher took `{name}` for the name of a host: write the number of slots as this launcher reads it (a hostfile with `HOST slots=N`), or put the launcher that reads `HOST:N` first on PATH"
        )
    })
}

/// Returns what to do where the end of a login session ended a launcher.
pub(super) fn hung_up(text: &str) -> Option<String> {
    text.contains("SIGHUP").then(|| {
        "start it so that it outlives the login: in tmux or screen, with `setsid`, or as a job of a scheduler (`nohup` does not help torchrun, which handles SIGHUP by itself)".to_owned()
    })
}

/// Says how many processes are missing at the barrier of a store: `(world_size=4, worker_count=1, `.
pub(super) fn absent_from_barrier(text: &str) -> Option<String> {
    let (came, world) = super::barrier_counts(text)?;
    let missing = world.checked_sub(came).filter(|missing| *missing > 0)?;
    Some(format!(
        "only {came} of {world} processes came: read the logs of the other {missing}: they ended before, were not started, do not reach MASTER_ADDR, or still do something else (load data: then call init_process_group first, or raise its timeout)"
    ))
}
