//! The list of jobs: its order, marks, notices, and what survives a restart.

use weftrun_tui::model::jobs::JobColumn;
use weftrun_tui::model::layer::{Layer, Question};
use weftrun_tui::model::session::Session;
use weftrun_tui::model::sorting::RankColumn;
use weftrun_tui::view::mouse_targets::{Heading, MouseTarget, MouseTargets};
use weftrun_tui::view::view_for_mouse;

use weftrun_tui::model::Model;

use super::common::{empty, screen as screen_of, transport_view};
use super::*;

fn screen(model: &mut Model) -> String {
    screen_of(model, 100, 30)
}

fn names(model: &Model) -> Vec<String> {
    model.jobs.shown().iter().map(|entry| entry.summary.name.clone()).collect()
}

#[test]
fn what_needs_attention_comes_first_and_survives_a_restart() {
    let mut model = with_jobs();
    assert_eq!(names(&model), ["llama70b-sft-2", "moe-abl-2", "dlrm-7", "smoke"]);
    let name = handle("moe-abl-2");
    press(&mut model, "enter");
    update(&mut model, Msg::TransportView(name.clone(), Arc::new(transport_view())));
    press(&mut model, "1");
    assert_eq!(names(&model)[0], "moe-abl-2", "it uses another fabric than planned, and is newer");
    let kept = serde_json::to_string(&Session::of(&model)).unwrap();
    let session: Session = serde_json::from_str(&kept).unwrap();
    let mut again = empty();
    session.restore(&mut again);
    update(&mut again, Msg::Listed("prod".into(), Ok(vec![job("moe-abl-2", JobPhase::Running, 360)])));
    assert_eq!(again.jobs.get(&name).unwrap().learned, model.jobs.get(&name).unwrap().learned);
    assert!(screen(&mut again).contains("mixed !"));
}

#[test]
fn a_column_sorts_both_ways_by_key_and_by_click() {
    let mut model = with_jobs();
    while model.jobs.sorted.column != JobColumn::Name {
        press(&mut model, "s");
    }
    let sorted = names(&model);
    assert_eq!(sorted, ["dlrm-7", "llama70b-sft-2", "moe-abl-2", "smoke"]);
    press(&mut model, "r");
    assert_eq!(names(&model), sorted.iter().rev().cloned().collect::<Vec<_>>());
    assert!(screen(&mut model).contains("name▼"));
    let spots = MouseTargets::default();
    model.size = (100, 30);
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(100, 30)).unwrap();
    terminal.draw(|frame| view_for_mouse(&model, frame, &spots)).unwrap();
    let target = spots.press(12, 2).unwrap();
    assert_eq!(target, MouseTarget::Heading(Heading::Job(JobColumn::Name)));
    update(&mut model, Msg::Click(target.clone()));
    assert_eq!(names(&model), sorted);
    update(&mut model, Msg::Click(target));
    assert!(model.jobs.sorted.reversed);
}

#[test]
fn one_action_is_done_to_all_marked_jobs_that_allow_it() {
    let mut model = with_jobs();
    model.jobs.selected = None;
    for _ in 0..4 {
        press(&mut model, "space");
    }
    assert_eq!(model.jobs.marked.len(), 4);
    assert!(screen(&mut model).contains("Jobs 4, 4 marked"));
    press(&mut model, "x");
    let Some(Layer::Confirm(Question::Act { jobs, left_out, .. })) = model.layers.last() else {
        panic!("{:?}", model.layers)
    };
    assert_eq!(jobs, &[handle("dlrm-7"), handle("moe-abl-2")]);
    assert_eq!(left_out.len(), 2, "those that have ended");
    let shown = screen(&mut model);
    assert!(shown.contains("cancel 2 jobs?") && shown.contains("smoke has ended already"), "{shown}");
    let effects = press(&mut model, "y");
    assert!(effects.iter().all(|effect| matches!(effect, Effect::Act(_, JobAction::Cancel))));
    assert_eq!(effects.len(), 2);
    assert!(model.jobs.marked.is_empty());
    // A mark that is taken away, and esc takes all of them away before it does anything else.
    press(&mut model, "space");
    press(&mut model, "k");
    press(&mut model, "space");
    press(&mut model, "space");
    press(&mut model, "esc");
    assert!(model.jobs.marked.is_empty() && model.notice.is_none());
}

