//! The list of ranks or nodes of the overview.

use jiff::{SignedDuration, Timestamp};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::heading::Head;
use super::matrix;
use super::mouse_targets::{Bar, Heading, MouseTarget};
use super::paint::{FULL, NONE, PART, Paint, age, cell, fit};
use crate::model::Model;
use crate::model::open::{Open, Suspects};
use crate::model::rows::Output;
use crate::model::sorting::{NodeColumn, RankColumn};
use crate::model::transport_view::{Node, Rank, Step};
use crate::theme::Meaning;

pub(super) fn draw(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    if !open.lists_nodes() {
        return ranks(model, open, frame, paint, area);
    }
    let title = format!("Nodes {} (z: ranks, enter: its log)", open.transport_view.nodes.len());
    let inside = paint.frame(frame, area, title);
    let strip = node_strip(open, paint, usize::from(inside.width), usize::from(inside.height));
    let rows = usize::from(inside.height).saturating_sub(1 + strip.len());
    let order = open.node_rows();
    let here = open.row.min(order.len().saturating_sub(1));
    let first = here.saturating_sub(rows.saturating_sub(1));
    let widths = node_widths(usize::from(inside.width));
    let heads = [
        Head::left("  node", NodeColumn::Node, widths[0] + 3),
        Head::left("reached", NodeColumn::Reached, widths[1] + 1),
        Head::left("loaded", NodeColumn::Loaded, widths[2] + 1),
        Head::left("ranks", NodeColumn::Ranks, widths[3]),
    ];
    let mut lines = strip;
    lines.push(paint.headings((inside, lines.len()), open.nodes_sorted, &heads, Heading::Node));
    let suspects = open.suspects();
    for (row, number) in order.iter().enumerate().skip(first).take(rows) {
        paint.spot(inside, lines.len(), || MouseTarget::Row(row));
        lines.push(node_line(open, &suspects, paint, (*number, row == here), widths));
    }
    frame.render_widget(Paragraph::new(lines), inside);
    let all = open.transport_view.nodes.len();
    paint.scroll_bar(frame, area, Bar::Rows, first..(first + rows).min(all), all);
}

/// Returns one sign for each node, on as many lines as that takes, if the list of nodes does not fit: `!` where a rank
/// failed or is a suspect, [`FULL`] where all ranks trained or are connected, [`PART`] where they are on the way, [`NONE`] where none
/// has begun. More nodes than fit share a sign, which is the worst of them.
fn node_strip<'a>(open: &Open, paint: Paint, columns: usize, rows: usize) -> Vec<Line<'a>> {
    let nodes = &open.transport_view.nodes;
    let most = rows / 3;
    if nodes.len() < rows || most == 0 {
        return Vec::new();
    }
    let space = columns.saturating_sub(2).max(1);
    let group = nodes.len().div_ceil(space * most).max(1);
    let suspects = open.suspects();
    let ranks = &open.transport_view.ranks;
    let connected = |at: &usize| ranks.get(*at).is_some_and(Rank::is_connected);
    let state = |node: &Node| {
        if node.failed > 0 || suspects.contain_any(&open.transport_view, &node.ranks) {
            3
        } else if node.reached[0] == 0 {
            2
        } else {
            usize::from(!node.ranks.iter().all(connected))
        }
    };
    let worst: Vec<usize> =
        nodes.chunks(group).map(|nodes| nodes.iter().map(state).max().unwrap_or_default()).collect();
    let sign = |state: &usize| match state {
        0 => paint.span(FULL, Meaning::Good),
        1 => paint.span(PART, Meaning::Busy),
        2 => paint.span(NONE, Meaning::Muted),
        _ => paint.span("!", Meaning::Bad),
    };
    let line = |states: &[usize]| {
        Line::from(std::iter::once(Span::raw(" ")).chain(states.iter().map(sign)).collect::<Vec<_>>())
    };
    worst.chunks(space).map(line).collect()
}

/// Returns the widths of name, step, networks and ranks.
fn node_widths(columns: usize) -> [usize; 4] {
    let [name, reached, announced] = if columns >= 76 { [20, 22, 18] } else { [15, 15, 13] };
    [name, reached, announced, columns.saturating_sub(name + reached + announced + 5)]
}

