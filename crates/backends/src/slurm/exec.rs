//! `exec`: a step of one task in the job's allocation, by `srun --overlap`.

use tokio::process::Command;
use weftrun_core::backend::{ExecRequest, ExecSink};
use weftrun_core::job::{JobHandle, JobPhase};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::Client;
use super::ids::JobId;
use super::logs::Header;
use super::lookup;
use super::records::Job;
use super::{BACKEND, nodelist, quote};
use crate::refusals::no_rank;

/// Runs a command on the node of a rank, or on the first node of the job.
pub async fn exec(
    client: &Client,
    handle: &JobHandle,
    request: &ExecRequest,
    sink: &mut ExecSink<'_>,
) -> Result<i32> {
    let step = locate(client, handle, request).await?;
    client.transport.relay(&step.watched()?, sink).await
}

/// Returns the command that does so with the caller's input and output.
pub async fn interactive(client: &Client, handle: &JobHandle, request: &ExecRequest) -> Result<Command> {
    let step = locate(client, handle, request).await?;
    let pty = if request.terminal { " --pty" } else { "" };
    client.transport.interactive(&format!("exec {}", step.line(pty)?), request.terminal).await
}

/// Finds where the command of a request runs.
async fn locate(client: &Client, handle: &JobHandle, request: &ExecRequest) -> Result<Step> {
    client.forget_snapshot().await;
    let (id, found) = lookup::must_find(client, handle).await?;
    if client.access.is_rest() {
        return Err(Error::unsupported(BACKEND, "exec").hint(format!(
            "slurmrestd starts no steps: run `srun --jobid={id} --overlap --pty COMMAND` on the cluster, or set `ssh` in the target"
        )));
    }
    let runs = |job: &&Job| job.phase() == JobPhase::Running;
    let mut running: Vec<&Job> = found.rows.iter().filter(runs).collect();
    running.sort_by_key(|job| (job.task, job.component));
    let Some(first) = running.first() else {
        return Err(Error::new(
            ErrorKind::Refused,
            format!("job {id} is {} and runs nothing", found.phase()),
        )
        .hint("a command can be run in a job from its start to its end"));
    };
    if running.iter().any(|job| job.task != first.task) {
        return Err(Error::new(ErrorKind::Usage, format!("several tasks of array {id} are running"))
            .hint(format!("name one of them: `{handle}_{}`", first.task.unwrap_or_default())));
    }
    let place = match request.rank {
        None => TaskLocation {
            component: first.component,
            node: nodelist::expand(&first.nodes).into_iter().next(),
        },
        Some(rank) => {
            let header = header(client, &id).await?.ok_or_else(|| {
                Error::new(ErrorKind::Usage, format!("where the ranks of job {id} run is not known"))
                    .hint("leave `--rank` out: the command runs on the job's first node")
            })?;
            place_of(rank, &header, &running)?
        }
    };
    let command = match request.rank {
        Some(rank) => with_environment(rank, &request.command),
        None => request.command.clone(),
    };
    let id = JobId { task: first.task, ..id };
    let options = format!("{} --jobid={id} --overlap --mpi=none -N1 -n1", client.cluster()?);
    Ok(Step { options, place, command })
}

/// Runs a command with the environment of a rank's process on its node: of the step itself, `RANK` and what the job's script
/// set are missing. Where the rank has no process, the command runs without.
fn with_environment(rank: u32, command: &[String]) -> Vec<String> {
    const FIND: &str = r#"rank=$1 job=$SLURM_JOB_ID; shift
for file in /proc/[0-9]*/environ; do
  { mapfile -d '' -t all < "$file"; } 2> /dev/null || continue
  own= here=
  for one in "${all[@]}"; do
    case $one in "RANK=$rank") own=1 ;; "SLURM_JOB_ID=$job") here=1 ;; WEFTRUN_EXEC=*) own= here=; break ;; esac
  done
  [ -z "$own" ] || [ -z "$here" ] || exec env -i "${all[@]}" WEFTRUN_EXEC=1 "$@"
done
exec "$@""#;
    let words = ["bash", "-c", FIND, "exec"].into_iter().map(str::to_owned);
    words.chain([rank.to_string()]).chain(command.iter().cloned()).collect()
}

/// Where a command runs.
#[derive(Debug, PartialEq, Eq)]
struct TaskLocation {
    component: Option<u32>,
    node: Option<String>,
}

/// Returns the header that the job's script wrote at the beginning of its log.
async fn header(client: &Client, id: &JobId) -> Result<Option<Header>> {
    let program = format!(
        "{}for f in \"$dir\"/*-{id}-????????.log \"$dir\"/*-{id}_*-????????.log; do\n\
         [ -f \"$f\" ] && grep -a -m 1 '^#weftrun log=1 ' -- \"$f\" && break\ndone\n:\n",
        client.enter_log_dir()?
    );
    let answer = client.transport.read(&program).await?;
    Ok(answer.stdout.split(|byte| *byte == b'\n').find_map(Header::parse))
}