#[test]
fn esc_lands_on_the_job_that_was_viewed() {
    for screen in ["2", "3", "4", "5", "7"] {
        let mut model = with_jobs();
        model.jobs.selected = Some(handle("dlrm-7"));
        press(&mut model, screen);
        // Another job comes under the cursor meanwhile.
        model.jobs.selected = Some(handle("smoke"));
        for _ in 0..3 {
            if model.screen != Screen::Jobs {
                press(&mut model, "esc");
            }
        }
        assert_eq!(model.jobs.selected, Some(handle("dlrm-7")), "{screen}");
    }
}

#[test]
fn what_has_ended_offers_no_cancel_and_names_of_screens_stay() {
    let mut model = with_jobs();
    assert!(screen_of(&mut model, 120, 30).contains("x cancel"));
    model.jobs.selected = Some(handle("smoke"));
    assert!(!screen_of(&mut model, 120, 30).contains("x cancel"));
    for columns in [60, 80, 100, 160] {
        let shown = screen_of(&mut model, columns, 24);
        let top = shown.lines().next().unwrap();
        for word in ["jobs", "over", "fabric", "logs", "diag", "new", "bandw"] {
            assert!(top.contains(word), "{columns}: {top}");
        }
    }
}

#[test]
fn a_target_that_is_down_is_seen_at_every_size() {
    let mut model = with_jobs();
    for number in 0..12 {
        model.jobs.add_target(&format!("cluster-number-{number}"));
    }
    update(&mut model, Msg::Lost("cluster-number-11".into(), "no answer".into()));
    for (columns, rows) in [(60, 15), (80, 24), (120, 40)] {
        let shown = screen_of(&mut model, columns, rows);
        assert!(shown.lines().next().unwrap().contains("DOWN"), "{columns}\n{shown}");
        assert!(shown.contains("cluster-number-11 DOWN"), "{columns}\n{shown}");
    }
}

#[test]
fn a_long_notice_is_read_to_its_reason() {
    let mut model = with_jobs();
    let why = "the reason stands at the very end";
    model.fail(format!("submit: {} {why}", "the cluster has refused the job since ".repeat(5)));
    let joined = screen_of(&mut model, 80, 24).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(why), "{joined}");
    model.fail(format!("submit: {} {why}", "many words ".repeat(500)));
    assert!(screen_of(&mut model, 80, 24).contains("very end"));
}

#[test]
fn drafts_of_two_instances_are_both_kept() {
    let typed = |name: &str| {
        let mut model = with_jobs();
        press(&mut model, "n");
        for _ in 0..3 {
            update(&mut model, Msg::Key(crossterm::event::KeyCode::Backspace.into()));
        }
        type_text(&mut model, name);
        model
    };
    let (first, second) = (Session::of(&typed("first")), Session::of(&typed("second")));
    // The second one ends after the first: both began without a draft.
    let kept = second.clone().beside(&first, None);
    let mut model = with_jobs();
    kept.restore(&mut model);
    press(&mut model, "n");
    assert!(screen(&mut model).contains("second"));
    model.draft = None;
    press(&mut model, "n");
    assert!(screen(&mut model).contains("first"), "{:?}", model.notice);
    assert!(model.other_drafts.is_empty());
    // A draft with which both began is not kept twice.
    let kept = second.clone().beside(&second, Some(&second));
    assert!(kept.other_drafts.is_empty());
    let sent = Session { draft: None, ..second.clone() }.beside(&second, Some(&second));
    assert!(sent.draft.is_none() && sent.other_drafts.is_empty(), "it was submitted here");
}

