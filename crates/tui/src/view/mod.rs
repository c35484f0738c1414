//! Draws the model. Reads it only; everything drawn was made safe before it entered the model, or comes out of the log
//! store as a clean line.

mod ascii;
pub(crate) mod bandwidth;
mod chart;
pub mod diagnosis;
mod document;
pub mod event;
mod footer;
mod heading;
mod heat;
mod jobs;
pub(crate) mod layers;
mod logs;
pub mod matrix;
pub mod mouse_targets;
mod overview;
pub mod paint;
pub mod pair;
mod ranks;
pub mod submit;
mod verify;
mod wide_characters;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use crate::model::jobs::{Health, Target};
use crate::model::logs::LogPane;
use crate::model::{Model, Screen};
use crate::theme::Meaning;
use mouse_targets::{MouseTarget, MouseTargets};
use paint::{Paint, age};

/// The smallest terminal the screens are made for.
pub const SMALLEST: (u16, u16) = (60, 15);
/// Width from which the jobs are shown beside the open one.
const WIDE: u16 = 120;
/// From here on the overview shows everything at once.
pub(crate) const LARGE: (u16, u16) = (150, 36);

pub fn view(model: &Model, frame: &mut Frame) {
    draw(model, frame, Paint::new(model.theme));
}

/// Draws the model, and notes what can be clicked.
pub fn view_for_mouse(model: &Model, frame: &mut Frame, spots: &MouseTargets) {
    spots.clear();
    draw(model, frame, Paint::new(model.theme).noting(spots));
}

fn draw(model: &Model, frame: &mut Frame, paint: Paint) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!("weftrun needs {}x{}, has {}x{}", SMALLEST.0, SMALLEST.1, area.width, area.height);
        frame.render_widget(Line::from(text), area);
        return;
    }
    let [top, body, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    let tabs = header(model, paint, usize::from(top.width));
    note_tabs(&tabs, paint, top);
    frame.render_widget(tabs, top);
    screen(model, frame, paint, body);
    footer::draw(model, frame, paint.quiet(), bottom);
    if let (Some(spots), false) = (paint.spots(), model.layers.is_empty()) {
        // What lies on top hides the rest.
        spots.clear();
    }
    layers::draw(model, frame, paint, body);
    wide_characters::replace(frame.buffer_mut());
    if model.ascii {
        ascii::replace(frame.buffer_mut());
    }
}

fn screen(model: &Model, frame: &mut Frame, paint: Paint, area: Rect) {
    let beside = area.width >= WIDE
        && !model.rail.hidden
        && area.width > 2 * model.rail.columns
        && !matches!(model.screen, Screen::Jobs | Screen::Submit);
    let area = if beside {
        let [rail, rest] =
            Layout::horizontal([Constraint::Length(model.rail.columns), Constraint::Min(1)]).areas(area);
        jobs::rail(model, frame, paint, rail);
        rest
    } else {
        area
    };
    match (model.screen, &model.open) {
        (Screen::Jobs, _) => jobs::draw(model, frame, paint, area),
        (Screen::Submit, _) => submit::draw(model, frame, paint, area),
        (_, None) => {
            paint.panel(
                frame,
                area,
                "no job is open",
                vec![Line::from("1 shows the jobs; enter opens one.")],
            );
        }
        (Screen::Overview, Some(open)) => overview::draw(model, open, frame, paint, area),
        (Screen::Fabric, Some(open)) => matrix::draw(model, open, frame, paint, area),
        (Screen::Logs, Some(open)) => logs::draw(model, open, frame, paint, area),
        (Screen::Diagnosis, Some(open)) => diagnosis::draw(model, open, frame, paint, area),
        (Screen::Bandwidth, Some(open)) => bandwidth::draw(model, open, frame, paint, area),
    }
}

/// Returns how many lines fit into the log pane on a terminal of this size, which the update needs for
/// scrolling.
pub(crate) fn log_height_of(pane: &LogPane, screen: Screen, size: (u16, u16)) -> usize {
    let rows = usize::from(size.1);
    if screen == Screen::Logs { logs::height(pane, rows.saturating_sub(2)) } else { rows / 4 }
}

/// Notes where the tabs are: the first spans of the header.
fn note_tabs(header: &Line, paint: Paint, area: Rect) {
    let Some(spots) = paint.spots() else { return };
    let mut x = area.x;
    for (screen, span) in Screen::ALL.into_iter().zip(&header.spans) {
        let width = u16::try_from(span.width()).unwrap_or(0);
        spots.add(Rect { x, width, ..area }, MouseTarget::Screen(screen));
        x = x.saturating_add(width);
    }
}

