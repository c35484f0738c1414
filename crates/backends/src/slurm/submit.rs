//! Submits exactly once, and finds a submission again.
//!
//! The program that runs `sbatch` first creates a folder named after the submission. `mkdir` succeeds once: a
//! second run of the same program, after a lost answer, starts no second `sbatch` but reads the first one's
//! answer. If even that is lost (the head node died, the disk was full), the marker in the job's comment
//! finds it.
//!
//! After an answer that is neither an id nor a clear refusal, nothing is sent again: the job is searched for
//! as long as slurmctld may take to queue it. If Slurm nevertheless has it twice, the script's first lines
//! let only one of the jobs run: it claims the submission by a link in the submission's folder
//! (`render/script.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use weftrun_core::backend::Rendered;
use weftrun_core::fabric::Fabric;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Access, Client};
use super::error::{NO_ANSWER, Verdict};
use super::ids::{self, JobId};
use super::records::Marker;
use super::render::Script;
use super::{BACKEND, error, quote};
use crate::remote::code_store::{self, Upload};
use crate::remote::{Answer, script};
use crate::submit_once::{self, Created, Policy, Submission, submit_once};

/// Exit code of the program if the log folder cannot be created or written.
const NO_LOG_DIR: i32 = 92;
/// Seconds after which an `sbatch` that does not end is killed on the cluster.
const SBATCH_LIMIT: i64 = 300;

pub async fn submit(client: &Client, rendered: &Rendered) -> Result<JobHandle> {
    if let Some(placeholder) = rendered.placeholders.first() {
        return Err(Error::new(
            ErrorKind::InvalidSpec,
            format!("`<{}>` was not filled in: {}", placeholder.name, placeholder.what),
        ));
    }
    send_code(client, rendered).await?;
    if let Access::Rest(rest) = &client.access {
        return super::rest::submit(client, rest, rendered).await;
    }
    let program = program(client, rendered)?;
    let way = Sbatch { program, sent: AtomicU32::new(0) };
    // The program may run again without a search, since it starts only one sbatch however often it runs.
    submit_once(&Sending::new(client, rendered, way), Policy { blind: true, ..POLICY }).await
}

/// If an answer does not show whether slurmctld accepted the job, nothing is sent again. weftrun searches for the job
/// until it is certain that none exists.
pub const POLICY: Policy = Policy {
    absence: Duration::from_mins(15),
    requests: 1,
    sends: 4,
    blind: false,
    patience: Duration::ZERO,
    pause: Duration::from_millis(500),
};

/// How a submission is sent.
#[async_trait]
pub trait Way: Sync {
    /// Sends the create request once.
    async fn create(&self, client: &Client, rendered: &Rendered) -> Result<Created<JobHandle>>;
}

/// A submission, which is searched for in the same way whether `sbatch` or slurmrestd sends it.
pub struct Sending<'a, W> {
    client: &'a Client,
    rendered: &'a Rendered,
    way: W,
    /// How long an absence must last; set after the first query for it.
    bound: OnceLock<Duration>,
}

impl<'a, W> Sending<'a, W> {
    pub fn new(client: &'a Client, rendered: &'a Rendered, way: W) -> Self {
        Self { client, rendered, way, bound: OnceLock::new() }
    }
}

#[async_trait]
impl<W: Way> Submission for Sending<'_, W> {
    type Made = JobHandle;

    async fn create(&self) -> Result<Created<JobHandle>> {
        self.way.create(self.client, self.rendered).await
    }

    async fn search(&self) -> Result<submit_once::SearchResult<JobHandle>> {
        self.client.forget_snapshot().await;
        let seen = search(self.client, &self.rendered.submission).await?;
        Ok(seen.job.map_or(submit_once::SearchResult::Absent, submit_once::SearchResult::Ours))
    }

    async fn absence(&self) -> Option<Duration> {
        let bound = absence_bound(self.client).await;
        Some(*self.bound.get_or_init(|| bound))
    }

    /// Returns the error of a submission with an unknown result. Its kind is never treated as a refusal.
    fn unseen(&self, lost: Error) -> Error {
        let kind =
            if lost.kind() == ErrorKind::Timeout { ErrorKind::Timeout } else { ErrorKind::Unreachable };
        let message = lost.message().to_owned();
        let seconds = self.bound.get().map_or(0, Duration::as_secs);
        Error::new(kind, message)
            .with_source(lost)
            .retryable()
            .hint(format!(
                "whether Slurm queued the job is not known: no job of this submission was seen for {seconds} s (marker weftrun:{})",
                self.rendered.submission
            ))
            .hint("run `weftrun list` before you submit it again: it finds the job, or says that there is none")
    }
}

