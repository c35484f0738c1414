//! Models as the tests want them, and the screens they give.
#![allow(dead_code, reason = "each test binary uses some of it")]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::collections::BTreeSet;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use weftrun::Finding;
use weftrun::core::Confidence;
use weftrun::core::backend::{ClusterFacts, Document, FoundTarget, Language, Rendered};
use weftrun::core::catalogue::Catalogue;
use weftrun::core::fabric::Op;
use weftrun::core::fabric::{Fabric, FabricPlan, Profiles};
use weftrun::core::finding::{Evidence, Fix};
use weftrun::core::job::{JobEvent, JobHandle, JobPhase, JobSummary, SubmissionId};
use weftrun::core::log::{Cursor, LogBatch, LogStore, Mark, SourceId};
use weftrun::core::nccl::ras::Report;
use weftrun::core::nccl::{Network, TransportMap};
use weftrun::core::spec::JobSpec;
use weftrun::diagnose::health::{HealthState, culprits};
use weftrun::diagnose::{Judge, RANK_LATE, Sources};
use weftrun::report::{Asked, HealthReport};
use weftrun_tui::model::Model;
use weftrun_tui::model::draft::{Basis, Field, Planned};
use weftrun_tui::model::logs::SharedStore;
use weftrun_tui::model::transport_view::{
    Communicator, Link, LinkMap, Path, Rank, Reached, Step, TransportView,
};
use weftrun_tui::msg::{Effect, Msg};
use weftrun_tui::update::update;
use weftrun_tui::view::view;

pub fn now() -> Timestamp {
    "2026-11-21T12:04:31Z".parse().unwrap()
}

pub fn ago(seconds: i64) -> Option<Timestamp> {
    Some(now().checked_sub(jiff::SignedDuration::from_secs(seconds)).unwrap())
}

pub fn handle(name: &str) -> JobHandle {
    JobHandle::new("there", "prod", [name])
}

pub fn job(name: &str, phase: JobPhase, age: i64) -> JobSummary {
    let mut job = JobSummary::new(handle(name), phase);
    job.kind = "PyTorchJob".into();
    job.created = ago(age);
    job.ready = (8, 8);
    job.fabric = Some(Fabric::Efa);
    job
}

pub fn empty() -> Model {
    let mut model = Model::new(["prod".to_owned(), "local".to_owned()], now());
    model.has_demo = true;
    model.found = vec![
        ("kubeflow", FoundTarget::new("dev", "context `dev` of /home/me/.kube/config")),
        ("hosts", FoundTarget::new("hosts", "gpu-1, gpu-2 in ~/.ssh/config")),
    ];
    update(&mut model, Msg::Listed("local".into(), Ok(Vec::new())));
    model
}

pub fn with_jobs() -> Model {
    let mut model = empty();
    let mut failed = job("llama70b-sft-2", JobPhase::Failed, 3600);
    failed.reason = "rank 17 exited with 1: Xid 79".into();
    failed.exit_code = Some(1);
    let mut waiting = job("dlrm-7", JobPhase::Pending, 540);
    waiting.ready = (0, 4);
    waiting.reason = "quota: 23 GPUs short".into();
    let jobs = vec![
        job("moe-abl-2", JobPhase::Running, 360),
        waiting,
        failed,
        job("smoke", JobPhase::Succeeded, 7300),
    ];
    update(&mut model, Msg::Listed("prod".into(), Ok(jobs)));
    model.jobs.selected = Some(handle("moe-abl-2"));
    model
}

/// When a rank had its steps behind it: those of node 1 begin late, and rank 12 is slow to come to its init.
fn reached(rank: u32) -> Reached {
    let at = |millis: i64| now().checked_sub(jiff::SignedDuration::from_millis(60_000 - millis)).ok();
    let begun = if rank / 8 == 1 { 11_000 } else { 2_000 };
    let init = if rank == 12 { 18_250 } else { 14_000 };
    let later = |millis| if rank / 8 == 5 { None } else { at(millis) };
    [at(begun), at(13_000), at(init), later(20_000), later(21_500), None, None]
}

