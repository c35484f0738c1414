//! Information that a backend must report: where a job runs, reasons, what it cannot express, lost logs.

use weftrun_core::ErrorKind;
use weftrun_core::fabric::{Change, Op, Origin};
use weftrun_core::job::{JobFilter, JobPhase};
use weftrun_core::log::{LogOptions, Mark};

use super::bench::{Bench, must, said};
use super::{Checked, Verdict};

/// A job runs in the folder that `workdir` names.
pub(super) async fn a_job_runs_in_its_working_directory(bench: Bench<'_>) -> Checked {
    let mut spec = bench.job("echo \"weft-in $(pwd)\"");
    // `/` is where containers start anyway.
    spec.workdir = Some("/usr/bin".to_owned());
    let job = bench.submit_spec(spec).await?;
    let lines = job.follow().await?.lines_with("weft-in ");
    must(lines.len() == bench.world() as usize && lines.iter().all(|line| line.ends_with("/bin")), || {
        format!("`workdir` is /usr/bin, and the ranks ran in {lines:?}")
    })?;
    job.done().await
}

/// `--rank N` returns the lines of that rank, and an unknown rank is an error that names it.
pub(super) async fn a_rank_is_read_or_unknown(bench: Bench<'_>) -> Checked {
    // If a source contains all ranks of a node, each node has one.
    let (nodes, ranks) = bench.fixture.shape();
    let ranks = if bench.capability().await?.rank_logs { ranks } else { 1 };
    let script = "echo \"weft-rank ${RANK:-0} here\"";
    let job = bench.submit_spec(bench.fixture.job(&bench.name(), nodes, ranks, script)).await?;
    job.wait().await?;
    let last = nodes * ranks - 1;
    let of = |rank: u32| {
        let mut options = LogOptions::default();
        options.ranks = vec![rank];
        options
    };
    let read = job.read(of(last), usize::MAX).await?;
    let lines = read.lines_with("weft-rank ");
    must(lines.contains(&format!("weft-rank {last} here")), || {
        format!("rank {last} is not in its own log: {lines:?}")
    })?;
    if read.ranks.is_empty() {
        job.done().await?;
        return Ok(Verdict::Skipped("its sources carry no rank".to_owned()));
    }
    let mut batches = job.backend.logs(&job.handle, of(last + 1));
    let error = loop {
        match futures_util::StreamExt::next(&mut batches).await {
            None => return Err(format!("rank {} of {} is no error", last + 1, last + 1)),
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
        }
    };
    must(matches!(error.kind(), ErrorKind::Usage | ErrorKind::NotFound) && !error.is_retryable(), || {
        format!("an unknown rank is of kind {:?}: {error}", error.kind())
    })?;
    must(error.to_string().contains(&format!("rank {}", last + 1)), || {
        format!("the error does not name the rank: {error}")
    })?;
    job.done().await
}

/// `describe` has every reason that `list` and the watch have.
pub(super) async fn describe_has_the_reasons(bench: Bench<'_>) -> Checked {
    let job = bench.submit("exit 3").await?;
    let end = job.wait().await?;
    must(end.phase == JobPhase::Failed && !end.reason.is_empty(), || {
        format!("it is {} ({})", end.phase, end.reason)
    })?;
    let detail = job.backend.describe(&job.handle).await.map_err(said("describe"))?;
    must(!detail.summary.reason.is_empty(), || "describe gives no reason of a failed job".to_owned())?;
    let listed = job.backend.list(&JobFilter::all()).await.map_err(said("list"))?;
    if let Some(row) = listed.iter().find(|row| row.handle == job.handle) {
        // A list may lack the code: then describe has a more precise reason than the list.
        let known = detail.summary.reason.contains(&row.reason)
            || row.exit_code.is_none() && detail.summary.exit_code.is_some()
            || detail.findings.iter().any(|finding| finding.message.contains(&row.reason));
        must(known, || format!("list says {:?}, and describe {:?}", row.reason, detail.summary.reason))?;
    }
    job.done().await
}

/// Each operation of the plan is applied or named with a reason; so is each unsupported request of the job.
pub(super) async fn what_cannot_be_expressed_is_named(bench: Bench<'_>) -> Checked {
    let backend = bench.connect().await?;
    let mut job = bench.fixture.plan(bench.job("true"));
    let role = job.spec.roles.first().map(|role| role.name.clone()).unwrap_or_default();
    let changes = [
        Change::Env { name: "WEFT_SUITE".to_owned(), value: "1".to_owned() },
        Change::Resource { name: "hugepages-2Mi".to_owned(), quantity: "512Mi".to_owned() },
        Change::NodeSelector { key: "weft.example/pool".to_owned(), value: "a".to_owned() },
    ];
    for change in changes {
        let why = "the conformance suite";
        job.plan.ops.push(Op::new("suite.change", role.as_str(), change, why, Origin::Default));
    }
    let rendered = backend.render(&job).map_err(said("render"))?;
    for op in &job.plan.ops {
        let left_out = rendered.inexpressible.iter().find(|item| item.op == *op);
        must(rendered.applied.contains(op) || left_out.is_some(), || {
            format!("{:?} is neither applied nor named as impossible", op.change)
        })?;
        must(left_out.is_none_or(|item| !item.reason.is_empty()), || {
            format!("{:?} is left out without a reason", op.change)
        })?;
    }
    let capability = backend.capability();
    let mut spec = bench.job("true");
    if capability.time_limit {
        return Ok(Verdict::Passed);
    }
    spec.time_limit = Some(std::time::Duration::from_hours(1));
    match backend.render(&bench.fixture.plan(spec)) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Verdict::Passed),
        Err(error) => Err(format!("render: {error}")),
        Ok(rendered) => {
            let named = rendered.findings.iter().any(|finding| {
                let text = format!("{} {}", finding.subject.as_deref().unwrap_or_default(), finding.message);
                text.contains("time_limit") || text.contains("time limit")
            });
            must(named, || "`time_limit` is dropped, and no finding names it".to_owned())?;
            Ok(Verdict::Passed)
        }
    }
}

/// Lost logs are a gap or an error, never an empty log.
pub(super) async fn lost_logs_are_reported(bench: Bench<'_>) -> Checked {
    let job = bench.submit("echo weft-gone").await?;
    job.ends(JobPhase::Succeeded).await?;
    if !bench.fixture.lose_logs(&job.handle).await {
        job.done().await?;
        return Ok(Verdict::Skipped("the fixture cannot remove logs".to_owned()));
    }
    match job.read(LogOptions::default(), usize::MAX).await {
        Err(_) => {}
        Ok(read) => must(read.marks.iter().any(|mark| matches!(mark, Mark::Gap { .. })), || {
            format!("the logs are gone, and the marks are {:?}", read.marks)
        })?,
    }
    job.done().await
}
