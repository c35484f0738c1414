//! Queries NCCL's RAS service inside a running job: whether its ranks make progress, and which one does not.

use std::time::{Duration, Instant};

use crate::report::{Asked, HealthReport};
use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use weftrun_core::backend::{ExecRequest, PortConnection};
use weftrun_core::fabric::{Change, FabricPlan};
use weftrun_core::nccl::TransportMap;
use weftrun_core::nccl::ras::{self, Report};
use weftrun_core::{Error, ErrorKind, Finding, Result};
use weftrun_diagnose::Sources;
use weftrun_diagnose::cause::{Why, WhyState};
use weftrun_diagnose::health::{self, HealthState, INTERVAL, Observer, Policy};

use crate::Job;
use crate::inspect::NO_TOOL;
use crate::runtime::on_runtime;

mod answer;
mod diagnose;
mod profiler;
mod watch;

use answer::Answer;
use watch::Target;
pub use watch::watch_health_at;

/// How a job's RAS service is queried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthOptions {
    /// How long ranks that are behind are observed. Only one query is sent if the job's NCCL version is not
    /// safe to query repeatedly.
    pub observe: Duration,
    /// Time limit of one query.
    pub timeout: Duration,
    /// Query versions of NCCL whose RAS service can crash the job.
    pub force: bool,
    /// Ask for NCCL's own diagnostics too (NCCL 2.31 and later).
    pub diagnose: bool,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self { observe: INTERVAL * 2, timeout: INTERVAL * 2, force: false, diagnose: false }
    }
}

/// The seconds RAS may wait for other processes: shorter than the time limit of a query, and what the
/// official client uses.
const COLLECT: u32 = 5;

/// Largest number of places in a job that are tried, one after another.
const PLACES: usize = 3;

/// Why a query returned no report.
enum NoReport {
    /// No place of the job can answer.
    Final(HealthState, String),
    /// Another place may answer.
    Next(String),
}

impl NoReport {
    /// Adds why the previous way failed.
    fn after(self, before: &str) -> Self {
        match self {
            no if before.is_empty() => no,
            Self::Final(state, reason) => Self::Final(state, format!("{before}; {reason}")),
            Self::Next(reason) => Self::Next(format!("{before}; {reason}")),
        }
    }
}

/// How the service inside a job is reached.
#[derive(PartialEq)]
enum Way {
    /// Over a forwarded port.
    Port,
    /// By a command beside a rank; with the reason why no port can be connected to, if that was tried.
    Exec(String),
}

impl Way {
    fn name(&self) -> &'static str {
        match self {
            Self::Port => "port-forward",
            Self::Exec(_) => "exec",
        }
    }
}

impl Job {
    /// Queries NCCL's RAS service inside the job, through [`Job::open_port`] if the backend supports it and
    /// the user may use it, or else through [`Job::exec`]. Nothing is changed in the job; the service is in
    /// every process since NCCL 2.24.3. The logs contain the version, and so whether it is safe to query.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job) -> weftrun::Result<()> {
    /// let health = job.health(&weftrun::HealthOptions::default()).await?;
    /// for culprit in &health.culprits {
    ///     println!("rank {} on {}: {}", culprit.rank, culprit.host, culprit.why);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and the other errors of [`Job::describe`]. A missing answer is a state, not an
    /// error.
    pub async fn health(&self, options: &HealthOptions) -> Result<HealthReport> {
        let summary = self.describe().await?.summary;
        if summary.phase.is_terminal() {
            let reason = format!(
                "the job has ended ({}); NCCL's RAS service exists only while it runs",
                summary.phase
            );
            return Ok(HealthReport::without_answer(HealthState::Unreachable, reason, Asked::default()));
        }
        let (target, logs) = Target::of(self).await;
        let report = observe(target, &logs, options).await?;
        let why = Why { state: WhyState::Running, cause: report.cause.clone(), ..Why::default() };
        self.keep_seen(&why, report.state == HealthState::Healthy);
        Ok(report)
    }

