//! The model changes only because of keys and clusters.

#[path = "../common/mod.rs"]
mod common;
mod jobs;
mod logs;
mod sorting;

use std::sync::Arc;

use common::{batch, handle, health, job, measuring, opened, press, rank_source, type_text, with_jobs};
use weftrun::core::job::{Action as JobAction, JobDetail, JobEvent, JobPhase};
use weftrun::core::log::{Cursor, LogBatch, LogStore};
use weftrun_tui::model::Screen;
use weftrun_tui::model::draft::Field;
use weftrun_tui::model::layer::Layer;
use weftrun_tui::model::logs::SharedStore;
use weftrun_tui::msg::{Effect, Known, Msg};
use weftrun_tui::update::update;

#[test]
fn ras_is_queried_once_at_a_time_and_names_the_rank_first() {
    let mut model = opened();
    let job = handle("moe-abl-2");
    assert!(matches!(&press(&mut model, "H")[..], [Effect::Health(queried)] if *queried == job));
    assert!(press(&mut model, "H").is_empty(), "one query at a time");
    let open = |model: &weftrun_tui::model::Model| model.open.as_ref().unwrap().rank_rows()[0];
    assert_eq!(open(&model), 0);
    update(&mut model, Msg::Health(job.clone(), Ok(Box::new(health()))));
    assert_eq!(open(&model), 44, "the rank that is behind comes first");
    let codes: Vec<&str> =
        model.open.as_ref().unwrap().findings().iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes[..2], ["HEALTH-STUCK", "NCCL-NET-MIXED"]);
    assert!(matches!(&press(&mut model, "H")[..], [Effect::Health(_)]));
    assert_eq!(open(&model), 44, "what was known holds until the next answer");
    update(&mut model, Msg::Health(job, Err("the cluster is away \u{1b}[2J".into())));
    let ras = model.open.as_ref().unwrap().ras.as_ref().unwrap();
    assert!(matches!(&ras.answer, Some(Err(text)) if !text.contains('\u{1b}')));
    assert_eq!(open(&model), 0);
}

#[test]
fn a_query_of_ras_outlives_the_opening_of_another_job() {
    let mut model = opened();
    let (first, second) = (handle("moe-abl-2"), handle("llama70b-sft-2"));
    assert!(matches!(&press(&mut model, "H")[..], [Effect::Health(_)]));
    let reopen = |model: &mut weftrun_tui::model::Model, job: &weftrun::core::job::JobHandle| {
        press(model, "1");
        model.jobs.selected = Some(job.clone());
        press(model, "2");
        assert_eq!(model.open.as_ref().map(|open| &open.handle), Some(job));
    };
    reopen(&mut model, &second);
    assert!(model.open.as_ref().unwrap().ras.is_none());
    reopen(&mut model, &first);
    assert!(model.open.as_ref().unwrap().ras.as_ref().unwrap().answer.is_none());
    assert!(press(&mut model, "H").is_empty(), "the first query is still under way");
    reopen(&mut model, &second);
    update(&mut model, Msg::Health(first.clone(), Ok(Box::new(health()))));
    assert!(model.open.as_ref().unwrap().ras.is_none(), "the answer is another job's");
    reopen(&mut model, &first);
    let ras = model.open.as_ref().unwrap().ras.as_ref().unwrap();
    assert!(ras.answer.is_some() && ras.finding.is_some());
}

#[test]
fn a_job_that_ends_while_it_is_open_is_described_again_once() {
    let mut model = opened();
    let ended = |phase| Msg::Event("prod".into(), JobEvent::Status { job: job("moe-abl-2", phase, 400) });
    assert!(update(&mut model, ended(JobPhase::Running)).is_empty());
    let name = handle("moe-abl-2");
    assert!(
        matches!(&update(&mut model, ended(JobPhase::Failed))[..], [Effect::Describe(again)] if *again == name)
    );
    let events = model.open.as_ref().unwrap().events.len();
    let mut detail = JobDetail::new(job("moe-abl-2", JobPhase::Failed, 400));
    detail.history = vec![JobEvent::Status { job: job("moe-abl-2", JobPhase::Failed, 400) }];
    detail.findings = vec![weftrun::Finding::error("POD-OOM", "worker-3 was OOMKilled")];
    let known = Known { detail, plan: None, spec: None };
    update(&mut model, Msg::Detail(name, Ok(Box::new(known))));
    let open = model.open.as_ref().unwrap();
    assert!(open.findings().iter().any(|finding| finding.code == "POD-OOM"));
    assert_eq!(open.events.len(), events, "what is known already is not repeated");
    assert!(update(&mut model, ended(JobPhase::Failed)).is_empty());
}

