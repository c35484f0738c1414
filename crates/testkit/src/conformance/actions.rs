//! Actions on a job; an unsupported one is an error that names the capability.

use std::time::Duration;

use weftrun_core::ErrorKind;
use weftrun_core::backend::{ExecRequest, ExecStream};
use weftrun_core::job::{Action, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::RestartPolicy;

use super::bench::{Bench, must, refuses, said};
use super::{Checked, Verdict};

const SLEEPER: &str = "echo weft-up; sleep 600";

/// A cancelled job ends, is reported as cancelled, and can be cancelled again without an error.
pub(super) async fn cancel_ends_it(bench: Bench<'_>) -> Checked {
    let job = bench.submit(SLEEPER).await?;
    job.until_written("weft-up", bench.world() as usize).await?;
    job.backend.act(&job.handle, Action::Cancel).await.map_err(said("cancel"))?;
    job.ends(JobPhase::Cancelled).await?;
    job.backend.act(&job.handle, Action::Cancel).await.map_err(said("cancel of a cancelled job"))?;
    job.done().await
}

/// A deleted job no longer exists.
pub(super) async fn delete_removes_it(bench: Bench<'_>) -> Checked {
    let job = bench.submit(SLEEPER).await?;
    if !job.backend.capability().delete {
        let backend = job.backend.clone();
        let handle = job.handle.clone();
        let verdict = refuses(job, Action::Delete, "delete").await?;
        backend.act(&handle, Action::Cancel).await.map_err(said("cancel"))?;
        return Ok(verdict);
    }
    job.backend.act(&job.handle, Action::Delete).await.map_err(said("delete"))?;
    loop {
        match job.backend.describe(&job.handle).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Verdict::Passed),
            Err(error) => return Err(format!("describe of a deleted job: {error}")),
            Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// A suspended job is reported as suspended, and continues after a resume.
pub(super) async fn suspend_and_resume(bench: Bench<'_>) -> Checked {
    let job = bench.submit(SLEEPER).await?;
    if !job.backend.capability().suspend {
        return refuses(job, Action::Suspend, "suspend").await;
    }
    job.until_written("weft-up", bench.world() as usize).await?;
    job.backend.act(&job.handle, Action::Suspend).await.map_err(said("suspend"))?;
    job.until(JobPhase::Suspended).await?;
    job.backend.act(&job.handle, Action::Resume).await.map_err(said("resume"))?;
    job.until(JobPhase::Running).await?;
    job.done().await
}

/// A signal reaches every rank and ends no other process.
pub(super) async fn signal_reaches_the_ranks(bench: Bench<'_>) -> Checked {
    // The shell runs a trap between commands, so it must not wait for one long sleep.
    let script = "trap 'echo weft-usr1; exit 0' USR1; echo weft-up; while :; do sleep 0.1; done";
    let job = bench.submit(script).await?;
    if !job.backend.capability().signal {
        return refuses(job, Action::Signal(10), "signal").await;
    }
    job.until_written("weft-up", bench.world() as usize).await?;
    job.backend.act(&job.handle, Action::Signal(10)).await.map_err(said("signal"))?;
    let phase = job.wait().await?.phase;
    must(phase == JobPhase::Succeeded, || format!("a job whose ranks handle the signal is {phase}"))?;
    job.until_written("weft-usr1", bench.world() as usize).await?;
    job.done().await
}

/// A command runs beside a rank: its output and exit code are returned exactly, and an impossible one is an
/// error of the right kind.
pub(super) async fn exec_runs_beside_a_rank(bench: Bench<'_>) -> Checked {
    let job = bench.submit(SLEEPER).await?;
    let (backend, handle) = (job.backend.clone(), job.handle.clone());
    let kind_of = async |request: ExecRequest| {
        backend.exec(&handle, &request, &mut |_, _| Ok(())).await.map_err(|error| error.kind())
    };
    let print = ExecRequest::new([
        "sh",
        "-c",
        "printf 'weft\\000\\377 %s\\n' \"$1\"; echo weft-err >&2; exit 3",
        "sh",
        "a  b'\"$",
    ]);
    if !backend.capability().exec {
        must(kind_of(print).await == Err(ErrorKind::Unsupported), || {
            "exec is not refused as unsupported".to_owned()
        })?;
        return job.done().await;
    }
    job.until_written("weft-up", bench.world() as usize).await?;
    let last = bench.world() - 1;
    for request in [print.clone(), print.clone().on_rank(0), print.clone().on_rank(last)] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = backend
            .exec(&handle, &request, &mut |stream, bytes| {
                let to = if stream == ExecStream::Stdout { &mut out } else { &mut err };
                to.extend_from_slice(bytes);
                Ok(())
            })
            .await
            .map_err(said("exec"))?;
        must(code == 3 && out == b"weft\0\xff a  b'\"$\n", || {
            format!("exit code {code}, output {:?}", String::from_utf8_lossy(&out))
        })?;
        // The cluster's own tools may add lines.
        must(String::from_utf8_lossy(&err).contains("weft-err\n"), || {
            format!("messages {:?}", String::from_utf8_lossy(&err))
        })?;
    }
    let beyond = kind_of(print.clone().on_rank(last + 1)).await;
    must(beyond == Err(ErrorKind::NotFound), || format!("a rank that the job does not have: {beyond:?}"))?;
    backend.act(&handle, Action::Cancel).await.map_err(said("cancel"))?;
    job.wait().await?;
    let ended = kind_of(print).await;
    must(ended == Err(ErrorKind::Refused), || format!("exec in a job that has ended: {ended:?}"))?;
    job.done().await
}

/// A hold is executed or refused.
pub(super) async fn hold_and_release(bench: Bench<'_>) -> Checked {
    let job = bench.submit(SLEEPER).await?;
    if !job.backend.capability().hold {
        return refuses(job, Action::Hold, "hold").await;
    }
    // Not every cluster can hold a running job; it may refuse that, with a kind.
    match job.backend.act(&job.handle, Action::Hold).await {
        Ok(()) => job.backend.act(&job.handle, Action::Release).await.map_err(said("release"))?,
        Err(error) if error.kind() == ErrorKind::Refused => {}
        Err(error) => return Err(format!("hold is of kind {:?}: {error}", error.kind())),
    }
    job.done().await
}

/// A requeued job starts again.
pub(super) async fn requeue_starts_again(bench: Bench<'_>) -> Checked {
    let job = bench.submit(SLEEPER).await?;
    if !job.backend.capability().requeue {
        return refuses(job, Action::Requeue, "requeue").await;
    }
    job.until(JobPhase::Running).await?;
    job.backend.act(&job.handle, Action::Requeue).await.map_err(said("requeue"))?;
    let now = job.backend.describe(&job.handle).await.map_err(said("describe"))?.summary;
    must(!now.phase.is_terminal(), || format!("a requeued job is {} ({})", now.phase, now.reason))?;
    job.done().await
}

/// With restarts allowed, a failing job restarts that often, and then fails; the logs of earlier attempts can
/// be read if the backend keeps them.
pub(super) async fn restarts_are_counted(bench: Bench<'_>) -> Checked {
    let capability = bench.capability().await?;
    if !capability.restarts {
        return Ok(Verdict::Skipped("it does not restart".to_owned()));
    }
    let mut spec = bench.job("echo weft-try; [ \"${RANK:-0}\" = 0 ] || sleep 60; exit 3");
    spec.restart = RestartPolicy::OnFailure { max: 1 };
    let job = bench.submit_spec(spec).await?;
    job.ends(JobPhase::Failed).await?;
    let detail = job.backend.describe(&job.handle).await.map_err(said("describe"))?;
    let restarts = detail.replicas.iter().map(|replica| replica.restarts).max();
    must(restarts == Some(1), || format!("one restart was allowed, {restarts:?} were made"))?;
    if capability.previous_logs {
        let mut options = LogOptions::default();
        options.previous = true;
        let read = job.read(options, usize::MAX).await?;
        must(!read.lines_with("weft-try").is_empty(), || {
            "the logs of the first attempt are empty".to_owned()
        })?;
    }
    job.done().await
}

/// A job that exceeds its time limit is ended, with that reason.
pub(super) async fn the_time_limit_is_kept(bench: Bench<'_>) -> Checked {
    if !bench.capability().await?.time_limit {
        return Ok(Verdict::Skipped("it keeps no time limit".to_owned()));
    }
    if bench.fixture.time_limit() * 2 > bench.fixture.patience() {
        return Ok(Verdict::Skipped("its shortest limit is longer than the suite waits".to_owned()));
    }
    let mut spec = bench.job("sleep 600");
    spec.time_limit = Some(bench.fixture.time_limit());
    let job = bench.submit_spec(spec).await?;
    let end = job.ends(JobPhase::Failed).await?;
    must(end.reason.contains("time"), || format!("its reason does not speak of time: {:?}", end.reason))?;
    job.done().await
}