    /// Asks the service why a running job makes no progress, where the logs name a version of NCCL that is safe to ask. The
    /// last line of the rank that it names is added. Returns the state that it reports.
    pub(crate) async fn explain_by_ras(
        &self,
        why: &mut Why,
        logs: &TransportMap,
        observed: Duration,
    ) -> Option<HealthState> {
        let safe = {
            let logs = logs.snapshot();
            let mut versions = logs.live_versions().map(Policy::of_version).peekable();
            versions.peek().is_some()
                && versions.all(|policy| matches!(policy, Policy::Once | Policy::Repeat))
        };
        if !safe {
            return None;
        }
        let options = HealthOptions { observe: observed, timeout: INTERVAL, ..HealthOptions::default() };
        let answer = on_runtime(observe(Target::new(self, logs), logs, &options)).await;
        let health = answer.ok()?;
        if matches!(health.state, HealthState::Unreachable | HealthState::Unsupported) {
            let message = format!("NCCL's RAS service was asked and did not answer: {}", health.reason);
            why.findings.push(Finding::info("WHY-RAS", message));
        } else {
            health.explain(why);
        }
        if let Some(cause) = &mut why.cause
            && let [rank] = cause.ranks.as_slice()
        {
            cause.evidence.extend(on_runtime(async { Ok(self.last_line(*rank).await) }).await.ok().flatten());
        }
        Some(health.state)
    }

    /// Sends one query. If a port cannot be connected to, because the right is missing or the cluster does
    /// not support it, this query and all later ones go through a command.
    async fn query<A: Answer>(
        &self,
        port: u16,
        rank: Option<u32>,
        way: &mut Way,
        request: &str,
    ) -> std::result::Result<A, NoReport> {
        if *way == Way::Port {
            match self.query_port(port, rank, request).await {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Credentials | ErrorKind::Refused | ErrorKind::Unsupported
                    ) =>
                {
                    *way = Way::Exec(error.to_string());
                }
                answer => return answer.map_err(|error| NoReport::Next(error.to_string())),
            }
        }
        let Way::Exec(before) = way else { return Err(NoReport::Next(String::new())) };
        self.query_by_command(port, rank, request).await.map_err(|no| no.after(before))
    }

    async fn query_port<A: Answer>(&self, port: u16, rank: Option<u32>, request: &str) -> Result<A> {
        let connection = self.open_port(rank, port).await?;
        let answer = converse(connection.as_ref(), request).await?;
        parsed(answer).await.0.map_err(|error| Error::new(ErrorKind::Protocol, error))
    }

    /// Sends one query from inside the job: through bash, Python or netcat.
    async fn query_by_command<A: Answer>(
        &self,
        port: u16,
        rank: Option<u32>,
        request: &str,
    ) -> std::result::Result<A, NoReport> {
        let mut command = ExecRequest::new(["sh", "-c", &script(port, request)]);
        command.rank = rank;
        match self.collect(&command, ras::MAX_ANSWER).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                // The hint names the missing setting, such as a kubeconfig.
                Err(NoReport::Final(HealthState::Unsupported, error.one_line()))
            }
            Err(error) => Err(NoReport::Next(error.to_string())),
            Ok(done) if done.code == NO_TOOL => {
                let reason = "the container has none of bash, python3 and nc to reach the RAS service with";
                Err(NoReport::Final(HealthState::Unsupported, reason.to_owned()))
            }
            Ok(done) if done.code == NO_ANSWER => Err(NoReport::Next(format!(
                "a process listens on port {port} of localhost inside the job and does not answer as a RAS service"
            ))),
            Ok(done) if done.code == NO_CONNECTION => {
                Err(NoReport::Next(format!("nothing listens on port {port} of localhost inside the job")))
            }
            Ok(mut done) => {
                let (report, out) = parsed(std::mem::take(&mut done.out)).await;
                let complaint = done.complaint();
                report.map_err(|error| {
                    let silent = out.is_empty() && !complaint.is_empty();
                    NoReport::Next(if silent { format!("{error}: {complaint}") } else { error })
                })
            }
        }
    }
}

/// Queries the RAS service at `HOST:PORT`. `logs` are those of its job, if available: they prove global
/// ranks.
///
/// # Errors
/// [`ErrorKind::Usage`] if it is not an address. A missing answer is a state, not an error.
pub async fn health_at(address: &str, logs: &TransportMap, options: &HealthOptions) -> Result<HealthReport> {
    check_address(address)?;
    on_runtime(observe(Target::Address(address), logs, options)).await
}

/// Queries a service until its state is certain, or the time to observe it has passed.
async fn observe(
    mut target: Target<'_>,
    logs: &TransportMap,
    options: &HealthOptions,
) -> Result<HealthReport> {
    if let Some((state, reason)) = refusal(logs, options) {
        return Ok(HealthReport::without_answer(state, reason, Asked::default()));
    }
    let mut watch = Watch::new(logs, options);
    let mut report = loop {
        let asked = target.ask(&ras::request(COLLECT), options.timeout).await;
        match watch.take(asked, &target.via()) {
            Next::Repeat => tokio::time::sleep(INTERVAL).await,
            Next::Elsewhere(_) if target.has_further_place() => target.advance(),
            Next::Done(report) | Next::Elsewhere(report) => break report,
        }
    };
    if options.diagnose {
        report.diagnostics = Some(diagnose::ask(&mut target, logs, &report, options).await);
    }
    Ok(report)
}

