//! The log: its order, filters, searches and titles.

use weftrun::core::nccl::LINE_CAP;

use super::*;

#[test]
fn a_paused_log_does_not_move() {
    let mut model = opened();
    press(&mut model, "4");
    let store = SharedStore::new(LogStore::new(1 << 20));
    let source = rank_source(0);
    let lines: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
    store.write(|s| s.ingest(&batch(&source, &lines.iter().map(String::as_str).collect::<Vec<_>>(), 0)));
    update(&mut model, Msg::LogsOpened(handle("moe-abl-2"), store.clone()));
    common::screen(&mut model, 80, 24);
    press(&mut model, "f");
    let before = common::screen(&mut model, 80, 24);
    store.write(|s| s.ingest(&batch(&source, &["new 1", "new 2", "new 3"], 5)));
    update(&mut model, Msg::LogsGrew);
    let after = common::screen(&mut model, 80, 24);
    // Without the scroll bar, which shows that there is more below.
    let body = |text: &str| {
        let lines = text.lines().skip(2).take(15);
        lines.map(|line| line.trim_end_matches(['│', '█']).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(body(&before), body(&after));
    assert!(after.contains("PAUSED, +3 new"), "{after}");
    press(&mut model, "f");
    assert!(common::screen(&mut model, 80, 24).contains("new 3"));
}

#[test]
fn find_hides_nothing_and_filter_does() {
    let mut model = opened();
    press(&mut model, "4");
    let all = model.open.as_ref().unwrap().logs.projection.len();
    press(&mut model, "/");
    type_text(&mut model, "libnccl");
    press(&mut model, "enter");
    let pane = &model.open.as_ref().unwrap().logs;
    assert_eq!(pane.projection.len(), all);
    let store = pane.store.read();
    assert!(store.get(pane.cursor.unwrap()).unwrap().clean().text.contains("libnccl-net.so"));
    drop(store);
    press(&mut model, "&");
    type_text(&mut model, "level:error");
    press(&mut model, "enter");
    assert!(model.open.as_ref().unwrap().logs.projection.len() < all);
}

#[test]
fn a_wrong_filter_stays_in_the_prompt_with_its_mistake() {
    let mut model = opened();
    press(&mut model, "4");
    press(&mut model, "&");
    type_text(&mut model, "rank:x");
    press(&mut model, "enter");
    assert!(
        matches!(model.layers.last(), Some(Layer::Prompt { error: Some(error), .. }) if error.contains("rank:x"))
    );
}

#[test]
fn a_pinned_rank_stays_in_sight_whatever_is_filtered() {
    let mut model = opened();
    press(&mut model, "4");
    let store = model.open.as_ref().unwrap().logs.store.clone();
    store.write(|s| s.ingest(&batch(&rank_source(3), &["the pinned one"], 20)));
    update(&mut model, Msg::LogsGrew);
    press(&mut model, "K");
    press(&mut model, "&");
    type_text(&mut model, "rank:56");
    press(&mut model, "enter");
    let shown = common::screen(&mut model, 80, 24);
    assert!(shown.contains("r3 pinned") && shown.contains("the pinned one"), "{shown}");
    store.write(|s| s.ingest(&batch(&rank_source(3), &["and its next line"], 21)));
    update(&mut model, Msg::LogsGrew);
    assert!(common::screen(&mut model, 80, 24).contains("and its next line"));
}

#[test]
fn what_several_ranks_say_is_shown_once() {
    let mut model = opened();
    press(&mut model, "4");
    let store = model.open.as_ref().unwrap().logs.store.clone();
    for rank in 0..8 {
        store.write(|s| s.ingest(&batch(&rank_source(rank), &["NCCL version 2.30"], 30)));
    }
    update(&mut model, Msg::LogsGrew);
    let count = |model: &mut weftrun_tui::model::Model| {
        common::screen(model, 80, 24).lines().filter(|line| line.contains("NCCL version 2.30")).count()
    };
    assert_eq!(count(&mut model), 8);
    press(&mut model, "=");
    assert_eq!(count(&mut model), 1);
    assert!(common::screen(&mut model, 80, 24).contains("(x8)"));
    press(&mut model, "=");
    assert_eq!(count(&mut model), 8);
}

#[test]
fn a_whole_line_is_read_to_its_end_and_no_further() {
    let mut model = opened();
    press(&mut model, "4");
    let store = model.open.as_ref().unwrap().logs.store.clone();
    let long: String = (0..4000).map(|n| format!("{n} ")).collect();
    store.write(|s| s.ingest(&batch(&rank_source(3), &[&long], 40)));
    update(&mut model, Msg::LogsGrew);
    press(&mut model, "enter");
    assert!(!common::screen(&mut model, 80, 24).contains("3999"));
    for _ in 0..400 {
        press(&mut model, "space");
    }
    assert!(common::screen(&mut model, 80, 24).contains("3999"));
    press(&mut model, "k");
    assert!(!common::screen(&mut model, 80, 24).contains("3999"), "one up is one line up");
}

#[test]
fn hits_are_counted_again_for_another_filter_another_log_and_new_lines() {
    let mut model = opened();
    press(&mut model, "4");
    press(&mut model, "/");
    type_text(&mut model, "new");
    let number = |effects: &[Effect]| match effects {
        [Effect::Count(count)] => (count.number, count.counted),
        other => panic!("{other:?}"),
    };
    let hits = |model: &weftrun_tui::model::Model| {
        model.open.as_ref().unwrap().logs.find.as_ref().unwrap().hits.clone()
    };
    let (first, _) = number(&press(&mut model, "enter"));
    assert!(update(&mut model, Msg::LogsGrew).is_empty(), "one count at a time");
    press(&mut model, "v");
    let (second, _) = number(&update(&mut model, Msg::LogsGrew));
    update(&mut model, Msg::Counted(first, (0, 9), vec![(0, 8)]));
    assert_eq!(hits(&model), None, "it counted what the filter before has shown");
    let store = SharedStore::new(LogStore::new(1 << 20));
    let source = rank_source(0);
    store.write(|s| s.ingest(&batch(&source, &["old", "new"], 0)));
    update(&mut model, Msg::LogsOpened(handle("moe-abl-2"), store.clone()));
    update(&mut model, Msg::Counted(second, (0, 9), vec![(0, 8)]));
    assert_eq!(hits(&model), None, "it counted another log");
    let (third, from) = number(&update(&mut model, Msg::LogsGrew));
    assert_eq!(from, (0, 0));
    update(&mut model, Msg::Counted(third, (0, 2), vec![(0, 1)]));
    assert!(update(&mut model, Msg::LogsGrew).is_empty(), "nothing has grown");
    store.write(|s| s.ingest(&batch(&source, &["new"], 5)));
    let (fourth, from) = number(&update(&mut model, Msg::LogsGrew));
    assert_eq!(from, (0, 2));
    update(&mut model, Msg::Counted(fourth, (0, 3), vec![(5, 2)]));
    assert_eq!(hits(&model), Some(vec![(0, 1), (5, 2)]));
}

#[test]
fn the_line_that_proves_a_finding_is_shown_and_only_a_filter_that_hides_it_is_cleared() {
    let mut model = opened();
    press(&mut model, "4");
    let store = SharedStore::new(LogStore::new(1 << 20));
    store.write(|s| s.ingest(&batch(&rank_source(0), &["old", "new", "proof"], 0)));
    update(&mut model, Msg::LogsOpened(handle("moe-abl-2"), store.clone()));
    for (filter, kept) in [("proof", true), ("old", false)] {
        press(&mut model, "&");
        press(&mut model, "ctrl-u");
        type_text(&mut model, filter);
        press(&mut model, "enter");
        update(&mut model, Msg::Evidence(store.clone(), Some(2)));
        let pane = &model.open.as_ref().unwrap().logs;
        assert_eq!((pane.cursor, pane.filter == filter, model.said().is_none()), (Some(2), kept, kept));
    }
    model.screen = Screen::Diagnosis;
    update(&mut model, Msg::Evidence(SharedStore::default(), Some(1)));
    assert_eq!(model.screen, Screen::Diagnosis, "the log of another job");
}

#[test]
fn a_log_ordered_by_stamps_has_times_to_go_to() {
    let mut model = opened();
    press(&mut model, "4");
    let store = SharedStore::new(LogStore::new(1 << 20));
    let text = b"begin\n2026-11-22 03:12:10,000 a\n2026-11-22 03:12:14,000 b\n2026-11-22 03:12:18,000 c\n";
    let source = rank_source(0);
    store.write(|s| s.ingest(&LogBatch::new(source, text.to_vec(), Cursor::default())));
    update(&mut model, Msg::LogsOpened(handle("moe-abl-2"), store));
    press(&mut model, "#");
    type_text(&mut model, "03:12:12");
    press(&mut model, "enter");
    assert!(model.layers.is_empty(), "{:?}", model.layers);
    assert_eq!(model.open.as_ref().unwrap().logs.cursor, Some(2));
}

#[test]
fn the_title_tells_older_lines_from_those_that_came() {
    let now = common::now();
    let title = |watched: i64, arrives: bool| {
        let mut model = opened();
        press(&mut model, "4");
        let mut store = LogStore::new(1 << 20);
        store.watch(now.checked_add(jiff::SignedDuration::from_secs(watched)).unwrap());
        for rank in 0..2 {
            let source = rank_source(rank);
            let lines = LogBatch::new(source, b"a line\n".to_vec(), Cursor::default());
            if arrives { store.ingest_at(&lines, now) } else { store.ingest(&lines) }
        }
        let name = handle("moe-abl-2");
        update(&mut model, Msg::LogsOpened(name.clone(), SharedStore::new(store)));
        let mut summary = job("moe-abl-2", JobPhase::Running, 0);
        summary.created = Some(now);
        let known = Known { detail: JobDetail::new(summary), plan: None, spec: None };
        update(&mut model, Msg::Detail(name.clone(), Ok(Box::new(known))));
        update(&mut model, Msg::LogsEnded(name, None));
        common::screen(&mut model, 160, 48)
    };
    for (watched, arrives, words) in [
        (0, true, "─ as they came"),
        (10, true, "─ older by rank, then as they came"),
        (10, false, "─ by rank, times not known"),
    ] {
        let screen = title(watched, arrives);
        assert!(screen.contains(words), "{words}\n{screen}");
    }
}

#[test]
fn the_title_has_the_filter_that_is_being_typed() {
    let mut model = opened();
    press(&mut model, "4");
    press(&mut model, "&");
    type_text(&mut model, "NET/Socket");
    assert!(common::screen(&mut model, 160, 48).contains("─ & NET/Socket ─"));
    press(&mut model, "enter");
    press(&mut model, "&");
    press(&mut model, "ctrl-u");
    type_text(&mut model, "/step (/");
    let shown = common::screen(&mut model, 160, 48);
    assert!(shown.contains("─ & /step (/ (not a filter yet) ─"), "{shown}");
    press(&mut model, "esc");
    assert!(common::screen(&mut model, 160, 48).contains("─ & NET/Socket ─"));
}

#[test]
fn a_copied_line_says_what_was_cut() {
    let mut model = opened();
    press(&mut model, "4");
    let store = model.open.as_ref().unwrap().logs.store.clone();
    let long = "y".repeat(LINE_CAP + 5);
    store.write(|s| s.ingest(&batch(&rank_source(3), &[&long], 40)));
    update(&mut model, Msg::LogsGrew);
    let effects = press(&mut model, "y");
    let [Effect::Copy(text)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(text.len(), LINE_CAP + " … 5 more bytes".len());
    assert!(text.ends_with("y … 5 more bytes"));
}

#[test]
fn who_spoke_is_never_cut() {
    let mut model = opened();
    press(&mut model, "4");
    let store = SharedStore::new(LogStore::new(1 << 20));
    for rank in [0, 1, 2, 36_000, 1_000_000] {
        store.write(|store| store.ingest(&batch(&rank_source(rank), &["hello"], 0)));
    }
    for rank in 3..300 {
        store.write(|store| store.ingest(&batch(&rank_source(rank), &["earlier"], -5)));
    }
    update(&mut model, Msg::LogsOpened(handle("moe-abl-2"), store));
    for (columns, rows) in [(60, 15), (80, 24), (160, 48)] {
        let shown = common::screen(&mut model, columns, rows);
        for label in ["r0 ", "r36000 ", "r1000000 "] {
            assert!(shown.contains(label), "{label} at {columns}\n{shown}");
        }
    }
}

#[test]
fn esc_goes_back_from_a_line_to_the_finding_that_it_proves() {
    let mut model = opened();
    press(&mut model, "5");
    let store = model.open.as_ref().unwrap().logs.store.clone();
    update(&mut model, Msg::Evidence(store, Some(1)));
    assert_eq!(model.screen, Screen::Logs);
    press(&mut model, "esc");
    assert_eq!(model.screen, Screen::Diagnosis);
    press(&mut model, "4");
    press(&mut model, "esc");
    assert_eq!(model.screen, Screen::Overview);
}

#[test]
fn an_unknown_name_of_a_filter_is_said() {
    let mut model = opened();
    press(&mut model, "4");
    for (text, said) in [("leve:warn", true), ("level:warn", false), ("http://x", false)] {
        press(&mut model, "&");
        press(&mut model, "ctrl-u");
        type_text(&mut model, text);
        press(&mut model, "enter");
        let notice = model.notice.as_ref().is_some_and(|notice| notice.text.contains("no name of a filter"));
        assert_eq!(notice, said, "{text}");
    }
}

#[test]
fn folded_lines_wrap_with_how_many_said_them() {
    let mut model = opened();
    press(&mut model, "4");
    let store = SharedStore::new(LogStore::new(1 << 20));
    // As long as the rows that it takes, so that the number has no space of its own behind it.
    let long = "word ".repeat(40) + "END";
    for rank in 0..8 {
        store.write(|store| store.ingest(&batch(&rank_source(rank), &[&long], 0)));
    }
    update(&mut model, Msg::LogsOpened(handle("moe-abl-2"), store));
    press(&mut model, "w");
    press(&mut model, "=");
    for columns in 60..100 {
        let shown = common::screen(&mut model, columns, 24);
        let joined: String = shown.split_whitespace().collect();
        assert!(joined.contains("wordEND(x8)"), "{columns}\n{shown}");
    }
}

#[test]
fn the_title_counts_lines_errors_and_warnings() {
    let mut model = opened();
    press(&mut model, "4");
    let shown = common::screen(&mut model, 80, 24);
    assert!(shown.contains("FOLLOW ─ 8 lines ─ 1 E ─ 1 W"), "{shown}");
}