/// A submission by `sbatch`.
struct Sbatch {
    program: String,
    sent: AtomicU32,
}

#[async_trait]
impl Way for Sbatch {
    async fn create(&self, client: &Client, rendered: &Rendered) -> Result<Created<JobHandle>> {
        let last = self.sent.fetch_add(1, Ordering::Relaxed) + 1 >= POLICY.sends;
        match client.transport.run_detached(&self.program).await {
            Ok(answer) => conclude(client, rendered, &answer).await,
            // Running the same program again is safe: if the first run started, it starts no second sbatch.
            Err(lost) if lost.is_retryable() && !last => Ok(Created::Unsent(lost)),
            Err(lost) if lost.is_retryable() => Ok(Created::Unknown(lost)),
            Err(failed) => Err(failed),
        }
    }
}

/// Returns the result that the output of the submitting program reports.
async fn conclude(client: &Client, rendered: &Rendered, answer: &Answer) -> Result<Created<JobHandle>> {
    client.forget_snapshot().await;
    let text = answer.text();
    if let Some(id) = (answer.code == 0).then(|| ids::submitted(&text)).flatten() {
        return Ok(Created::Made(handle(client, &id)));
    }
    if answer.code == NO_LOG_DIR {
        return Err(no_log_dir(client, answer));
    }
    let said = if answer.stderr.trim().is_empty() { &text } else { &answer.stderr };
    let error = error::of_command("sbatch", said, answer.code);
    match error::verdict(answer.code, said) {
        // The submission is freed only if it certainly created no job; in all other cases slurmctld may have
        // it.
        Verdict::Refused => {
            free(client, &rendered.submission).await?;
            Err(error)
        }
        Verdict::NotSent => {
            free(client, &rendered.submission).await?;
            Ok(Created::Unsent(error))
        }
        Verdict::Unknown => Ok(Created::Unknown(error)),
    }
}

/// Returns how long a job may still appear after its `sbatch` ended without an answer: the target's
/// `absence-seconds`, otherwise a bound from slurmctld's own timeouts. A message waits at most MessageTimeout
/// each to be read, processed and answered, and connecting takes up to TCPTimeout, to the first controller
/// and to the backup.
async fn absence_bound(client: &Client) -> Duration {
    const LEAST: u64 = 30;
    const MOST: u64 = 900;
    if let Some(seconds) = client.settings.absence_seconds {
        return Duration::from_secs(seconds);
    }
    let (mut message, mut tcp) = (10, 2);
    if !client.access.is_rest()
        && let Ok(cluster) = client.cluster()
        && let Ok(answer) = client.transport.read(&format!("scontrol{cluster} show config")).await
    {
        let text = answer.text();
        message = seconds_of(&text, "MessageTimeout").unwrap_or(message);
        tcp = seconds_of(&text, "TCPTimeout").unwrap_or(tcp);
    }
    Duration::from_secs((3 * message.min(MOST) + 2 * tcp.min(MOST)).clamp(LEAST, MOST))
}

/// Parses a duration in the output of `scontrol show config`, such as `MessageTimeout          = 10 sec`.
fn seconds_of(config: &str, name: &str) -> Option<u64> {
    let value = config.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == name)?.1;
    value.split_whitespace().next()?.parse().ok()
}

fn no_log_dir(client: &Client, answer: &Answer) -> Error {
    // Only the rows for full and read-only file systems and for missing permissions apply to a folder.
    let failed = error::of_command("mkdir", &answer.stderr, 1);
    let hint = failed.hints().first().filter(|_| failed.kind() == ErrorKind::Refused).cloned();
    Error::new(
        ErrorKind::Refused,
        format!("the folder for logs cannot be used: {}", error::essence(&answer.stderr)),
    )
    .with("log-dir", client.settings.log_dir())
    .hint(hint.unwrap_or_else(|| "set `log-dir` of the target to a shared folder you may write".to_owned()))
}