fn check_address(address: &str) -> Result<()> {
    let named =
        address.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if named.is_none() {
        return Err(Error::new(ErrorKind::Usage, format!("`{address}` is not HOST:PORT"))
            .hint(format!("localhost:{} is NCCL's own address", ras::DEFAULT_PORT)));
    }
    Ok(())
}

async fn query_address<A: Answer>(address: &str, request: &str) -> std::result::Result<A, String> {
    let stream =
        TcpStream::connect(address).await.map_err(|error| format!("cannot connect to {address}: {error}"))?;
    let answer = converse(&Tcp::from(stream), request).await;
    let answer = answer.map_err(|error| format!("the connection to {address} broke: {error}"))?;
    parsed(answer).await.0
}

/// Parses an answer beside the caller, whose time limit would otherwise wait for the end of a hostile one. Returns the
/// answer too.
async fn parsed<A: Answer>(answer: Vec<u8>) -> (std::result::Result<A, String>, Vec<u8>) {
    let (to, from) = tokio::sync::oneshot::channel();
    // Not a blocking task of the runtime: its end would be waited for when the runtime is dropped.
    std::thread::spawn(move || {
        let report = A::read(&answer).map_err(|error| error.to_string());
        let _ = to.send((report, answer));
    });
    from.await.unwrap_or_else(|_| (Err("the answer could not be parsed".to_owned()), Vec::new()))
}

/// A connection from this machine.
struct Tcp {
    read: Mutex<OwnedReadHalf>,
    write: Mutex<OwnedWriteHalf>,
}

impl From<TcpStream> for Tcp {
    fn from(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self { read: Mutex::new(read), write: Mutex::new(write) }
    }
}

#[async_trait]
impl PortConnection for Tcp {
    async fn send(&self, bytes: &[u8]) -> Result<()> {
        self.write.lock().await.write_all(bytes).await.map_err(broken)
    }

    async fn receive(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(16 * 1024);
        self.read.lock().await.read_buf(&mut bytes).await.map_err(broken)?;
        Ok(bytes)
    }
}

fn broken(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, error.to_string()).with_source(error)
}

/// Sends a request to a RAS service, and returns its whole answer.
async fn converse(connection: &dyn PortConnection, request: &str) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut lines = request.lines().enumerate().peekable();
    let mut ended = 0;
    while let Some((index, line)) = lines.next() {
        // The official client waits for each answer before it sends the next line.
        connection.send(format!("{line}\n").as_bytes()).await?;
        let last = lines.peek().is_none();
        loop {
            let bytes = match connection.receive().await {
                Ok(bytes) => bytes,
                // A server that closes with unread bytes resets the connection: what came before is valid.
                Err(_) if !answer.is_empty() => return Ok(answer),
                Err(error) => return Err(error),
            };
            if bytes.is_empty() {
                return Ok(answer);
            }
            ended += bytes.iter().filter(|byte| **byte == b'\n').count();
            answer.extend_from_slice(&bytes);
            if answer.len() >= ras::MAX_ANSWER {
                return Err(Error::new(ErrorKind::Protocol, "the answer is too long for a RAS report"));
            }
            if !last && ended > index {
                break;
            }
        }
    }
    Ok(answer)
}

/// What to do after a query.
enum Next {
    Done(HealthReport),
    Repeat,
    /// Another place may answer; the report contains why this one did not.
    Elsewhere(HealthReport),
}

/// The successive answers of one job.
struct Watch<'a> {
    logs: &'a TransportMap,
    options: &'a HealthOptions,
    observer: Observer,
    started: Instant,
    asked: Asked,
    last: Option<HealthReport>,
}

impl<'a> Watch<'a> {
    fn new(logs: &'a TransportMap, options: &'a HealthOptions) -> Self {
        let (observer, started, asked) = (Observer::default(), Instant::now(), Asked::default());
        Self { logs, options, observer, started, asked, last: None }
    }

