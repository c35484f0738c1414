//! Submits jobs, finds them again, and checks how they end.

use weftrun_core::ErrorKind;
use weftrun_core::job::{Action, JobFilter, JobPhase, SubmissionId};

use super::bench::{Bench, Submitted, must, said};
use super::{Checked, Verdict};

/// `render` is pure: the same job renders the same bytes. Whether what is sent has the submission's id is seen by finding it.
pub(super) async fn renders_the_same_twice(bench: Bench<'_>) -> Checked {
    let (one, two) = (bench.connect().await?, bench.connect().await?);
    let job = bench.fixture.plan(bench.job("true"));
    let (one, two) = (one.render(&job).map_err(said("render"))?, two.render(&job).map_err(said("render"))?);
    must(one == two, || "two renders of one job differ".to_owned())?;
    must(one.submission == job.submission, || "the rendered job has another submission id".to_owned())?;
    Ok(Verdict::Passed)
}

/// Another connection finds the job by the id of its submission.
pub(super) async fn is_found_by_its_id(bench: Bench<'_>) -> Checked {
    let job = bench.submit("sleep 60").await?;
    let found = bench.connect().await?.find(&job.rendered.submission).await.map_err(said("find"))?;
    must(found.as_ref() == Some(&job.handle), || format!("submitted {}, found {found:?}", job.handle))?;
    let parsed = job.handle.to_string().parse();
    must(parsed.as_ref().ok() == Some(&job.handle), || format!("{} does not parse to itself", job.handle))?;
    job.done().await
}

/// The same rendered job sent twice is one job.
pub(super) async fn submits_once_when_sent_twice(bench: Bench<'_>) -> Checked {
    let job = bench.submit("sleep 60").await?;
    let again = bench.connect().await?.submit(&job.rendered).await.map_err(said("submit again"))?;
    must(again == job.handle, || format!("sent twice: {} and {again}", job.handle))?;
    count(&job, 1).await?;
    job.done().await
}

/// A submit whose answer is lost is found, not sent again; a repeated submit returns the same job.
pub(super) async fn submits_once_when_the_answer_is_lost(bench: Bench<'_>) -> Checked {
    let job = lost_and_found(&bench, "sleep 60").await?;
    count(&job, 1).await?;
    job.done().await
}

/// Submits a job, loses the answer, and returns the job as the next process finds it. Where the fixture
/// cannot lose the answer on its way, this process forgets it.
async fn lost_and_found(bench: &Bench<'_>, script: &str) -> Result<Submitted, String> {
    let losing = match bench.fixture.losing_answers().await {
        Some(losing) => losing,
        None => bench.connect().await?,
    };
    let rendered = losing.render(&bench.fixture.plan(bench.job(script))).map_err(said("render"))?;
    let lost = losing.submit(&rendered).await;
    let backend = bench.connect().await?;
    let found = backend.find(&rendered.submission).await.map_err(said("find"))?;
    let handle = found.ok_or("the submit arrived, and yet is not found")?;
    if let Ok(recovered) = lost {
        must(recovered == handle, || format!("recovered {recovered}, found {handle}"))?;
    }
    let again = bench.connect().await?.submit(&rendered).await.map_err(said("submit again"))?;
    must(again == handle, || format!("found {handle}, and sent again it is {again}"))?;
    Ok(Submitted { backend, rendered, handle })
}

/// A job whose answer is lost and that is sent again runs once: executions are counted where they happen.
pub(super) async fn runs_once_however_often_it_is_sent(bench: Bench<'_>) -> Checked {
    let Some(folder) = bench.fixture.shared_folder() else {
        return Ok(Verdict::Skipped("the fixture has no folder that the ranks share".to_owned()));
    };
    let mark = folder.join(format!("weft-runs-{:08x}", fastrand::u32(..)));
    let script = format!("echo ${{RANK:-0}} >> '{}'; sleep 1", mark.display());
    let job = lost_and_found(&bench, &script).await?;
    let again = bench.connect().await?.submit(&job.rendered).await.map_err(said("submit again"))?;
    must(again == job.handle, || format!("sent three times: {} and {again}", job.handle))?;
    job.wait().await?;
    // A second execution is another job, which may still wait for this one.
    let others = job.backend.list(&JobFilter::all()).await.map_err(said("list"))?;
    for other in others.into_iter().filter(|other| other.name == job.rendered.name) {
        let handle = other.handle;
        Submitted { backend: job.backend.clone(), rendered: job.rendered.clone(), handle }.wait().await?;
    }
    let marks = std::fs::read_to_string(&mark).map_err(|error| format!("{}: {error}", mark.display()))?;
    let mut ranks: Vec<u32> = marks.lines().filter_map(|line| line.parse().ok()).collect();
    ranks.sort_unstable();
    must(ranks.iter().copied().eq(0..bench.world()), || {
        format!("one submission ran the ranks {ranks:?}, not each of {} once", bench.world())
    })?;
    std::fs::remove_file(&mark).map_err(|error| format!("{}: {error}", mark.display()))?;
    job.done().await
}

async fn count(job: &Submitted, wanted: usize) -> Result<(), String> {
    let jobs = job.backend.list(&JobFilter::all()).await.map_err(said("list"))?;
    let id: Option<&SubmissionId> = Some(&job.rendered.submission);
    let ours = jobs.iter().filter(|j| j.submission.as_ref() == id || j.handle == job.handle).count();
    must(ours == wanted, || format!("the list has {ours} jobs of one submission, not {wanted}"))
}

