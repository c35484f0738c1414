//! The section of a report on NCCL's collectives.

use weftrun::core::catalogue::Expected;
use weftrun::core::log::clean_text;
use weftrun::core::text::rounded_size;
use weftrun::diagnose::Measured;

/// Most rows of the table; JSON has all.
const ROWS: usize = 64;

/// How fast the collectives are.
pub(super) struct Collectives {
    /// Who comes last, or why no rank is named.
    pub sentence: String,
    /// The class of the sentence.
    pub class: &'static str,
    /// Collective, ranks, largest size, bus bandwidth, slowest, expected, time.
    pub rows: Vec<[String; 7]>,
    /// Collectives that are not in the table.
    pub hidden: usize,
    /// What limits the figures.
    pub notes: Vec<String>,
}

impl Collectives {
    pub(super) fn of(measured: &Measured) -> Self {
        let gbps = |gbps: Option<f64>| gbps.map_or_else(|| "–".to_owned(), |gbps| format!("{gbps:.1}"));
        let mut rows: Vec<[String; 7]> = Vec::new();
        let mut hidden = 0;
        for (comm, speed) in measured.speeds.collectives() {
            if rows.len() >= ROWS {
                hidden += 1;
                continue;
            }
            let size = speed.main_size();
            let expected = measured.expected(&comm.id, speed.collective);
            rows.push([
                speed.collective.to_string(),
                comm.ranks.to_string(),
                size.map_or_else(String::new, |size| rounded_size(size.most_bytes)),
                gbps(size.and_then(|size| size.busbw_gbps)),
                gbps(size.and_then(|size| size.slowest_gbps)),
                expected.map_or_else(|| "unknown".to_owned(), Expected::numbers),
                speed.time_share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            ]);
        }
        let clean = |text: &str| clean_text(text).into_owned();
        Self {
            sentence: clean(&measured.sentence()),
            class: match measured.limit {
                Some("slow") => "bad",
                Some(_) => "unknown",
                None => "",
            },
            rows,
            hidden,
            notes: measured.speeds.notes.iter().map(|note| clean(note)).collect(),
        }
    }
}
