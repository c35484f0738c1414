//! The jobs of all targets.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun::Attempts;
use weftrun::core::backend::Capability;
use weftrun::core::fabric::Fabric;
use weftrun::core::job::{JobEvent, JobHandle, JobPhase, JobSummary};
use weftrun::core::log::clean_text;
use weftrun::diagnose::cause::CAUSE_CODE;

use super::sorting::{Column, Sorting};
use super::transport_view::TransportView;

/// Whether a target answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Health {
    /// It was queried and has not answered yet.
    Asking,
    Up,
    /// It does not, since when and why.
    Down(Timestamp, String),
}

#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub health: Health,
    /// What it can do, once it is connected.
    pub capability: Option<Capability>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// Its summary from the cluster.
    pub summary: JobSummary,
    /// The last thing that happened to it.
    pub last: String,
    /// Whether something needs looking at.
    pub alarm: bool,
    /// What its logs proved when they were read here, in this session or an earlier one.
    pub learned: Learned,
}

/// What the last diagnosis of a job found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Learned {
    /// The first cause of its failure.
    pub cause: Option<String>,
    /// The fabric that its logs show, and whether it is the planned one.
    pub verdict: Option<(String, Option<bool>)>,
}

impl Learned {
    /// Returns it safe to draw: it may come from a file.
    #[must_use]
    pub fn clean(self) -> Self {
        let clean = |text: String| clean_text(&text).into_owned();
        Self { cause: self.cause.map(clean), verdict: self.verdict.map(|(fabric, ok)| (clean(fabric), ok)) }
    }
}

impl Entry {
    /// Takes what the logs of the job prove.
    pub fn learn(&mut self, view: &TransportView) {
        let cause = view.findings.iter().find(|finding| finding.code == CAUSE_CODE);
        self.learned = Learned {
            cause: cause.map(|cause| cause.message.clone()),
            verdict: Some((view.verdict.clone(), view.ok)),
        };
        self.alarm |= cause.is_some();
    }

    /// Returns whether it failed, needs looking at, or uses another fabric than planned.
    pub fn is_in_trouble(&self) -> bool {
        self.alarm || self.has_wrong_fabric()
    }

    pub fn has_wrong_fabric(&self) -> bool {
        matches!(self.learned.verdict, Some((_, Some(false))))
    }

    /// Returns the fabric that its logs prove.
    pub fn proved_fabric(&self) -> Option<&str> {
        let (fabric, is_planned) = self.learned.verdict.as_ref()?;
        Some(fabric.as_str()).filter(|word| is_planned.is_some() || !["", "unknown"].contains(word))
    }
}

/// Columns by which jobs are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobColumn {
    /// What failed or uses another fabric than planned, then the newest.
    #[default]
    Trouble,
    Name,
    /// By state, those under way first.
    State,
    Target,
    /// Those that lack most of their nodes first.
    Ready,
    /// Another one than planned first.
    Fabric,
    /// Newest first.
    Age,
}

impl Column for JobColumn {
    const ROWS: &'static str = "jobs";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Trouble, "trouble"),
        (Self::State, "state"),
        (Self::Name, "name"),
        (Self::Target, "target"),
        (Self::Ready, "ready"),
        (Self::Fabric, "fabric"),
        (Self::Age, "age"),
    ];
}

impl JobColumn {
    fn compare(self, a: &Entry, b: &Entry) -> Ordering {
        let (one, other) = (&a.summary, &b.summary);
        let ready = |job: &JobSummary| match job.ready {
            (_, 0) => u64::MAX,
            (ready, all) => u64::from(ready) * 1000 / u64::from(all),
        };
        let fabric = |entry: &Entry| {
            let word = entry.proved_fabric().or(entry.summary.fabric.map(Fabric::as_str)).map(str::to_owned);
            (!entry.has_wrong_fabric(), word.is_none(), word)
        };
        match self {
            Self::Trouble => b.is_in_trouble().cmp(&a.is_in_trouble()),
            Self::Name => one.name.cmp(&other.name),
            Self::State => one.phase.cmp(&other.phase),
            Self::Target => one.handle.target().cmp(other.handle.target()),
            Self::Ready => ready(one).cmp(&ready(other)),
            Self::Fabric => fabric(a).cmp(&fabric(b)),
            Self::Age => other.created.cmp(&one.created),
        }
    }
}

/// The jobs of all targets.
#[derive(Debug, Default)]
pub struct Jobs {
    /// Targets, in the order of the config.
    pub targets: Vec<Target>,
    pub entries: Vec<Entry>,
    /// The job under the cursor, by handle: it stays under it when the list moves.
    pub selected: Option<JobHandle>,
    /// Only jobs with this text.
    pub filter: String,
    pub sorted: Sorting<JobColumn>,
    /// The jobs that the next action is for; the one under the cursor if there are none.
    pub marked: BTreeSet<JobHandle>,
    /// What earlier sessions found of jobs that are not listed yet.
    pub learned: BTreeMap<JobHandle, Learned>,
    /// Which of them are attempts of others: a job and its attempts are shown as one.
    pub attempts: Attempts,
}

/// Largest number of jobs kept: a cluster's whole history is too large.
const MAX_JOBS: usize = 5_000;