fn node_line<'a>(
    open: &Open,
    suspects: &Suspects,
    paint: Paint,
    (number, here): (usize, bool),
    widths: [usize; 4],
) -> Line<'a> {
    let node = &open.transport_view.nodes[number];
    let (reached, all) = open.node_word(node);
    let meaning = match (node.failed > 0, all) {
        (true, _) => Meaning::Bad,
        _ if open.end().is_some() => Meaning::Muted,
        (_, true) => Meaning::Good,
        _ => Meaning::Busy,
    };
    let announced: Vec<String> = node.announced.iter().map(|(name, _)| name.clone()).collect();
    let odd = matrix::odd_node(&open.transport_view, number);
    let announced = format!("{}{}", announced.join("+"), if odd { " !" } else { "" });
    let ranks: Vec<u32> =
        node.ranks.iter().filter_map(|index| open.transport_view.ranks[*index].rank).collect();
    let suspect = suspects.contain_any(&open.transport_view, &node.ranks);
    // Ranks without a line of their own are on a node that is not named.
    let host = if node.host.is_empty() { "?" } else { &node.host };
    let text = format!("{number:>3}{} {host}", if suspect { "!" } else { "" });
    let line = Line::from(vec![
        Span::raw(format!("{} {} ", if here { ">" } else { " " }, cell(&text, widths[0]))),
        paint.span(cell(&reached, widths[1]), meaning),
        paint.span(
            format!(" {} ", cell(&announced, widths[2])),
            if odd { Meaning::Bad } else { Meaning::Muted },
        ),
        Span::raw(fit(&format!("r{}", super::paint::ranges(&ranks)), widths[3]).into_owned()),
    ]);
    if here { paint.under_cursor(&line, widths.iter().sum::<usize>() + 5) } else { line }
}

/// Returns the widths of host and network in the list of ranks, which shrink on a small screen, and whether
/// the ages of the last line and the last step fit.
fn rank_widths(columns: usize, timed: bool) -> (usize, usize, bool) {
    let fixed = 2 + 7 + 4 + 11 + 6 + 5;
    let silence = if timed { 15 } else { 0 };
    let left = columns.saturating_sub(fixed + 2);
    let timed = timed && left >= silence + 8;
    let left = left.saturating_sub(if timed { silence } else { 0 });
    // How long a rank is silent says more than what it announced, which the matrix shows too.
    let announced = if timed && left < 20 { 0 } else { (left * 2 / 5).clamp(8, 15) };
    (left.saturating_sub(announced).clamp(8, 24), announced, timed)
}

/// Time without a line after which a rank of a running job is marked as silent.
const SILENT: SignedDuration = SignedDuration::from_secs(60);