/// Returns the node of a rank: Slurm fills the nodes of a component in order, each with the same number of
/// tasks.
fn place_of(rank: u32, header: &Header, components: &[&Job]) -> Result<TaskLocation> {
    let nodes: Vec<Vec<String>> = components.iter().map(|job| nodelist::expand(&job.nodes)).collect();
    let count = |nodes: &[String]| u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let counts: Vec<u32> = nodes.iter().map(|nodes| count(nodes)).collect();
    let Some(ranks) = header.ranks_of(&counts) else {
        return Err(Error::new(
            ErrorKind::Usage,
            "the ranks of this job are not the same number on each node",
        )
        .hint("leave `--rank` out: the command runs on the job's first node"));
    };
    let mut first = 0_u32;
    for ((job, nodes), ranks) in components.iter().zip(nodes).zip(ranks) {
        let each = ranks.checked_div(count(&nodes)).filter(|each| *each > 0).unwrap_or(1);
        if rank.saturating_sub(first) < ranks {
            let index = usize::try_from(rank.saturating_sub(first) / each).unwrap_or(usize::MAX);
            return Ok(TaskLocation { component: job.component, node: nodes.into_iter().nth(index) });
        }
        first = first.saturating_add(ranks);
    }
    Err(no_rank(ErrorKind::NotFound, rank, first))
}

/// A step of one task.
struct Step {
    /// The options of `srun` that name the job.
    options: String,
    place: TaskLocation,
    command: Vec<String>,
}

impl Step {
    /// Returns the line that runs it.
    fn line(&self, further: &str) -> Result<String> {
        let mut line = format!("srun{}{further}", self.options);
        if let Some(component) = self.place.component {
            line.push_str(&format!(" --het-group={component}"));
        }
        if let Some(node) = &self.place.node {
            line.push_str(&format!(" -w {}", quote::word(node)?));
        }
        Ok(format!("{line} -- {}", quote::words(&self.command)?))
    }

    /// Returns the program that runs it. It ends when the caller is gone, which closes descriptor 3.
    fn watched(&self) -> Result<String> {
        Ok(format!(
            "{} 3<&- &\nweftrun_step=$!\n\
             {{ cat <&3; kill $weftrun_step; }} > /dev/null 2>&1 &\nweftrun_watch=$!\nexec 3<&-\n\
             wait $weftrun_step\nweftrun_code=$?\nkill $weftrun_watch\nexit $weftrun_code\n",
            self.line("")?
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(component: Option<u32>, nodes: &str) -> Job {
        Job { component, nodes: nodes.to_owned(), ..Job::default() }
    }

    fn place(rank: u32, header: &str, jobs: &[Job]) -> Result<(Option<u32>, String)> {
        let header = Header::parse(header.as_bytes()).unwrap();
        let jobs: Vec<&Job> = jobs.iter().collect();
        place_of(rank, &header, &jobs).map(|place| (place.component, place.node.unwrap_or_default()))
    }

    #[test]
    fn a_command_gets_the_environment_of_its_rank() {
        use weftrun_testkit::child;
        let job = format!("exec-{}", std::process::id());
        let rank = |rank: &str, mark: &str| {
            let mut process = child::command("sleep");
            process.args(["30"]).env("SLURM_JOB_ID", &job).env("RANK", rank).env("MARK", mark);
            process.spawn().unwrap()
        };
        let mut ranks = [rank("0", "zero"), rank("1", "one\ntwo")];
        let run = |rank| {
            let words = with_environment(rank, &["sh".into(), "-c".into(), "echo \"$MARK.\"".into()]);
            let mut command = child::command(&words[0]);
            let output = command.args(&words[1..]).env("SLURM_JOB_ID", &job).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        // The process of a rank that was just started may not have its own environment yet.
        let said = [1, 2].map(|rank| (0..50).map(|_| run(rank)).find(|said| rank == 2 || said != ".\n"));
        for rank in &mut ranks {
            rank.kill().unwrap();
            rank.wait().unwrap();
        }
        assert_eq!(said, [Some("one\ntwo.\n".to_owned()), Some(".\n".to_owned())]);
    }

    #[test]
    fn a_rank_is_on_the_node_that_slurm_gave_it() {
        let jobs = [job(None, "gpu-[1-2]")];
        for header in [
            "#weftrun log=1 attempt=0 labels=rank tasks=worker:8 ranks=8",
            "#weftrun log=1 attempt=0 labels=node tasks=worker:2 ranks=8",
            "#weftrun log=1 attempt=0 labels=none tasks=worker:8 ranks=8",
        ] {
            for (rank, node) in [(0, "gpu-1"), (3, "gpu-1"), (4, "gpu-2"), (7, "gpu-2")] {
                assert_eq!(place(rank, header, &jobs).unwrap(), (None, node.to_owned()), "{header}");
            }
            let beyond = place(8, header, &jobs).unwrap_err();
            assert_eq!(beyond.kind(), ErrorKind::NotFound, "{header}");
        }
    }

    #[test]
    fn the_components_of_a_heterogeneous_job_follow_each_other() {
        let header = "#weftrun log=1 attempt=0 labels=rank tasks=head:2,worker:8 ranks=10";
        let jobs = [job(Some(0), "cpu-1"), job(Some(1), "gpu-[1-2]")];
        for (rank, at, node) in [(1, 0, "cpu-1"), (2, 1, "gpu-1"), (5, 1, "gpu-1"), (6, 1, "gpu-2")] {
            assert_eq!(place(rank, header, &jobs).unwrap(), (Some(at), node.to_owned()));
        }
        assert_eq!(place(10, header, &jobs).unwrap_err().kind(), ErrorKind::NotFound);
        let nodes = "#weftrun log=1 attempt=0 labels=node tasks=head:1,worker:2 ranks=10";
        assert_eq!(place(3, nodes, &jobs).unwrap_err().kind(), ErrorKind::Usage);
    }
}
