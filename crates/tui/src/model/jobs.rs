//! The jobs of all targets.

use jiff::Timestamp;
use weftrun::Attempts;
use weftrun::core::backend::Capability;
use weftrun::core::job::{JobEvent, JobHandle, JobPhase, JobSummary};
use weftrun::diagnose::cause::CAUSE_CODE;

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
    /// The first cause of its failure, once its logs were read here.
    pub cause: Option<String>,
    /// Whether something needs looking at.
    pub alarm: bool,
    /// What its logs have proved of the fabric, if it was opened here.
    pub verdict: Option<(String, Option<bool>)>,
}

impl Entry {
    /// Takes what the logs of the job prove.
    pub fn learn(&mut self, view: &TransportView) {
        self.verdict = Some((view.verdict.clone(), view.ok));
        let cause = view.findings.iter().find(|finding| finding.code == CAUSE_CODE);
        self.cause = cause.map(|cause| cause.message.clone());
        self.alarm |= cause.is_some();
    }
}

/// Columns to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Newest first.
    #[default]
    Age,
    Name,
    /// By state, those under way first.
    State,
    Target,
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
    /// How they are sorted.
    pub order: Order,
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
            let (a, b) = (&a.summary, &b.summary);
            let age = || b.created.cmp(&a.created).then_with(|| a.handle.cmp(&b.handle));
            match self.order {
                Order::Age => age(),
                Order::Name => a.name.cmp(&b.name).then_with(age),
                Order::State => a.phase.cmp(&b.phase).then_with(age),
                Order::Target => a.handle.target().cmp(b.handle.target()).then_with(age),
            }
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
        let (last, alarm) = (last(&summary), summary.phase == JobPhase::Failed);
        self.entries.push(Entry { summary, last, cause: None, alarm, verdict: None });
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
