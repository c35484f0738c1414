//! Fields of [`Capability`](weftrun_core::backend::Capability) that no other check covers: what is claimed
//! holds, and what is not claimed is refused.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use weftrun_core::job::{Action, JobEvent, JobFilter, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{JobSpec, Launch, RestartPolicy};
use weftrun_core::{ErrorKind, Finding};

use super::bench::{Bench, must, said};
use super::{Checked, Verdict};

/// `dry_run`: the cluster accepts a valid job, and checking does not create it.
pub(super) async fn a_check_creates_no_job(bench: Bench<'_>) -> Checked {
    let backend = bench.connect().await?;
    let rendered = backend.render(&bench.fixture.plan(bench.job("true"))).map_err(said("render"))?;
    let findings = backend.check(&rendered).await.map_err(said("check"))?;
    if let Some(error) = findings.iter().find(|finding| finding.is_error()) {
        return Err(format!("a valid job would be refused: {error}"));
    }
    let found = backend.find(&rendered.submission).await.map_err(said("find"))?;
    must(found.is_none(), || format!("a check created {found:?}"))?;
    let jobs = backend.list(&JobFilter::all()).await.map_err(said("list"))?;
    let ours = jobs.iter().find(|job| job.name == rendered.name);
    must(ours.is_none(), || format!("a check created {}", rendered.name))?;
    Ok(Verdict::Passed)
}

/// A request that the capability does not include is refused as unsupported, or a finding of the rendered
/// job or of its check names it.
async fn is_refused(bench: &Bench<'_>, spec: JobSpec, words: &[&str]) -> Checked {
    let backend = bench.connect().await?;
    let names = |finding: &Finding| {
        let text = format!("{} {}", finding.subject.as_deref().unwrap_or_default(), finding.message);
        words.iter().any(|word| text.contains(word))
    };
    match backend.render(&bench.fixture.plan(spec)) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Verdict::Passed),
        Err(error) => Err(format!("a job with {} is refused as {:?}: {error}", words[0], error.kind())),
        Ok(rendered) => {
            let checked = backend.check(&rendered).await.map_err(said("check"))?;
            must(rendered.findings.iter().chain(&checked).any(names), || {
                format!("{} is dropped, and no finding names it", words[0])
            })?;
            Ok(Verdict::Passed)
        }
    }
}

/// `mpi`: a job of `launch = "mpi"` can be rendered, or is refused.
pub(super) async fn mpi_is_rendered_or_refused(bench: Bench<'_>) -> Checked {
    let mut spec = bench.job("true");
    spec.launch = Launch::Mpi;
    if !bench.capability().await?.mpi {
        return is_refused(&bench, spec, &["mpi"]).await;
    }
    let rendered = bench.connect().await?.render(&bench.fixture.plan(spec)).map_err(said("render"))?;
    let text: String = rendered.documents.iter().map(|document| document.text.as_str()).collect();
    must(text.to_lowercase().contains("mpi"), || {
        "`mpi` is claimed, and no document of such a job contains it".to_owned()
    })?;
    Ok(Verdict::Passed)
}

/// `containers`: the image of a job is in what is sent, or is refused.
pub(super) async fn an_image_is_used_or_refused(bench: Bench<'_>) -> Checked {
    const IMAGE: &str = "weft.example/suite:1";
    let mut spec = bench.job("true");
    spec.image = Some(IMAGE.to_owned());
    if !bench.capability().await?.containers {
        return is_refused(&bench, spec, &["image"]).await;
    }
    let rendered = bench.connect().await?.render(&bench.fixture.plan(spec)).map_err(said("render"))?;
    let used = rendered.documents.iter().any(|document| document.text.contains("weft.example"));
    must(used, || "`containers` is claimed, and no document contains the job's image".to_owned())?;
    Ok(Verdict::Passed)
}

/// `restarts`, not claimed: a restart policy is passed to the cluster, refused, or named by a finding.
pub(super) async fn a_restart_policy_is_kept_or_refused(bench: Bench<'_>) -> Checked {
    if bench.capability().await?.restarts {
        return Ok(Verdict::Skipped("restarts are counted by another check".to_owned()));
    }
    // A cluster that restarts without reporting how often does not claim it either: then it is asked to.
    let backend = bench.connect().await?;
    let mut job = bench.fixture.plan(bench.job("true"));
    let without = backend.render(&job).map_err(said("render"))?;
    job.spec.restart = RestartPolicy::OnFailure { max: 1 };
    match backend.render(&job) {
        Ok(with) if with.documents != without.documents => Ok(Verdict::Passed),
        _ => is_refused(&bench, job.spec, &["restart"]).await,
    }
}