#[test]
fn two_marked_jobs_are_compared() {
    let mut model = with_jobs();
    press(&mut model, "=");
    assert!(model.notice.as_ref().unwrap().text.contains("two jobs are compared"));
    model.jobs.marked = [handle("moe-abl-2"), handle("smoke")].into();
    assert!(matches!(&press(&mut model, "=")[..], [Effect::Compare(_)]));
    let known = |name: &str, image: &str, node: &str| {
        let detail = |name| weftrun::core::job::JobDetail::new(job(name, JobPhase::Running, 5));
        let mut detail = detail(name);
        let mut replica = weftrun::core::job::ReplicaStatus::new("w-0", "worker", 0, JobPhase::Running);
        replica.node = Some(node.to_owned());
        detail.replicas.push(replica);
        let role = weftrun::core::spec::Role::worker().gpus_per_node(8).command(["train.py"]);
        let spec = weftrun::core::spec::JobSpec::builder("same").image(image).role(role).build().unwrap();
        weftrun_tui::msg::Known { detail, plan: None, spec: Some(spec) }
    };
    let both = [known("moe-abl-2", "train:1", "gpu-1"), known("smoke", "train:2", "gpu-1")];
    update(&mut model, Msg::Compared(Ok(Box::new(both))));
    let shown = screen_of(&mut model, 120, 40);
    for text in ["A  train:1", "B  train:2", "the same: state, nodes", "A  image = \"train:1\""] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
}

#[test]
fn an_action_of_the_user_has_the_job_and_the_rank() {
    let mut model = opened();
    let chord = weftrun_tui::keymap::Chord::parse("ctrl-t").unwrap();
    model.own_actions = vec![weftrun_tui::model::OwnAction {
        name: "ssh".into(),
        key: "ctrl-t".into(),
        chord,
        command: "ssh $NODE nvidia-smi # $RANK of $JOB".into(),
    }];
    let effects = press(&mut model, "ctrl-t");
    let [Effect::Run(command, variables)] = &effects[..] else { panic!("{effects:?}") };
    assert!(command.contains("$NODE"), "the shell reads the variables");
    let wanted = [("JOB", "there://prod/moe-abl-2"), ("RANK", "0"), ("NODE", "ip-1-12")];
    assert!(
        variables.iter().zip(wanted).all(|((name, value), wanted)| (*name, value.as_str()) == wanted),
        "{variables:?}"
    );
    press(&mut model, "1");
    assert!(press(&mut model, "ctrl-t").is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("$RANK"));
    press(&mut model, "?");
    assert!(screen_of(&mut model, 160, 60).contains("Your own"));
}

#[test]
fn the_palette_takes_arguments() {
    let run = |model: &mut Model, text: &str| {
        press(model, ":");
        type_text(model, text);
        press(model, "enter")
    };
    let mut model = opened();
    run(&mut model, "logs 32");
    assert_eq!((model.screen, model.open.as_ref().unwrap().logs.ranks.as_str()), (Screen::Logs, "32"));
    run(&mut model, "filter stamp");
    assert_eq!(model.open.as_ref().unwrap().logs.filter, "stamp");
    run(&mut model, "level warn");
    assert_eq!(model.open.as_ref().unwrap().logs.level, weftrun::core::log::Level::Warn);
    run(&mut model, "open smoke");
    assert_eq!((model.screen, model.open.as_ref().unwrap().handle.name()), (Screen::Overview, "smoke"));
    run(&mut model, "sort errors");
    assert_eq!(model.open.as_ref().unwrap().ranks_sorted.column, RankColumn::Errors);
    press(&mut model, "1");
    run(&mut model, "sort age");
    assert_eq!(model.jobs.sorted.column, JobColumn::Age);
    run(&mut model, "jobs llama");
    assert_eq!(model.jobs.filter, "llama");
    for (text, said) in [
        ("logs three", "ranks look like"),
        ("open nowhere", "no listed job"),
        ("sort colour", "trouble"),
        ("theme pink", "no theme `pink`"),
        ("cancel everything", "takes nothing behind it"),
        ("nosuchaction", "no action"),
    ] {
        run(&mut model, text);
        let notice = model.notice.as_ref().map(|notice| notice.text.clone()).unwrap_or_default();
        assert!(notice.contains(said), "{text}: {notice}");
        model.layers.clear();
    }
}

