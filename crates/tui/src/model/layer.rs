//! Layers on top of a screen, which receive the keys first.

use tui_input::Input;
use weftrun::core::job::{Action as JobAction, JobHandle};

use super::draft::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    JobFilter,
    Find,
    LogFilter,
    Ranks,
    /// Line or time of the log.
    GoTo,
    ExportLog,
    ExportPairs,
    LogFiles,
    JobFile,
    SaveJob,
}

impl Prompt {
    /// Returns whether it asks for a path, which the tab key completes.
    pub fn is_path(self) -> bool {
        matches!(self, Self::ExportLog | Self::ExportPairs | Self::SaveJob | Self::LogFiles | Self::JobFile)
    }

    /// Returns the text before the input.
    pub fn label(self) -> &'static str {
        match self {
            Self::JobFilter => "jobs with",
            Self::Find => "find",
            Self::LogFilter => "show only",
            Self::Ranks => "ranks (0,8-15)",
            Self::GoTo => "line, or time (12:04:05)",
            Self::ExportLog | Self::ExportPairs | Self::SaveJob => "save to",
            Self::LogFiles => "logs (a file or a folder)",
            Self::JobFile => "job file",
        }
    }
}

/// An action that needs a confirmation. It contains the job it was opened for: the list may move under it.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    Act {
        jobs: Vec<JobHandle>,
        action: JobAction,
        /// Why it is not done to others that were chosen.
        left_out: Vec<String>,
    },
    /// Whether to submit the draft, at this revision.
    Submit(u64),
    /// Whether to submit a benchmark with the nodes of a job.
    Verify(JobHandle),
    /// Whether to begin a blank job and discard the current draft.
    Blank,
}

/// Returns the values with a typed text: those that begin with it first.
pub fn picked<'v>(values: &'v [(String, String)], typed: &str) -> Vec<&'v (String, String)> {
    let typed = typed.trim().to_lowercase();
    let holds = |value: &&(String, String)| {
        typed
            .split_whitespace()
            .all(|word| value.0.to_lowercase().contains(word) || value.1.to_lowercase().contains(word))
    };
    let mut found: Vec<&(String, String)> = values.iter().filter(holds).collect();
    found.sort_by_key(|value| !value.0.to_lowercase().starts_with(&typed));
    found
}

/// Something on top of a screen.
#[derive(Clone, Debug)]
pub enum Layer {
    /// The help, filtered by what was typed.
    Help {
        filter: Input,
        scroll: usize,
        /// Whether the signs are explained instead of the keys.
        signs: bool,
    },
    Palette {
        input: Input,
        /// Line under the cursor.
        selected: usize,
    },
    /// A value to pick for a field of the new job.
    Pick {
        field: Field,
        values: Vec<(String, String)>,
        input: Input,
        /// Line under the cursor.
        selected: usize,
    },
    /// A line of input.
    Prompt {
        prompt: Prompt,
        input: Input,
        error: Option<String>,
    },
    /// The benchmark that was started last.
    Verify,
    Confirm(Question),
    /// A text to read: evidence, channels of a pair, a whole line.
    Text {
        title: String,
        /// Its lines, safe to draw.
        lines: Vec<String>,
        scroll: usize,
    },
}
