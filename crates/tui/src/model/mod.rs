//! The state of all screens: plain data, changed only by [`update`](crate::update).

pub mod bandwidth;
pub mod compare;
pub mod draft;
pub mod jobs;
pub mod layer;
pub mod links;
pub mod logs;
pub mod open;
pub mod rows;
pub mod session;
pub mod sorting;
pub mod transport_view;
pub mod verify;
pub mod words;

use jiff::Timestamp;
use weftrun::core::backend::FoundTarget;
use weftrun::core::job::JobHandle;

use crate::action::{Action, KeyScope};
use crate::keymap::Keymap;
use crate::theme::Theme;
use draft::{Choices, NewJobForm};
use jobs::Jobs;
use layer::{Layer, Prompt};
use logs::LogPane;
use open::{Open, Ras};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    #[default]
    Jobs,
    Overview,
    Fabric,
    Logs,
    Diagnosis,
    Submit,
    Bandwidth,
}

impl Screen {
    /// In the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Jobs,
        Self::Overview,
        Self::Fabric,
        Self::Logs,
        Self::Diagnosis,
        Self::Submit,
        Self::Bandwidth,
    ];

    /// Returns the modes in which its keys are looked up, the nearest first.
    pub fn places(self) -> &'static [KeyScope] {
        match self {
            Self::Jobs => &[KeyScope::Jobs, KeyScope::Job, KeyScope::Moving, KeyScope::Everywhere],
            Self::Overview => &[KeyScope::Overview, KeyScope::Job, KeyScope::Moving, KeyScope::Everywhere],
            Self::Fabric => &[KeyScope::Fabric, KeyScope::Job, KeyScope::Moving, KeyScope::Everywhere],
            Self::Logs => &[KeyScope::Logs, KeyScope::Moving, KeyScope::Job, KeyScope::Everywhere],
            Self::Diagnosis => &[KeyScope::Diagnosis, KeyScope::Moving, KeyScope::Job, KeyScope::Everywhere],
            Self::Bandwidth => &[KeyScope::Bandwidth, KeyScope::Moving, KeyScope::Job, KeyScope::Everywhere],
            Self::Submit => &[KeyScope::Submit, KeyScope::Moving, KeyScope::Everywhere],
        }
    }

    /// Returns the action that shows it.
    pub fn action(self) -> Action {
        match self {
            Self::Jobs => Action::Jobs,
            Self::Overview => Action::Overview,
            Self::Fabric => Action::Fabric,
            Self::Logs => Action::Logs,
            Self::Diagnosis => Action::Diagnosis,
            Self::Submit => Action::New,
            Self::Bandwidth => Action::Bandwidth,
        }
    }

    /// Returns its name in the tabs of a narrow terminal.
    pub fn short_word(self) -> &'static str {
        match self {
            Self::Overview => "over",
            Self::Diagnosis => "diag",
            Self::Submit => "new",
            Self::Bandwidth => "bandw",
            screen => screen.word(),
        }
    }

    /// Returns its name in the tabs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Overview => "overview",
            Self::Fabric => "fabric",
            Self::Logs => "logs",
            Self::Diagnosis => "diagnosis",
            Self::Submit => "new job",
            Self::Bandwidth => "bandwidth",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its text, safe to draw.
    pub text: String,
    pub kind: NoticeKind,
    pub at: Timestamp,
}

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    Message,
    /// A text was copied.
    Copied,
    Error,
}

/// Returns the member of a cycle behind the one that is shown.
pub(crate) fn next<T: Copy>(cycle: &[T], is_shown: impl Fn(&T) -> bool) -> T {
    let at = cycle.iter().position(is_shown).map_or(0, |at| at + 1);
    cycle[at % cycle.len()]
}

/// An action of the user on a job: a command that a key runs.
#[derive(Clone, Debug)]
pub struct OwnAction {
    pub name: String,
    /// The key as it was configured.
    pub key: String,
    pub chord: crate::keymap::Chord,
    /// Run by `sh -c`, with `$JOB`, `$RANK` and `$NODE`.
    pub command: String,
}

/// How long a notice is shown before the keys of the screen reappear. An error stays until a key is pressed.
pub const SAID_FOR: jiff::SignedDuration = jiff::SignedDuration::from_secs(12);

/// The list of jobs beside an open one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rail {
    pub columns: u16,
    pub hidden: bool,
}

impl Default for Rail {
    fn default() -> Self {
        Self { columns: 28, hidden: false }
    }
}

impl Rail {
    pub fn resize(&mut self, by: i16) {
        self.hidden = false;
        self.columns = self.columns.saturating_add_signed(by).clamp(16, 60);
    }
}