/// `ports`: an unknown rank and a port that nothing listens on are errors of the right kind.
pub(super) async fn a_port_is_reached_or_refused(bench: Bench<'_>) -> Checked {
    /// A port that no service uses.
    const PORT: u16 = 9;
    let job = bench.submit("echo weft-up; sleep 600").await?;
    let claimed = job.backend.capability().ports;
    if claimed {
        job.until_written("weft-up", bench.world() as usize).await?;
    }
    let open = async |rank| match job.backend.open_port(&job.handle, rank, PORT).await {
        Err(error) => Err(error.kind()),
        // The connection itself may report that nothing listens, when it is first used.
        Ok(port) => match port.receive().await {
            Err(error) => Err(error.kind()),
            Ok(bytes) => Ok(bytes.len()),
        },
    };
    let (silent, unknown) = (open(Some(0)).await, open(Some(bench.world())).await);
    if claimed && silent == Err(ErrorKind::Credentials) {
        job.done().await?;
        return Ok(Verdict::Skipped(
            "this account may not connect to ports, and the error says so".to_owned(),
        ));
    }
    if claimed {
        must(matches!(silent, Err(ErrorKind::Unreachable) | Ok(0)), || {
            format!("a port that nothing listens on: {silent:?}")
        })?;
        must(unknown == Err(ErrorKind::NotFound), || format!("a port of an unknown rank: {unknown:?}"))?;
    } else {
        must(silent == Err(ErrorKind::Unsupported), || {
            format!("`ports` is not claimed, and a port is {silent:?}")
        })?;
    }
    job.done().await
}

/// `log_times`: each line has a time of the job's life, in order; not claimed, no line has one.
pub(super) async fn lines_have_times_as_claimed(bench: Bench<'_>) -> Checked {
    let began = Timestamp::now();
    let job = bench.submit("echo weft-one; echo weft-two; echo weft-three").await?;
    job.wait().await?;
    // Clocks of nodes may differ from this one's.
    let margin = SignedDuration::from_mins(10);
    let claimed = job.backend.capability().log_times;
    let mut batches = job.backend.logs(&job.handle, LogOptions::default());
    let (mut last, mut lines) = (BTreeMap::<String, Timestamp>::new(), 0);
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(said("logs"))?;
        for line in &batch.lines {
            lines += 1;
            must(line.time.is_some() == claimed, || {
                format!(
                    "`log_times` is {claimed}, and a line of {} has the time {:?}",
                    batch.source, line.time
                )
            })?;
            let Some(time) = line.time else { continue };
            must(time > began - margin && time < Timestamp::now() + margin, || {
                format!("a line of a job that began at {began} has the time {time}")
            })?;
            let before = last.insert(batch.source.uid.clone(), time);
            must(before.is_none_or(|before| before <= time), || {
                format!("a line of {time} comes after one of {before:?}")
            })?;
        }
    }
    must(lines > 0, || "no line was read".to_owned())?;
    job.done().await
}

/// `log_offsets`: a cursor is the number of bytes of its source so far.
pub(super) async fn cursors_are_offsets_if_claimed(bench: Bench<'_>) -> Checked {
    if !bench.capability().await?.log_offsets {
        return Ok(Verdict::Skipped("its cursors are no offsets, and it says so".to_owned()));
    }
    let job = bench.submit("echo weft-one; echo weft-two; printf weft-three").await?;
    job.wait().await?;
    let mut sizes = BTreeMap::<String, u64>::new();
    let mut batches = job.backend.logs(&job.handle, LogOptions::default());
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(said("logs"))?;
        let size = sizes.entry(batch.source.uid.clone()).or_default();
        *size += batch.bytes.len() as u64;
        must(batch.cursor.offset == *size, || {
            format!(
                "after {size} bytes of {} the cursor has the offset {}",
                batch.source, batch.cursor.offset
            )
        })?;
    }
    job.done().await
}

/// `previous_logs`, not claimed: asking for the logs of an earlier attempt is an error, not the present log.
pub(super) async fn earlier_logs_are_read_or_refused(bench: Bench<'_>) -> Checked {
    if bench.capability().await?.previous_logs {
        return Ok(Verdict::Skipped("the restarts of another check read them".to_owned()));
    }
    let job = bench.submit("echo weft-present").await?;
    job.wait().await?;
    let read = job.read(LogOptions::default().previous(), usize::MAX).await;
    if let Ok(read) = read {
        must(read.count(b"weft-present") == 0, || {
            "the present log is returned as that of the attempt before".to_owned()
        })?;
    }
    job.done().await
}

