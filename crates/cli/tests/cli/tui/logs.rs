//! The log pane: what is merged, found, kept together and saved.

use super::tmux::{Tmux, line_of};

/// A job of some ranks that runs a script, and has ended.
fn ended(name: &str, ranks: &str, script: &str) -> Option<Tmux> {
    let t = Tmux::start(name, 140, 40)?;
    t.wait(&["local ok"]);
    t.submit(name, ranks, &["sh", "-c", script]);
    t.keys(&["C-l"]);
    t.until("the job has ended", |screen| screen.contains("DONE") || screen.contains("FAIL"), || {});
    t.keys(&["Enter", "4"]);
    t.wait(&["[4 logs]", "END"]);
    Some(t)
}

#[test]
fn lines_with_stamps_are_merged_by_them_and_others_are_said_to_be_by_rank() {
    let script = r#"echo "2026-11-22 03:12:1$((RANK + 1)),500 first of $RANK"; echo "goes on $RANK"
echo "2026-11-22 03:12:2$((5 - RANK)),500 second of $RANK""#;
    let Some(t) = ended("stamps", "2", script) else { return };
    let screen = t.wait(&["by the stamps in lines", "second of 1"]);
    let order = ["first of 0", "goes on 0", "first of 1", "goes on 1", "second of 1", "second of 0"];
    let places: Vec<usize> = order.iter().map(|text| line_of(&screen, text)).collect();
    assert!(places.is_sorted(), "{places:?}\n{screen}");
    // The stamps can be gone to as they are written.
    t.answer("#", "line, or time", "03:12:16");
    t.wait(&["PAUSED"]);
    let Some(t) = ended("plain", "2", "echo one of $RANK; echo two of $RANK") else { return };
    let screen = t.wait(&["by rank, times not known", "two of 1"]);
    assert!(line_of(&screen, "two of 0") < line_of(&screen, "one of 1"), "{screen}");
    t.answer("#", "line, or time", "03:12:16");
    t.wait(&["no line has a time"]);
}

#[test]
fn a_level_keeps_whole_tracebacks() {
    let script = r#"echo before; echo "Traceback (most recent call last):"
echo '  File "train.py", line 3, in <module>'; echo "    loss = step()"; echo "torch.OutOfMemoryError: full"; echo after"#;
    let Some(t) = ended("trace", "1", script) else { return };
    t.wait(&["before", "after"]);
    t.keys(&["v", "v"]);
    let screen =
        t.wait(&[">= WARN", "Traceback", "File \"train.py\"", "loss = step()", "OutOfMemoryError: full"]);
    assert!(!screen.contains("before") && !screen.contains("I after"), "{screen}");
}

#[test]
fn a_search_counts_and_a_filter_applies_while_it_is_typed() {
    let script =
        "i=0; while [ $i -lt 200 ]; do echo \"line $i of $RANK\"; i=$((i + 1)); done; echo 'needle one'";
    let Some(t) = ended("search", "2", script) else { return };
    t.answer("/", "find:", "needle");
    t.wait(&["/ needle 1 of 2"]);
    t.keys(&["n"]);
    t.wait(&["/ needle 2 of 2"]);
    t.answer("#", "line, or time", "42");
    t.wait(&["line 41 of 0", "/ needle 2 found"]);
    t.keys(&["Enter"]);
    t.wait(&["r0 line 42"]);
    t.keys(&["Escape"]);
    t.until("the line is closed", |screen| !screen.contains("esc closes"), || {});
    t.keys(&["&"]);
    t.wait(&["show only:"]);
    t.type_text("needle");
    // Not yet accepted, but shown.
    t.wait(&["2 of 402 lines", "show only: needle"]);
    t.keys(&["Escape"]);
    let all = |screen: &str| screen.contains("402 lines") && !screen.contains("of 402 lines");
    t.until("the filter is dropped", all, || {});
}

#[test]
fn saved_logs_carry_their_ranks_and_several_ranks_are_pinned() {
    let script = "echo hello from $RANK; head -c 70000 /dev/zero | tr '\\0' y; echo";
    let Some(t) = ended("ranks", "3", script) else { return };
    let file = t.home().join("saved.log");
    t.answer("s", "save to", &file.display().to_string());
    t.wait(&["saved "]);
    let text = std::fs::read_to_string(&file).expect("it was saved");
    for rank in 0..3 {
        assert!(text.contains(&format!("[rank{rank}]: hello from {rank}\n")), "{text}");
    }
    // Each rank's long line is kept up to 64 KiB, and says so.
    assert_eq!(text.matches(&format!("y … {} more bytes\n", 70_000 - 65_536)).count(), 3);
    t.keys(&["g", "K", "j", "j", "K"]);
    let screen = t.wait(&["r0-1 pinned"]);
    assert!(
        screen.matches("hello from 0").count() >= 2 && screen.matches("hello from 1").count() >= 2,
        "{screen}"
    );
}

#[test]
fn the_evidence_of_a_finding_is_shown_in_the_log() {
    let Some(t) = Tmux::replay("evidence", (140, 40), "plugin_missing") else { return };
    t.keys(&["5"]);
    let screen = t.wait(&["[5 diagnosis]", "fix:"]);
    let evidence = screen.lines().find(|line| line.contains("rank0:")).expect("evidence");
    let text = evidence.split_once("rank0:").and_then(|(_, rest)| rest.split_once(' ')).expect("a line").1;
    let text = text.split('│').next().unwrap_or_default().trim().chars().take(40).collect::<String>();
    t.keys(&["e"]);
    t.wait(&["[4 logs]", "PAUSED", &text]);
}

/// More than is filtered and searched between two frames: both work beside the screen.
#[test]
fn a_large_log_is_filtered_while_it_is_typed_and_searched_in_order() {
    let script = "for part in 1 2; do head -c 35000000 /dev/zero | tr '\\0' x | fold -w 4000; echo; echo needle $part; done";
    let Some(t) = ended("large", "1", script) else { return };
    t.until("the whole log", |screen| screen.contains("17502 lines") && !screen.contains("reading"), || {});
    t.keys(&["&"]);
    t.wait(&["show only:"]);
    t.type_text("needle");
    t.wait(&["2 of 17502 lines", "needle 1", "needle 2"]);
    t.keys(&["Escape"]);
    t.until("the filter is dropped", |screen| !screen.contains("of 17502 lines"), || {});
    t.answer("/", "find:", "needle");
    t.wait(&["/ needle 1 of 2"]);
    t.keys(&["n"]);
    t.wait(&["/ needle 2 of 2"]);
    t.keys(&["N"]);
    t.wait(&["/ needle 1 of 2"]);
}