#[test]
fn a_job_that_has_ended_has_no_ras_service() {
    let mut model = with_jobs();
    press(&mut model, "G");
    assert!(press(&mut model, "H").is_empty());
    assert!(model.notice.is_some() && model.open.is_none());
}

#[test]
fn enter_opens_the_job_under_the_cursor() {
    let mut model = with_jobs();
    press(&mut model, "j");
    let effects = press(&mut model, "enter");
    assert!(
        matches!(&effects[..], [Effect::Close, Effect::Open(opened, false)] if opened.name() == "dlrm-7")
    );
    assert_eq!(model.screen, Screen::Overview);
}

#[test]
fn the_cursor_stays_on_its_job_when_the_list_moves() {
    let mut model = with_jobs();
    press(&mut model, "j");
    let before = model.current().unwrap();
    let mut jobs: Vec<_> = model.jobs.entries.iter().map(|entry| entry.summary.clone()).collect();
    jobs.push(job("brand-new", JobPhase::Running, 1));
    update(&mut model, Msg::Listed("prod".into(), Ok(jobs)));
    assert_eq!(model.current().unwrap(), before);
}

#[test]
fn cancel_asks_and_acts_on_the_job_it_asked_about() {
    let mut model = with_jobs();
    assert!(press(&mut model, "x").is_empty());
    assert!(matches!(model.layers.last(), Some(Layer::Confirm(_))));
    // The list moves under the question.
    let jobs = vec![job("brand-new", JobPhase::Running, 1)];
    update(&mut model, Msg::Listed("prod".into(), Ok(jobs)));
    assert!(press(&mut model, "enter").is_empty(), "enter is not yes");
    let effects = press(&mut model, "y");
    assert!(matches!(&effects[..], [Effect::Act(acted, JobAction::Cancel)] if *acted == handle("moe-abl-2")));
    assert!(model.layers.is_empty());
}

#[test]
fn an_ended_job_is_not_cancelled() {
    let mut model = with_jobs();
    press(&mut model, "G");
    press(&mut model, "x");
    assert!(model.layers.is_empty());
    assert!(model.notice.is_some());
}

#[test]
fn keys_go_to_the_topmost_layer_first() {
    let mut model = opened();
    press(&mut model, "4");
    press(&mut model, "/");
    // `q` is a letter while one types, not the way out.
    assert!(type_text(&mut model, "quit").is_empty());
    assert!(matches!(model.layers.last(), Some(Layer::Prompt { input, .. }) if input.value() == "quit"));
    press(&mut model, "esc");
    assert!(model.layers.is_empty());
    assert_eq!(model.screen, Screen::Logs);
}

/// One key makes a target of the place under the cursor; it is then shown like the others.
#[test]
fn what_was_found_becomes_a_target() {
    let mut model = common::empty();
    let before = model.jobs.targets.len();
    let pressed = press(&mut model, "a");
    assert!(
        matches!(&pressed[..], [Effect::AddTarget("kubeflow", found)] if found.name == "dev"),
        "{pressed:?}"
    );
    update(&mut model, Msg::TargetAdded("dev".into(), Err("no room".into())));
    assert_eq!((model.found.len(), model.jobs.targets.len()), (2, before));
    update(&mut model, Msg::TargetAdded("dev".into(), Ok(())));
    assert_eq!((model.found.len(), model.jobs.targets.len()), (1, before + 1));
    assert!(matches!(&press(&mut model, "a")[..], [Effect::AddTarget("hosts", _)]));
    model.found = common::empty().found;
    for (key, name) in [("down", "hosts"), ("down", "hosts"), ("up", "dev")] {
        press(&mut model, key);
        let pressed = press(&mut model, "a");
        assert!(matches!(&pressed[..], [Effect::AddTarget(_, found)] if found.name == name), "{pressed:?}");
    }
    update(&mut model, Msg::TargetAdded("dev".into(), Ok(())));
    update(&mut model, Msg::TargetAdded("hosts".into(), Ok(())));
    assert!(press(&mut model, "a").is_empty());
}

