//! Nodes that failed, as a user meets them: the history, its judgement, what is left out, and what is submitted again.

use crate::place::Place;

const JOB: &str =
    "name = \"train\"\nnodes = 2\ngpus_per_node = 8\nimage = \"i:1\"\ncommand = [\"./train\"]\n";

/// A target with a history: gpu-17 lost a GPU, gpu-3 has one event that proves nothing.
fn place() -> Place {
    let place = Place::new();
    place.configure("[target.prod]\nbackend = \"kubeflow\"\nnamespace = \"nlp\"\n");
    place.write("job.toml", JOB);
    let now = weftrun::clock::now();
    let line = |job: &str, node: &str, cause: &str| {
        format!(
            "{{\"job\":\"kubeflow://prod/nlp/pytorchjob/{job}\",\"at\":\"{now}\",\"nodes\":[\"gpu-1\",\"{node}\"],\"outcome\":\"failed\"{cause}}}\n"
        )
    };
    let cause = |code: &str, fault: &str, node: &str| {
        format!(
            ",\"cause\":{{\"class\":\"cuda-error\",\"code\":\"{code}\",\"fault\":\"{fault}\",\"nodes\":[\"{node}\"],\"what\":\"words \\u001b[2J of {code}\",\"confidence\":\"high\"}}"
        )
    };
    let lost = line("a", "gpu-17", &cause("GPU-LOST", "hardware", "gpu-17"));
    let once = line("b", "gpu-3", &cause("GPU-STATE-UNKNOWN", "node", "gpu-3"));
    let hostile = line("c", "evil\\u001b]52;c;QUJD\\u0007", "");
    std::fs::create_dir_all(place.state().join("history")).unwrap();
    std::fs::write(place.state().join("history/prod.jsonl"), format!("{lost}{once}{hostile}no record\n"))
        .unwrap();
    place
}

#[test]
fn nodes_are_judged_with_their_evidence() {
    let place = place();
    let table = place.run("nodes --offline -b prod").ok().out;
    let rows: Vec<Vec<&str>> =
        table.lines().skip(1).map(|line| line.split_whitespace().take(7).collect()).collect();
    let judged: Vec<(&str, &str)> = rows.iter().map(|row| (row[0], row[6])).collect();
    assert_eq!(judged, [("gpu-17", "suspect"), ("gpu-3", "watched"), ("gpu-1", "clear")], "{table}");
    assert!(table.contains("GPU-LOST") && !table.contains('\u{1b}'), "{table:?}");
    let bad = place.run("nodes --offline --bad -b prod").ok().out;
    assert!(bad.contains("gpu-17") && !bad.contains("gpu-1 "), "{bad}");
    let one = place.run("nodes --offline -b prod gpu-17").ok().out;
    assert!(one.contains("GPU-LOST (hardware)") && one.contains("kubeflow://prod/nlp/pytorchjob/a"), "{one}");
    place.run("nodes --offline -b prod gpu-99").code(6);
    let said = place.run("history -b prod").ok();
    assert!(
        said.out.contains("3 jobs, 3 nodes") && said.err.contains("1 line of it cannot be read as a record"),
        "{said:?}"
    );
}

#[test]
fn suspects_are_warned_of_and_left_out() {
    let place = place();
    let plan = place.run("plan -b prod job.toml").ok();
    let text = plan.out + &plan.err;
    assert!(text.contains("a job may run on nodes that failed before: gpu-17 (suspect:"), "{text}");
    assert!(text.contains("`weftrun nodes -b prod gpu-17` lists the evidence"), "{text}");
    let plan = place.run("plan -b prod --avoid suspects,gpu-5 job.toml").ok();
    let text = plan.out + &plan.err;
    for said in ["left out: gpu-5 (asked for)", "left out: gpu-17 (suspect:"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("failed before"), "{text}");
    assert!(!text.contains("leaves out no node"), "{text}");
    let sent = place.run("render -b prod --avoid suspects --avoid gpu-5 job.toml").ok().out;
    assert!(
        sent.contains("kubernetes.io/hostname") && sent.contains("gpu-17") && sent.contains("gpu-5"),
        "{sent}"
    );
    // Nothing is left out: it says why.
    place.run("history --forget --node gpu-17 -b prod").ok();
    let none = place.run("plan -b prod --avoid suspects job.toml").ok();
    assert!((none.out + &none.err).contains("`suspects` leaves out no node: the history suspects none"));
    let refused = place.run("plan -b prod --avoid gpu-[1-4] job.toml").code(3);
    assert!(refused.err.contains("`gpu-[1-4]` is not the name of a node"), "{}", refused.err);
}

#[test]
fn the_history_is_the_users() {
    let place = place();
    let lines = place.run("history --export -b prod").ok().lines();
    assert_eq!(lines.iter().map(|line| line["nodes"][0].as_str().unwrap()).collect::<Vec<_>>(), ["gpu-1"; 3]);
    assert!(
        place.run("history --forget --node gpu-17 -b prod").ok().err.contains("forgot 1 event of gpu-17")
    );
    assert!(!place.run("nodes --offline -b prod").ok().out.contains("suspect"));
    place.run("history --forget --node gpu-3 -b prod").ok();
    let none = place.run("nodes --offline --bad -b prod").ok();
    assert!(none.out.is_empty() && none.err.contains("nothing counts against a node of `prod`"), "{none:?}");
    place.run("history --forget -b prod").ok();
    assert!(!place.state().join("history/prod.jsonl").exists());
    place.configure("[target.prod]\nbackend = \"kubeflow\"\n[history]\nenabled = false\n");
    place.run("history -b prod").code(6);
    std::fs::write(place.state().join("history/prod.jsonl"), "").unwrap();
    place.run("history --forget -b prod").ok();
    assert!(!place.state().join("history/prod.jsonl").exists());
}

