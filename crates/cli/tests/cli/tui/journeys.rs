//! Five journeys through the terminal UI, from the first start to a cancelled job.

use std::path::Path;
use std::time::{Duration, Instant};

use super::tmux::Tmux;

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("a file is written");
    path.display().to_string()
}

#[test]
fn first_start_to_verdict() {
    for (columns, rows) in [(60, 15), (80, 24), (160, 48)] {
        let Some(t) = Tmux::start(&format!("first-{columns}"), columns, rows) else { return };
        t.wait(&["No jobs yet", "starts a demo on this machine", "ok, no jobs"]);
        t.keys(&["D"]);
        t.wait(&["[2 over", "demo-"]);
        // The demo leaves the screen where it is.
        t.wait(&["[2 over", "in use socket", "loaded Socket", "DONE", "TCP sockets"]);
        t.keys(&["3"]);
        t.wait(&["node × node", "T TCP socket"]);
        t.keys(&["4"]);
        t.wait(&["NCCL INFO", "lines"]);
        t.keys(&["5"]);
        t.wait(&["[5 diag", "TCP sockets", "fix:"]);
        t.keys(&["Q"]);
        t.wait(&["ended with 0"]);
    }
}

#[test]
fn submit_with_a_rule_switched_off() {
    let Some(t) = Tmux::start("submit", 120, 40) else { return };
    t.wait(&["local ok"]);
    t.keys(&["n"]);
    t.wait(&["New job", "> name"]);
    let job = write(
        &t.home().join("job.toml"),
        "name = \"off\"\nlaunch = \"per-rank\"\nnodes = 2\ngpus_per_node = 1\n\
         command = [\"sh\", \"-c\", \"echo debug is $NCCL_DEBUG.\"]\n",
    );
    t.answer("C-o", "job file:", &job);
    t.wait(&["job taken", "NCCL_DEBUG=INFO", "detect.nccl-debug"]);
    // Through the document and back: that also puts the cursor on the list of changes.
    t.keys(&["C-d"]);
    t.wait(&["> what is sent, as a diff"]);
    t.keys(&["C-d"]);
    t.wait(&["> your job | what is sent"]);
    t.keys(&["C-d"]);
    t.wait(&["> what the fabric adds"]);
    let under_cursor =
        |screen: &str| screen.lines().any(|line| line.contains("│>") && line.contains("env NCCL_DEBUG=INFO"));
    t.until("the cursor on NCCL_DEBUG", under_cursor, || t.keys(&["j"]));
    t.keys(&["Space"]);
    t.wait(&["rule detect.nccl-debug is off"]);
    t.keys(&["C-s"]);
    t.wait(&["submit this job?", "--no-fabric-rule", "local would take it"]);
    t.keys(&["y"]);
    t.wait(&["[2 overview]"]);
    t.keys(&["4"]);
    t.wait(&["debug is ."]);
}

#[test]
fn find_the_odd_node() {
    let Some(t) = Tmux::start("odd", 120, 40) else { return };
    t.wait(&["local ok"]);
    // Eight ranks on four hosts; those of the third announce another network.
    let script = r#"host=gpu-$((RANK / 2)); net=Libfabric; [ $host = gpu-2 ] && net=Socket
p="$host:$((100 + RANK)):1 [$((RANK % 2))] NCCL INFO"; d=$((RANK % 2))
echo "$p ncclCommInitRankConfig comm 0x1 rank $RANK nranks 8 cudaDev $d nvmlDev $d busId 60 commId 0xabc - Init START"
echo "$p Using network $net"; sleep 300"#;
    let path = write(&t.home().join("odd.sh"), script);
    let shape = ["submit", "--name", "odd", "--nodes", "4", "--ranks-per-node", "2", "--launch", "per-rank"];
    let handle = t.weftrun(&[&shape[..], &["--", "sh", &path]].concat());
    t.keys(&["C-l"]);
    t.wait(&["RUN", "odd"]);
    t.keys(&["Enter"]);
    t.wait(&["Libfabric x6", "Socket x2"]);
    t.keys(&["3"]);
    let screen = t.wait(&["2 gpu-2", "Socket !"]);
    let odd: Vec<&str> = screen.lines().filter(|line| line.contains("Socket !")).collect();
    assert!(odd.len() == 1 && odd[0].contains("gpu-2"), "{screen}");
    t.weftrun(&["cancel", &handle]);
}

/// The overview and the diagnosis show a failure of a rank within two seconds, while the job still runs.
#[test]
fn a_failure_is_on_the_screen_within_two_seconds() {
    let Some(t) = Tmux::start("raises", 120, 40) else { return };
    t.wait(&["local ok"]);
    let go = t.home().join("go");
    let script = format!(
        "echo here; [ $RANK = 1 ] || exec sleep 300; while ! [ -e {} ]; do sleep 0.05; done\n\
         echo 'Traceback (most recent call last):'; echo '  File \"/job/train.py\", line 7, in step'\n\
         echo 'ValueError: bad sample'; exec sleep 300",
        go.display()
    );
    let path = write(&t.home().join("raises.sh"), &script);
    let shape = ["submit", "--name", "raises", "--ranks-per-node", "2", "--launch", "per-rank"];
    let handle = t.weftrun(&[&shape[..], &["--", "sh", &path]].concat());
    t.keys(&["C-l"]);
    t.wait(&["RUN", "raises"]);
    t.keys(&["Enter"]);
    t.wait(&["[2 overview]"]);
    let seen = |go: &Path| {
        write(go, "");
        let began = Instant::now();
        // The rank looks twice a second at most; its lines are written at once.
        let screen = t.wait(&["exception", "rank 1", "ValueError: bad sample"]);
        (screen, began.elapsed())
    };
    let (screen, took) = seen(&go);
    eprintln!("on the overview after {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}:\n{screen}");
    t.keys(&["d"]);
    t.wait(&["/job/train.py:7", "ValueError: bad sample"]);
    t.weftrun(&["cancel", &handle]);
}