/// Sends the archive of the job's folder, if it has one, into the folder of the submission.
async fn send_code(client: &Client, rendered: &Rendered) -> Result<()> {
    let Some(content) = rendered.prepared.get::<Script>().and_then(|script| script.code.as_ref()) else {
        return Ok(());
    };
    make_log_dir(client).await?;
    let upload = Upload::new(content, &client.enter_log_dir()?, "$dir/.code-$(id -u)")?;
    let host = client.transport.host();
    if !Upload::is_there(host, &client.transport.read(&upload.look()).await?)? {
        for program in upload.programs() {
            code_store::sent(host, &client.transport.read(&program?).await?)?;
        }
    }
    // In a name of its own: the folder of the submission is made by what may run twice.
    let link =
        upload.link(&format!("\"$dir/.submit-{}.{}\"", rendered.submission, script::ARCHIVE), "exit 91");
    code_store::sent(host, &client.transport.read(&link).await?)
}

/// Creates the log folder, if it can be reached without `sbatch`.
pub async fn make_log_dir(client: &Client) -> Result<()> {
    if !client.has_files() {
        return Ok(());
    }
    let make = "[ -d \"$dir\" ] || mkdir -p -- \"$dir\"";
    let answer = client.transport.read(&format!("{}{make}", client.enter_log_dir()?)).await?;
    if answer.code == 0 { Ok(()) } else { Err(no_log_dir(client, &answer)) }
}

/// Allows the submission to be sent again: it is certain that no job of it exists.
async fn free(client: &Client, submission: &SubmissionId) -> Result<()> {
    let program = format!("{}rm -rf -- \"$dir/.submit-{submission}/sent\"", client.enter_log_dir()?);
    client.transport.run(&program).await.map(drop)
}

/// Finds the job of a submission; none if it is certain that none exists.
///
/// # Errors
/// [`ErrorKind::Timeout`] if that is not certain yet: an `sbatch` without an answer ended too recently.
pub async fn find(client: &Client, submission: &SubmissionId) -> Result<Option<JobHandle>> {
    client.forget_snapshot().await;
    let seen = search(client, submission).await?;
    if seen.job.is_some() || seen.sent.begun.is_none() {
        return Ok(seen.job);
    }
    let left = seen.sent.certain_in(absence_bound(client).await);
    if left == 0 {
        return Ok(None);
    }
    Err(Error::new(ErrorKind::Timeout, "whether Slurm queued this submission is not known yet")
        .with("submission", submission)
        .hint(format!("ask again in {left} s: until then Slurm may still queue the job"))
        .retryable())
}

/// The result of a search for a submission.
#[derive(Debug)]
pub struct Seen {
    pub job: Option<JobHandle>,
    /// The submitting program's notes on the cluster.
    sent: Sent,
}

/// Searches for the job of a submission: in the submission's folder on the cluster, in the queue, in
/// accounting.
pub async fn search(client: &Client, submission: &SubmissionId) -> Result<Seen> {
    let sent = if client.has_files() { Sent::read(client, submission).await? } else { Sent::default() };
    let is_it =
        |marker: &Option<Marker>| marker.as_ref().is_some_and(|marker| marker.submission == *submission);
    let mut job = sent.claim.clone();
    if job.is_none() {
        let queue = client.snapshot().await?;
        // Of two pending copies, the one queued first is likely to start first.
        job = queue.iter().filter(|job| is_it(&job.marker)).map(super::records::Job::whole).min();
    }
    job = job.or_else(|| sent.answer.clone());
    if job.is_none() {
        let ended = client.accounted(None, 30).await?.unwrap_or_default();
        job = ended.iter().filter(|job| is_it(&job.marker)).map(super::records::Job::whole).min();
    }
    Ok(Seen { job: job.map(|id| handle(client, &id)), sent })
}

/// The contents of a submission's folder.
#[derive(Debug, Default)]
struct Sent {
    /// The job that claimed the submission when it started.
    claim: Option<JobId>,
    /// The id that sbatch printed.
    answer: Option<JobId>,
    /// Start of sbatch, by the cluster's clock.
    begun: Option<i64>,
    /// End of sbatch.
    ended: Option<i64>,
    /// Current time of the cluster's clock.
    now: i64,
}

