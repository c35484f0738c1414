//! The state of the UI at its end, which the next start restores.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weftrun::core::job::JobHandle;
use weftrun::core::log::Level;

use super::draft::{NewJobForm, SavedForm};
use super::jobs::{JobColumn, Learned};
use super::logs::Times;
use super::sorting::{Column, Sorting};
use super::{Model, Screen};
use crate::theme::Theme;

/// The state of the UI at its end. Unknown keys in a file of another version are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    pub job: Option<JobHandle>,
    /// The screen, by its number.
    pub screen: usize,
    pub jobs_filter: String,
    /// The column by which the list was sorted.
    pub jobs_sorted: String,
    /// Whether the last of that order came first.
    pub jobs_reversed: bool,
    /// What the last diagnoses found, by the handle of the job.
    pub learned: BTreeMap<String, Learned>,
    /// The theme, by name.
    pub theme: Option<String>,
    /// Columns of the jobs beside an open one; negative while they are hidden, 0 for the default.
    pub rail: i32,
    pub log: LogView,
    /// The draft of a new job that was not submitted.
    pub draft: Option<SavedForm>,
    /// Drafts of other instances, which come up one after another.
    pub other_drafts: Vec<SavedForm>,
}

/// Most jobs of which the last diagnosis is kept.
const MOST_LEARNED: usize = 500;
/// Most drafts of other instances that are kept.
const MOST_DRAFTS: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogView {
    pub filter: String,
    pub ranks: String,
    /// Least severity, by its letter.
    pub level: Option<char>,
    /// Times, by number.
    pub times: Option<usize>,
    pub wrap: bool,
    /// Whether the same lines were shown once.
    pub folded: bool,
    pub pins: Vec<u32>,
    /// Bookmarks, by number of the line.
    pub bookmarks: Vec<u64>,
}

pub(crate) const TIMES: [Times; 3] = [Times::Clock, Times::Relative, Times::Off];
pub(crate) const LEVELS: [Level; 4] = [Level::Debug, Level::Info, Level::Warn, Level::Error];

fn number<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|known| known == one).unwrap_or(0)
}

impl Session {
    /// Returns the session of a model.
    pub fn of(model: &Model) -> Self {
        let open = model.open.as_ref();
        Self {
            job: open.filter(|_| model.screen != Screen::Jobs).map(|open| open.handle.clone()),
            screen: number(&Screen::ALL, &model.screen),
            jobs_filter: model.jobs.filter.clone(),
            jobs_sorted: model.jobs.sorted.column.name().to_owned(),
            jobs_reversed: model.jobs.sorted.reversed,
            learned: (model.jobs.all_learned(MOST_LEARNED).into_iter())
                .map(|(handle, learned)| (handle.to_string(), learned))
                .collect(),
            theme: (model.theme != Theme::Mono && model.found_theme != Some(model.theme))
                .then(|| model.theme.name().to_owned()),
            rail: i32::from(model.rail.columns) * if model.rail.hidden { -1 } else { 1 },
            log: open.map_or_else(LogView::default, |open| LogView::of(&open.logs)),
            draft: model.draft.as_ref().and_then(NewJobForm::keep),
            other_drafts: model.other_drafts.clone(),
        }
    }

    /// Restores the list of jobs and the draft. The open job is opened again when its target lists it.
    pub fn restore(&self, model: &mut Model) {
        model.jobs.filter.clone_from(&self.jobs_filter);
        let column = JobColumn::parse(&self.jobs_sorted).unwrap_or_default();
        model.jobs.sorted = Sorting { column, reversed: self.jobs_reversed };
        let learned = self.learned.iter().take(MOST_LEARNED);
        let learned = learned.filter_map(|(job, learned)| Some((job.parse().ok()?, learned.clone().clean())));
        model.jobs.learned = learned.collect();
        if let Ok(columns @ 1..) = u16::try_from(self.rail.unsigned_abs()) {
            model.rail.columns = columns;
            model.rail.resize(0);
            model.rail.hidden = self.rail < 0;
        }
        if let Some(theme) = self.theme.as_deref().and_then(Theme::parse) {
            model.theme = theme;
        }
        if let Some(kept) = &self.draft {
            model.draft = Some(NewJobForm::restored(kept, model.choices()));
        }
        model.other_drafts.clone_from(&self.other_drafts);
    }

    /// Adds the drafts of another instance, which was saved after this one began with `begun`: none of either is lost.
    #[must_use]
    pub fn beside(mut self, other: &Self, begun: Option<&Self>) -> Self {
        let drafts =
            |session: &Self| session.draft.iter().chain(&session.other_drafts).cloned().collect::<Vec<_>>();
        let (own, known) = (drafts(&self), begun.map(drafts).unwrap_or_default());
        let new = drafts(other).into_iter().filter(|draft| !own.contains(draft) && !known.contains(draft));
        self.other_drafts.extend(new);
        self.other_drafts.truncate(MOST_DRAFTS);
        self
    }

    /// Returns the screen of the open job.
    pub fn screen(&self) -> Screen {
        match Screen::ALL.get(self.screen) {
            Some(Screen::Jobs | Screen::Submit) | None => Screen::Overview,
            Some(screen) => *screen,
        }
    }
}

impl LogView {
    fn of(pane: &super::logs::LogPane) -> Self {
        Self {
            filter: pane.filter.clone(),
            ranks: pane.ranks.clone(),
            level: Some(pane.level.letter()),
            times: Some(number(&TIMES, &pane.times)),
            wrap: pane.wrap,
            folded: pane.folded,
            pins: pane.pinned.iter().map(|(rank, _)| *rank).collect(),
            bookmarks: pane.bookmarks.clone(),
        }
    }

    pub fn restore(&self, pane: &mut super::logs::LogPane) {
        pane.filter.clone_from(&self.filter);
        pane.ranks.clone_from(&self.ranks);
        let level = |letter: char| LEVELS.into_iter().find(|level| level.letter() == letter);
        pane.level = self.level.and_then(level).unwrap_or(Level::Debug);
        pane.times = self.times.and_then(|at| TIMES.get(at)).copied().unwrap_or_default();
        (pane.wrap, pane.folded) = (self.wrap, self.folded);
        pane.bookmarks.clone_from(&self.bookmarks);
        for rank in &self.pins {
            pane.pin(*rank);
        }
    }
}