#[test]
fn a_key_without_effect_says_so() {
    let mut model = opened();
    for (screen, key) in [("1", "§"), ("5", "z"), ("3", "w")] {
        press(&mut model, screen);
        press(&mut model, key);
        let notice = model.notice.as_ref().map(|notice| notice.text.clone()).unwrap_or_default();
        assert!(notice.contains(&format!("{key} does nothing here")), "{screen}{key}: {notice}");
    }
}

#[test]
fn the_demo_says_what_is_staged_and_leaves_the_screen() {
    let mut model = empty();
    press(&mut model, "D");
    assert!(model.notice.as_ref().unwrap().text.contains("staged"));
    let demo = handle("moe-abl-2");
    update(&mut model, Msg::Demo(Ok(demo.clone())));
    update(&mut model, Msg::Listed("prod".into(), Ok(vec![job("moe-abl-2", JobPhase::Running, 1)])));
    assert!(model.notice.as_ref().unwrap().text.contains("recorded run"));
    let before = model.screen;
    update(
        &mut model,
        Msg::Event("prod".into(), JobEvent::Status { job: job("moe-abl-2", JobPhase::Succeeded, 9) }),
    );
    assert_eq!(model.screen, before);
}

#[test]
fn a_path_is_completed_in_its_prompt() {
    let mut model = with_jobs();
    model.opens_logs = true;
    press(&mut model, "o");
    type_text(&mut model, "lo");
    assert!(matches!(&press(&mut model, "tab")[..], [Effect::Paths(typed)] if typed == "lo"));
    let found = ["logs-a/".to_owned(), "logs-b/".to_owned()];
    update(&mut model, Msg::Paths("lo".into(), found.to_vec()));
    let shown = screen(&mut model);
    assert!(shown.contains("logs-a  logs-b"), "{shown}");
    let typed = |model: &Model| match model.layers.last() {
        Some(Layer::Prompt { input, .. }) => input.value().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(typed(&model), "logs-");
    // An answer to what is no longer typed is ignored.
    update(&mut model, Msg::Paths("lo".into(), vec!["long".into()]));
    assert_eq!(typed(&model), "logs-");
}

#[test]
fn a_fix_is_offered_only_where_it_changes_the_job() {
    let mut model = opened();
    let mut view = transport_view();
    let edit = |value: &str| weftrun::core::finding::PatchEdit {
        op: "set".into(),
        path: "fabric".into(),
        value: Some(value.into()),
    };
    for (value, offered) in [("auto", false), ("tcp", true)] {
        view.findings[0].fix =
            Some(weftrun::core::finding::Fix { text: "do this".into(), patch: vec![edit(value)] });
        let name = model.open.as_ref().unwrap().handle.clone();
        update(&mut model, Msg::TransportView(name, Arc::new(view.clone())));
        press(&mut model, "5");
        let shown = screen_of(&mut model, 120, 40);
        assert_eq!(shown.contains("[A: fabric"), offered, "{value}\n{shown}");
        assert_eq!(shown.contains("A apply fix"), offered, "{value}");
    }
}

#[test]
fn advice_has_its_values_and_the_name_of_the_job() {
    let mut model = opened();
    press(&mut model, "H");
    update(&mut model, Msg::Health(handle("moe-abl-2"), Ok(Box::new(health()))));
    press(&mut model, "5");
    let shown = screen_of(&mut model, 160, 40);
    assert!(shown.contains("weftrun exec moe-abl-2 --rank 44 -- py-spy dump --pid 1451"), "{shown}");
    let mut view = transport_view();
    view.findings[0].fix =
        Some(weftrun::core::finding::Fix { text: "see `weftrun health JOB`".into(), patch: Vec::new() });
    update(&mut model, Msg::TransportView(handle("moe-abl-2"), Arc::new(view)));
    let shown = screen_of(&mut model, 160, 40);
    assert!(shown.contains("see H (queries NCCL's RAS service)"), "{shown}");
}
