//! Layers on top of a screen, which receive the keys first.

use tui_input::Input;
use weftrun::core::job::{Action as JobAction, JobHandle};

/// What a prompt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Filter of the list of jobs.
    JobFilter,
    /// Text to find in the log.
    Find,
    /// Filter of the log.
    LogFilter,
    /// Ranks of the log.
    Ranks,
    /// File to save the log to.
    ExportLog,
    /// File to save the pairs to.
    ExportPairs,
    /// Job file to take.
    JobFile,
    /// File to save the job to.
    SaveJob,
}

impl Prompt {
    /// Returns the text before the input.
    pub fn label(self) -> &'static str {
        match self {
            Self::JobFilter => "jobs with",
            Self::Find => "find",
            Self::LogFilter => "show only",
            Self::Ranks => "ranks (0,8-15)",
            Self::ExportLog | Self::ExportPairs | Self::SaveJob => "save to",
            Self::JobFile => "job file",
        }
    }
}

/// An action that needs a confirmation. It contains the job it was opened for: the list may move under it.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Whether to act on a job.
    Act(JobHandle, JobAction),
    /// Whether to submit the draft, at this revision.
    Submit(u64),
    /// Whether to begin a blank job and discard the current draft.
    Blank,
}

/// Something on top of a screen.
#[derive(Clone, Debug)]
pub enum Layer {
    /// The help, filtered by what was typed.
    Help {
        /// Filter.
        filter: Input,
        /// Lines scrolled.
        scroll: usize,
        /// Whether the signs are explained instead of the keys.
        signs: bool,
    },
    /// The palette.
    Palette {
        /// What was typed.
        input: Input,
        /// Line under the cursor.
        selected: usize,
    },
    /// A line of input.
    Prompt {
        /// What it is for.
        prompt: Prompt,
        /// What was typed.
        input: Input,
        /// What is wrong with it.
        error: Option<String>,
    },
    /// A yes or no.
    Confirm(Question),
    /// A text to read: evidence, channels of a pair, a whole line.
    Text {
        /// Its title.
        title: String,
        /// Its lines, safe to draw.
        lines: Vec<String>,
        /// Lines scrolled.
        scroll: usize,
    },
}