/// Everything the screens show.
#[derive(Debug, Default)]
pub struct Model {
    pub screen: Screen,
    /// What lies on top of it, the topmost last.
    pub layers: Vec<Layer>,
    pub jobs: Jobs,
    pub open: Option<Open>,
    pub draft: Option<NewJobForm>,
    /// The last notice of the bottom line.
    pub notice: Option<Notice>,
    pub keymap: Keymap,
    pub theme: Theme,
    /// The theme that the terminal's background chose. It is not kept for the next start.
    pub found_theme: Option<Theme>,
    /// Whether the mouse wheel is enabled.
    pub mouse: bool,
    /// The time, as of the last message.
    pub now: Timestamp,
    /// The list of jobs beside an open one.
    pub rail: Rail,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// What further targets could be made of, each with its backend.
    pub found: Vec<(&'static str, FoundTarget)>,
    /// Which of them is under the cursor.
    pub found_row: usize,
    pub opens_logs: bool,
    pub has_demo: bool,
    /// The target new jobs go to.
    pub default_target: String,
    /// Profiles a new job can name.
    pub profiles: Vec<String>,
    /// Instance types a new job can name, each with what it has.
    pub instances: Vec<(String, String)>,
    /// A job to open as soon as it is listed.
    pub wanted: Option<JobHandle>,
    /// The screen from which a line of the log was shown: `esc` goes back there.
    pub came_from: Option<Screen>,
    /// Drafts of other instances; the next new job begins with the first of them.
    pub other_drafts: Vec<draft::SavedForm>,
    /// The user's own actions.
    pub own_actions: Vec<OwnAction>,
    /// Whether the terminal draws ASCII only.
    pub ascii: bool,
    /// The last RAS queries of closed jobs, oldest first. Their answers may still arrive.
    pub closed_ras: Vec<(JobHandle, Ras)>,
    /// How often the lines with a text were counted: the number of the last count.
    pub counts: u64,
    /// The prompt whose file is being written. The prompt opens again if the file exists.
    pub saving: Option<Prompt>,
    /// The benchmark that was started last.
    pub verifying: Option<verify::Verifying>,
    /// What the last session had open, until it is open again or the user goes elsewhere.
    pub resume: Option<session::Session>,
}

impl Model {
    /// Creates a model with only its targets.
    pub fn new(targets: impl IntoIterator<Item = String>, now: Timestamp) -> Self {
        let target = |name| jobs::Target { name, health: jobs::Health::Asking, capability: None };
        let targets: Vec<_> = targets.into_iter().map(target).collect();
        let default_target = targets.first().map_or_else(String::new, |t| t.name.clone());
        let jobs = Jobs { targets, ..Jobs::default() };
        Self { jobs, now, size: (80, 24), default_target, ..Self::default() }
    }

    /// Returns the options of the new-job form.
    pub fn choices(&self) -> Choices {
        let targets = self.jobs.targets.iter().map(|target| target.name.clone()).collect();
        Choices { targets, profiles: self.profiles.clone() }
    }

    pub fn open_if(&mut self, handle: &JobHandle) -> Option<&mut Open> {
        self.open.as_mut().filter(|open| open.handle == *handle)
    }

    /// Returns the log pane of the open job.
    pub fn pane(&mut self) -> Option<&mut LogPane> {
        self.open.as_mut().map(|open| &mut open.logs)
    }

    /// Returns the job that keys act on: the open one, or the one under the cursor of the list.
    pub fn current(&self) -> Option<JobHandle> {
        match (self.screen, &self.open) {
            (Screen::Jobs, _) | (_, None) => self.jobs.current().map(|entry| entry.summary.handle.clone()),
            (_, Some(open)) => Some(open.handle.clone()),
        }
    }

    /// Returns the jobs that an action on jobs is for: the marked ones, or the current one.
    pub fn chosen(&self) -> Vec<JobHandle> {
        if self.screen == Screen::Jobs && !self.jobs.marked.is_empty() {
            return self.jobs.marked.iter().filter(|job| self.jobs.get(job).is_some()).cloned().collect();
        }
        self.current().into_iter().collect()
    }

    /// Shows a notice in the bottom line.
    pub fn say(&mut self, text: impl AsRef<str>) {
        self.notify(text.as_ref(), NoticeKind::Message);
    }

    /// Returns what the key makes a target of; none beside jobs, where what was found is not on the screen.
    pub fn addable(&self) -> Option<&(&'static str, FoundTarget)> {
        let row = self.found_row.min(self.found.len().saturating_sub(1));
        self.found.get(row).filter(|_| self.jobs.entries.is_empty())
    }

    /// Shows an error in the bottom line.
    pub fn fail(&mut self, text: impl AsRef<str>) {
        self.notify(text.as_ref(), NoticeKind::Error);
    }

    pub fn notify(&mut self, text: &str, kind: NoticeKind) {
        let text = weftrun::core::log::clean_text(text).into_owned();
        self.notice = Some(Notice { text, kind, at: self.now });
    }

    /// Returns the present notice of the bottom line, if it is recent.
    pub fn said(&self) -> Option<&Notice> {
        self.notice.as_ref().filter(|notice| {
            notice.kind == NoticeKind::Error || self.now.duration_since(notice.at) < SAID_FOR
        })
    }
}