/// How the tabs are written.
#[derive(Clone, Copy)]
enum Tabs {
    Padded,
    Tight,
    Short,
}

/// Returns the tabs: their names are shown at every width.
fn tabs(model: &Model, paint: Paint, form: Tabs) -> Vec<Span<'static>> {
    // Number keys are typed into the field under the cursor.
    let typed = model.screen == Screen::Submit
        && model.draft.as_ref().is_some_and(|draft| draft.field != crate::model::draft::Field::Changes);
    let mut behind = " ";
    let mut spans: Vec<Span> = Vec::new();
    for (number, screen) in Screen::ALL.into_iter().enumerate() {
        let here = screen == model.screen;
        let word = if matches!(form, Tabs::Short) { screen.short_word() } else { screen.word() };
        let name = if typed { word.to_owned() } else { format!("{} {word}", number + 1) };
        let text = match (form, here) {
            (Tabs::Padded, true) => format!("[{name}]"),
            (Tabs::Padded, false) => format!(" {name} "),
            (_, true) => format!("[{name}"),
            (_, false) => format!("{behind}{name}"),
        };
        behind = if here { "]" } else { " " };
        spans.push(Span::styled(text, paint.style(if here { Meaning::Title } else { Meaning::Muted })));
    }
    if !matches!(form, Tabs::Padded) {
        spans.push(Span::raw(behind));
    }
    spans
}

/// Returns the tabs and the badges of the targets. A target that is down is named before the others, whatever the width.
fn header(model: &Model, paint: Paint, width: usize) -> Line<'static> {
    let long = |spans: &[Span]| spans.iter().map(Span::width).sum::<usize>();
    let badges = [
        badges(model, paint, true, true),
        badges(model, paint, true, false),
        badges(model, paint, false, false),
    ];
    let forms = [Tabs::Padded, Tabs::Tight, Tabs::Short].map(|form| tabs(model, paint, form));
    let both = badges.iter().flat_map(|badges| forms.iter().map(move |tabs| (tabs, badges)));
    let fitting = both.clone().find(|(tabs, badges)| long(tabs) + long(badges) < width);
    let Some((tabs, badges)) = fitting.or_else(|| both.last()) else { return Line::default() };
    let blanks = " ".repeat(width.saturating_sub(long(tabs) + long(badges)));
    tabs.iter().cloned().chain([Span::raw(blanks)]).chain(badges.iter().cloned()).collect()
}

/// Returns the badges of the targets, those that are down first; the others, or all of them, as numbers.
fn badges(model: &Model, paint: Paint, names_down: bool, names_up: bool) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    let is_down = |target: &&Target| matches!(target.health, Health::Down(..));
    let (down, up): (Vec<&Target>, Vec<&Target>) = model.jobs.targets.iter().partition(is_down);
    let mut add = |text: String, word: String, meaning| {
        spans.extend([Span::raw(format!(" {text} ")), paint.quiet().span(word, meaning)]);
    };
    for (targets, named) in [(down, names_down), (up, names_up)] {
        let known = targets.iter().map(|target| badge(model, target));
        if named {
            known.for_each(|(word, name, meaning)| add(name.to_owned(), word, meaning));
            continue;
        }
        let mut counts: Vec<(String, usize, Meaning)> = Vec::new();
        for (word, _, meaning) in known {
            let word = word.split(' ').next().unwrap_or_default().to_owned();
            match counts.iter_mut().find(|(known, ..)| *known == word) {
                Some((_, count, _)) => *count += 1,
                None => counts.push((word, 1, meaning)),
            }
        }
        counts.into_iter().for_each(|(word, count, meaning)| add(count.to_string(), word, meaning));
    }
    spans
}

/// Returns whether a target answers: the word, its name and its severity.
fn badge<'m>(model: &Model, target: &'m Target) -> (String, &'m str, Meaning) {
    let (word, meaning) = match &target.health {
        Health::Asking => ("…".to_owned(), Meaning::Busy),
        Health::Up => ("ok".to_owned(), Meaning::Good),
        Health::Down(since, _) => (format!("DOWN {}", age(model.now, Some(*since))), Meaning::Bad),
    };
    (word, &target.name, meaning)
}
