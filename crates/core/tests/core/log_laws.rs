//! Laws of the tailer: any bytes in any chunks give the same lines, and only text.

use std::sync::Arc;

use proptest::prelude::*;
use weftrun_core::log::{
    Cursor, Filter, LogBatch, LogStore, Mark, Pattern, Projection, SourceId, Spill, clean_line, clean_text,
};

const HOSTILE: &[&[u8]] = &[
    b"\x1b[31m",
    b"\x1b]0;t\x07",
    b"\x1b]52;c;QQ==\x1b\\",
    b"\x1bPx",
    b"\x1b[",
    b"\x1b",
    b"\xc2\x9b2J",
    b"\xc2\x9dx",
    b"\xe2\x80\xae",
    b"\xe2\x80\x8b\xe2\x81\xa6",
    b"\t",
    b"\x07\x08\x0e\x7f",
    b"\x1b(0",
    b"\xf0\x9f\x98\x80\xcc\x81\xcc\x81",
    b"[rank3]: ",
    b"[default1]:",
    b"[1,2]<stdout>:",
    b"3: ",
    b"\xe2\x80",
    b"\x18",
    b"\r\r",
    b"\r",
];

/// Generates bytes of hostile logs: text, escapes, controls, torn UTF-8, carriage returns, newlines.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[ -~]{0,20}".prop_map(String::into_bytes),
        2 => Just(b"\n".to_vec()),
        1 => Just(b"\r".to_vec()),
        2 => prop::sample::select(HOSTILE).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

struct Judge(Vec<String>);

impl vte::Perform for Judge {
    fn execute(&mut self, byte: u8) {
        self.0.push(format!("control {byte:#x}"));
    }
    fn csi_dispatch(&mut self, _: &vte::Params, _: &[u8], _: bool, action: char) {
        self.0.push(format!("CSI {action}"));
    }
    fn esc_dispatch(&mut self, _: &[u8], _: bool, byte: u8) {
        self.0.push(format!("ESC {byte:#x}"));
    }
    fn osc_dispatch(&mut self, _: &[&[u8]], _: bool) {
        self.0.push("OSC".into());
    }
    fn hook(&mut self, _: &vte::Params, _: &[u8], _: bool, _: char) {
        self.0.push("DCS".into());
    }
}

fn judge(text: &str) -> Vec<String> {
    let mut judge = Judge(Vec::new());
    vte::Parser::new().advance(&mut judge, text.as_bytes());
    judge.0
}

fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn batch(source: &Arc<SourceId>, bytes: &[u8]) -> LogBatch {
    LogBatch::new(source.clone(), bytes.to_vec(), Cursor::default())
}