#[test]
fn follow_through_a_restart() {
    let Some(t) = Tmux::start("restart", 80, 24) else { return };
    t.wait(&["local ok"]);
    // The first life waits until it was seen.
    let (mark, go) = (t.home().join("mark"), t.home().join("go"));
    let script = format!(
        "if [ -e {0} ]; then echo second life; exit 0; fi; touch {0}; echo first life; \
         while ! [ -e {1} ]; do sleep 0.1; done; exit 3",
        mark.display(),
        go.display()
    );
    let job = write(
        &t.home().join("restart.toml"),
        &format!(
            "name = \"restart\"\nlaunch = \"per-rank\"\nnodes = 1\nranks_per_node = 1\nrestart = {{max = 2}}\n\
             command = [\"sh\", \"-c\", \"{script}\"]\n"
        ),
    );
    t.weftrun(&["submit", &job]);
    t.keys(&["C-l"]);
    t.wait(&["restart"]);
    t.keys(&["Enter", "4"]);
    t.wait(&["first life"]);
    write(&go, "");
    t.wait(&["first life", "attempt 2 begins", "second life"]);
}

#[test]
fn cancel_asks_and_cancels_that_job() {
    let Some(t) = Tmux::start("cancel", 80, 24) else { return };
    t.wait(&["local ok"]);
    let handle = t.submit("long", "1", &["sleep", "300"]);
    t.keys(&["C-l"]);
    t.wait(&["RUN", "long"]);
    t.keys(&["x"]);
    t.wait(&["cancel this job?", &handle]);
    t.keys(&["n"]);
    t.until("the question is gone", |screen| !screen.contains("cancel this job?"), || {});
    t.keys(&["x"]);
    t.wait(&["cancel this job?"]);
    t.keys(&["y"]);
    t.wait(&["CANC"]);
}

#[test]
fn nothing_typed_is_lost() {
    let Some(t) = Tmux::with("draft", (120, 40), |weftrun| {
        format!("{weftrun}; echo ended with $?; {weftrun}; echo ended again; exec cat")
    }) else {
        return;
    };
    let saved = t.home().join("mine.toml").display().to_string();
    t.wait(&["local ok"]);
    t.keys(&["n"]);
    t.wait(&["New job", "> name"]);
    t.keys(&["C-u"]);
    t.type_text("mine");
    t.keys(&["Tab", "Tab", "Tab", "Tab", "Tab"]);
    t.wait(&["> memory"]);
    t.type_text("64Gi");
    t.keys(&["Tab", "Tab"]);
    t.wait(&["> launch"]);
    // `d` and `l` are actions of every screen, but on a choice they select an option or do nothing.
    t.type_text("dlp");
    t.wait(&["New job", "[per-rank]"]);
    t.keys(&["Tab"]);
    t.wait(&["> command"]);
    t.keys(&["C-u"]);
    t.tmux(&["set-buffer", "python train.py \\\n  --lr 1 \\\n  --note 'a\nb'\n"]);
    t.tmux(&["paste-buffer", "-p", "-t", "t"]);
    t.wait(&["train.py   --lr 1   --note 'a⏎b'", "--memory 64Gi", "python train.py --lr 1 --note"]);
    t.keys(&["C-c"]);
    t.wait(&["No jobs yet", "local ok"]);
    t.keys(&["n"]);
    t.wait(&["draft of mine", "--name mine", "--memory 64Gi", "[per-rank]", "azure-nd", "'a⏎b'"]);
    // Saving a second time asks for another name; the file contains the whole job.
    for name in ["mine.toml", "mine-2.toml"] {
        t.keys(&["C-g"]);
        t.wait(&["save to"]);
        t.keys(&["C-u"]);
        t.type_text(&saved);
        t.keys(&["Enter"]);
        if name != "mine.toml" {
            t.wait(&["mine.toml exists: choose another name", "mine-2.toml"]);
            t.keys(&["Enter"]);
        }
        t.until(name, |_| t.home().join(name).is_file(), || {});
        t.wait(&["saved ", name]);
    }
    let file = std::fs::read_to_string(t.home().join("mine-2.toml")).expect("it was saved");
    for line in ["name = \"mine\"", "memory = \"64Gi\"", "launch = \"per-rank\"", "\na\nb\"\"\""] {
        assert!(file.contains(line), "{line}: {file}");
    }
    t.keys(&["C-n"]);
    t.wait(&["discard this draft for a blank job?"]);
    t.keys(&["y"]);
    t.wait(&["name       job ", "--name job"]);
    t.answer("C-o", "job file:", &saved);
    t.wait(&["job taken", "64Gi", "[per-rank]"]);
}

#[test]
fn libfabric_over_tcp_is_wrong_whatever_was_planned() {
    let Some(t) = Tmux::replay("over-tcp", (120, 40), "ofi_tcp_2x2") else { return };
    t.wait(&["libfabric-tcp"]);
    t.keys(&["3"]);
    t.wait(&[" l!", "Libfabric over TCP"]);
}