fn ranks(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let title = match open.transport_view.ranks.len() {
        0 => "Ranks (none known)".to_owned(),
        known => format!("Ranks {known} (s sorts, enter: its log)"),
    };
    let inside = paint.frame(frame, area, title);
    let rows = usize::from(inside.height).saturating_sub(1);
    let columns = usize::from(inside.width);
    let order = open.rank_rows();
    let first = open.row.saturating_sub(rows.saturating_sub(1));
    // Before the store is locked: it is read there, and a second lock would wait for a writer that waits for the first.
    let outputs = open.outputs();
    let store = open.logs.store.read();
    let ended = open.ended();
    let is_over = open.end().is_some();
    let has_times = store.has_times() || store.watched().is_some();
    let (host, announced, timed) = rank_widths(columns, has_times && (!is_over || ended.is_some()));
    let now = ended.unwrap_or(model.now);
    let times = usize::from(timed);
    let heads = [
        Head::left("  rank", RankColumn::Rank, 2 + 7),
        Head::left("host:pid", RankColumn::Host, host + 1),
        Head::left("gpu", RankColumn::Gpu, 4),
        Head::left("phase", RankColumn::Phase, 11),
        Head::left("loaded", RankColumn::Loaded, announced),
        Head::right("warn", RankColumn::Warnings, 6),
        Head::right("err", RankColumn::Errors, 5),
        // After the end: how long before it.
        Head::right(if is_over { "last" } else { "silent" }, RankColumn::Silent, 8 * times),
        Head::right("step", RankColumn::Step, 7 * times),
    ];
    let mut lines = vec![paint.headings((inside, 0), open.ranks_sorted, &heads, Heading::Rank)];
    let suspects = open.suspects();
    for (index, at) in order.iter().enumerate().skip(first).take(rows) {
        paint.spot(inside, lines.len(), || MouseTarget::Row(index));
        let rank = &open.transport_view.ranks[*at];
        let Output { warnings, errors, last } =
            rank.rank.and_then(|rank| outputs.get(&rank)).copied().unwrap_or_default();
        // Which lines are those of an unknown rank is unknown too.
        let count = |of: u64| if rank.rank.is_some() { of.to_string() } else { "-".to_owned() };
        // Lines that were written before the log was opened have no time.
        let watched = store.watched().filter(|begun| !is_over || *begun < now);
        let since = last.or(watched.filter(|_| rank.bring_up != Step::Awaited && !store.has_times()));
        let more = if last.is_none() && since.is_some() { ">" } else { "" };
        let silent = if timed {
            let before = |time: Option<Timestamp>| match age(now, time) {
                text if is_over && time.is_some() => format!("-{text}"),
                text => text,
            };
            format!(" {:>7} {:>6}", format!("{more}{}", before(since)), before(rank.last_step))
        } else {
            String::new()
        };
        let quiet = !is_over && since.is_some_and(|since| now.duration_since(since) >= SILENT);
        let number = rank.rank.map_or("?".to_owned(), |rank| format!("r{rank}"));
        let meaning = match (rank.step(), open.end()) {
            (Step::Failed, _) => Meaning::Bad,
            (Step::Stepping, None) => Meaning::Good,
            (_, Some(_)) => Meaning::Muted,
            (Step::Awaited, None) => Meaning::Warn,
            (_, None) => Meaning::Busy,
        };
        let process = match (rank.host.as_str(), rank.pid) {
            ("", _) => "-".to_owned(),
            (host, 0) => host.to_owned(),
            (host, pid) => format!("{host}:{pid}"),
        };
        let here = index == open.row;
        let suspect = suspects.contains(rank.rank);
        let line = Line::from(vec![
            Span::raw(if here { ">" } else { " " }),
            if suspect { paint.span("!", Meaning::Bad) } else { Span::raw(" ") },
            if suspect {
                paint.span(format!("{} ", cell(&number, 6)), Meaning::Bad)
            } else {
                Span::raw(format!("{} ", cell(&number, 6)))
            },
            Span::raw(format!("{} ", cell(&process, host))),
            Span::raw(format!("{} ", cell(&rank.device.map_or("-".to_owned(), |d| d.to_string()), 3))),
            paint.span(format!("{} ", cell(open.phase_word(rank), 10)), meaning),
            Span::raw(cell(rank.announced.as_deref().unwrap_or("-"), announced)),
            paint.span(
                format!(" {:>5}", count(warnings)),
                if warnings > 0 { Meaning::Warn } else { Meaning::Muted },
            ),
            paint.span(
                format!(" {:>4}", count(errors)),
                if errors > 0 { Meaning::Bad } else { Meaning::Muted },
            ),
            paint.span(silent, if quiet { Meaning::Warn } else { Meaning::Muted }),
        ]);
        lines.push(if here { paint.under_cursor(&line, columns) } else { line });
    }
    if order.is_empty() {
        let text = if store.count() > 0 {
            let key = model.keymap.first_key("logs");
            format!("  there is output, but no line names its rank; {key} opens the logs")
        } else {
            format!("  no rank output{}; see the events for the nodes", open.yet())
        };
        lines.push(Line::from(paint.span(fit(&text, columns).into_owned(), Meaning::Muted)));
    }
    frame.render_widget(Paragraph::new(lines), inside);
    paint.scroll_bar(frame, area, Bar::Rows, first..(first + rows).min(order.len()), order.len());
}