impl Jobs {
    /// Returns the jobs shown, in order.
    pub fn shown(&self) -> Vec<&Entry> {
        let needle = self.filter.to_lowercase();
        let fits = |e: &&Entry| {
            needle.is_empty()
                || e.summary.name.to_lowercase().contains(&needle)
                || e.summary.handle.target().contains(&needle)
                || e.summary.phase.as_str().contains(&needle)
        };
        let mut shown: Vec<&Entry> = self.entries.iter().filter(fits).collect();
        let replaced = self.attempts.replaced_in(shown.iter().map(|entry| &entry.summary.handle));
        shown.retain(|entry| !replaced.contains(&entry.summary.handle));
        shown.sort_by(|a, b| {
            let order = self.sorted.order(self.sorted.column.compare(a, b));
            let age = || JobColumn::Age.compare(a, b);
            order.then_with(age).then_with(|| a.summary.handle.cmp(&b.summary.handle))
        });
        shown
    }

    /// Returns the job under the cursor; the first one if that is gone.
    pub fn current(&self) -> Option<&Entry> {
        let shown = self.shown();
        let found = self.selected.as_ref().and_then(|s| shown.iter().find(|e| e.summary.handle == *s));
        found.or(shown.first()).copied()
    }

    pub fn get_mut(&mut self, handle: &JobHandle) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.summary.handle == *handle)
    }

    pub fn get(&self, handle: &JobHandle) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.summary.handle == *handle)
    }

    pub fn target_mut(&mut self, name: &str) -> Option<&mut Target> {
        self.targets.iter_mut().find(|target| target.name == name)
    }

    /// Adds a target that is watched from now on, unless it is there.
    pub fn add_target(&mut self, name: &str) {
        if self.target_mut(name).is_none() {
            self.targets.push(Target { name: name.to_owned(), health: Health::Asking, capability: None });
        }
    }

    /// Returns whether nothing can be submitted to a target, or done to its jobs.
    pub fn is_read_only(&self, target: &str) -> bool {
        self.capability(target).is_some_and(|can| can.read_only)
    }

    /// Returns what a target can do, once it is connected.
    pub fn capability(&self, target: &str) -> Option<&Capability> {
        self.targets.iter().find(|known| known.name == target)?.capability.as_ref()
    }

    /// Marks the job under the cursor or removes its mark, and goes on to the next.
    pub fn mark(&mut self) {
        let Some(handle) = self.current().map(|entry| entry.summary.handle.clone()) else { return };
        if !self.marked.remove(&handle) {
            self.marked.insert(handle);
        }
        self.step(1);
    }

    /// Returns what was found of jobs, in this session and before, of at most so many.
    pub fn all_learned(&self, most: usize) -> BTreeMap<JobHandle, Learned> {
        let listed = self.entries.iter().filter(|entry| entry.learned != Learned::default());
        let listed = listed.map(|entry| (entry.summary.handle.clone(), entry.learned.clone()));
        let before = self.learned.iter().map(|(handle, learned)| (handle.clone(), learned.clone()));
        listed.chain(before).take(most).collect()
    }

    pub fn step(&mut self, by: isize) {
        let shown = self.shown();
        let at = self.current().and_then(|c| shown.iter().position(|e| e.summary.handle == c.summary.handle));
        let next = at.unwrap_or(0).saturating_add_signed(by).min(shown.len().saturating_sub(1));
        self.selected = shown.get(next).map(|entry| entry.summary.handle.clone());
    }

    pub fn put(&mut self, summary: JobSummary) {
        if let Some(entry) = self.get_mut(&summary.handle) {
            if !summary.reason.is_empty() || entry.summary.phase != summary.phase {
                entry.last = last(&summary);
            }
            entry.alarm = summary.phase == JobPhase::Failed || (entry.alarm && !summary.phase.is_terminal());
            entry.summary = summary;
            return;
        }
        if self.entries.len() >= MAX_JOBS {
            let oldest = self
                .entries
                .iter()
                .enumerate()
                .min_by_key(|(_, e)| (!e.summary.phase.is_terminal(), e.summary.created));
            if let Some((index, _)) = oldest {
                self.entries.swap_remove(index);
            }
        }
        let learned = self.learned.remove(&summary.handle).unwrap_or_default();
        let alarm = summary.phase == JobPhase::Failed || learned.cause.is_some();
        self.entries.push(Entry { last: last(&summary), summary, alarm, learned });
    }

    pub fn event(&mut self, event: &JobEvent) {
        match event {
            JobEvent::Status { job } => self.put(job.clone()),
            JobEvent::Message { job, text, severity, .. } => {
                if let Some(entry) = self.get_mut(job) {
                    entry.last.clone_from(text);
                    entry.alarm |= *severity == weftrun::Severity::Error;
                }
            }
            JobEvent::Stuck { job, finding } => {
                if let Some(entry) = self.get_mut(job) {
                    entry.last.clone_from(&finding.message);
                    entry.alarm = true;
                }
            }
            JobEvent::Attempt { job, attempt, reason } => {
                if let Some(entry) = self.get_mut(job) {
                    entry.last = format!("attempt {}: {reason}", attempt.saturating_add(1));
                }
            }
            JobEvent::Gone { job } => self.entries.retain(|entry| entry.summary.handle != *job),
            _ => {}
        }
    }
}

/// Returns what a status says has happened to its job.
fn last(job: &JobSummary) -> String {
    if job.reason.is_empty() { job.phase.as_str().to_owned() } else { job.reason.clone() }
}
