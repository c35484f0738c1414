//! Log bytes: each one exactly once and in order, despite interruptions.

use std::collections::BTreeMap;

use weftrun_core::log::{LogOptions, Mark};

use super::bench::{Bench, Read, Submitted, must, said};
use super::{Checked, Verdict};

/// Lines each rank writes; enough that several batches are needed.
const LINES: usize = 400;

/// Returns a script that writes lines with their rank and number, in bursts.
fn writer() -> String {
    format!(
        "i=0; while [ $i -lt {LINES} ]; do echo \"weft ${{RANK:-0}} $i of {LINES}: all work and no play\"; \
         i=$((i+1)); [ $((i % 100)) -eq 0 ] && sleep 0.05; done; exit 0"
    )
}

/// Returns the lines of each rank, in the order read.
fn by_rank(read: &Read) -> Result<BTreeMap<u32, Vec<usize>>, String> {
    let mut ranks: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for line in read.lines_with("weft ") {
        let mut words = line.split(' ').skip(1);
        let number = |word: Option<&str>| word.and_then(|w| w.parse::<usize>().ok());
        match (number(words.next()), number(words.next())) {
            (Some(rank), Some(at)) if line.ends_with("no play") => {
                ranks.entry(u32::try_from(rank).unwrap_or(u32::MAX)).or_default().push(at);
            }
            _ => return Err(format!("a line is torn: {line:?}")),
        }
    }
    // The end of a line that comes again has no number.
    let (ends, lines) = (read.count(b"no play"), ranks.values().map(Vec::len).sum::<usize>());
    must(ends == lines, || format!("parts of lines came twice: {lines} lines have {ends} ends"))?;
    Ok(ranks)
}

fn check_whole(read: &Read, world: u32) -> Result<(), String> {
    let ranks = by_rank(read)?;
    must(ranks.len() == world as usize, || format!("{} of {world} ranks were read", ranks.len()))?;
    for (rank, lines) in &ranks {
        must(lines.iter().copied().eq(0..LINES), || {
            let at = lines.iter().zip(0..).find(|(line, at)| *line != at).map_or(lines.len(), |(_, at)| at);
            format!(
                "rank {rank}: {} lines read of {LINES}, the first that is wrong is line {at}; marks: {:?}",
                lines.len(),
                read.marks
            )
        })?;
    }
    Ok(())
}

fn check_sources(read: &Read, job: &Submitted, world: u32) -> Result<(), String> {
    must(read.ended > 0, || "no source was told to have ended".to_owned())?;
    if job.backend.capability().rank_logs {
        let mut ranks = read.ranks.clone();
        ranks.sort_unstable();
        must(ranks.iter().copied().eq(0..world), || {
            format!("`rank_logs`, but the sources are ranks {ranks:?}")
        })?;
    }
    Ok(())
}

/// Following from the start returns every line of every rank once and in order, and then the stream ends.
pub(super) async fn every_line_of_every_rank(bench: Bench<'_>) -> Checked {
    let job = bench.submit(&writer()).await?;
    let read = job.follow().await?;
    check_whole(&read, bench.world())?;
    check_sources(&read, &job, bench.world())?;
    job.done().await
}

/// After repeated drops and resumes from the cursors, nothing is lost, and nothing is repeated if the backend
/// claims `exact_resume`; otherwise possible repetitions are marked.
pub(super) async fn exact_over_cuts(bench: Bench<'_>) -> Checked {
    let job = bench.submit(&writer()).await?;
    let mut all = Read::default();
    for cut in 1..10_000_usize {
        let mut options = LogOptions::follow();
        options.from = all.cursors.values().cloned().collect();
        let part = job.read(options, 1 + cut % 5).await?;
        let over = part.batches < 1 + cut % 5;
        all.extend(part);
        if over {
            break;
        }
    }
    check_resumed(&all, &job, bench.world())?;
    job.done().await
}

/// Checks what was read with resumes between.
fn check_resumed(all: &Read, job: &Submitted, world: u32) -> Result<(), String> {
    if job.backend.capability().exact_resume {
        return check_whole(all, world);
    }
    let ranks = by_rank(all)?;
    let lost = ranks.values().any(|lines| (0..LINES).any(|line| !lines.contains(&line)));
    must(!lost && ranks.len() == world as usize, || "lines are lost over cuts".to_owned())?;
    let repeated = ranks.values().any(|lines| lines.len() > LINES);
    let marked = all.marks.iter().any(|mark| matches!(mark, Mark::Resumed { .. }));
    must(!repeated || marked, || "lines are repeated over cuts, and no mark says so".to_owned())
}

/// Most places at which the log of a finished job is cut.
const CUTS: usize = 24;

