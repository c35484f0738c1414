//! Whatever a log, a name or an event holds, the terminal gets what we drew and nothing else: judged by reading our own
//! escape stream with a terminal emulator's parser.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what the tests share is of the tests")]

mod common;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use common::{handle, job, now, press};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use weftrun::core::job::{JobEvent, JobPhase};
use weftrun::core::log::{Cursor, LogBatch, LogStore, SourceId};
use weftrun::{Finding, Severity};
use weftrun_tui::ViewBuilder;
use weftrun_tui::model::Model;
use weftrun_tui::model::logs::SharedStore;
use weftrun_tui::msg::Msg;
use weftrun_tui::update::update;
use weftrun_tui::view::view;

const EVIL: &[&str] = &[
    "\x1b]0;PWNED\x07",
    "\x1b]52;c;UFdORUQ=\x07",
    "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x1bP1$tx\x1b\\",
    "\x1b[2J\x1b[1;1H",
    "\x1b[?1049l",
    "\x1b[6n",
    "\x1bc",
    "\u{9b}2J",
    "\u{9d}0;PWNED\u{9c}",
    "\u{202e}drowssap",
    "\u{2066}x\u{2069}",
    "\u{200b}\u{feff}",
    "\x07\x07\x07\x07",
    "\x08\x08\x08",
    "\x0e\x0f",
    "a\tb\tc",
    "\x1b]0;never ended",
    "\x1b[",
    "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
    "\x1b[8mhidden\x1b[0m",
    "\x1b(0qqq",
];

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes a real terminal would get for these screens.
fn stream(models: &mut [Model]) -> Vec<u8> {
    let sink = Sink::default();
    let backend = CrosstermBackend::new(sink.clone());
    let viewport = ratatui::Viewport::Fixed(ratatui::layout::Rect::new(0, 0, 100, 30));
    let mut terminal = Terminal::with_options(backend, ratatui::TerminalOptions { viewport }).unwrap();
    for model in models {
        update(model, Msg::Resize(100, 30));
        terminal.draw(|frame| view(model, frame)).unwrap();
    }
    std::mem::take(&mut *sink.0.lock().unwrap())
}

/// What reached the terminal beside text, cursor moves and colours.
#[derive(Default)]
struct Judge {
    forbidden: Vec<String>,
}

impl vt100::Callbacks for Judge {
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.forbidden.push("bell".into());
    }
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.forbidden.push(format!("title {}", String::from_utf8_lossy(title)));
    }
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], data: &[u8]) {
        self.forbidden.push(format!("clipboard {}", String::from_utf8_lossy(data)));
    }
    fn unhandled_osc(&mut self, _: &mut vt100::Screen, _: &[&[u8]]) {
        self.forbidden.push("OSC".into());
    }
}

fn only_ours(bytes: &[u8]) -> String {
    let mut parser = vt100::Parser::new_with_callbacks(
        30u16.try_into().unwrap(),
        100u16.try_into().unwrap(),
        0,
        Judge::default(),
    );
    parser.process(bytes);
    assert_eq!(parser.callbacks().forbidden, Vec::<String>::new());
    let text = String::from_utf8(bytes.to_vec()).expect("what we draw is UTF-8");
    // Every escape is a cursor move, a colour, a mode of the cursor or an erase: CSI with H, m, h, l, J, K.
    for part in text.split('\x1b').skip(1) {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).expect("a sequence ends");
        assert!(part.starts_with('[') && "HmhlJK".contains(&part[end..=end]), "{part:?}");
        assert!(!part.starts_with("[?1049") && !part.starts_with("[2J"), "{part:?}");
    }
    let steers = |c: char| {
        (c.is_control() && c != '\x1b')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    assert!(!text.chars().any(steers), "{:?}", text.chars().find(|c| steers(*c)));
    parser.screen().contents()
}