/// `max_name`: a job with the longest name runs, and is listed under it.
pub(super) async fn the_longest_name_works(bench: Bench<'_>) -> Checked {
    let mut spec = bench.fixture.job(&bench.name(), 1, 1, "exit 0");
    let longest = bench.capability().await?.max_name;
    must(longest >= spec.name.len(), || format!("`max_name` is {longest}"))?;
    spec.name.push_str(&"x".repeat(longest - spec.name.len()));
    let name = spec.name.clone();
    let job = bench.submit_spec(spec).await?;
    let end = job.ends(JobPhase::Succeeded).await?;
    must(end.name == name || end.name == job.handle.name(), || format!("{name} is named {}", end.name))?;
    job.done().await
}

/// `max_args_bytes`: arguments of that many bytes reach the program.
pub(super) async fn the_longest_arguments_arrive(bench: Bench<'_>) -> Checked {
    /// Below the longest single argument of Linux (`MAX_ARG_STRLEN`, 128 KiB).
    const PIECE: usize = 60_000;
    let most = bench.capability().await?.max_args_bytes;
    if most == 0 {
        return Ok(Verdict::Skipped("it has no limit, and says so".to_owned()));
    }
    let script = "n=0; for word; do n=$((n+${#word})); done; echo \"weft-args $n\"";
    let mut spec = bench.fixture.job(&bench.name(), 1, 1, script);
    let command = &mut spec.roles[0].command;
    command.push("sh".to_owned());
    let left = most.saturating_sub(command.iter().map(|word| word.len() + 1).sum());
    let (mut sent, mut left) = (0, left);
    while left > 1 {
        let piece = left.min(PIECE) - 1;
        command.push("a".repeat(piece));
        (sent, left) = (sent + piece, left - piece - 1);
    }
    let job = bench.submit_spec(spec).await?;
    job.ends(JobPhase::Succeeded).await?;
    let lines = job.read(LogOptions::default(), usize::MAX).await?.lines_with("weft-args ");
    must(lines == [format!("weft-args {sent}")], || format!("of {sent} bytes, {lines:?} arrived"))?;
    job.done().await
}

/// `labels`: jobs are listed and watched with their labels, and selected by them before the limit counts.
pub(super) async fn labels_are_listed_if_claimed(bench: Bench<'_>) -> Checked {
    const KEY: &str = "weft.example/suite";
    if !bench.capability().await?.labels {
        return Ok(Verdict::Skipped("it lists no labels, and says so".to_owned()));
    }
    let name = bench.name();
    let mut spec = bench.fixture.job(&name, 1, 1, "exit 0");
    spec.labels.insert(KEY.to_owned(), name.clone());
    let job = bench.submit_spec(spec).await?;
    let other = bench.submit("exit 0").await?;
    job.wait().await?;
    other.wait().await?;
    let ours = JobFilter::all().label(KEY, name.as_str());
    for filter in [ours.clone(), ours.clone().limit(1)] {
        let found = job.backend.list(&filter).await.map_err(said("list"))?;
        must(matches!(found.as_slice(), [one] if one.handle == job.handle), || {
            format!("of a job and a newer one, its label selects {found:?}")
        })?;
        must(found.iter().all(|job| job.labels.get(KEY) == Some(&name)), || {
            format!("it is listed with the labels {:?}", found[0].labels)
        })?;
    }
    let none = job.backend.list(&ours.label(KEY, "another")).await.map_err(said("list"))?;
    must(none.is_empty(), || format!("a value that no job has selects {none:?}"))?;
    let mut events = job.backend.watch(JobFilter::all().label(KEY, name.as_str()));
    // The first event of a job is its status, of whichever jobs are watched.
    let first = events.next().await.transpose().map_err(said("watch"))?;
    must(matches!(&first, Some(JobEvent::Status { job: seen }) if seen.handle == job.handle), || {
        format!("a watch of its label begins with {first:?}")
    })?;
    drop(events);
    other.done().await?;
    job.done().await
}

/// `signal` with a number that does not exist is refused, and the job continues.
pub(super) async fn an_impossible_signal_is_refused(bench: Bench<'_>) -> Checked {
    let job = bench.submit("echo weft-up; sleep 600").await?;
    if !job.backend.capability().signal {
        job.done().await?;
        return Ok(Verdict::Skipped("it sends no signals, and says so".to_owned()));
    }
    job.until_written("weft-up", bench.world() as usize).await?;
    for number in [0, -9, 4711] {
        let answer = job.backend.act(&job.handle, Action::Signal(number)).await;
        must(answer.is_err(), || format!("signal {number} was accepted"))?;
    }
    let now = job.backend.describe(&job.handle).await.map_err(said("describe"))?.summary;
    must(!now.phase.is_terminal(), || format!("the job is {} ({})", now.phase, now.reason))?;
    job.done().await
}
