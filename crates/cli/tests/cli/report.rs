//! `weftrun report`: a page that is read without weftrun.

use std::path::Path;

use serde_json::Value;
use weftrun_replay::{Capture, Shape};

use crate::place::{Place, repo};

#[test]
fn the_page_of_a_job_says_how_it_ended_and_what_was_sent() {
    let place = Place::new();
    let script = "echo '<b>hello</b>'; [ $RANK = 1 ] && exit 7; exit 0";
    place.write(
        "job.toml",
        format!(
            "name = \"small\"\nlaunch = \"per-rank\"\nnodes = 2\ngpus_per_node = 1\nenv = {{ STEPS = \"<7>\", WANDB_API_KEY = \"s3cr3t\" }}\n\
             command = [\"sh\", \"-c\", {script:?}]\n"
        ),
    );
    let handle = place.run("submit job.toml").ok().out.trim().to_owned();
    place.run(&format!("wait {handle}"));
    let page = place.run(&format!("report {handle} -o html")).ok().out;
    for part in [
        "The job failed: rank 1",
        "exit code 7",
        "id=\"job\"",
        "name = &#34;small&#34;",
        "WANDB_API_KEY",
        "&#60;7&#62;",
        "detect.nccl-debug",
        "The lines of the log carry no times.",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("s3cr3t"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http-equiv=\"refresh\""), "{page}");
    let data: Value = place.run(&format!("report {handle} -o json")).json();
    assert_eq!((&data["job"]["name"], &data["why"]["state"]), (&"small".into(), &"failed".into()));
    assert!(
        data["spec"]
            .as_str()
            .is_some_and(|spec| spec.contains("name = \"small\"") && !spec.contains("s3cr3t")),
        "{data}"
    );
    let refused = place.run(&format!("report {handle}"));
    assert!(refused.err.contains("use -o html, json or yaml"), "{}", refused.err);
}

#[test]
fn colours_follow_the_judgement_and_drawings_have_words() {
    let place = Place::new();
    let capture = |name: &str| repo(&format!("crates/diagnose/tests/cases/nccl/captures/{name}"));
    let page = place.run(&format!("report {} -o html", capture("ofi_tcp_2x2").display())).ok().out;
    // TCP behind the name of Libfabric is wrong in every drawing.
    assert!(page.contains("class=\"link bad\"") && page.contains("its nodes used libfabric-tcp"), "{page}");
    for word in
        ["2 nodes: 1 connected pair of nodes, 1 of them wrong", "rows send, columns receive", "until init"]
    {
        assert!(page.contains(word), "{word}: {page}");
    }
    let drawings = page.matches("<svg class=\"").count() + page.matches("role=\"img\" aria-label=\"").count();
    assert!(drawings >= 5, "every drawing has a text: {page}");
    // The same drawing is in the page of `transport`.
    let other = place.run(&format!("transport -o html {}", capture("ofi_tcp_2x2").display())).ok().out;
    assert!(other.contains("2 nodes: 1 connected pair of nodes, 1 of them wrong"), "{other}");
}

/// Writes the logs of a run of 128 nodes with 8 ranks each.
pub fn thousand_ranks(folder: &Path) {
    widened(folder, Shape::new(128, 8));
}

/// Writes the logs of a recorded run over sockets, with as many nodes and ranks.
fn widened(folder: &Path, shape: Shape) {
    let capture = Capture::shipped("socket_2x2").expect("it is shipped");
    let replay = capture.scale(shape).expect("it can be widened");
    for rank in 0..replay.world() {
        let mut text = Vec::new();
        let done = replay.each_line(rank, |_, bytes| {
            text.extend_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        assert!(done.is_ok());
        std::fs::write(folder.join(format!("rank{rank}.log")), text).expect("a file is written");
    }
}

#[test]
fn a_thousand_ranks_fit_into_two_megabytes() {
    let place = Place::new();
    let logs = tempfile::tempdir().expect("a folder");
    thousand_ranks(logs.path());
    let page = place.run(&format!("report {} -o html", logs.path().display())).ok().out;
    assert!(page.len() <= 2_000_000, "{} bytes", page.len());
    assert!(page.contains("128 nodes: "), "the graph has every node");
    assert!(page.matches("<tr><td>").count() >= 1024, "every rank has a row");
}

/// What is not drawn is counted, and it is said that it is not drawn.
#[test]
fn nodes_beyond_the_drawing_are_counted() {
    let place = Place::new();
    let logs = tempfile::tempdir().expect("a folder");
    widened(logs.path(), Shape::new(300, 2));
    let page = place.run(&format!("report {} -o html", logs.path().display())).ok().out;
    let about =
        page.split("300 nodes: ").nth(1).and_then(|rest| rest.split('<').next()).expect("the caption");
    let pairs: usize = about.split(' ').next().and_then(|count| count.parse().ok()).expect("a number");
    assert!(pairs >= 299, "{about}");
    assert!(about.contains("; the first 256 nodes are drawn"), "{about}");
}

#[test]
fn the_report_says_which_rank_the_others_wait_for() {
    let place = Place::new();
    let recording = repo("crates/nccl/tests/bandwidth/weftrun-2.28.9-5ms-rank1");
    for (rank, name) in ["nccl-vm-710.jsonl", "nccl-vm-711.jsonl"].into_iter().enumerate() {
        let lines = std::fs::read_to_string(recording.join(name)).unwrap();
        let text: String = lines.lines().map(|line| format!("weftrun: NCCL {line}\n")).collect();
        place.write(&format!("logs/rank{rank}.log"), text);
    }
    let page = place.run("report logs/ -o html").ok().out;
    assert!(
        page.contains("<h2 id=\"collectives\">") && page.contains("<td>AllReduce</td><td>2</td>"),
        "{page}"
    );
    let slow = "slow: rank 1 on vm reaches AllReduce last: the others waited ";
    assert!(page.matches(slow).count() >= 2, "in the first sentence, and with the collectives: {page}");
    let data: Value = place.run("report logs/ -o json").json();
    assert_eq!(
        (&data["bandwidth"]["limit"], &data["bandwidth"]["late"][0]["rank"]),
        (&"slow".into(), &1.into())
    );
    place.write("plain/rank0.log", "step 1\n");
    assert!(!place.run("report plain/ -o html").ok().out.contains("id=\"collectives\""));
    assert_eq!(place.run("report plain/ -o json").json()["bandwidth"], Value::Null);
}
