//! Opens recorded runs as `weftrun tui --replay` does, up to the drawn screens.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends with a panic, and says why")]

mod checks;
mod truth;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use weftrun::core::backend::{Backend, BackendEntry, ConnectFuture};
use weftrun::core::log::{Cursor, LogBatch, SourceId};
use weftrun::{Client, Config, Registry};
use weftrun_replay::{Capture, NAME, ReplayBackend};

use super::view_builder::ViewBuilder;
use super::{Loop, Options};
use crate::model::{Model, Screen};
use crate::msg::Msg;
use crate::update::{open_job, update};
use crate::view::{log_height_of, view};
use checks::contradictions;
use truth::{Truth, recorded};

thread_local! {
    /// The replayed run: a registry's entry cannot hold values. A test runs on one thread.
    static PLAYED: RefCell<Option<ReplayBackend>> = const { RefCell::new(None) };
}

fn client(backend: ReplayBackend) -> Client {
    PLAYED.set(Some(backend));
    let connect = |_| -> ConnectFuture {
        Box::pin(async { Ok(Arc::new(PLAYED.with_borrow(Clone::clone).unwrap()) as Arc<dyn Backend>) })
    };
    let registry = Registry::empty().with(BackendEntry::new(NAME, "a captured run", "here", connect));
    Client::builder().registry(registry).config(Config::empty("/nowhere")).build().unwrap()
}

/// Plays a run to its end and returns the state of the screens.
async fn played(backend: ReplayBackend) -> Model {
    let handle = backend.handle().clone();
    let options = Options { targets: vec![NAME.to_owned()], job: Some(handle.clone()), ..Options::default() };
    let mut model = super::model(&options).unwrap();
    let mut running = Loop::new(client(backend), &options);
    running.runner.watch_all();
    let mut effects = open_job(&mut model, &handle);
    loop {
        effects.drain(..).for_each(|effect| running.runner.start(effect));
        let ended = |open: &crate::model::open::Open| {
            open.logs_ended && open.detail.as_ref().is_some_and(|detail| detail.summary.phase.is_terminal())
        };
        if model.open.as_ref().is_some_and(ended) {
            break;
        }
        let msg = tokio::time::timeout(Duration::from_mins(1), running.inbox.recv()).await;
        model.now = weftrun::clock::now();
        effects = update(&mut model, msg.unwrap().unwrap());
    }
    update(&mut model, Msg::LogsGrew);
    model
}

fn drawn(model: &mut Model, screen: Screen, size: (u16, u16)) -> String {
    (model.screen, model.size) = (screen, size);
    if let Some(open) = &mut model.open {
        open.logs.height = log_height_of(&open.logs, screen, size);
        open.logs.update();
    }
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| view(model, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..size.0).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..size.1).map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the ways to open a run: as its lines came, where that was recorded, and as files.
fn backends(folder: &Path) -> Vec<(&'static str, ReplayBackend)> {
    let files = ReplayBackend::logs(&[folder], 0.0).unwrap();
    let capture = folder.join("merged.jsonl").is_file().then(|| Capture::read(folder).unwrap());
    let merged =
        capture.map(|capture| ("as it came", ReplayBackend::replay(&capture.name, capture.exact(), 0.0)));
    merged.into_iter().chain([("as files", files)]).collect()
}

/// Nothing that any screen shows of a recorded run after its end contradicts what is known of it.
#[tokio::test]
async fn no_screen_contradicts_the_truth_of_a_recorded_run() {
    let (mut opened, mut wrong) = (0, Vec::new());
    for run in recorded() {
        for (how, backend) in backends(&run.folder) {
            opened += 1;
            let mut model = played(backend).await;
            let open = model.open.as_ref().unwrap();
            let mut said = contradictions(open, &run.truth);
            for size in SIZES {
                said.extend(drawn_wrong(&mut model, size, &run.truth));
            }
            wrong.extend(said.into_iter().map(|said| format!("{}, {how}: {said}", run.name)));
        }
    }
    assert!(opened >= 59, "{opened} runs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// While a run is read, no rank is shown as failed that did not fail, and there are no more ranks than it has.
#[test]
fn no_part_of_a_recorded_run_blames_another_rank() {
    const PARTS: usize = 8;
    let mut wrong = Vec::new();
    for run in recorded() {
        let files = std::fs::read_dir(&run.folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
        files.sort();
        for part in 1..PARTS {
            let mut builder = ViewBuilder::default();
            for file in &files {
                let name = file.file_name().unwrap().to_string_lossy();
                let mut bytes = std::fs::read(file).unwrap();
                bytes.truncate(bytes.len() * part / PARTS);
                builder
                    .observe(&LogBatch::new(Arc::new(SourceId::new(name)), bytes, Cursor::default()), None);
            }
            let view = builder.transport_view(None, 0, &BTreeMap::new(), None);
            let failed = view.ranks.iter().filter(|rank| rank.failed).filter_map(|rank| rank.rank);
            let blamed: Vec<u32> = failed.filter(|rank| !run.truth.failed.contains(rank)).collect();
            if !blamed.is_empty() || view.ranks.len() > run.truth.world {
                wrong.push(format!("{} {part}/{PARTS}: {blamed:?}, {} ranks", run.name, view.ranks.len()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A small terminal, a common one, and one that shows all parts of a job at once.
const SIZES: [(u16, u16); 3] = [(80, 24), (140, 50), (200, 60)];

/// Returns what the drawn screens say that no longer holds after the end, or holds for another job only.
fn drawn_wrong(model: &mut Model, size: (u16, u16), truth: &Truth) -> Vec<String> {
    let mut wrong = Vec::new();
    for screen in Screen::ALL.into_iter().filter(|screen| *screen != Screen::Submit) {
        let text = drawn(model, screen, size);
        let mut stale = vec![" silent ", "waiting for", "not seen", " RUN ", " yet"];
        if screen == Screen::Fabric {
            stale.extend(["stepping", "rings", "trees"]);
        }
        if truth.failed.is_empty() {
            stale.push("FAILED");
        }
        let parts = stale.into_iter().filter(|stale| {
            // The events say what was so before.
            text.lines().any(|line| line.contains(stale) && !line.contains("RUN   running"))
        });
        wrong.extend(parts.map(|stale| format!("{screen:?} of {size:?} says `{stale}`")));
    }
    wrong
}

#[tokio::test]
async fn a_last_line_without_a_newline_counts() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/t.py\", line 3, in f\n[rank1]: ValueError: the end";
    std::fs::write(folder.path().join("job.log"), text).unwrap();
    let mut model = played(ReplayBackend::logs(&[folder.path()], 0.0).unwrap()).await;
    let view = &model.open.as_ref().unwrap().transport_view;
    let cause = view.findings.first().map(|finding| finding.message.clone()).unwrap_or_default();
    assert!(cause.contains("ValueError: the end"), "{cause}");
    let logs = drawn(&mut model, Screen::Logs, (140, 50));
    assert!(logs.contains("ValueError: the end") && logs.contains("3 lines"), "{logs}");
}