/// 64 ranks on 8 nodes, node 4 on sockets, ranks 40 to 47 a step behind.
pub fn transport_view() -> TransportView {
    let mut transport_view = TransportView {
        verdict: "mixed".into(),
        ok: Some(false),
        gdr: "some".into(),
        ..TransportView::default()
    };
    for rank in 0..64u32 {
        let node = rank / 8;
        transport_view.ranks.push(Rank {
            rank: Some(rank),
            host: format!("ip-1-{}", 12 + node),
            pid: 1450 + rank % 8,
            device: Some(i64::from(rank % 8)),
            node: Some(node),
            announced: Some(if node == 4 { "Socket".into() } else { "Libfabric".into() }),
            bring_up: if node == 5 { Step::Init } else { Step::Rings },
            reached: reached(rank),
            ..Rank::default()
        });
    }
    transport_view.communicators = vec![
        Communicator {
            id: "0xab2b80f81caae028".into(),
            nranks: 64,
            world: true,
            members: (0..64).collect(),
            complete: true,
            nodes: Some(8),
        },
        Communicator {
            id: "0xab2b80f81caae028/1/0".into(),
            nranks: 8,
            members: (0..8).collect(),
            complete: true,
            ..Communicator::default()
        },
    ];
    let mut links = LinkMap::default();
    for rank in 0..64u32 {
        let next = (rank + 1) % 64;
        let (path, name) = match (rank / 8 == next / 8, rank / 8 == 4 || next / 8 == 4) {
            (true, _) => (Path::P2p, "P2P/CUMEM"),
            (false, true) => (Path::Network(Network::Socket), "NET/Socket"),
            (false, false) => (Path::Network(Network::Efa), "NET/Libfabric"),
        };
        let link = Link {
            path,
            transports: vec![name.into()],
            channels: 16,
            pairs: 1,
            gdr: Some(path == Path::Network(Network::Efa)),
            devices: (BTreeSet::from([0]), BTreeSet::from([1])),
            printed: Some((rank, next)),
        };
        links.add(rank, next, &link);
    }
    transport_view.maps = vec![links.clone(), links, LinkMap::default()];
    transport_view.throughput = (0..40).map(|step| 900.0 + f64::from(step * 7 % 40)).collect();
    transport_view.unit = "samples/s".into();
    let mut finding = Finding::error(
        "NCCL-NET-MIXED",
        "node 4 announced Socket while 7 nodes announced Libfabric: they cannot connect",
    );
    finding.confidence = Some(Confidence::High);
    finding.ranks = (32..40).collect();
    finding.fix = Some(Fix { text: "use the image of the other nodes on node 4".into(), patch: Vec::new() });
    finding.evidence.push(Evidence {
        source: "rank32.log".into(),
        line: 118,
        text: "NET/Plugin: Could not find: libnccl-net.so".into(),
    });
    let mut second = Finding::warning("NCCL-SHM", "node 2 uses shared memory where its peers use P2P");
    second.confidence = Some(Confidence::Medium);
    transport_view.findings = vec![finding, second];
    transport_view.judge = Judge::new(Some(Fabric::Efa), &transport_view.findings);
    transport_view.group();
    transport_view.place_links();
    transport_view
}

/// A job of 64 ranks that measures its collectives, in which rank 44 comes to each step 60 ms late: data parallelism over all
/// ranks, sharding on each node, and a pipeline.
pub fn measuring() -> Model {
    let mut map = TransportMap::new();
    let mut line = |rank: u32, text: String| {
        _ = map.read(&rank_source(rank), text.as_bytes());
    };
    for second in 0..40_u64 {
        for rank in 0..64u32 {
            let nanos = |bytes: u64, gbps: f64| bytes as f64 / gbps;
            // A node's links are slower for a while.
            let slow = if (20..28).contains(&second) { 0.6 } else { 1.0 };
            let wait = if rank == 44 { 0.0 } else { 60e6 };
            let operations = [
                ("0x1", 64, 8, rank, "AllReduce", 10, 512 << 20, nanos(512 << 20, 186.0 * slow) + wait),
                ("0x2", 8, 1, rank % 8, "AllGather", 40, 16 << 20, nanos(7 * (16 << 20), 310.0)),
                ("0x2", 8, 1, rank % 8, "ReduceScatter", 40, 16 << 20, nanos(7 * (16 << 20), 305.0)),
                ("0x3", 2, 2, rank / 32, "Send", 20, 4 << 20, nanos(4 << 20, 40.0)),
            ];
            let mut text = String::new();
            for (comm, ranks, nodes, own, op, count, bytes, nanos) in operations {
                // Each node, and each pair of a pipeline, has a communicator of its own.
                let comm = match comm {
                    "0x2" => format!("0x2{:02x}", rank / 8),
                    "0x3" => format!("0x3{:02x}", rank % 32),
                    all => all.to_owned(),
                };
                let (sum, bytes_sum) = (nanos * f64::from(count), bytes * u64::try_from(count).unwrap());
                text.push_str(&format!(
                    "weftrun: NCCL {{\"weftrun_nccl\":1,\"t\":{},\"host\":\"ip-1-{}\",\"pid\":{},\"comm\":\"{comm}\",\"rank\":{own},\
                     \"n\":{ranks},\"nodes\":{nodes},\"op\":\"{op}\",\"count\":{count},\"bytes\":{bytes_sum},\"ns\":{sum:.0},\
                     \"seq\":{},\"seq_bytes\":{bytes},\"seq_ns\":{nanos:.0},\"dropped\":0}}\n",
                    1_795_696_000_000 + second * 1000,
                    12 + rank / 8,
                    1450 + rank % 8,
                    second * 40,
                ));
            }
            line(rank, text);
        }
        line(0, format!("iteration {second} | elapsed time per iteration (ms): 98.5 |\n"));
    }
    map.end_all();
    measured(opened, &map)
}

