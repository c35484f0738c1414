//! Submits jobs, finds them again, and checks how they end.

use weftrun_core::ErrorKind;
use weftrun_core::job::{JobFilter, JobPhase, SubmissionId};

use super::bench::{Bench, Submitted, must, said};
use super::{Checked, Verdict};

/// `render` is pure: the same job renders the same bytes, and they contain the submission's id.
pub(super) async fn renders_the_same_twice(bench: Bench<'_>) -> Checked {
    let (one, two) = (bench.connect().await?, bench.connect().await?);
    let job = bench.fixture.plan(bench.job("true"));
    let (one, two) = (one.render(&job).map_err(said("render"))?, two.render(&job).map_err(said("render"))?);
    must(one == two, || "two renders of one job differ".to_owned())?;
    must(one.submission == job.submission, || "the rendered job has another submission id".to_owned())?;
    let carried = one.documents.iter().any(|document| document.text.contains(job.submission.as_str()));
    must(carried, || {
        "no document carries the submission id, so a lost answer cannot be recovered".to_owned()
    })?;
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

/// A submit whose answer is lost is found, not sent again.
pub(super) async fn submits_once_when_the_answer_is_lost(bench: Bench<'_>) -> Checked {
    let Some(losing) = bench.fixture.losing_answers().await else {
        return Ok(Verdict::Skipped("the fixture cannot lose an answer".to_owned()));
    };
    let rendered = losing.render(&bench.fixture.plan(bench.job("sleep 60"))).map_err(said("render"))?;
    let lost = losing.submit(&rendered).await;
    let backend = bench.connect().await?;
    let found = backend.find(&rendered.submission).await.map_err(said("find"))?;
    let handle = found.ok_or("the submit arrived, and yet is not found")?;
    if let Ok(recovered) = lost {
        must(recovered == handle, || format!("recovered {recovered}, found {handle}"))?;
    }
    let job = Submitted { backend, rendered, handle };
    count(&job, 1).await?;
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
    let end = job.wait().await?;
    must(end.phase == JobPhase::Succeeded, || format!("it is {} ({})", end.phase, end.reason))?;
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
    let end = job.wait().await?;
    must(end.phase == JobPhase::Succeeded, || format!("it is {} ({})", end.phase, end.reason))?;
    must(end.exit_code.is_none_or(|code| code == 0), || format!("its exit code is {:?}", end.exit_code))?;
    let detail = job.backend.describe(&job.handle).await.map_err(said("describe"))?;
    must(detail.summary.phase == end.phase, || format!("describe says {}", detail.summary.phase))?;
    job.done().await
}

/// The exit code of a rank becomes the job's, if the backend reports codes.
pub(super) async fn failure_has_its_exit_code(bench: Bench<'_>) -> Checked {
    let job = bench.submit("if [ \"${RANK:-0}\" = 1 ]; then exit 137; fi; sleep 60").await?;
    let end = job.wait().await?;
    must(end.phase == JobPhase::Failed, || format!("it is {} ({})", end.phase, end.reason))?;
    must(end.exit_code.is_none_or(|code| code == 137), || format!("its exit code is {:?}", end.exit_code))?;
    must(!end.reason.is_empty(), || "a failed job has no reason".to_owned())?;
    job.done().await
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
            let end = job.wait().await?;
            must(end.phase == JobPhase::Failed, || format!("it is {} ({})", end.phase, end.reason))?;
            must(!end.reason.is_empty(), || "it failed without a reason".to_owned())?;
            job.done().await
        }
    }
}