impl Sent {
    async fn read(client: &Client, submission: &SubmissionId) -> Result<Self> {
        let program = format!(
            "{}once=$dir/.submit-{submission}\n\
             tell() {{ [ ! -f \"$2\" ] || sed -e \"s/^/$1 /\" < \"$2\"; }}\n\
             printf 'now %s\\nclaim %s\\n' \"$(date +%s)\" \"$(readlink -- \"$once/job\")\"\n\
             tell begun \"$once/sent/begun\"\ntell ended \"$once/sent/ended\"\n\
             tell answer \"$once/sent/answer\"\ntell answer \"$once/answer\"\n:",
            client.enter_log_dir()?
        );
        let answer = client.transport.read(&program).await?;
        let text = answer.text();
        let of = |key: &str| -> String {
            let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            lines.collect::<Vec<_>>().join("\n")
        };
        let number = |key: &str| of(key).lines().next().and_then(|line| line.trim().parse().ok());
        Ok(Self {
            claim: JobId::parse(&of("claim")),
            answer: ids::submitted(&of("answer")),
            begun: number("begun"),
            ended: number("ended"),
            now: number("now").unwrap_or_default(),
        })
    }

    /// Returns the seconds until a job that was not seen is certainly absent.
    fn certain_in(&self, bound: Duration) -> i64 {
        let bound = i64::try_from(bound.as_secs()).unwrap_or(i64::MAX);
        let last = self.ended.or_else(|| self.begun.map(|begun| begun.saturating_add(SBATCH_LIMIT)));
        last.map_or(0, |last| last.saturating_add(bound).saturating_sub(self.now).max(0))
    }
}

/// Returns the jobs that claimed each of the submissions, for submissions that several jobs carry.
///
/// # Errors
/// As [`Client::read`].
pub async fn claims(client: &Client, submissions: &[SubmissionId]) -> Result<Vec<(SubmissionId, JobId)>> {
    let mut found = Vec::new();
    for submission in submissions {
        if let Some(claim) = Sent::read(client, submission).await?.claim {
            found.push((submission.clone(), claim));
        }
    }
    Ok(found)
}

pub fn handle(client: &Client, id: &JobId) -> JobHandle {
    JobHandle::new(BACKEND, &client.target, [id.to_string()])
}

/// Returns the script of a rendered job.
pub fn script_of(rendered: &Rendered) -> Result<&str> {
    let document = rendered.documents.first();
    document
        .map(|document| document.text.as_str())
        .ok_or_else(|| Error::new(ErrorKind::InvalidSpec, "there is no script to submit"))
}