fn lines(store: &LogStore) -> Vec<(String, u64, u32)> {
    store.from(0).map(|e| (e.clean().text, e.note.cut, e.note.updates)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_line_is_seen_before_it_is_evicted(
        lines in prop::collection::vec(0usize..30_000, 1..5),
        budget in prop_oneof![Just(0usize), 0usize..1 << 22],
    ) {
        let mut store = LogStore::new(budget);
        let source = Arc::new(SourceId::new("pod"));
        let mut next = 0;
        for count in lines {
            let bytes = b"line\r\n".repeat(count);
            let seen = store.ingest_seen(&batch(&source, &bytes), |store| store.from(next).count());
            prop_assert_eq!(seen, count);
            next = store.end();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_but_text_comes_out(bytes in hostile()) {
        let line = clean_line(&bytes);
        prop_assert_eq!(judge(&line.text), Vec::<String>::new());
        prop_assert!(!line.text.chars().any(steers), "{:?}", line.text);
        prop_assert_eq!(line.pieces().map(|(text, _)| text).collect::<String>(), line.text.clone());
        let name = String::from_utf8_lossy(&bytes).into_owned();
        let name = clean_text(&name);
        prop_assert!(!name.chars().any(steers), "{:?}", name);
    }

    #[test]
    fn cleaning_twice_changes_nothing(bytes in hostile()) {
        let once = clean_line(&bytes).text;
        prop_assert_eq!(clean_line(once.as_bytes()).text, once);
    }

    #[test]
    fn pieces_of_any_size_give_the_same_lines(bytes in hostile(), cuts in prop::collection::vec(1usize..30, 1..40)) {
        let source = Arc::new(SourceId::new("pod"));
        let mut whole = LogStore::default();
        whole.ingest(&batch(&source, &bytes));
        let mut torn = LogStore::default();
        let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            torn.ingest(&batch(&source, piece));
            rest = behind;
        }
        for store in [&mut whole, &mut torn] {
            store.ingest(&LogBatch::marked(source.clone(), Mark::Ended { exit_code: None }, Cursor::default()));
        }
        prop_assert_eq!(lines(&whole), lines(&torn));
    }

    #[test]
    fn no_line_is_lost_but_those_counted(sizes in prop::collection::vec(1usize..3000, 1..400)) {
        let mut store = LogStore::new(200_000);
        let sources: Vec<_> = (0..3).map(|n| Arc::new(SourceId::new(format!("pod-{n}")))).collect();
        let mut projection = Projection::new(Filter::default());
        for (n, size) in sizes.iter().enumerate() {
            let mut line = vec![b'x'; *size];
            line.push(b'\n');
            store.ingest(&batch(&sources[usize::from(n % 50 == 0)], &line));
            if n % 7 == 0 {
                projection.update(&store);
            }
        }
        projection.update(&store);
        let held: Vec<_> = store.from(0).map(|e| e.seq).collect();
        prop_assert_eq!(held.len() as u64 + store.dropped(), store.end());
        prop_assert!(held.is_sorted_by(|a, b| a < b));
        let shown = (0..projection.len()).filter_map(|i| projection.seq(i)).filter(|seq| store.get(*seq).is_some());
        prop_assert_eq!(shown.collect::<Vec<_>>(), held.clone());
        prop_assert!(projection.len() <= held.len() + held.len() / 8 + 1);
        prop_assert!(held.iter().all(|seq| store.get(*seq).is_some_and(|e| e.seq == *seq)));
        let back: Vec<_> = store.before(store.end()).map(|e| e.seq).collect();
        prop_assert!(back.iter().rev().eq(held.iter()));
    }
}

#[test]
fn a_filter_that_is_applied_in_parts_shows_the_same_lines() {
    let sources: Vec<_> = (0..2).map(|n| Arc::new(SourceId::new(format!("pod-{n}")))).collect();
    let mut store = LogStore::default().with_history();
    for (source, from) in [(0, 40), (1, 41)] {
        let text: String = (from..from + 15)
            .map(|n| format!("2026-11-22 03:12:{n},000 line {n} of {source}\nand\n"))
            .collect();
        store.ingest(&batch(&sources[source], text.as_bytes()));
        let text: String =
            (10..39).map(|n| format!("2026-11-22 03:12:{n},000 early {n} of {source}\n")).collect();
        store.ingest_history(&batch(&sources[source], text.as_bytes()));
    }
    for filter in ["", "5 !pod", "of"] {
        let filter = Filter::parse(filter, jiff::Timestamp::UNIX_EPOCH).unwrap();
        let mut whole = Projection::new(filter.clone());
        whole.update(&store);
        for most in 1..9 {
            let mut parts = Projection::new(filter.clone());
            let mut steps = 1;
            while !parts.update_part(&store, most) {
                steps += 1;
            }
            let seqs = |of: &Projection| (0..of.len()).map(|at| of.place(at)).collect::<Vec<_>>();
            assert_eq!(seqs(&parts), seqs(&whole), "{most}");
            assert!(steps >= 100 / most, "{steps} steps of {most}");
            assert_eq!(parts.read(&store), store.count());
        }
        let place = |at: usize| store.place(&store.get(whole.seq(at).unwrap()).unwrap());
        assert!((0..whole.len()).all(|at| whole.index_of_place(place(at)) == at));
    }
}

#[test]
fn a_hundred_megabytes_without_a_newline_stay_small() {
    let source = Arc::new(SourceId::new("pod"));
    let mut store = LogStore::default();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        store.ingest(&batch(&source, &piece));
    }
    store.ingest(&batch(&source, b"\nnext\n"));
    let lines: Vec<_> = store.from(0).collect();
    assert_eq!((lines.len(), lines[0].raw().len() as u64 + lines[0].note.cut), (2, 100 << 20));
    assert!(store.size() < 1 << 20, "{}", store.size());
}

#[test]
fn a_chatty_rank_does_not_push_out_a_quiet_one() {
    let (chatty, quiet) = (Arc::new(SourceId::new("chatty")), Arc::new(SourceId::new("quiet")));
    let mut store = LogStore::new(2 << 20);
    store.ingest(&batch(&quiet, b"the one thing it said\n"));
    for n in 0..200_000 {
        store.ingest(&batch(
            &chatty,
            format!("step {n} of a very talkative rank, again and again\n").as_bytes(),
        ));
    }
    assert!(store.size() <= 2 << 20, "{}", store.size());
    assert!(store.dropped() > 0);
    assert_eq!(store.from(0).next().unwrap().clean().text, "the one thing it said");
}

#[test]
fn ranks_inside_one_pipe_get_lanes() {
    let source = Arc::new(SourceId::new("pod-0"));
    let mut store = LogStore::default();
    store.ingest(&batch(&source, b"[default0]:vm:11:11 [0] NCCL INFO a\n[default1]:vm:12:12 [1] NCCL INFO b\n[default0]:plain\nbanner\n"));
    store.learn(&std::iter::once((("vm".to_owned(), 12), 9)).collect());
    let labels: Vec<_> = store.streams().iter().map(|l| (l.label(), l.lines)).collect();
    assert_eq!(labels, [("pod-0/default0".into(), 2), ("r9".into(), 1), ("pod-0".into(), 1)]);
    assert_eq!(store.from(2).next().unwrap().clean().text, "plain");
    let mut only = Projection::new(Filter::parse("rank:9", jiff::Timestamp::UNIX_EPOCH).unwrap());
    assert_eq!(only.update(&store), 1);
}

#[test]
fn gaps_are_lines_of_their_own() {
    let source = Arc::new(SourceId::new("pod-0"));
    let mut store = LogStore::default();
    store.ingest(&batch(&source, b"a\n"));
    store.ingest(&LogBatch::marked(
        source.clone(),
        Mark::Resumed { lost: Some(0), repeated: 2 },
        Cursor::default(),
    ));
    let marks: Vec<_> = store.from(0).filter(|e| e.mark).map(|e| e.clean().text).collect();
    assert_eq!(marks, ["pod-0: stream cut, resumed: 0 lost, 2 repeated"]);
}

#[test]
fn a_level_keeps_the_lines_of_a_traceback_of_each_rank() {
    let source = Arc::new(SourceId::new("pod-0"));
    let mut store = LogStore::default();
    store.ingest(&batch(
        &source,
        b"[rank0]: Traceback (most recent call last):\n[rank1]: step 1\n[rank0]:   File \"a.py\", line 1\n\
          [rank0]:     f()\n[rank0]: ValueError: x\n[rank0]: after\n[rank1]:   indented\n",
    ));
    let mut errors = Projection::new(Filter::parse("level:error", jiff::Timestamp::UNIX_EPOCH).unwrap());
    errors.update(&store);
    let shown: Vec<_> = (0..errors.len())
        .filter_map(|at| store.get(errors.seq(at)?))
        .map(|entry| entry.clean().text)
        .collect();
    let text = ["Traceback (most recent call last):", "  File \"a.py\", line 1", "    f()", "ValueError: x"];
    assert_eq!(shown, text.map(|line| format!("[rank0]: {line}")));
}

#[test]
fn stamps_order_lines_of_several_sources_and_are_no_times() {
    let (one, two) = (Arc::new(SourceId::new("one")), Arc::new(SourceId::new("two")));
    let mut store = LogStore::default();
    store.ingest(&batch(&one, b"2026-11-22 03:12:10,000 a\n  of a\n2026-11-22 03:12:14,000 d\n"));
    store.ingest(&batch(&two, b"[2026-11-22 03:12:11] b\nof b\n2026-11-22T03:12:13Z c\n"));
    let mut all = Projection::default();
    all.update(&store);
    let last = |text: String| text.rsplit(' ').next().map(str::to_owned);
    let shown: Vec<_> = (0..all.len()).filter_map(|at| last(store.get(all.seq(at)?)?.clean().text)).collect();
    assert_eq!(shown, ["a", "a", "b", "b", "c", "d"]);
    assert!(store.is_ordered() && !store.has_times());
    assert!(store.from(0).all(|entry| entry.time.is_none()));
}

#[test]
fn a_log_too_large_for_stamps_is_shown_as_it_was_read() {
    let (one, two) = (Arc::new(SourceId::new("one")), Arc::new(SourceId::new("two")));
    let mut store = LogStore::new(256 << 20);
    store.ingest(&batch(&one, b"2026-11-22 03:12:10,000 a\n2026-11-22 03:12:14,000 d\n"));
    store.ingest(&batch(&two, b"2026-11-22 03:12:11,000 b\n"));
    let mut all = Projection::default();
    let mut of_some = Projection::new(Filter::parse("03:12", jiff::Timestamp::UNIX_EPOCH).unwrap());
    let sequence = |lines: &Projection| (0..lines.len()).filter_map(|at| lines.seq(at)).collect::<Vec<_>>();
    for lines in [&mut all, &mut of_some] {
        lines.update(&store);
        assert_eq!(sequence(lines), [0, 2, 1]);
    }
    let long = format!("{}\n", "x".repeat(1023)).repeat(1 << 10);
    for _ in 0..64 {
        store.ingest(&batch(&one, long.as_bytes()));
    }
    store.ingest(&batch(&two, b"2026-11-22 03:12:12,000 c\n"));
    assert!(!store.is_ordered());
    all.update(&store);
    of_some.update(&store);
    let end = store.end();
    assert_eq!((all.len() as u64, all.seq(1), all.seq(all.len() - 1)), (end, Some(1), Some(end - 1)));
    assert_eq!(sequence(&of_some), [0, 1, 2, end - 1]);
}

#[test]
fn lines_are_numbered_by_their_place_also_with_a_history() {
    let source = Arc::new(SourceId::new("pod-0"));
    let mut store = LogStore::default().with_history();
    store.ingest(&batch(&source, b"third\nfourth\n"));
    let live: Vec<u64> = store.from(0).map(|entry| entry.seq).collect();
    assert_eq!(store.line_number(live[0]), None);
    store.ingest_history(&batch(&source, b"first\nsecond\n"));
    store.end_history();
    let numbers: Vec<_> = store.from(0).map(|entry| store.line_number(entry.seq)).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3), Some(4)]);
    assert!(store.from(0).all(|entry| store.line_at(store.line_number(entry.seq).unwrap()) == entry.seq));
}