/// The key writes the configuration only where what it adds is on the screen.
#[test]
fn nothing_is_added_beside_jobs() {
    let mut model = opened();
    model.found = common::empty().found;
    for screen in ["1", "4"] {
        press(&mut model, screen);
        let effects = press(&mut model, "a");
        assert!(
            !effects.iter().any(|effect| matches!(effect, Effect::AddTarget(..))),
            "{screen}: {effects:?}"
        );
    }
}

#[test]
fn esc_leads_back_and_q_out() {
    let mut model = opened();
    press(&mut model, "3");
    press(&mut model, "esc");
    assert_eq!(model.screen, Screen::Overview);
    press(&mut model, "esc");
    assert_eq!(model.screen, Screen::Jobs);
    assert!(press(&mut model, "esc").is_empty());
    assert_eq!(model.screen, Screen::Jobs);
    assert!(matches!(press(&mut model, "q")[..], [Effect::Quit]));
}

#[test]
fn the_odd_rank_leads_to_its_log() {
    let mut model = opened();
    press(&mut model, "z");
    press(&mut model, "s");
    let effects = press(&mut model, "enter");
    assert!(effects.is_empty());
    assert_eq!(model.screen, Screen::Logs);
    assert_eq!(model.open.as_ref().unwrap().logs.ranks, "40", "slowest first");
}

#[test]
fn the_odd_node_leads_to_the_logs_of_its_ranks() {
    let mut model = opened();
    press(&mut model, "2");
    for _ in 0..4 {
        press(&mut model, "j");
    }
    press(&mut model, "enter");
    assert_eq!(model.screen, Screen::Logs);
    assert_eq!(model.open.as_ref().unwrap().logs.ranks, "32-39");
}