/// A recording of two H100 GPUs, in which rank 1 comes to each step 5 ms late: a line every 250 ms.
pub fn recorded() -> Model {
    let mut map = TransportMap::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../nccl/tests/bandwidth/weftrun-2.28.9-5ms-rank1");
    for (rank, name) in ["nccl-vm-710.jsonl", "nccl-vm-711.jsonl"].into_iter().enumerate() {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let lines: String = text.lines().map(|line| format!("weftrun: NCCL {line}\n")).collect();
        _ = map.read(&rank_source(u32::try_from(rank).unwrap()), lines.as_bytes());
    }
    map.end_all();
    measured(one, &map)
}

/// A model whose job was measured, on nodes of eight H100 GPUs.
fn measured(begin: fn() -> Model, map: &TransportMap) -> Model {
    let mut plan = FabricPlan::unchanged(Fabric::Efa);
    plan.instance_type = Some("p5.48xlarge".to_owned());
    let found = Sources::of_logs(map).plan(Some(&plan)).running().diagnose();
    let mut model = begin();
    let open = model.open.as_ref().unwrap();
    let mut view = TransportView::clone(&open.transport_view);
    view.measured = found.measured.map(|measured| *measured);
    view.findings.extend(found.findings.into_iter().filter(|finding| finding.code == RANK_LATE));
    let handle = open.handle.clone();
    update(&mut model, Msg::TransportView(handle, Arc::new(view)));
    model
}

/// What NCCL's RAS service answers when rank 44 is behind.
pub fn health() -> HealthReport {
    let rank = |rank: u32, operations: u32| {
        format!(
            r#"{{"rank": {rank}, "host": "ip-1-17", "pid": {}, "status": {{"async_error": 0}},
               "collective_counts": {{"AllReduce": {operations}}}}}"#,
            1450 + rank
        )
    };
    let answer = format!(
        r#"{{"nccl_version": "2.29.7", "communicators": [{{"hash": "0xab2b", "size": 2, "ranks": [{}, {}]}}]}}"#,
        rank(0, 116),
        rank(1, 20)
    );
    let report = Report::read(answer.as_bytes()).unwrap();
    let mut culprits = culprits(&report, &TransportMap::new());
    culprits[0].global_rank = Some(44);
    let mut asked = Asked::default();
    (asked.via, asked.answers, asked.seconds) = ("exec on rank 0".into(), 13, 125.0);
    HealthReport::new(HealthState::Stuck, &report, culprits, asked)
}

pub fn batch(source: &Arc<SourceId>, lines: &[&str], second: i64) -> LogBatch {
    let bytes = lines.iter().flat_map(|line| [line.as_bytes(), b"\n"]).collect::<Vec<_>>().concat();
    let mut batch = LogBatch::new(source.clone(), bytes, Cursor::default());
    let time = now().checked_sub(jiff::SignedDuration::from_secs(60 - second)).unwrap();
    for (at, line) in batch.lines.iter_mut().enumerate() {
        line.time = time.checked_add(jiff::SignedDuration::from_millis(i64::try_from(at).unwrap() * 7)).ok();
    }
    batch
}