/// With `detach` a job continues when the connection that created it is gone.
pub(super) async fn outlives_its_connection(bench: Bench<'_>) -> Checked {
    if !bench.capability().await?.detach {
        return Ok(Verdict::Skipped("it does not detach, and says so".to_owned()));
    }
    let Submitted { backend, rendered, handle } = bench.submit("sleep 1; echo weft-later").await?;
    drop(backend);
    let job = Submitted { backend: bench.connect().await?, rendered, handle };
    job.ends(JobPhase::Succeeded).await?;
    let lines = job.follow().await?.lines_with("weft-later").len();
    must(lines == bench.world() as usize, || format!("{lines} ranks wrote after the connection was gone"))?;
    job.done().await
}

/// A second job of the same name is refused, or is a separate job with its own handle.
pub(super) async fn a_taken_name_makes_no_confusion(bench: Bench<'_>) -> Checked {
    let spec = bench.job("sleep 60");
    let first = bench.submit_spec(spec.clone()).await?;
    let rendered = first.backend.render(&bench.fixture.plan(spec)).map_err(said("render"))?;
    match first.backend.submit(&rendered).await {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err(format!("a taken name is of kind {:?}, not AlreadyExists: {error}", error.kind()));
        }
        Ok(handle) => {
            must(handle != first.handle, || format!("two jobs have the handle {handle}"))?;
            Submitted { backend: first.backend.clone(), rendered, handle }.done().await?;
        }
    }
    first.done().await
}

/// The watch of a successful job ends, and reports the success.
pub(super) async fn watch_ends_with_success(bench: Bench<'_>) -> Checked {
    let job = bench.submit("exit 0").await?;
    let end = job.ends(JobPhase::Succeeded).await?;
    must(end.exit_code.is_none_or(|code| code == 0), || format!("its exit code is {:?}", end.exit_code))?;
    let detail = job.backend.describe(&job.handle).await.map_err(said("describe"))?;
    must(detail.summary.phase == end.phase, || format!("describe says {}", detail.summary.phase))?;
    job.done().await
}

/// The exit code of a rank becomes the job's, if the backend reports codes.
pub(super) async fn failure_has_its_exit_code(bench: Bench<'_>) -> Checked {
    let job = bench.submit("if [ \"${RANK:-0}\" = 1 ]; then exit 137; fi; sleep 60").await?;
    let end = job.ends(JobPhase::Failed).await?;
    must(end.exit_code.is_none_or(|code| code == 137), || format!("its exit code is {:?}", end.exit_code))?;
    must(!end.reason.is_empty(), || "a failed job has no reason".to_owned())?;
    job.done().await
}

/// Exit codes are reported as they were, for all codes or for none, and a job that was cancelled has no code
/// of success.
pub(super) async fn exit_codes_are_as_they_were(bench: Bench<'_>) -> Checked {
    const CODES: [i32; 5] = [0, 1, 7, 137, 143];
    let mut jobs = Vec::new();
    for code in CODES {
        let script = format!("exit {code}");
        jobs.push((code, bench.submit_spec(bench.fixture.job(&bench.name(), 1, 1, &script)).await?));
    }
    let cancelled =
        bench.submit_spec(bench.fixture.job(&bench.name(), 1, 1, "echo weft-up; sleep 600")).await?;
    cancelled.until_written("weft-up", 1).await?;
    cancelled.backend.act(&cancelled.handle, Action::Cancel).await.map_err(said("cancel"))?;
    let end = cancelled.ends(JobPhase::Cancelled).await?;
    must(end.exit_code != Some(0), || "a cancelled job has the exit code 0".to_owned())?;
    cancelled.done().await?;
    let mut known = Vec::new();
    for (code, job) in jobs {
        let end = job.wait().await?;
        let phase = if code == 0 { JobPhase::Succeeded } else { JobPhase::Failed };
        must(end.phase == phase, || format!("exit {code} is {} ({})", end.phase, end.reason))?;
        must(end.exit_code.is_none_or(|seen| seen == code), || {
            format!("exit {code} is reported as {:?}", end.exit_code)
        })?;
        let detail = job.backend.describe(&job.handle).await.map_err(said("describe"))?.summary;
        must(detail.exit_code.is_none_or(|seen| seen == code), || {
            format!("exit {code} is described as {:?}", detail.exit_code)
        })?;
        if code != 0 {
            known.push((code, end.exit_code.or(detail.exit_code).is_some()));
        }
        job.done().await?;
    }
    let same = known.iter().all(|(_, is)| *is) || known.iter().all(|(_, is)| !*is);
    must(same, || format!("only some exit codes are reported: {known:?}"))?;
    Ok(Verdict::Passed)
}

/// A missing command fails the job with a reason, or is refused at once.
pub(super) async fn a_command_that_is_not_there_fails(bench: Bench<'_>) -> Checked {
    let mut spec = bench.job("true");
    spec.roles[0].command = vec!["/no/such/command-of-weftrun".to_owned()];
    let backend = bench.connect().await?;
    let rendered = backend.render(&bench.fixture.plan(spec)).map_err(said("render"))?;
    match backend.submit(&rendered).await {
        Err(error) if error.kind() == ErrorKind::Refused => Ok(Verdict::Passed),
        Err(error) => Err(format!("refused with kind {:?}: {error}", error.kind())),
        Ok(handle) => {
            let job = Submitted { backend, rendered, handle };
            let end = job.ends(JobPhase::Failed).await?;
            must(!end.reason.is_empty(), || "it failed without a reason".to_owned())?;
            job.done().await
        }
    }
}