#[test]
fn a_search_in_parts_finds_what_a_whole_one_does() {
    let source = Arc::new(SourceId::new("pod-0"));
    let mut store = LogStore::new(1 << 20).with_attic(Box::new(Loft::default()));
    for piece in 0..40 {
        let lines: String = (0..2000)
            .map(|n| format!("line {n} of {piece} {}\n", if n % 500 == 7 { "needle" } else { "" }))
            .collect();
        store.ingest(&batch(&source, lines.as_bytes()));
    }
    let pattern = Pattern::literal("needle").unwrap();
    let mut starts = store.parts();
    starts.push(u64::MAX);
    let parts: Vec<u64> =
        starts.windows(2).flat_map(|ends| store.search_between(&pattern, ends[0], ends[1])).collect();
    assert_eq!((parts.len(), parts), (160, store.search_all(&pattern)));
}

/// A spill in memory, for the laws.
#[derive(Debug, Default)]
struct Loft(Vec<u8>);

impl Spill for Loft {
    fn put(&mut self, bytes: &[u8]) -> Option<u64> {
        let at = self.0.len() as u64;
        self.0.extend_from_slice(bytes);
        Some(at)
    }
    fn get(&self, at: u64, into: &mut [u8]) -> bool {
        let at = usize::try_from(at).unwrap();
        let Some(bytes) = self.0.get(at..at + into.len()) else { return false };
        into.copy_from_slice(bytes);
        true
    }
}