/// A finished log that is read in two parts is the same wherever it is cut: after each batch, and at lines that
/// a caller kept the cursor of.
pub(super) async fn exact_wherever_it_is_cut(bench: Bench<'_>) -> Checked {
    let job = bench.submit(&writer()).await?;
    // The cursors after each batch of a log that is written meanwhile lie at lines of all sizes.
    let mut cursors = Vec::new();
    let mut read = Read::default();
    let mut batches = job.backend.logs(&job.handle, LogOptions::follow());
    while let Some(batch) = futures_util::StreamExt::next(&mut batches).await {
        read.take(&batch.map_err(said("logs"))?)?;
        let so_far: BTreeMap<_, _> = read.bytes.iter().map(|(id, bytes)| (id.clone(), bytes.len())).collect();
        cursors.push((so_far, read.cursors.clone()));
    }
    drop(batches);
    job.wait().await?;
    check_whole(&read, bench.world())?;
    let step = cursors.len().div_ceil(CUTS).max(1);
    for (so_far, from) in cursors.into_iter().step_by(step) {
        let mut options = LogOptions::default();
        options.from = from.into_values().collect();
        let mut all = Read::default();
        for (id, size) in so_far {
            let bytes = read.bytes.get(&id).and_then(|bytes| bytes.get(..size)).unwrap_or_default();
            all.bytes.insert(id, bytes.to_vec());
        }
        all.extend(job.read(options, usize::MAX).await?);
        check_resumed(&all, &job, bench.world())?;
    }
    job.done().await
}

/// The last line is read although the job ended before its newline, while it runs and afterwards.
pub(super) async fn a_last_line_without_newline_is_read(bench: Bench<'_>) -> Checked {
    let job = bench.submit("echo weft-first; printf 'weft-open'").await?;
    let world = bench.world() as usize;
    let followed = job.follow().await?;
    job.wait().await?;
    let finished = job.read(LogOptions::default(), usize::MAX).await?;
    for (how, read) in [("followed", followed), ("finished", finished)] {
        let found = read.count(b"weft-open");
        must(found == world, || format!("{how}: {found} of {world} last lines without a newline were read"))?;
    }
    job.done().await
}

/// Bytes are returned as they were written: carriage returns, invalid UTF-8, NUL.
pub(super) async fn bytes_are_kept(bench: Bench<'_>) -> Checked {
    const SCRIPT: &str = r"printf 'weft\rbytes \377\376 nul\000end\033[0m\n'";
    const READ: &[u8] = b"weft\rbytes \xff\xfe nul\0end\x1b[0m\n";
    let job = bench.submit(SCRIPT).await?;
    let world = bench.world() as usize;
    let followed = job.follow().await?;
    job.wait().await?;
    let finished = job.read(LogOptions::default(), usize::MAX).await?;
    for (how, read) in [("followed", followed), ("finished", finished)] {
        let found = read.count(READ);
        must(found == world, || {
            let bytes: Vec<u8> = read.bytes.values().flatten().copied().collect();
            format!(
                "{how}: {found} of {world} lines are as they were written: {:?}",
                bytes.escape_ascii().to_string()
            )
        })?;
    }
    job.done().await
}

/// Read after the end, without following, the logs are complete and the stream ends by itself.
pub(super) async fn a_finished_job_is_read_whole(bench: Bench<'_>) -> Checked {
    let job = bench.submit(&writer()).await?;
    job.wait().await?;
    let read = job.read(LogOptions::default(), usize::MAX).await?;
    check_whole(&read, bench.world())?;
    job.done().await
}

/// `tail` returns the last lines of each source and no others.
pub(super) async fn tail_is_the_end(bench: Bench<'_>) -> Checked {
    let job = bench.submit(&writer()).await?;
    job.wait().await?;
    let mut options = LogOptions::default();
    options.tail = Some(3);
    let read = job.read(options, usize::MAX).await?;
    for ((source, _), bytes) in &read.bytes {
        let lines = memchr::memchr_iter(b'\n', bytes).count();
        must(lines <= 3, || format!("a tail of 3 gave {lines} lines of {source}"))?;
    }
    let last = format!(" {} of {LINES}", LINES - 1);
    let found = read.lines_with("weft ").iter().filter(|line| line.contains(&last)).count();
    must(found > 0, || "the last line is not in the tail".to_owned())?;
    job.done().await
}

/// If sources are ranks, only the requested ones are read.
pub(super) async fn only_the_ranks_asked_for(bench: Bench<'_>) -> Checked {
    if !bench.capability().await?.rank_logs {
        return Ok(Verdict::Skipped("a source carries several ranks".to_owned()));
    }
    let job = bench.submit(&writer()).await?;
    let mut options = LogOptions::follow();
    options.ranks = vec![bench.world() - 1];
    let read = job.read(options, usize::MAX).await?;
    must(read.ranks == [bench.world() - 1], || format!("ranks {:?} were read", read.ranks))?;
    job.done().await
}
