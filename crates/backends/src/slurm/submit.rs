//! Submitting exactly once, and finding a submission again.
//!
//! The program that runs `sbatch` makes a folder named after the submission first. `mkdir` succeeds once: a second run
//! of the same program, after a lost answer, starts no second `sbatch` but reads the first one's answer. Where even
//! that is lost (the head node died, the disk was full), the marker in the job's comment finds it.

use std::time::Duration;

use weftrun_core::backend::Rendered;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::Client;
use super::ids::{self, JobId};
use super::records::Marker;
use super::transport::Answer;
use super::{BACKEND, error, quote};

/// Exit code of the program where the log folder cannot be made or written.
const NO_LOG_DIR: i32 = 92;
/// Exit code of the program where an earlier run began and left no answer.
const NO_ANSWER: i32 = 93;
/// How often the same submission is asked for again after a lost connection.
const ATTEMPTS: u32 = 4;

/// Submits what was rendered.
pub async fn submit(client: &Client, rendered: &Rendered) -> Result<JobHandle> {
    if let Some(hole) = rendered.holes.first() {
        return Err(Error::new(
            ErrorKind::InvalidSpec,
            format!("`<{}>` was not filled in: {}", hole.name, hole.what),
        ));
    }
    if let Some(rest) = client.rest() {
        return super::rest::submit(client, rest, rendered).await;
    }
    let program = program(client, rendered)?;
    let mut wait = Duration::from_millis(500);
    for attempt in 1..=ATTEMPTS {
        match client.run(&program).await {
            Ok(answer) => match conclude(client, rendered, &answer).await {
                // slurmctld was away, and has no such job: it may be back.
                Err(refused) if refused.is_retryable() && attempt < ATTEMPTS => {
                    tracing::debug!(attempt, error = %refused, "sbatch was not heard");
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                outcome => return outcome,
            },
            Err(lost) if lost.is_retryable() => {
                tracing::debug!(attempt, error = %lost, "the answer of sbatch was lost");
                client.forget_snapshot().await;
                if let Ok(Some(found)) = find(client, &rendered.submission).await {
                    return Ok(found);
                }
                if attempt == ATTEMPTS {
                    return Err(unknown(lost, rendered));
                }
                // The same program again is safe: it finds its own folder.
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            Err(failed) => return Err(failed),
        }
    }
    Err(Error::new(ErrorKind::Unexpected, "a submission ended without a result"))
}

fn unknown(lost: Error, rendered: &Rendered) -> Error {
    lost.hint(format!(
        "whether the job was taken is not known; `weftrun list` shows it once the cluster answers (marker weftrun:{})",
        rendered.submission
    ))
}

async fn conclude(client: &Client, rendered: &Rendered, answer: &Answer) -> Result<JobHandle> {
    client.forget_snapshot().await;
    let text = answer.text();
    if let Some(id) = (answer.code == 0).then(|| ids::submitted(&text)).flatten() {
        return Ok(handle(client, &id));
    }
    if answer.code == NO_LOG_DIR {
        return Err(no_log_dir(client, answer));
    }
    if answer.code != 0 && answer.code != NO_ANSWER && error::is_final_refusal(&answer.stderr) {
        // Only a clear refusal frees the submission: after anything else slurmctld may have the job.
        free(client, &rendered.submission).await?;
        return Err(error::of_command("sbatch", &answer.stderr, answer.code));
    }
    // Neither an id nor a clear refusal: slurmctld may have the job.
    let mut sure = false;
    for pause in [0, 1000, 3000] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        client.forget_snapshot().await;
        let looked = find(client, &rendered.submission).await;
        sure = matches!(looked, Ok(None));
        match looked {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(failed) => tracing::debug!(error = %failed, "looking for the submission"),
        }
    }
    let said = if answer.stderr.trim().is_empty() { &text } else { &answer.stderr };
    let error = error::of_command("sbatch", said, answer.code);
    if sure {
        free(client, &rendered.submission).await?;
        return Err(error.hint("no job carries this submission's marker: nothing was queued"));
    }
    Err(unknown(error, rendered))
}

fn no_log_dir(client: &Client, answer: &Answer) -> Error {
    // Of the table's rows only those of full and forbidden file systems are about a folder.
    let failed = error::of_command("mkdir", &answer.stderr, 1);
    let hint = failed.hints().first().filter(|_| failed.kind() == ErrorKind::Refused).cloned();
    Error::new(
        ErrorKind::Refused,
        format!("the folder for logs cannot be used: {}", error::essence(&answer.stderr)),
    )
    .with("log-dir", &client.settings.log_dir)
    .hint(hint.unwrap_or_else(|| "set `log-dir` of the target to a shared folder you may write".to_owned()))
}

/// Makes the folder for logs, where it can be reached without `sbatch`.
pub async fn make_log_dir(client: &Client) -> Result<()> {
    if !client.has_files() {
        return Ok(());
    }
    let make = "[ -d \"$dir\" ] || mkdir -p -- \"$dir\"";
    let answer = client.read(&format!("{}{make}", client.enter_log_dir()?)).await?;
    if answer.code == 0 { Ok(()) } else { Err(no_log_dir(client, &answer)) }
}

/// Lets the submission be tried again: it is certain that there is no job of it.
async fn free(client: &Client, submission: &SubmissionId) -> Result<()> {
    let program = format!("{}rm -rf -- \"$dir/.submit-{submission}\"", client.enter_log_dir()?);
    client.run(&program).await.map(drop)
}

/// Finds the job of a submission: in the queue, by the answer kept on the cluster, in accounting.
pub async fn find(client: &Client, submission: &SubmissionId) -> Result<Option<JobHandle>> {
    let is_it =
        |marker: &Option<Marker>| marker.as_ref().is_some_and(|marker| marker.submission == *submission);
    let queue = client.snapshot().await?;
    if let Some(job) = queue.iter().find(|job| is_it(&job.marker)) {
        return Ok(Some(handle(client, &job.whole())));
    }
    if client.rest().is_none() {
        let kept =
            format!("{}cat -- \"$dir/.submit-{submission}/answer\" 2> /dev/null\n:", client.enter_log_dir()?);
        if let Some(id) = ids::submitted(&client.read(&kept).await?.text()) {
            return Ok(Some(handle(client, &id)));
        }
    }
    let ended = client.accounted_since(30).await?.unwrap_or_default();
    Ok(ended.iter().rfind(|job| is_it(&job.marker)).map(|job| handle(client, &job.whole())))
}

/// The handle of a job.
pub fn handle(client: &Client, id: &JobId) -> JobHandle {
    JobHandle::new(BACKEND, &client.target, [id.to_string()])
}

fn program(client: &Client, rendered: &Rendered) -> Result<String> {
    let script = rendered
        .documents
        .first()
        .ok_or_else(|| Error::new(ErrorKind::InvalidSpec, "there is no script to submit"))?;
    // On the command line too: sacct keeps the line where it does not keep the comment (AccountingStoreFlags).
    let comment =
        script.text.lines().filter(|line| line.starts_with("#SBATCH --comment=")).find_map(Marker::find);
    let comment = comment
        .unwrap_or_else(|| Marker { submission: rendered.submission.clone(), fabric: "off".to_owned() });
    let (start, rest) = quote::here_document(&script.text);
    let (submission, cluster, enter) = (&rendered.submission, client.cluster()?, client.enter_log_dir()?);
    let (name, comment) = (
        quote::word(&format!("--job-name={}", rendered.name))?,
        quote::word(&format!("--comment={}", comment.text()))?,
    );
    // The folders of last week are of no use any more. Nobody waits for that, and one submission in sixteen does it.
    let old =
        "  find \"$dir\" -maxdepth 1 -name '.submit-*' -mtime +7 -exec rm -rf -- {} + > /dev/null 2>&1 &\n";
    let tidy = if submission.as_str().starts_with('0') { old } else { "" };
    Ok(format!(
        "{enter}[ -d \"$dir\" ] || mkdir -p -- \"$dir\" || exit {NO_LOG_DIR}
guard=$dir/.submit-{submission}
weftrun_sbatch() {{
sbatch{cluster} --parsable {name} {comment} {start}
{rest}
}}
trap '' HUP
if mkdir -- \"$guard\" 2> /dev/null; then
  # A shell says only that it could not write; cat says why.
  printf 'begun\\n' > \"$guard/begun\" 2> /dev/null || {{ echo begun | cat > \"$guard/begun\"; rm -rf -- \"$guard\"; exit {NO_LOG_DIR}; }}
  answer=$(weftrun_sbatch 2> \"$guard/error\")
  code=$?
  printf '%s\\n' \"$answer\"
  printf '%s\\n' \"$answer\" > \"$guard/answer\"
  printf '%s\\n' \"$code\" > \"$guard/code\"
  [ ! -s \"$guard/error\" ] || cat -- \"$guard/error\" >&2
{tidy}  exit $code
fi
[ -d \"$guard\" ] || {{ mkdir -- \"$guard\"; exit {NO_LOG_DIR}; }}
tries=0
while [ ! -s \"$guard/code\" ] && [ $tries -lt 20 ]; do sleep 0.1; tries=$((tries + 1)); done
cat -- \"$guard/error\" >&2
cat -- \"$guard/answer\" || exit {NO_ANSWER}
[ -s \"$guard/code\" ] || exit {NO_ANSWER}
exit \"$(cat -- \"$guard/code\")\"
"
    ))
}