    fn take(&mut self, answer: std::result::Result<Report, NoReport>, via: &str) -> Next {
        // The job may have ended since; the earlier answers are still valid.
        if answer.is_err()
            && let Some(last) = self.last.take()
        {
            return Next::Done(last);
        }
        match self.judge(answer, via) {
            Err(next) => next,
            Ok(Judged { report, repeatable })
                if report.state == HealthState::Suspect
                    && repeatable
                    && self.started.elapsed() + INTERVAL <= self.options.observe =>
            {
                self.last = Some(report);
                Next::Repeat
            }
            Ok(judged) => Next::Done(judged.report),
        }
    }

    /// Judges an answer together with the earlier ones.
    fn judge(
        &mut self,
        answer: std::result::Result<Report, NoReport>,
        via: &str,
    ) -> std::result::Result<Judged, Next> {
        let at = self.started.elapsed();
        self.asked.via = via.to_owned();
        self.asked.seconds = at.as_secs_f64();
        let report = match answer {
            Ok(report) => report,
            Err(NoReport::Final(state, reason)) => {
                return Err(Next::Done(HealthReport::without_answer(state, reason, self.asked.clone())));
            }
            Err(NoReport::Next(reason)) => return Err(Next::Elsewhere(unreachable(reason, &self.asked))),
        };
        if health::is_of(&report, self.logs) == Some(false) {
            let reason = "another job on the same node answered: its communicators are not those of the logs";
            return Err(Next::Elsewhere(unreachable(reason.to_owned(), &self.asked)));
        }
        self.asked.answers += 1;
        let state = self.observer.observe(at, &report);
        let version = report.nccl_version.as_deref();
        let repeatable = version.is_some_and(|version| Policy::of_version(version) == Policy::Repeat);
        let culprits = match state {
            HealthState::Healthy => Vec::new(),
            _ => health::culprits(&report, self.logs),
        };
        let mut report = HealthReport::new(state, &report, culprits, self.asked.clone());
        if state != HealthState::Healthy {
            let known = Sources::of_logs(self.logs).running().health(Some(&report));
            report.cause = known.diagnose().why.cause;
        }
        Ok(Judged { report, repeatable })
    }
}

/// The report on an answer.
struct Judged {
    report: HealthReport,
    /// Whether the version that answered may be queried again.
    repeatable: bool,
}

fn unreachable(reason: String, asked: &Asked) -> HealthReport {
    HealthReport::without_answer(HealthState::Unreachable, reason, asked.clone())
}

/// Returns why the logs advise against a query.
fn refusal(logs: &TransportMap, options: &HealthOptions) -> Option<(HealthState, String)> {
    let logs = logs.snapshot();
    if logs.env("RAS_ENABLE").any(|value| value == "0") {
        return Some((HealthState::Unsupported, "NCCL_RAS_ENABLE=0 is set in the job".to_owned()));
    }
    let oldest = logs.live_versions().min_by_key(|version| Policy::of_version(version) as u8)?;
    match Policy::of_version(oldest) {
        Policy::Absent => Some((
            HealthState::Unsupported,
            format!("NCCL {oldest} has no RAS service; it exists since 2.24.3"),
        )),
        Policy::Refuse if !options.force => Some((
            HealthState::Unsupported,
            format!(
                "a query can crash a job with NCCL {oldest} (fixed in 2.27.3); --force queries it anyway"
            ),
        )),
        _ => None,
    }
}

/// Returns the port of the service inside the job: the one in the logs, or else NCCL's default.
fn port(logs: &TransportMap, plan: Option<&FabricPlan>) -> u16 {
    let planned = || plan?.ops.iter().find_map(|op| port_of(&op.change));
    logs.snapshot().ras_port().or_else(planned).unwrap_or(ras::DEFAULT_PORT)
}

fn port_of(change: &Change) -> Option<u16> {
    match change {
        Change::Env { name, value } if name == ras::ADDRESS_VARIABLE => {
            value.rsplit_once(':')?.1.parse().ok()
        }
        _ => None,
    }
}

/// Returns one rank of each node, as far as the logs prove them; none means the job's first place.
pub(crate) fn places(logs: &TransportMap) -> Vec<u32> {
    let ranks = logs.snapshot().ranks();
    let mut nodes = std::collections::BTreeMap::new();
    for view in &ranks {
        if let Some(rank) = view.rank {
            let first = nodes.entry(view.node).or_insert(rank);
            *first = rank.min(*first);
        }
    }
    nodes.into_values().collect()
}

/// Exit codes of [`script`].
const NO_ANSWER: i32 = 96;
const NO_CONNECTION: i32 = 97;