/// The cycles of NVRx are runs of their nodes.
#[test]
fn cycles_of_nvrx_are_imported() {
    let place = Place::new();
    place.configure("[target.prod]\nbackend = \"slurm\"\n[target.k8s]\nbackend = \"kubeflow\"\n");
    place.write(
        "nvrx/cycle_info.4711.0.0",
        "{\"job_id\":\"4711\",\"attempt_index\":0,\"cycle_number\":0,\"cycle_start_time\":\"2026-08-07T10:00:00Z\",\"cycle_end_time\":\"2026-08-07T11:00:00Z\",\"active_nodes\":\"gpu-[40-41]\"}",
    );
    let done = place.run("history --import nvrx -b prod").ok();
    assert!(done.err.contains("1 cycle of NVRx") && done.out.contains("1 job, 2 nodes"), "{done:?}");
    assert!(place.run("nodes --offline -b prod").ok().out.contains("gpu-41"));
    let local = place.run("history --import nvrx -b local").code(2);
    assert!(local.err.contains("`local` keeps no history of nodes"), "{}", local.err);
    place.run("history --import nowhere -b prod").code(6);
    let none = place.run("history --import . -b prod");
    assert!(none.code == 6 && none.err.contains("--ft-cycle-info-dir"), "{none:?}");
    // Their jobs are those of Slurm.
    let refused = place.run("history --import nvrx -b k8s");
    assert!(refused.code != 0 && refused.err.contains("named by Slurm"), "{refused:?}");
    for other in ["k8s", "local"] {
        assert!(!place.state().join(format!("history/{other}.jsonl")).exists());
    }
}

/// On this machine no node is left out, and what a program does is never repeated.
#[test]
fn a_program_that_fails_runs_once() {
    let place = Place::new();
    let script = "echo run >> runs; echo 'ValueError: x' >&2; exit 3";
    place.write("job.toml", format!("name = \"bug\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\nretry = 3\n"));
    let done = place.run("submit --follow job.toml").code(1);
    assert!(done.err.contains("not submitted again: "), "{}", done.err);
    assert_eq!(std::fs::read_to_string(place.path("runs")).unwrap(), "run\n");
    let refused = place.run("submit --avoid gpu-17 job.toml");
    assert!(refused.code != 0 && refused.err.contains("leaving out nodes"), "{}", refused.err);
}

/// An attempt that cannot be made takes nothing from the job's own result, nor from the wait for others.
#[test]
fn an_attempt_that_cannot_be_made_leaves_the_result() {
    let place = Place::new();
    let submit = |name: &str, script: &str| {
        place.write("job.toml", format!("name = \"{name}\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\n"));
        place.run("submit job.toml").ok().out.trim().to_owned()
    };
    let (bad, good) = (submit("bad", "exit 3"), submit("good", "sleep 3"));
    // As of jobs that were submitted from another machine.
    std::fs::remove_dir_all(place.state().join("journal")).unwrap();
    let waited = place.run(&format!("wait --retry 2 {bad} {good}")).code(1);
    for said in [
        format!("{bad} was not submitted again"),
        "not submitted from this machine".to_owned(),
        format!("{good}: succeeded"),
    ] {
        assert!(waited.err.contains(&said), "{said}: {}", waited.err);
    }
}

/// The time limit is one for all attempts.
#[test]
fn a_time_limit_does_not_begin_anew_with_an_attempt() {
    let place = Place::new();
    let words = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).";
    let script = format!(
        "echo run >> runs\n[ $(wc -l < runs) = 1 ] || exec sleep 300\nsleep 8\necho '[rank0]: Traceback (most recent call last):'\necho '[rank0]: {words}'\nexit 1\n"
    );
    place.write("fails.sh", script);
    place.write("job.toml", "name = \"meet\"\ncommand = [\"sh\", \"fails.sh\"]\n");
    let began = std::time::Instant::now();
    let handle = place.run("submit job.toml").ok().out.trim().to_owned();
    let waited = place.run(&format!("wait --retry 3 --timeout 10s {handle}"));
    assert!(waited.code != 0 && waited.err.contains("attempt 2 follows"), "{waited:?}");
    assert!(began.elapsed().as_secs() < 18, "8 s and then 10 s: {:?}", began.elapsed());
    place.run("cancel meet-r2 -b local");
}

/// A rendezvous that fails is tried once more, as one job with two attempts.
#[test]
fn a_rendezvous_that_fails_is_tried_once_more() {
    let place = Place::new();
    let words = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).";
    let script = format!(
        "echo run >> runs\necho '[rank0]: Traceback (most recent call last):'\necho '[rank0]: {words}'\nexit 1\n"
    );
    place.write("fails.sh", script);
    place.write("job.toml", "name = \"meet\"\ncommand = [\"sh\", \"fails.sh\"]\n");
    let done = place.run("submit --follow --retry 3 job.toml").code(1);
    assert!(done.err.contains("attempt 2 follows, no node is left out"), "{}", done.err);
    assert!(done.err.contains("one retry was made for a failure that names no node"), "{}", done.err);
    assert_eq!(std::fs::read_to_string(place.path("runs")).unwrap(), "run\nrun\n");
    assert_eq!(done.out.lines().count(), 1, "the first handle alone: {}", done.out);
    let all = place.run("list -b local --all").ok().out;
    assert!(all.contains("meet-r2") && all.contains("attempt 2"), "{all}");
}
