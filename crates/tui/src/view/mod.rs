//! Draws the model. Reads it only; everything drawn was made safe before it entered the model, or comes out of the log
//! store as a clean line.

pub(crate) mod bandwidth;
mod chart;
pub mod diagnosis;
mod document;
pub mod event;
mod footer;
mod heat;
mod jobs;
pub(crate) mod layers;
mod logs;
pub mod matrix;
pub mod mouse_targets;
mod overview;
pub mod paint;
pub mod pair;
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
    footer::draw(model, frame, paint, bottom);
    if let (Some(spots), false) = (paint.spots(), model.layers.is_empty()) {
        // What lies on top hides the rest.
        spots.clear();
    }
    layers::draw(model, frame, paint, body);
    wide_characters::replace(frame.buffer_mut());
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
        (Screen::Fabric, Some(open)) => matrix::draw(open, frame, paint, area),
        (Screen::Logs, Some(open)) => logs::draw(model, open, frame, paint, area),
        (Screen::Diagnosis, Some(open)) => diagnosis::draw(open, frame, paint, area),
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

/// Returns the tabs and the badges of the targets. The tabs' names are shown if the targets leave enough
/// space.
fn header(model: &Model, paint: Paint, width: usize) -> Line<'static> {
    let badges: Vec<(String, &str, Meaning)> =
        model.jobs.targets.iter().map(|target| badge(model, target)).collect();
    let wanted: usize =
        badges.iter().map(|(word, name, _)| paint::width(word) + paint::width(name) + 3).sum();
    let tabs_with = |words: bool| -> Vec<Span<'static>> {
        let tab = |(number, screen): (usize, Screen)| {
            let here = screen == model.screen;
            let text = match (here, words) {
                (true, _) => format!("[{} {}]", number + 1, screen.word()),
                (false, true) => format!(" {} {} ", number + 1, screen.word()),
                (false, false) => format!(" {} ", number + 1),
            };
            Span::styled(text, paint.style(if here { Meaning::Title } else { Meaning::Muted }))
        };
        Screen::ALL.into_iter().enumerate().map(tab).collect()
    };
    let long = |tabs: &[Span]| tabs.iter().map(Span::width).sum::<usize>();
    let mut tabs = tabs_with(true);
    if long(&tabs) + wanted >= width {
        tabs = tabs_with(false);
    }
    let used = long(&tabs);
    let mut shown: Vec<Span> = Vec::new();
    let mut space = width.saturating_sub(used + 1);
    for (word, name, meaning) in badges {
        let name = format!("  {name} ");
        let needs = paint::width(&name) + paint::width(&word);
        if needs > space {
            shown.push(Span::raw(if space >= 2 { " +" } else { "" }));
            break;
        }
        space -= needs;
        shown.push(Span::raw(name));
        shown.push(Span::styled(word, paint.style(meaning)));
    }
    tabs.push(Span::raw(" ".repeat(width.saturating_sub(used + long(&shown)))));
    tabs.extend(shown);
    Line::from(tabs)
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
