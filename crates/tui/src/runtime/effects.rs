//! Runs the effects that need no terminal, each in its own task; their results are sent back as messages.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use weftrun::core::job::{Action, JobHandle};
use weftrun::core::log::Projection;
use weftrun::core::report::HealthReport;
use weftrun::{Client, HealthOptions, Result};

use super::{Options, StartDemo, ingest, plan, targets};
use crate::model::logs::SharedStore;
use crate::msg::{Effect, Known, Msg};

/// Runs effects.
pub(super) struct Runner {
    client: Client,
    targets: Vec<String>,
    demo: Option<StartDemo>,
    outbox: mpsc::Sender<Msg>,
    grew: Arc<Notify>,
    again: Arc<Notify>,
    /// The tasks that read the open job; dropped with it.
    reading: Vec<JoinHandle<()>>,
    planning: Option<JoinHandle<()>>,
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
            outbox,
            grew,
            again: Arc::new(Notify::new()),
            reading: Vec::new(),
            planning: None,
        }
    }

    /// Starts to watch every target.
    pub(super) fn watch_all(&self) {
        for name in &self.targets {
            tokio::spawn(targets::watch(
                self.client.clone(),
                name.clone(),
                self.outbox.clone(),
                self.again.clone(),
                targets::PATIENCE,
            ));
        }
    }

    /// Sends a message to the loop.
    pub(super) async fn answer(&self, msg: Msg) {
        let _ = self.outbox.send(msg).await;
    }

    /// Starts an effect.
    pub(super) fn start(&mut self, effect: Effect) {
        let (client, outbox) = (self.client.clone(), self.outbox.clone());
        match effect {
            Effect::Refresh => self.again.notify_waiters(),
            Effect::Close => self.reading.drain(..).for_each(|task| task.abort()),
            Effect::Describe(handle) => self.reading.push(tokio::spawn(describe(client, handle, outbox))),
            Effect::Open(handle, previous) => {
                let (known, grew) = (handle.clone(), self.grew.clone());
                self.reading.push(tokio::spawn(describe(client.clone(), known, outbox.clone())));
                self.reading.push(tokio::spawn(ingest::read(client, handle, previous, outbox, grew)));
            }
            Effect::Health(handle) => {
                tokio::spawn(async move {
                    let answer = health(&client, &handle).await.map_err(|error| said(&error));
                    let _ = outbox.send(Msg::Health(handle, answer)).await;
                });
            }
            Effect::Act(handle, action) => {
                tokio::spawn(async move {
                    let done = act(&client, &handle, action).await.map_err(|error| error.to_string());
                    let _ = outbox.send(Msg::Acted(handle, action, done)).await;
                });
            }
            Effect::Plan(revision, target, spec) => {
                if let Some(older) = self.planning.take() {
                    older.abort();
                }
                self.planning = Some(tokio::spawn(plan::plan(client, revision, target, *spec, outbox)));
            }
            Effect::Check(revision, target, spec) => {
                tokio::spawn(async move {
                    let answer = targets::patient(PATIENCE, plan::check(client, target, *spec)).await;
                    let answer = answer.map_err(|error| said(&error));
                    let _ = outbox.send(Msg::Checked(revision, answer)).await;
                });
            }
            Effect::Submit(target, spec) => {
                tokio::spawn(async move {
                    let answer = plan::submit(client, target, *spec).await.map_err(|error| said(&error));
                    let _ = outbox.send(Msg::Submitted(answer)).await;
                });
            }
            Effect::ReadJob(path) => {
                tokio::task::spawn_blocking(move || {
                    let answer = plan::read(&path);
                    let _ = outbox.blocking_send(Msg::Spec(Some(path.display().to_string()), answer));
                });
            }
            Effect::Save(path, lines) => {
                tokio::task::spawn_blocking(move || {
                    let _ = outbox.blocking_send(saved(&path, save(&path, &lines)));
                });
            }
            Effect::Export(path, store, shown) => {
                tokio::task::spawn_blocking(move || {
                    let _ = outbox.blocking_send(saved(&path, export(&path, &store, &shown)));
                });
            }
            Effect::Keep(path, text) => {
                tokio::task::spawn_blocking(move || {
                    let kept = keep(&path, &text).map_err(|error| format!("{}: {error}", path.display()));
                    let _ = outbox.blocking_send(Msg::Kept(kept.map(|()| path)));
                });
            }
            Effect::Demo => {
                let Some(demo) = self.demo.clone() else { return };
                tokio::spawn(async move {
                    let answer = demo(client).await.map_err(|error| said(&error));
                    let _ = outbox.send(Msg::Demo(answer)).await;
                });
            }
            Effect::Quit
            | Effect::Sleep
            | Effect::Redraw
            | Effect::Mouse(_)
            | Effect::Copy(_)
            | Effect::Edit(_) => {}
        }
    }
}

/// An error with its first hint, in one line.
pub(super) fn said(error: &weftrun::Error) -> String {
    let findings: Vec<&str> = error.findings().iter().map(|finding| finding.message.as_str()).collect();
    let mut text = error.to_string();
    if !findings.is_empty() {
        text = format!("{text}: {}", findings.join("; "));
    }
    if let Some(hint) = error.hints().first() {
        text = format!("{text} ({hint})");
    }
    text
}

/// Time limit of an action on a job, or of a check.
const PATIENCE: Duration = Duration::from_mins(1);

async fn act(client: &Client, handle: &JobHandle, action: Action) -> Result<()> {
    targets::patient(PATIENCE, async { client.attach(handle).await?.act(action).await }).await
}

async fn health(client: &Client, handle: &JobHandle) -> Result<Box<HealthReport>> {
    let job = targets::patient(PATIENCE, client.attach(handle)).await?;
    Ok(Box::new(job.health(&HealthOptions::default()).await?))
}

async fn describe(client: Client, handle: JobHandle, outbox: mpsc::Sender<Msg>) {
    let answer = async {
        let job = client.attach(&handle).await?;
        let detail = job.describe().await?;
        Ok::<_, weftrun::Error>(Box::new(Known {
            detail,
            plan: job.plan().cloned(),
            spec: job.spec().cloned(),
        }))
    };
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

/// Writes the lines that are shown to a new file, as they came. The store stays free for its reader and its writer.
fn export(path: &Path, store: &SharedStore, shown: &Projection) -> std::io::Result<()> {
    write(path, |out| {
        let mut at = 0;
        while at < shown.len() {
            let store = store.read();
            for index in at..(at + AT_ONCE).min(shown.len()) {
                if let Some(entry) = shown.seq(index).and_then(|seq| store.get(seq)) {
                    out.write_all(entry.raw()).and_then(|()| out.write_all(b"\n"))?;
                }
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