pub fn rank_source(rank: u32) -> Arc<SourceId> {
    let mut source = SourceId::new(format!("moe-abl-2-worker-{}", rank / 8));
    source.uid = format!("uid-{rank}");
    source.rank = Some(rank);
    Arc::new(source)
}

pub fn store() -> LogStore {
    let mut store = LogStore::default();
    let (a, b) = (rank_source(32), rank_source(56));
    store.ingest(&batch(
        &a,
        &[
            "NCCL version 2.29.2+cuda13.0",
            "ip-1-16:1450:1450 [0] plugin.cc:5 NCCL WARN NET/Plugin: Could not find: libnccl-net.so",
        ],
        0,
    ));
    store.ingest(&LogBatch::marked(
        a.clone(),
        Mark::Resumed { lost: Some(0), repeated: 0 },
        Cursor::default(),
    ));
    store.ingest(&batch(&b, &["ip-1-19:1450:1450 [0] NCCL INFO Channel 00/0 : 48[0] -> 56[0] [receive] via NET/Libfabric/0/GDRDMA"], 2));
    store.ingest(&batch(
        &a,
        &[
            "\x1b[31mred\x1b[0m and \x1b]0;title\x07plain",
            " 10%\r 87%|########7 | 870/1000 [00:41<00:06]",
            "bad bytes kept visible: \u{202e}x",
        ],
        4,
    ));
    store.ingest(&batch(&b, &["[rank56]: Watchdog caught collective operation timeout"], 9));
    store
}

pub fn opened() -> Model {
    let mut model = with_jobs();
    let name = handle("moe-abl-2");
    press(&mut model, "enter");
    update(&mut model, Msg::LogsOpened(name.clone(), SharedStore::new(store())));
    update(&mut model, Msg::TransportView(name.clone(), Arc::new(transport_view())));
    let text = "0/8 nodes are available".to_owned();
    let event = JobEvent::Message {
        job: name.clone(),
        severity: weftrun::Severity::Warning,
        reason: "FailedScheduling".into(),
        text,
        time: ago(300),
    };
    update(&mut model, Msg::Event("prod".into(), event));
    update(&mut model, Msg::LogsGrew);
    model
}

/// One rank of one job on this machine, just begun.
pub fn one() -> Model {
    let mut model = empty();
    let mut single = job("smoke", JobPhase::Running, 5);
    (single.ready, single.kind, single.fabric) = ((1, 1), "local".into(), None);
    update(&mut model, Msg::Listed("prod".into(), Ok(vec![single])));
    press(&mut model, "enter");
    let name = handle("smoke");
    let mut store = LogStore::default();
    store.ingest(&batch(&rank_source(0), &["hello from rank 0", "WARNING: no GPU", "step 1 loss 2.5"], 1));
    update(&mut model, Msg::LogsOpened(name.clone(), SharedStore::new(store)));
    let mut transport_view = TransportView { verdict: "unknown".into(), ..TransportView::default() };
    transport_view.ranks = vec![Rank { rank: Some(0), host: "here".into(), pid: 7, ..Rank::default() }];
    transport_view.group();
    update(&mut model, Msg::TransportView(name, Arc::new(transport_view)));
    update(&mut model, Msg::LogsGrew);
    model
}

/// A failed job of a target that is down, whose log broke off.
pub fn broken() -> Model {
    let mut model = down();
    let name = handle("llama70b-sft-2");
    model.jobs.selected = Some(name.clone());
    press(&mut model, "enter");
    let why = "kubeflow: no answer from the control plane of prod for 15 s (is the VPN up?)".to_owned();
    update(&mut model, Msg::LogsOpened(name.clone(), SharedStore::default()));
    update(&mut model, Msg::Detail(name.clone(), Err(why.clone())));
    let finding = Finding::error("JOB-QUOTA", "the namespace asks for 23 GPUs more than its quota has")
        .fix("ask for a larger quota, or for fewer nodes");
    update(&mut model, Msg::Event("prod".into(), JobEvent::Stuck { job: name.clone(), finding }));
    update(&mut model, Msg::LogsEnded(name, Some(why.clone())));
    update(&mut model, Msg::Lost("prod".into(), why));
    model.notice = None;
    model
}