fn hostile_model() -> Model {
    let mut model = Model::new(["prod".to_owned()], now());
    let mut jobs = Vec::new();
    for (number, evil) in EVIL.iter().enumerate() {
        let mut job = job(&format!("job-{number}"), JobPhase::Running, 10);
        job.name = format!("n{number}{evil}z");
        job.reason = format!("because {evil}");
        job.queue = Some((*evil).to_owned());
        job.kind = (*evil).to_owned();
        jobs.push(job);
    }
    update(&mut model, Msg::Listed("prod".into(), Ok(jobs)));
    press(&mut model, "enter");
    let open = model.open.as_ref().unwrap().handle.clone();
    for evil in EVIL {
        let text = format!("text {evil}");
        let event = JobEvent::Message {
            job: open.clone(),
            severity: Severity::Error,
            reason: (*evil).into(),
            text,
            time: None,
        };
        update(&mut model, Msg::Event("prod".into(), event));
        let mut finding = Finding::error(*evil, format!("found {evil}")).at(*evil).fix(*evil);
        if let Some(fix) = &mut finding.fix {
            let (path, op, value) = ((*evil).into(), (*evil).into(), Some((*evil).into()));
            fix.patch.push(weftrun::core::finding::PatchEdit { path, op, value });
        }
        finding.evidence.push(weftrun::core::finding::Evidence {
            source: (*evil).into(),
            line: 1,
            text: (*evil).into(),
        });
        update(&mut model, Msg::Event("prod".into(), JobEvent::Stuck { job: open.clone(), finding }));
    }
    update(&mut model, Msg::Lost("prod".into(), EVIL.concat()));
    let mut store = LogStore::default();
    let mut source = SourceId::new(EVIL.concat());
    source.role = EVIL.concat();
    let source = Arc::new(source);
    let mut bytes: Vec<u8> =
        EVIL.iter().flat_map(|evil| format!("before {evil} after\n").into_bytes()).collect();
    bytes.extend_from_slice(b"torn \xe2\x82 \xff\xfe utf-8\n");
    bytes.extend(vec![b'L'; 200_000]);
    bytes.push(b'\n');
    store.ingest(&LogBatch::new(source, bytes, Cursor::default()));
    update(&mut model, Msg::LogsOpened(open.clone(), SharedStore::new(store)));
    let view = ViewBuilder::transport_view(&measurements(), None, 0, &BTreeMap::new(), None);
    update(&mut model, Msg::TransportView(open, Arc::new(view)));
    model
}

/// Lines of the library from hosts with such names, of which the first comes last.
fn measurements() -> ViewBuilder {
    let mut builder = ViewBuilder::default();
    for second in 0..16 {
        for (rank, evil) in EVIL.iter().enumerate() {
            let nanos = if rank == 0 { 1_000_000 } else { 500_000_000 };
            let line = format!(
                "weftrun: NCCL {{\"weftrun_nccl\":1,\"t\":{},\"host\":\"h{evil}\",\"pid\":{rank},\"comm\":\"0x1\",\"rank\":{rank},\
                 \"n\":{},\"nodes\":1,\"op\":\"AllReduce\",\"count\":1,\"bytes\":1000000,\"ns\":{nanos},\"seq\":{second},\
                 \"seq_bytes\":1000000,\"seq_ns\":{nanos},\"dropped\":3}}\n",
                1000 * second,
                EVIL.len()
            );
            let source = Arc::new(SourceId::new(format!("rank{rank}")));
            builder.observe(&LogBatch::new(source, line.into_bytes(), Cursor::default()), None);
        }
    }
    builder.end();
    builder
}

#[test]
fn nothing_reaches_the_terminal_but_what_we_drew() {
    let on = |key: &str, then: &[&str]| {
        let mut model = hostile_model();
        press(&mut model, key);
        if let Some(open) = &mut model.open {
            open.logs.height = 24;
        }
        then.iter().for_each(|key| {
            press(&mut model, key);
        });
        model
    };
    for (key, then) in [
        ("1", &[][..]),
        ("2", &[]),
        ("3", &[]),
        ("4", &[]),
        ("4", &["f", "home"]),
        ("4", &["w"]),
        ("4", &["f", "enter"]),
        ("5", &[]),
        ("5", &["enter"]),
        ("5", &["j", "j", "j", "enter"]),
        ("5", &["A"]),
        ("2", &["z", "s"]),
        ("1", &["x"]),
        ("1", &["y"]),
        ("6", &[]),
        ("7", &[]),
        ("7", &["enter"]),
    ] {
        let shown = only_ours(&stream(&mut [on(key, then)]));
        assert!(!shown.is_empty());
    }
}

#[test]
fn a_host_named_like_an_escape_is_still_the_late_one() {
    let mut model = hostile_model();
    press(&mut model, "7");
    let shown = only_ours(&stream(&mut [model]));
    assert!(shown.contains("slow: rank 0 on h") && shown.contains("reaches AllReduce last"), "{shown}");
}

#[test]
fn the_text_around_an_escape_is_kept() {
    let mut model = hostile_model();
    press(&mut model, "4");
    model.open.as_mut().unwrap().logs.height = 24;
    press(&mut model, "f");
    press(&mut model, "home");
    let shown = only_ours(&stream(&mut [model]));
    assert!(shown.contains("before  after") && shown.contains("before link after"), "{shown}");
}

#[test]
fn a_job_named_like_an_escape_is_still_asked_about_by_its_handle() {
    let mut model = hostile_model();
    press(&mut model, "x");
    let shown = only_ours(&stream(&mut [model]));
    assert!(shown.contains(&handle("job-0").to_string()), "{shown}");
}
