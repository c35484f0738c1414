//! What is known of one pair of nodes or ranks, as text and as a table.

use std::collections::BTreeSet;

use weftrun::core::text::counted;

use crate::model::open::Open;
use crate::model::transport_view::{Cell, Link};

/// Returns the title and text of the cell under the cursor: its links in both directions, its ranks, and what was
/// expected of it.
pub fn cell_text(open: &Open) -> (String, Vec<String>) {
    let (row, column) = open.cell;
    let unit = if open.by_rank { "rank" } else { "node" };
    let name = |at: usize| open.matrix_name(at).map_or("?".to_owned(), |number| number.to_string());
    let title = format!("{unit} {} to {unit} {}", name(row), name(column));
    let mut lines = Vec::new();
    for (from, to) in [(row, column), (column, row)] {
        if from != row || to != column || row == column {
            lines.push(String::new());
        }
        lines.push(format!("{unit} {} sends to {unit} {}", name(from), name(to)));
        match open.matrix_cell(from, to) {
            Cell::Linked(link) => lines.extend(link_lines(link, open.is_wrong(from, to))),
            Cell::NoChannel => {
                lines.push("  no channel: rings and trees connect neighbours only".to_owned());
            }
            Cell::Unknown => {
                lines.push("  not known: not all connections of both were read with their ranks".to_owned());
            }
        }
        if row == column {
            break;
        }
    }
    lines.push(String::new());
    let view = &open.transport_view;
    let ends: BTreeSet<usize> = [row, column].into_iter().collect();
    for at in ends {
        let Some(index) = open.matrix_rows().get(at).copied() else { continue };
        if let (true, Some(rank)) = (open.by_rank, view.ranks.get(index)) {
            let announced = rank.announced.as_deref().unwrap_or("nothing");
            lines.push(format!("rank {:<6}{}:{} loaded {announced}", name(at), rank.host, rank.pid));
        } else if let (false, Some(node)) = (open.by_rank, view.nodes.get(index)) {
            let names: Vec<String> =
                node.announced.iter().map(|(name, count)| format!("{name} x{count}")).collect();
            lines.push(format!("node {:<6}{} loaded {}", name(at), node.host, names.join(", ")));
        }
    }
    if let Some((low, high)) = view.expected {
        lines.push(format!("expected   {low} to {high} GB/s bus bandwidth of a large all-reduce of the job"));
    }
    (title.trim_end().to_owned(), lines)
}

fn link_lines(link: &Link, wrong: bool) -> Vec<String> {
    let mut lines = vec![
        format!(
            "  kind       {}{}",
            link.path.name(),
            if wrong { "  ! wrong, see the diagnosis" } else { "" }
        ),
        format!("  transport  {}", link.transports.join(", ")),
        format!("  channels   {} over {} of ranks", link.channels, counted(link.pairs as usize, "pair")),
    ];
    let devices = |of: &BTreeSet<u32>| {
        let numbers: Vec<u32> = of.iter().copied().collect();
        if numbers.is_empty() { "not printed".to_owned() } else { super::paint::ranges(&numbers) }
    };
    if link.path.network().is_some() {
        let (send, receive) = (devices(&link.devices.0), devices(&link.devices.1));
        lines.push(format!("  devices    sender {send}, receiver {receive}"));
        let gdr = match link.gdr {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known, or not the same for all",
        };
        lines.push(format!("  GDR        {gdr}"));
    }
    lines
}

/// Returns all pairs of ranks of every communicator as lines of a table.
pub fn table(open: &Open) -> Vec<Vec<u8>> {
    let mut lines = vec![b"comm\tfrom\tto\tkind\ttransport\tchannels\tgdr".to_vec()];
    let view = &open.transport_view;
    // The first map is that of all communicators, unless there is only one.
    let own = usize::from(view.views() > 1);
    let maps = view.maps.iter().skip(own).enumerate();
    let named = maps.map(|(at, map)| (view.communicators.get(at).map_or("", |comm| comm.id.as_str()), map));
    let loose = (own > 0).then_some(("", &view.loose_links));
    for (id, map) in named.chain(loose) {
        for ((from, to), link) in &map.rank_links {
            let gdr = link.gdr.map_or("unknown", |gdr| if gdr { "yes" } else { "no" });
            let kind = link.path.name();
            let transports = link.transports.join(",");
            lines.push(
                format!("{id}\t{from}\t{to}\t{kind}\t{transports}\t{}\t{gdr}", link.channels).into_bytes(),
            );
        }
    }
    lines
}

/// Returns a regular expression for the lines of NCCL that name the connection from the cell's row to its column.
pub fn proof(open: &Open) -> Option<String> {
    let (row, column) = open.cell;
    let link = match open.matrix_cell(row, column) {
        Cell::Linked(link) => link,
        _ => match open.matrix_cell(column, row) {
            Cell::Linked(link) => link,
            _ => return None,
        },
    };
    let (from, to) = link.printed?;
    Some(format!(r"Channel \d+(/\d+)? : {from}\[\w+\] -> {to}\[\w+\]"))
}
