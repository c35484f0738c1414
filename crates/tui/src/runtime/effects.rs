//! Runs the effects that need no terminal, each in its own task; their results are sent back as messages.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use weftrun::core::job::{Action, JobHandle};
use weftrun::core::log::{Projection, cut_text};
use weftrun::report::HealthReport;
use weftrun::{Client, HealthOptions, Result};

use super::terminal::Signals;
use super::{AddTarget, OpenLogs, Options, StartDemo, ingest, paths, plan, search, targets, verify};
use crate::model::logs::SharedStore;
use crate::msg::{Effect, Known, Msg};

pub(super) struct Runner {
    client: Client,
    targets: Vec<String>,
    demo: Option<StartDemo>,
    logs: Option<OpenLogs>,
    add: Option<AddTarget>,
    /// Clients of targets that the first one does not know.
    others: HashMap<String, Client>,
    /// The tasks that watch the targets.
    watching: HashMap<String, JoinHandle<()>>,
    outbox: mpsc::Sender<Msg>,
    grew: Arc<Notify>,
    again: Arc<Notify>,
    /// The tasks that read the open job; dropped with it.
    reading: Vec<JoinHandle<()>>,
    planning: Option<JoinHandle<()>>,
    /// The benchmarks that run, and those that are being cancelled.
    verifying: Vec<verify::Running>,
    /// Stops the count of the search before.
    counting: Option<Arc<AtomicBool>>,
    /// Stops the filter before.
    filtering: Option<Arc<AtomicBool>>,
}

impl Runner {
    pub(super) fn new(
        client: Client,
        options: &Options,
        outbox: mpsc::Sender<Msg>,
        grew: Arc<Notify>,
    ) -> Self {
        Self {
            client,
            targets: options.targets.clone(),
            demo: options.demo.clone(),
            logs: options.logs.clone(),
            add: options.add.clone(),
            others: HashMap::new(),
            watching: HashMap::new(),
            outbox,
            grew,
            again: Arc::new(Notify::new()),
            reading: Vec::new(),
            planning: None,
            verifying: Vec::new(),
            counting: None,
            filtering: None,
        }
    }