fn program(client: &Client, rendered: &Rendered) -> Result<String> {
    let script = script_of(rendered)?;
    let prepared = rendered.prepared.get::<Script>();
    let marker = Marker { fabric: Some(Fabric::Off), ..Marker::of(&rendered.submission) };
    let comment =
        prepared.and_then(|script| script.value("comment")).map_or_else(|| marker.text(), str::to_owned);
    let (submission, cluster, enter) = (&rendered.submission, client.cluster()?, client.enter_log_dir()?);
    // On the command line too: sacct keeps the submit line in cases where it does not keep the comment
    // (AccountingStoreFlags).
    let (name, comment) = (
        quote::word(&format!("--job-name={}", rendered.name))?,
        quote::word(&format!("--comment={comment}"))?,
    );
    let output = match prepared.filter(|script| script.from_home).and_then(|script| script.value("output")) {
        Some(output) => format!(" --output=\"${{HOME:-}}\"/{}", quote::word(output)?),
        None => String::new(),
    };
    let folder = match &client.folder {
        Some(folder) => format!("cd -- {} 2> /dev/null || :\n", quote::word(folder)?),
        None => String::new(),
    };
    // sbatch makes no folder for the output, and a job without one ends at once and writes nothing.
    let own = prepared.filter(|script| script.own_output).and_then(|script| script.value("output"));
    let own = match own.and_then(|path| path.rsplit_once('/')) {
        Some((parent, _)) if !parent.is_empty() => format!("mkdir -p -- {} || :\n", quote::word(parent)?),
        _ => String::new(),
    };
    let sbatch = quote::feed(&format!("$limit sbatch{cluster} --parsable {name} {comment}{output}"), script)?;
    // Folders of submissions are kept while a copy of one may still be pending. The cleanup runs in the
    // background, for one submission in sixteen.
    let old = "  find \"$dir\" -maxdepth 1 -name '.submit-*' -user \"$(id -u)\" -mtime +30 -exec rm -rf -- {} + > /dev/null 2>&1 &\n";
    let tidy = if submission.as_str().starts_with('0') { old } else { "" };
    Ok(format!(
        "{enter}[ -d \"$dir\" ] || mkdir -p -- \"$dir\" || exit {NO_LOG_DIR}
once=$dir/.submit-{submission}
mkdir -- \"$once\" 2> /dev/null
# Not a link, and not somebody else's: the log folder may be one that others write to.
[ -d \"$once\" ] && [ ! -L \"$once\" ] && [ -O \"$once\" ] || {{ mkdir -- \"$once\"; exit {NO_LOG_DIR}; }}
sent=$once/sent
limit=
if command -v timeout > /dev/null 2>&1; then limit='timeout -k 5 {SBATCH_LIMIT}'; fi
weftrun_sbatch() {{
{sbatch}}}
trap '' HUP PIPE
# sbatch starts the job where it is called.
{folder}{own}if mkdir -- \"$sent\" 2> /dev/null; then
  # A shell says only that it could not write; cat says why.
  date +%s > \"$sent/begun\" 2> /dev/null || {{ date +%s | cat > \"$sent/begun\"; rm -rf -- \"$sent\"; exit {NO_LOG_DIR}; }}
  answer=$(weftrun_sbatch 2> \"$sent/error\")
  code=$?
  # Written before it is printed: whoever asked may be gone.
  printf '%s\n' \"$answer\" > \"$sent/answer\"
  date +%s > \"$sent/ended\"
  printf '%s\n' \"$code\" > \"$sent/code\"
  printf '%s\n' \"$answer\"
  [ ! -s \"$sent/error\" ] || cat -- \"$sent/error\" >&2
{tidy}  exit $code
fi
[ -d \"$sent\" ] || {{ mkdir -- \"$sent\"; exit {NO_LOG_DIR}; }}
tries=0
while [ ! -s \"$sent/code\" ] && [ $tries -lt 20 ]; do sleep 0.1; tries=$((tries + 1)); done
cat -- \"$sent/error\" >&2
cat -- \"$sent/answer\" || exit {NO_ANSWER}
[ -s \"$sent/code\" ] || exit {NO_ANSWER}
exit \"$(cat -- \"$sent/code\")\"
"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_testkit::child;

    /// Creates a folder with fake Slurm programs, for the submitting program.
    struct Host {
        dir: tempfile::TempDir,
        client: Client,
    }

    impl Host {
        fn new() -> Self {
            use std::os::unix::fs::PermissionsExt as _;
            let dir = tempfile::tempdir().unwrap();
            let sbatch = dir.path().join("bin/sbatch");
            std::fs::create_dir_all(dir.path().join("bin")).unwrap();
            let record = "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done > \"$OUT/words\"\ncat > \"$OUT/script\"\necho call >> \"$OUT/calls\"\necho 42\n";
            std::fs::write(&sbatch, record).unwrap();
            std::fs::set_permissions(&sbatch, std::fs::Permissions::from_mode(0o755)).unwrap();
            let target = weftrun_core::backend::TargetConfig::new("t", "slurm", dir.path())
                .with("log-dir", dir.path().join("it's logs").display().to_string());
            let client = Client::new(&target).unwrap();
            Self { dir, client }
        }

        fn rendered(name: &str, text: &str) -> Rendered {
            let document = weftrun_core::backend::Document {
                title: "sbatch script".to_owned(),
                language: weftrun_core::backend::Language::Shell,
                text: text.to_owned(),
            };
            Rendered::new(name, SubmissionId::from_random(7), document)
        }

        /// Runs the submitting program, as the transport passes it, with one of the shells.
        fn run(&self, shell: &str, program: &str) -> std::process::Output {
            use std::io::Write as _;
            let path = format!("{}:{}", self.dir.path().join("bin").display(), child::path());
            let mut child = child::command(shell)
                .arg("-s")
                .current_dir(self.dir.path())
                .envs([("PATH", path.as_str()), ("OUT", self.dir.path().to_str().unwrap())])
                .env("HOME", self.dir.path())
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let text = format!("weftrun_main() {{\n(\n{program}) < /dev/null\n}}\nweftrun_main\n");
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        }

        fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
        }
    }

    fn hostile() -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::*;
        let piece = prop_oneof![
            Just("'\"\\"),
            Just("$(touch canary)"),
            Just("`touch canary`"),
            Just("\ntouch canary\n"),
            Just("\nWEFTRUN_END\ntouch canary\n"),
            Just("\nWEFTRUN_END_00000000\ntouch canary\n"),
            Just("\nWEFTRUN_END\0_\ntouch canary\n"),
            Just("\0"),
            Just("\r"),
            Just("\r\n"),
            Just("}\n)\ntouch canary\n"),
            Just("%s\\101"),
            Just("\u{1}\u{7f}\u{81}ā🦀"),
            Just("plain\n"),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]

        /// Point A1 of issue 14.
        #[test]
        fn a_hostile_script_reaches_sbatch_byte_for_byte_or_is_refused(text in hostile(), name in hostile()) {
            for shell in ["dash", "bash"] {
                let host = Host::new();
                let rendered = Host::rendered(&name, &text);
                match program(&host.client, &rendered) {
                    Err(refused) => {
                        proptest::prop_assert_eq!(refused.kind(), ErrorKind::InvalidSpec);
                        proptest::prop_assert!(format!("{text}{name}").contains('\0'), "only a NUL is refused");
                    }
                    Ok(program) => {
                        let done = host.run(shell, &program);
                        proptest::prop_assert_eq!(host.read("script"), text.clone(), "{}: {:?}", shell, done);
                        let words = host.read("words");
                        let wanted = format!("--job-name={name}");
                        proptest::prop_assert!(words.split('\0').any(|word| word == wanted), "{}: {}", shell, words);
                        proptest::prop_assert_eq!(done.stdout, b"42\n".to_vec());
                    }
                }
                proptest::prop_assert!(!host.dir.path().join("canary").exists(), "{} ran a text", shell);
            }
        }
    }

    #[test]
    fn the_same_program_twice_calls_sbatch_once() {
        for shell in ["dash", "bash"] {
            let host = Host::new();
            let program = program(&host.client, &Host::rendered("job", "#!/bin/bash\ntrue\n")).unwrap();
            for _ in 0..2 {
                assert_eq!(host.run(shell, &program).stdout, b"42\n", "{shell}");
            }
            assert_eq!(host.read("calls"), "call\n", "{shell}");
        }
    }

    /// Point A4 of issue 14: in a log folder that other users can write to, a planted link is not followed.
    #[test]
    fn a_planted_folder_of_a_submission_is_refused() {
        for shell in ["dash", "bash"] {
            let (host, victim) = (Host::new(), tempfile::tempdir().unwrap());
            let rendered = Host::rendered("job", "#!/bin/bash\ntrue\n");
            let logs = host.dir.path().join("it's logs");
            std::fs::create_dir_all(&logs).unwrap();
            std::os::unix::fs::symlink(victim.path(), logs.join(format!(".submit-{}", rendered.submission)))
                .unwrap();
            let done = host.run(shell, &program(&host.client, &rendered).unwrap());
            assert_eq!(done.status.code(), Some(NO_LOG_DIR), "{shell}: {done:?}");
            assert_eq!(std::fs::read_dir(victim.path()).unwrap().count(), 0, "{shell} followed the link");
            assert_eq!(host.read("calls"), "", "{shell} submitted");
        }
    }

    #[test]
    fn absence_is_certain_only_after_the_bound() {
        let bound = Duration::from_secs(34);
        let sent = |begun, ended| Sent { begun, ended, now: 1000, ..Sent::default() };
        assert_eq!(sent(None, None).certain_in(bound), 0, "sbatch was never started");
        assert_eq!(sent(Some(900), Some(990)).certain_in(bound), 24);
        assert_eq!(sent(Some(900), Some(960)).certain_in(bound), 0);
        assert_eq!(
            sent(Some(990), None).certain_in(bound),
            990 + SBATCH_LIMIT + 34 - 1000,
            "sbatch may still run"
        );
    }

    #[test]
    fn timeouts_are_read_from_the_configuration_of_slurmctld() {
        let config = "MessageTimeout          = 100 sec\nTCPTimeout              = 2 sec\n";
        assert_eq!(
            (seconds_of(config, "MessageTimeout"), seconds_of(config, "TCPTimeout")),
            (Some(100), Some(2))
        );
        assert_eq!(seconds_of(config, "Timeout"), None);
    }
}