/// A new job as it is planned for a cluster with EFA; one rule is switched off.
pub fn drafted() -> Model {
    let mut model = opened();
    model.profiles = vec!["dgxc".into(), "eks-image".into(), "roce".into()];
    press(&mut model, "6");
    let plan = |model: &mut Model, off: &[&str]| {
        let draft = model.draft.as_mut().unwrap();
        draft.off = off.iter().map(|rule| (*rule).to_owned()).collect();
        let spec = draft.spec().unwrap();
        let planned = planned(&spec);
        let revision = draft.revision;
        update(model, Msg::Planned(revision, Ok(Box::new(planned))));
    };
    let draft = model.draft.as_mut().unwrap();
    (draft.fabric, draft.profile) = (1, 1);
    for (field, input) in &mut draft.inputs {
        match field {
            Field::Nodes => *input = "4".into(),
            Field::Image => *input = "registry.example/train:1".into(),
            _ => {}
        }
    }
    plan(&mut model, &["efa.device-rdma"]);
    model
}

/// What the TUI would make of a job, without a client.
pub fn planned(spec: &JobSpec) -> Planned {
    let profile = Profiles::builtin().get("dgxc").unwrap();
    let facts = ClusterFacts::default();
    let plan = |spec: &JobSpec| FabricPlan::new(spec, &Catalogue::builtin(), &facts, &profile);
    let mut full = spec.clone();
    full.fabric.rules.clear();
    let text = |ops: &[Op]| {
        let mut lines = vec!["kind: PyTorchJob".to_owned(), "spec:".into(), "  nvidia.com/gpu: 8".into()];
        lines.extend(ops.iter().map(|op| format!("  {}", weftrun_tui::view::submit::change_text(op))));
        lines.push("  restartPolicy: Never".into());
        let document =
            Document { title: "PyTorchJob".into(), language: Language::Yaml, text: lines.join("\n") };
        Rendered::new(&spec.name, SubmissionId::from_random(7), document)
    };
    let mine = plan(spec);
    let (bare, sent) = (text(&[]), text(&mine.ops));
    Planned::new(mine, plan(&full).ops, Some(&bare), Ok(&sent), Basis::Assumed)
}

pub fn down() -> Model {
    let mut model = with_jobs();
    update(&mut model, Msg::Lost("prod".into(), "no answer for 15 s".into()));
    model.now = now().checked_add(jiff::SignedDuration::from_secs(12)).unwrap();
    model
}

/// Presses a key by its name in the table.
pub fn press(model: &mut Model, key: &str) -> Vec<Effect> {
    let (modifiers, name) = match key.strip_prefix("ctrl-") {
        Some(rest) => (KeyModifiers::CONTROL, rest),
        None => (KeyModifiers::NONE, key),
    };
    let code = match name {
        "enter" => KeyCode::Enter,
        "esc" => KeyCode::Esc,
        "tab" => KeyCode::Tab,
        "up" => KeyCode::Up,
        "down" => KeyCode::Down,
        "space" => KeyCode::Char(' '),
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "home" => KeyCode::Home,
        name => KeyCode::Char(name.chars().next().unwrap()),
    };
    update(model, Msg::Key(KeyEvent::new(code, modifiers)))
}

/// Types a text, a key a letter.
pub fn type_text(model: &mut Model, text: &str) -> Vec<Effect> {
    text.chars()
        .flat_map(|c| update(model, Msg::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE))))
        .collect()
}

/// The screen as cells.
pub fn buffer(model: &mut Model, columns: u16, rows: u16) -> ratatui::buffer::Buffer {
    update(model, Msg::Resize(columns, rows));
    if let Some(open) = &mut model.open {
        open.logs.height = usize::from(rows).saturating_sub(6);
        open.logs.update();
    }
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view(model, frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// The screen as text.
pub fn screen(model: &mut Model, columns: u16, rows: u16) -> String {
    let buffer = buffer(model, columns, rows);
    let line = |y: u16| {
        let mut text = String::new();
        let mut skip = 0;
        for x in 0..columns {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            skip = unicode_width::UnicodeWidthStr::width(symbol).saturating_sub(1);
            text.push_str(symbol);
        }
        text.trim_end().to_owned()
    };
    (0..rows).map(line).collect::<Vec<_>>().join("\n")
}