    /// Cancels what would otherwise continue without anyone who waits for it, and waits until the clusters have answered,
    /// or a signal asks to end at once. The terminal is the shell's again.
    pub(super) async fn finish(&mut self) {
        let mut benchmarks = std::mem::take(&mut self.verifying);
        benchmarks.retain(|benchmark| !benchmark.has_ended());
        if benchmarks.is_empty() {
            return;
        }
        for benchmark in &mut benchmarks {
            report(&format!("cancelling {} … (Ctrl-C ends without waiting)", benchmark.name()));
            benchmark.stop();
        }
        let all = async {
            for benchmark in &mut benchmarks {
                if let Some(failed) = benchmark.ended().await {
                    report(&failed);
                }
            }
        };
        let interrupted = async {
            match Signals::new() {
                Ok(mut signals) => while signals.next().await {},
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = all => return,
            () = interrupted => {}
        }
        for benchmark in benchmarks.iter().filter(|benchmark| !benchmark.has_ended()) {
            report(&format!("the cluster has not confirmed that {} is cancelled", benchmark.name()));
            report("`weftrun list` shows what still runs, and `weftrun cancel` stops it");
        }
    }

    /// Starts to watch every target.
    pub(super) fn watch_all(&mut self) {
        for name in self.targets.clone() {
            self.watch(self.client.clone(), name);
        }
    }

    /// Watches a target, instead of the one of the same name.
    fn watch(&mut self, client: Client, name: String) {
        let (outbox, again) = (self.outbox.clone(), self.again.clone());
        let task = tokio::spawn(targets::watch(client, name.clone(), outbox, again, targets::PATIENCE));
        if let Some(before) = self.watching.insert(name, task) {
            before.abort();
        }
    }

    fn client_of(&self, handle: &JobHandle) -> Client {
        self.others.get(handle.target()).unwrap_or(&self.client).clone()
    }

    /// Sends a message to the loop.
    pub(super) async fn answer(&self, msg: Msg) {
        let _ = self.outbox.send(msg).await;
    }

    pub(super) fn start(&mut self, effect: Effect) {
        let (client, outbox) = (self.client.clone(), self.outbox.clone());
        match effect {
            Effect::Refresh => self.again.notify_waiters(),
            Effect::Close => {
                self.reading.drain(..).for_each(|task| task.abort());
                end(&mut self.filtering);
            }
            Effect::OpenLogs(path) => {
                let Some(open) = &self.logs else { return };
                let answer = open(&path).map_err(|error| said(&error));
                let answer = answer.map(|(client, handle)| {
                    self.others.insert(handle.target().to_owned(), client.clone());
                    self.watch(client, handle.target().to_owned());
                    handle
                });
                answer_with(outbox, async { Msg::LogsFound(answer) });
            }
            Effect::AddTarget(backend, found) => {
                let Some(add) = &self.add else { return };
                let answer = add(backend, &found).map(|client| {
                    self.client = client;
                    self.watch(self.client.clone(), found.name.clone());
                });
                let answer = answer.map_err(|error| said(&error));
                answer_with(outbox, async { Msg::TargetAdded(found.name, answer) });
            }
            Effect::Describe(handle) => {
                let client = self.client_of(&handle);
                self.reading.push(tokio::spawn(describe(client, handle, outbox)));
            }
            Effect::Open(handle, previous) => {
                let client = self.client_of(&handle);
                let (known, grew) = (handle.clone(), self.grew.clone());
                self.reading.push(tokio::spawn(describe(client.clone(), known, outbox.clone())));
                self.reading.push(tokio::spawn(ingest::read(client, handle, previous, outbox, grew)));
            }
            Effect::Health(handle) => {
                let client = self.client_of(&handle);
                answer_with(outbox, async move {
                    let answer = health(&client, &handle).await.map_err(|error| said(&error));
                    Msg::Health(handle, answer)
                });
            }
            Effect::Verify(handle) => {
                self.verifying.retain(|running| !running.has_ended());
                self.verifying.push(verify::Running::start(client, handle, outbox));
            }
            Effect::StopVerify => {
                // They are kept: the program does not end before the clusters have answered.
                self.verifying.iter_mut().for_each(verify::Running::stop);
            }
            Effect::Act(handle, action) => {
                let client = self.client_of(&handle);
                answer_with(outbox, async move {
                    let done = act(&client, &handle, action).await.map_err(|error| error.to_string());
                    Msg::Acted(handle, action, done)
                });
            }
            Effect::Plan(revision, target, spec) => {
                if let Some(older) = self.planning.take() {
                    older.abort();
                }
                self.planning = Some(tokio::spawn(plan::plan(client, revision, target, *spec, outbox)));
            }
            Effect::Check(revision, target, spec) => {
                answer_with(outbox, async move {
                    let answer =
                        targets::patient(PATIENCE, Box::pin(plan::check(client, target, *spec))).await;
                    Msg::Checked(revision, answer.map_err(|error| said(&error)))
                });
            }
            Effect::Submit(target, spec) => {
                answer_with(outbox, async move {
                    let answer = plan::submit(client, target, *spec).await;
                    Msg::Submitted(answer.map_err(|error| said(&error)))
                });
            }
            Effect::ReadJob(path) => {
                let name = path.display().to_string();
                work(outbox, move || Msg::Spec(Some(name), plan::read(&path)));
            }
            Effect::Save(path, lines) => {
                work(outbox, move || saved(&path, save(&path, &lines)));
            }
            Effect::Count(count) => {
                let stop = begin(&mut self.counting);
                let search = search::Search { count: *count, stop };
                tokio::task::spawn_blocking(move || search.run(&outbox));
            }
            Effect::Filter(number, store, shown) => {
                let stop = begin(&mut self.filtering);
                tokio::task::spawn_blocking(move || search::filter(number, &store, shown, &stop, &outbox));
            }
            Effect::StopFilter => end(&mut self.filtering),
            Effect::Evidence(store, evidence) => {
                work(outbox, move || {
                    let found = search::evidence(&store, &evidence);
                    Msg::Evidence(store, found)
                });
            }
            Effect::Export(path, store, shown) => {
                work(outbox, move || saved(&path, export(&path, &store, &shown)));
            }
            Effect::Keep(path, text) => {
                work(outbox, move || {
                    let kept = keep(&path, &text).map_err(|error| format!("{}: {error}", path.display()));
                    Msg::Kept(kept.map(|()| path))
                });
            }
            Effect::Demo => {
                let Some(demo) = self.demo.clone() else { return };
                answer_with(
                    outbox,
                    async move { Msg::Demo(demo(client).await.map_err(|error| said(&error))) },
                );
            }
            Effect::Paths(typed) => {
                work(outbox, move || {
                    let found = paths::beginning_with(&typed);
                    Msg::Paths(typed, found)
                });
            }
            Effect::Compare([first, second]) => {
                let clients = [self.client_of(&first), self.client_of(&second)];
                answer_with(outbox, async move {
                    let [one, other] = clients;
                    let both =
                        async { Ok(Box::new([known(&one, &first).await?, known(&other, &second).await?])) };
                    let answer = targets::patient(PATIENCE, both).await;
                    Msg::Compared(answer.map_err(|error| said(&error)))
                });
            }
            Effect::Quit
            | Effect::Run(..)
            | Effect::Sleep
            | Effect::Redraw
            | Effect::Mouse(_)
            | Effect::Copy(_)
            | Effect::Edit(_) => {}
        }
    }
}

/// Sends the answer of a query to the loop.
fn answer_with(outbox: mpsc::Sender<Msg>, query: impl Future<Output = Msg> + Send + 'static) {
    tokio::spawn(async move { outbox.send(query.await).await });
}

/// Sends the result of work that blocks its thread to the loop.
fn work(outbox: mpsc::Sender<Msg>, run: impl FnOnce() -> Msg + Send + 'static) {
    tokio::task::spawn_blocking(move || outbox.blocking_send(run()));
}

/// Ends the work before, and returns what ends the next.
fn begin(before: &mut Option<Arc<AtomicBool>>) -> Arc<AtomicBool> {
    end(before);
    before.insert(Arc::default()).clone()
}

fn end(work: &mut Option<Arc<AtomicBool>>) {
    if let Some(stop) = work.take() {
        stop.store(true, Ordering::Relaxed);
    }
}

/// Prints a line after the screen was left.
fn report(text: &str) {
    let _ = writeln!(std::io::stderr(), "weftrun: {text}");
}

/// Returns an error with its findings and the first thing to try, in one line.
pub(super) fn said(error: &weftrun::Error) -> String {
    let mut text = error.to_string();
    let messages = error.findings().iter().map(|finding| finding.message.as_str());
    let findings: Vec<&str> = messages.filter(|message| *message != text).collect();
    if !findings.is_empty() {
        text = format!("{text}: {}", findings.join("; "));
    }
    let mut fixes = error.findings().iter().filter_map(|finding| finding.fix.as_ref());
    let hint = error.hints().first().or_else(|| fixes.next().map(|fix| &fix.text));
    if let Some(hint) = hint.filter(|hint| !text.contains(hint.as_str())) {
        text = format!("{text} ({hint})");
    }
    text
}

/// Time limit of an action on a job, or of a check.
const PATIENCE: Duration = Duration::from_mins(1);

async fn act(client: &Client, handle: &JobHandle, action: Action) -> Result<()> {
    let acting = async {
        let job = client.attach(handle).await?;
        if matches!(action, Action::Cancel | Action::Delete) {
            job.keep_trouble().await;
        }
        job.act(action).await
    };
    targets::patient(PATIENCE, acting).await
}

async fn health(client: &Client, handle: &JobHandle) -> Result<Box<HealthReport>> {
    let job = targets::patient(PATIENCE, client.attach(handle)).await?;
    Ok(Box::new(job.health(&HealthOptions::default()).await?))
}

async fn known(client: &Client, handle: &JobHandle) -> Result<Known> {
    let job = client.attach(handle).await?;
    let detail = job.describe().await?;
    Ok(Known { detail, plan: job.plan().cloned(), spec: job.spec().cloned() })
}

async fn describe(client: Client, handle: JobHandle, outbox: mpsc::Sender<Msg>) {
    let answer = async { Ok(Box::new(known(&client, &handle).await?)) };
    let answer = targets::patient(targets::PATIENCE, answer).await.map_err(|error| said(&error));
    let _ = outbox.send(Msg::Detail(handle, answer)).await;
}

/// Writes lines to a new file; an existing one is not replaced.
fn save(path: &Path, lines: &[Vec<u8>]) -> std::io::Result<()> {
    write(path, |out| {
        lines.iter().try_for_each(|line| out.write_all(line).and_then(|()| out.write_all(b"\n")))
    })
}

/// Lines of a log written between two looks of others at its store.
const AT_ONCE: usize = 4096;

/// Writes the lines that are shown to a new file, as they came, each with its rank. The store stays free for its reader and its writer.
fn export(path: &Path, store: &SharedStore, shown: &Projection) -> std::io::Result<()> {
    write(path, |out| {
        let mut at = 0;
        while at < shown.len() {
            let store = store.read();
            for index in at..(at + AT_ONCE).min(shown.len()) {
                let Some(entry) = shown.seq(index).and_then(|seq| store.get(seq)) else { continue };
                let stream = store.streams().get(entry.stream as usize);
                // The prefix of torchrun, by which this and other programs read the rank again.
                if let Some(stream) = stream.filter(|_| !entry.raw().starts_with(b"[rank")) {
                    match stream.rank {
                        Some(rank) => write!(out, "[rank{rank}]: ")?,
                        None => write!(out, "{}: ", stream.label())?,
                    }
                }
                out.write_all(entry.raw())?;
                writeln!(out, "{}", cut_text(entry.note.cut))?;
            }
            at += AT_ONCE;
        }
        Ok(())
    })
}

fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::options().write(true).create_new(true).open(path)?);
    fill(&mut out)?;
    out.flush()
}

/// Returns the message about the result of writing a file.
fn saved(path: &Path, done: std::io::Result<()>) -> Msg {
    match done {
        Ok(()) => Msg::Saved(Ok(path.to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Msg::Exists(path.to_owned()),
        Err(error) => Msg::Saved(Err(format!("{}: {error}", path.display()))),
    }
}

/// Writes a text to a file that only its owner can read, replacing an earlier one.
fn keep(path: &Path, text: &str) -> Result<()> {
    weftrun::files::write_private(path, text.as_bytes())
}