#[test]
fn every_change_of_the_form_is_planned_and_older_answers_are_thrown_away() {
    let mut model = with_jobs();
    let effects = press(&mut model, "n");
    assert!(matches!(&effects[..], [Effect::Plan(1, target, _)] if target == "prod"));
    let effects = type_text(&mut model, "x");
    let [Effect::Plan(revision, _, spec)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((*revision, spec.name.as_str()), (2, "jobx"));
    update(&mut model, Msg::Planned(1, Err("old".into())));
    assert!(model.draft.as_ref().unwrap().planned.is_none());
    update(&mut model, Msg::Planned(2, Err("new".into())));
    assert!(model.draft.as_ref().unwrap().planned.is_some());
}

#[test]
fn submit_asks_and_a_change_meanwhile_asks_again() {
    let mut model = with_jobs();
    press(&mut model, "n");
    press(&mut model, "ctrl-s");
    assert!(matches!(model.layers.last(), Some(Layer::Confirm(_))));
    model.draft.as_mut().unwrap().revision += 1;
    assert!(press(&mut model, "y").is_empty());
    press(&mut model, "ctrl-s");
    assert!(matches!(&press(&mut model, "y")[..], [Effect::Submit(target, _)] if target == "prod"));
}

#[test]
fn what_is_wrong_with_the_form_is_said_and_nothing_is_sent() {
    let mut model = with_jobs();
    press(&mut model, "n");
    model.draft.as_mut().unwrap().field = Field::Nodes;
    type_text(&mut model, "x");
    press(&mut model, "ctrl-s");
    assert!(model.layers.is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("nodes"));
}

#[test]
fn pasted_newlines_press_nothing() {
    let mut model = with_jobs();
    press(&mut model, "n");
    let effects = update(&mut model, Msg::Paste("-a\n\u{1b}[31mb\r".into()));
    assert_eq!(effects.len(), 1);
    assert_eq!(model.draft.as_ref().unwrap().text(Field::Name), "job-a[31mb");
}

#[test]
fn a_target_that_is_down_says_so_and_the_others_go_on() {
    let mut model = with_jobs();
    update(&mut model, Msg::Lost("prod".into(), "connection refused".into()));
    assert!(common::screen(&mut model, 80, 24).contains("prod DOWN"));
    assert!(common::screen(&mut model, 80, 24).contains("moe-abl-2"), "its jobs stay");
    update(&mut model, Msg::Listed("local".into(), Ok(Vec::new())));
    assert!(common::screen(&mut model, 80, 24).contains("local ok"));
}

#[test]
fn new_lines_wake_only_screens_that_show_them() {
    let mut model = opened();
    let store = model.open.as_ref().unwrap().logs.store.clone();
    let before = model.open.as_ref().unwrap().logs.projection.len();
    store.write(|s| s.ingest(&batch(&rank_source(3), &["more"], 3)));
    press(&mut model, "5");
    update(&mut model, Msg::LogsGrew);
    assert_eq!(model.open.as_ref().unwrap().logs.projection.len(), before);
    press(&mut model, "4");
    update(&mut model, Msg::LogsGrew);
    assert_eq!(model.open.as_ref().unwrap().logs.projection.len(), before + 1);
}

#[test]
fn pictures_of_a_job_that_is_no_longer_open_are_not_shown() {
    let mut model = opened();
    let mut other = common::transport_view();
    other.verdict = "socket".into();
    update(&mut model, Msg::TransportView(handle("dlrm-7"), Arc::new(other)));
    assert_eq!(model.open.as_ref().unwrap().transport_view.verdict, "mixed");
}

#[test]
fn a_new_job_like_the_open_one_has_the_next_name() {
    let mut model = opened();
    assert!(press(&mut model, "N").is_empty(), "nothing is known of it yet");
    let mut spec = weftrun::core::spec::JobSpec::builder("moe-abl-2")
        .role(weftrun::core::spec::Role::worker().nodes(8).gpus_per_node(8).command(["train.py"]))
        .build()
        .unwrap();
    spec.priority = Some("high".into());
    spec.time_limit = Some(std::time::Duration::from_hours(1));
    model.open.as_mut().unwrap().spec = Some(spec);
    let effects = press(&mut model, "N");
    let [Effect::Plan(_, target, spec)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(
        (target.as_str(), spec.name.as_str(), spec.priority.as_deref()),
        ("prod", "moe-abl-3", Some("high"))
    );
    let draft = model.draft.as_ref().unwrap();
    assert!(draft.needs_file(), "a time limit is no field of the form");
    assert_eq!(draft.command().unwrap(), "weftrun submit moe-abl-3.toml -b prod");
    press(&mut model, "ctrl-g");
    assert!(
        matches!(&press(&mut model, "enter")[..], [Effect::Save(path, _)] if path.ends_with("moe-abl-3.toml"))
    );
    update(&mut model, Msg::Saved(Ok("moe-abl-3.toml".into())));
    assert!(!model.draft.as_ref().unwrap().needs_file());
}

#[test]
fn a_fix_goes_into_a_new_job_like_the_one_it_is_for() {
    use weftrun::core::finding::{Fix, PatchEdit};
    let mut model = opened();
    let spec = weftrun::core::spec::JobSpec::builder("moe")
        .image("train:1")
        .role(weftrun::core::spec::Role::worker().nodes(8).gpus_per_node(8).command(["train.py"]))
        .build()
        .unwrap();
    model.open.as_mut().unwrap().spec = Some(spec);
    let mut transport_view = common::transport_view();
    let patch = vec![PatchEdit { path: "fabric".into(), op: "set".into(), value: Some("efa".into()) }];
    transport_view.findings[0].fix = Some(Fix { text: "ask for EFA".into(), patch });
    update(&mut model, Msg::TransportView(handle("moe-abl-2"), Arc::new(transport_view)));
    press(&mut model, "5");
    let effects = press(&mut model, "A");
    let [Effect::Plan(_, _, spec)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((spec.name.as_str(), spec.image.as_deref()), ("moe-2", Some("train:1")));
    assert_eq!(spec.fabric.kind, weftrun::core::fabric::Fabric::Efa);
}

#[test]
fn while_the_question_is_read_the_cluster_is_asked() {
    let mut model = with_jobs();
    press(&mut model, "n");
    let effects = press(&mut model, "ctrl-s");
    let [Effect::Check(revision, target, _)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(target, "prod");
    assert!(common::screen(&mut model, 80, 24).contains("checking with prod"));
    update(&mut model, Msg::Checked(*revision, Ok(Vec::new())));
    assert!(common::screen(&mut model, 80, 24).contains("prod would take it"));
}

#[test]
fn a_line_of_the_diff_switches_its_rule_off_and_on() {
    let mut model = common::drafted();
    press(&mut model, "ctrl-d");
    let screen = |model: &mut weftrun_tui::model::Model| common::screen(model, 120, 40);
    let under_cursor = |text: &str, what: &str| text.lines().any(|l| l.contains("│>") && l.contains(what));
    for _ in 0..20 {
        if under_cursor(&screen(&mut model), "NVIDIA_GDRCOPY") {
            break;
        }
        press(&mut model, "j");
    }
    let shown = screen(&mut model);
    assert!(under_cursor(&shown, "efa.gdrcopy") && shown.contains("why: "), "{shown}");
    let effects = press(&mut model, "space");
    let [Effect::Plan(revision, _, spec)] = &effects[..] else { panic!("{effects:?}") };
    assert!(spec.fabric.rules.contains_key("efa.gdrcopy"));
    update(&mut model, Msg::Planned(*revision, Ok(Box::new(common::planned(spec)))));
    let shown = screen(&mut model);
    assert!(
        under_cursor(&shown, "off: env NVIDIA_GDRCOPY"),
        "what is off is listed, the cursor on it: {shown}"
    );
    assert!(!shown.contains("+   env NVIDIA_GDRCOPY"), "{shown}");
    let effects = press(&mut model, "space");
    assert!(
        matches!(&effects[..], [Effect::Plan(_, _, spec)] if !spec.fabric.rules.contains_key("efa.gdrcopy"))
    );
}

#[test]
fn a_fix_that_the_job_has_already_is_said_to_be_no_fix() {
    use weftrun::core::finding::{Fix, PatchEdit};
    let mut model = opened();
    let spec = weftrun::core::spec::JobSpec::builder("moe")
        .role(weftrun::core::spec::Role::worker().nodes(8).gpus_per_node(8).command(["train.py"]))
        .build()
        .unwrap();
    model.open.as_mut().unwrap().spec = Some(spec);
    let mut transport_view = common::transport_view();
    let patch = vec![PatchEdit { path: "fabric".into(), op: "set".into(), value: Some("auto".into()) }];
    transport_view.findings[0].fix = Some(Fix { text: "install the plugin".into(), patch });
    update(&mut model, Msg::TransportView(handle("moe-abl-2"), Arc::new(transport_view)));
    press(&mut model, "5");
    press(&mut model, "A");
    let said = &model.notice.as_ref().unwrap().text;
    assert!(said.contains("fabric = \"auto\" already") && said.contains("install the plugin"), "{said}");
}

#[test]
fn ranks_that_have_not_come_are_missed() {
    let mut transport_view = common::transport_view();
    transport_view.ranks.retain(|rank| !matches!(rank.rank, Some(17 | 40..=47)));
    transport_view.communicators[0].complete = false;
    let heard = [(17, "pod-2".to_owned()), (3, "pod-0".to_owned())].into();
    transport_view.await_ranks(512, &heard);
    transport_view.group();
    assert_eq!(transport_view.ranks.len(), 64, "NCCL says how many there are, not the job");
    assert_eq!((transport_view.counts[0], transport_view.counts[1], transport_view.nodes.len()), (56, 55, 7));
    let mut model = opened();
    update(&mut model, Msg::TransportView(handle("moe-abl-2"), Arc::new(transport_view)));
    press(&mut model, "z");
    press(&mut model, "s");
    let shown = common::screen(&mut model, 100, 40);
    assert!(shown.contains("56/64 not r40-47"), "{shown}");
    assert!(shown.lines().any(|line| line.contains("> r40") && line.contains("not seen")), "{shown}");
    let mut nothing = weftrun_tui::model::transport_view::TransportView::default();
    nothing.await_ranks(16, &std::collections::BTreeMap::new());
    assert!(nothing.ranks.is_empty(), "of a job that says nothing nobody is said to be missing");
}

#[test]
fn what_was_said_makes_room_for_the_keys_and_a_failure_stays() {
    let mut model = opened();
    model.say("done");
    assert!(common::screen(&mut model, 80, 24).ends_with(" done"));
    let later = model.now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    update(&mut model, Msg::Now(later));
    assert!(common::screen(&mut model, 80, 24).ends_with("? help"));
    model.fail("broken");
    let later = later.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    update(&mut model, Msg::Now(later));
    assert!(common::screen(&mut model, 80, 24).ends_with("! broken"));
}

#[test]
fn a_command_that_is_not_the_form_is_neither_shown_nor_copied() {
    let mut model = with_jobs();
    press(&mut model, "n");
    assert!(
        matches!(&press(&mut model, "ctrl-y")[..], [Effect::Copy(command)] if command.contains("--nodes 1"))
    );
    model.draft.as_mut().unwrap().field = Field::Nodes;
    type_text(&mut model, "x");
    assert!(press(&mut model, "ctrl-y").is_empty());
    let shown = common::screen(&mut model, 160, 48);
    assert!(!shown.contains("$ weftrun submit"), "{shown}");
    assert!(shown.contains("the form has a mistake: nodes"), "{shown}");
}

#[test]
fn a_missing_rank_is_waited_for_since_the_first_one_came() {
    use weftrun_tui::model::transport_view::{Rank, Step, TransportView};
    let now = common::now();
    let mut model = opened();
    let mut view = TransportView::default();
    let begun = now.checked_sub(jiff::SignedDuration::from_secs(14)).unwrap();
    let mut first = Rank { rank: Some(0), host: "h0".into(), bring_up: Step::Bootstrap, ..Rank::default() };
    (first.reached[0], first.reached[1]) = (Some(begun), Some(begun));
    view.ranks = vec![first, Rank { rank: Some(1), bring_up: Step::Awaited, ..Rank::default() }];
    view.ranks.push(Rank { host: "h1".into(), pid: 7, ..Rank::default() });
    view.ranks[2].reached[0] = Some(begun);
    view.group();
    update(&mut model, Msg::TransportView(handle("moe-abl-2"), Arc::new(view)));
    press(&mut model, "2");
    let shown = common::screen(&mut model, 80, 24);
    assert!(shown.contains("not r1 for 14 s"), "{shown}");
    let unknown = shown.lines().find(|line| line.contains(" ?  ")).unwrap_or_default();
    assert!(unknown.contains(" -    -"), "{shown}");
}

#[test]
fn the_late_rank_is_marked_and_its_log_is_a_key_away() {
    let mut model = measuring();
    let open = model.open.as_ref().unwrap();
    assert_eq!(open.rank_rows()[0], 44, "it comes first in the list of ranks");
    assert!(open.suspects().contains(Some(44)) && !open.suspects().contains(Some(43)));
    press(&mut model, "b");
    assert_eq!(model.screen, Screen::Bandwidth);
    let chosen = |model: &weftrun_tui::model::Model| {
        let row = model.open.as_ref().unwrap().chosen_collective().unwrap();
        (row.communicator.id.clone(), row.speed.collective.to_string())
    };
    assert_eq!(chosen(&model), ("0x1".to_owned(), "AllReduce".to_owned()), "late ones come first");
    press(&mut model, "e");
    assert_eq!((model.screen, model.open.as_ref().unwrap().logs.ranks.as_str()), (Screen::Logs, "44"));
    // Where nobody is late, there is no such log.
    press(&mut model, "7");
    press(&mut model, "j");
    let second = chosen(&model);
    press(&mut model, "e");
    assert_eq!(model.screen, Screen::Bandwidth);
    assert!(model.said().is_some_and(|said| said.text.starts_with("no rank is late in ")));
    // The cursor stays on its collective when the list changes.
    let open = model.open.as_mut().unwrap();
    let mut view = weftrun_tui::model::transport_view::TransportView::clone(&open.transport_view);
    view.measured.as_mut().unwrap().speeds.communicators.reverse();
    let handle = open.handle.clone();
    update(&mut model, Msg::TransportView(handle, Arc::new(view)));
    assert_eq!(chosen(&model), second);
    press(&mut model, "home");
    assert_eq!(chosen(&model).0, "0x1");
    press(&mut model, "G");
    assert_eq!(chosen(&model).1, "Send");
    press(&mut model, "enter");
    assert!(
        matches!(model.layers.last(), Some(Layer::Text { title, .. }) if title.starts_with("Send of communicator 0x3"))
    );
    press(&mut model, "esc");
    press(&mut model, "esc");
    assert_eq!(model.screen, Screen::Overview);
    let copied = {
        press(&mut model, "b");
        press(&mut model, "y")
    };
    assert!(
        matches!(&copied[..], [Effect::Copy(text)] if text.starts_with("slow: rank 44 on ip-1-17 reaches"))
    );
}

/// The store leaves the lines of the library out, as `weftrun logs` does.
#[test]
fn lines_of_measurements_are_not_shown_among_the_logs() {
    let mut model = opened();
    let store = model.open.as_ref().unwrap().logs.store.clone();
    let before = store.read().count();
    let line = "weftrun: NCCL {\"weftrun_nccl\":1,\"t\":1,\"op\":\"AllReduce\"}";
    store.write(|store| store.ingest(&batch(&rank_source(3), &["step 1", line, "step 2"], 3)));
    update(&mut model, Msg::LogsGrew);
    assert_eq!(store.read().count(), before + 2);
    press(&mut model, "4");
    let shown = common::screen(&mut model, 120, 30);
    assert!(shown.contains("step 2") && !shown.contains("weftrun_nccl"), "{shown}");
}