/// Returns a script for any POSIX shell that sends the request to localhost, over IPv4 or IPv6, and prints
/// the answer. All processes of a node share the port, and a hanging one may accept the connection: it tries
/// three times.
fn script(port: u16, request: &str) -> String {
    let lines: Vec<&str> = request.lines().collect();
    let (last, first) = lines.split_last().map_or(("", &[][..]), |(last, first)| (*last, first));
    let talk: String = first
        .iter()
        .map(|line| {
            format!("printf '{line}\\n' >&3; IFS= read -r -t 2 a <&3 || continue; printf '%s\\n' \"$a\"; ")
        })
        .collect();
    let bash = format!(
        "code={NO_CONNECTION}; for try in 1 2 3; do for host in 127.0.0.1 ::1; do \
         {{ exec 3<>\"/dev/tcp/$host/{port}\"; }} 2>/dev/null || continue; code={NO_ANSWER}; \
         {talk}printf '{last}\\n' >&3; cat <&3; exit 0; done; done; exit $code"
    );
    let python = format!(
        "import socket, sys\n\
         code = {NO_CONNECTION}\n\
         for host in (\"127.0.0.1\", \"::1\") * 3:\n    try:\n        s = socket.create_connection((host, {port}), 2)\n        code = {NO_ANSWER}\n        \
         f = s.makefile(\"rb\")\n        out = sys.stdout.buffer\n        for line in {first:?}:\n            \
         s.sendall(line.encode() + b\"\\n\")\n            out.write(f.readline())\n        s.settimeout(15)\n        \
         s.sendall(b\"{last}\\n\")\n        out.write(f.read())\n        sys.exit(0)\n    except OSError:\n        pass\n\
         sys.exit(code)\n"
    );
    // netcat forwards the end of its input, on which the service would close: its input stays open for a
    // while.
    let netcat = format!(
        "for host in 127.0.0.1 ::1; do answer=$({{ printf '{}'; sleep 8; }} | nc \"$host\" {port} 2>/dev/null); \
         [ -z \"$answer\" ] || {{ printf '%s\\n' \"$answer\"; exit 0; }}; done; exit {NO_CONNECTION}",
        request.replace('\n', "\\n")
    );
    let (bash, python, netcat) = (quoted(&bash), quoted(&python), quoted(&netcat));
    format!(
        "if command -v bash >/dev/null 2>&1; then exec bash -c {bash}; \
         elif command -v python3 >/dev/null 2>&1; then exec python3 -c {python}; \
         elif command -v nc >/dev/null 2>&1; then exec sh -c {netcat}; else exit {NO_TOOL}; fi"
    )
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_testkit::child;

    #[test]
    fn the_script_is_one_that_shells_read() {
        for shell in ["sh", "bash"] {
            let checked = child::command(shell)
                .args(["-n", "-c", &script(28028, &ras::request(COLLECT))])
                .output()
                .unwrap();
            assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
        }
    }

    #[test]
    fn each_way_reads_a_report() {
        let port = weftrun_testkit::ras::Personality::of("v2.28.9/hang").serve();
        let all = script(port, &ras::request_after(Some(ras::PROFILER_OFF), COLLECT));
        let without = |tool: &str| all.replace(&format!("command -v {tool} >"), "command -v none-such >");
        for (script, tools) in [(all.clone(), "bash"), (without("bash"), "python3")] {
            let done = child::command("sh").args(["-c", &script]).output().unwrap();
            let report = Report::read(&done.stdout).unwrap_or_else(|error| panic!("{tools}: {error}"));
            assert_eq!(report.communicators[0].behind.len(), 1, "{tools}");
            assert_eq!(report.refused, ["Unknown command control profiler_mask none"], "{tools}");
        }
    }

    #[test]
    fn old_versions_are_not_queried_unasked() {
        let map = |version: &str| {
            let mut map = TransportMap::new();
            let source = std::sync::Arc::new(weftrun_core::nccl::SourceId::new("a"));
            let line = format!("vm:7:7 [0] NCCL INFO NCCL version {version}+cuda12.8\n");
            let _ = map.read(&source, line.as_bytes());
            map
        };
        let state = |version: &str, force: bool| {
            let options = HealthOptions { force, ..HealthOptions::default() };
            refusal(&map(version), &options).map(|(state, _)| state)
        };
        assert_eq!(state("2.23.4", true), Some(HealthState::Unsupported));
        assert_eq!(state("2.26.2", false), Some(HealthState::Unsupported));
        assert_eq!(state("2.26.2", true), None);
        assert_eq!(state("2.28.9", false), None);
    }
}