/// A spill without space.
#[derive(Debug)]
struct Full;

impl Spill for Full {
    fn put(&mut self, _: &[u8]) -> Option<u64> {
        None
    }
    fn get(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

/// Generates lines of a few words, some with escapes, some with letters beyond ASCII.
fn talk() -> impl Strategy<Value = Vec<String>> {
    let word = prop_oneof![
        Just("step"),
        Just("Error"),
        Just("warn"),
        Just("\x1b[31mred\x1b[0m"),
        Just("größe"),
        Just("er\x1b[0mror"),
        Just("x"),
        Just(""),
    ];
    prop::collection::vec(prop::collection::vec(word, 0..6).prop_map(|words| words.join(" ")), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// Spilled lines are unchanged, are found, and use no memory.
    #[test]
    fn a_spill_keeps_everything(lines in talk(), wide in 2500usize..5000) {
        let lines = &lines[..lines.len().min(40)];
        let source = Arc::new(SourceId::new("pod"));
        let (mut big, mut small) = (LogStore::new(1 << 30), LogStore::new(300_000).with_attic(Box::new(Loft::default())));
        for line in lines {
            let text = format!("{line} {}\n", "y".repeat(wide));
            for store in [&mut big, &mut small] {
                for _ in 0..4 {
                    store.ingest(&batch(&source, text.as_bytes()));
                }
            }
        }
        prop_assert_eq!(small.dropped(), 0);
        prop_assert!(small.size() <= 300_000 + 2 * 600_000, "{}", small.size());
        let raw = |store: &LogStore| store.from(0).map(|e| (e.seq, e.raw().to_vec())).collect::<Vec<_>>();
        prop_assert_eq!(raw(&big), raw(&small));
        let (mut a, mut b) = (Projection::default(), Projection::default());
        a.update(&big);
        b.update(&small);
        for pattern in [Pattern::literal("error").unwrap(), Pattern::literal("Error").unwrap(), Pattern::regex(r"^step\s+x").unwrap()] {
            let naive: Vec<u64> = big.from(0).filter(|e| pattern.matches(e)).map(|e| e.seq).collect();
            prop_assert_eq!(&small.search_all(&pattern), &naive);
            for from in [0, lines.len(), 4 * lines.len() - 1] {
                let next = naive.iter().find(|s| **s >= from as u64).map(|s| usize::try_from(*s).unwrap());
                prop_assert_eq!(a.find(&big, &pattern, from), next);
                prop_assert_eq!(b.find(&small, &pattern, from), next);
                let last = naive.iter().rev().find(|s| **s < from as u64).map(|s| usize::try_from(*s).unwrap());
                prop_assert_eq!(b.find_before(&small, &pattern, from), last);
            }
        }
    }

    /// A log that is opened at its end while its beginning is read is complete.
    #[test]
    fn history_stands_before_what_came_since(lines in talk(), cut in 0usize..200, step in 1usize..50) {
        let source = Arc::new(SourceId::new("pod"));
        let cut = cut.min(lines.len());
        let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let mut whole = LogStore::default();
        whole.ingest(&batch(&source, text(&lines).as_bytes()));
        let mut store = LogStore::default().with_history();
        let mut shown = Projection::default();
        store.ingest(&batch(&source, text(&lines[cut..]).as_bytes()));
        shown.update(&store);
        for piece in text(&lines[..cut]).as_bytes().chunks(step) {
            store.ingest_history(&batch(&source, piece));
            shown.update(&store);
        }
        store.end_history();
        shown.update(&store);
        let all: Vec<_> = (0..shown.len()).filter_map(|i| store.get(shown.seq(i)?)).map(|e| e.raw().to_vec()).collect();
        prop_assert_eq!(all, whole.from(0).map(|e| e.raw().to_vec()).collect::<Vec<_>>());
        prop_assert_eq!(store.count(), whole.count());
        for index in 0..shown.len() {
            prop_assert_eq!(shown.index_of(shown.seq(index).unwrap()), index);
        }
        let mut listed = Projection::new(Filter::parse("!rank:7", jiff::Timestamp::UNIX_EPOCH).unwrap());
        listed.update(&store);
        prop_assert_eq!(listed.len(), shown.len());
    }

    /// Lines of interleaved sources are ordered by their times.
    #[test]
    fn several_sources_are_in_the_order_of_their_times(times in prop::collection::vec((0u32..4, 0i64..50), 1..200)) {
        let sources: Vec<_> = (0..4).map(|n| Arc::new(SourceId::new(format!("pod-{n}")))).collect();
        let (mut store, mut shown) = (LogStore::default(), Projection::default());
        for (n, (source, time)) in times.iter().enumerate() {
            let mut one = batch(&sources[*source as usize], b"line\n");
            one.lines[0].time = jiff::Timestamp::from_second(*time).ok();
            store.ingest(&one);
            if n % 3 == 0 {
                shown.update(&store);
            }
        }
        shown.update(&store);
        let seqs: Vec<u64> = (0..shown.len()).filter_map(|i| shown.seq(i)).collect();
        let mut expected: Vec<(i64, u64)> = times.iter().enumerate().map(|(n, (_, time))| (*time, n as u64)).collect();
        expected.sort_unstable();
        prop_assert_eq!(seqs, expected.into_iter().map(|(_, seq)| seq).collect::<Vec<_>>());
    }
}

#[test]
fn without_room_in_the_attic_lines_are_dropped_and_counted() {
    let source = Arc::new(SourceId::new("pod"));
    let mut store = LogStore::new(1 << 20).with_attic(Box::new(Full));
    for n in 0..100_000 {
        store.ingest(&batch(&source, format!("line {n} of many, one like the other\n").as_bytes()));
    }
    assert!(store.dropped() > 0 && store.size() <= 1 << 20);
    assert_eq!(store.from(0).count() as u64 + store.dropped(), store.end());
}

#[test]
fn the_same_said_by_many_ranks_is_one_line() {
    let mut store = LogStore::default();
    for rank in 0..8 {
        let source = Arc::new(SourceId::new(format!("pod-{rank}")));
        let text = format!(
            "gpu-{rank}:10{rank}:1 [{rank}] NCCL INFO Using network Socket\n[rank{rank}]: W hello\nstep {rank}\n"
        );
        store.ingest(&batch(&source, text.as_bytes()));
    }
    let mut shown = Projection::default().folded();
    shown.update(&store);
    let lines: Vec<_> =
        (0..shown.len()).filter_map(|i| shown.seq(i)).map(|seq| (seq, shown.more(seq))).collect();
    assert_eq!(lines.len(), 2 + 8);
    assert_eq!(lines[..2], [(0, 7), (1, 7)]);
}
