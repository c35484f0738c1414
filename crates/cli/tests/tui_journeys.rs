//! Five journeys through the terminal UI: the real binary in a real terminal (tmux), polled, never slept. Without tmux
//! they are skipped and say so.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long a screen may take to come: the machines of a CI are slow.
const PATIENCE: Duration = Duration::from_secs(90);

/// A terminal with weftrun in it.
struct Tmux {
    socket: String,
    home: tempfile::TempDir,
}

impl Tmux {
    /// Starts weftrun in a terminal of some size, with a home of its own; none where there is no tmux.
    fn start(name: &str, columns: u16, rows: u16) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("skipped: tmux is not installed");
            return None;
        }
        let home = tempfile::tempdir().expect("a folder");
        let tmux = Self { socket: format!("weftrun-test-{name}-{}", std::process::id()), home };
        let size = [columns.to_string(), rows.to_string()];
        let home = tmux.home.path().display();
        let command = format!(
            "env -u NO_COLOR HOME={home} XDG_STATE_HOME={home}/state XDG_CONFIG_HOME={home}/config {}; \
             echo ended with $?; exec cat",
            env!("CARGO_BIN_EXE_weftrun")
        );
        let session =
            ["-f", "/dev/null", "new-session", "-d", "-x", &size[0], "-y", &size[1], "-s", "t", &command];
        let out = tmux.tmux(&session);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(tmux)
    }

    /// Runs the command line beside the terminal, in the same home.
    fn weftrun(&self, arguments: &[&str]) -> String {
        let home = self.home.path();
        let out = Command::new(env!("CARGO_BIN_EXE_weftrun"))
            .args(arguments)
            .env("HOME", home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .output()
            .expect("weftrun runs");
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        Command::new("tmux").args(["-L", &self.socket]).args(arguments).output().expect("tmux runs")
    }

    fn keys(&self, keys: &[&str]) {
        for key in keys {
            self.tmux(&["send-keys", "-t", "t", key]);
        }
    }

    fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-t", "t", "-l", text]);
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p", "-t", "t"]).stdout).into_owned()
    }

    /// Waits until the screen is as wanted; between two looks something may be done.
    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool, between: impl Fn()) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} did not come:\n{screen}");
            between();
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the screen holds all of these.
    fn wait(&self, texts: &[&str]) -> String {
        self.until(&format!("{texts:?}"), |screen| texts.iter().all(|text| screen.contains(text)), || {})
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("a file is written");
    path.display().to_string()
}

#[test]
fn first_start_to_verdict() {
    let Some(t) = Tmux::start("first", 80, 24) else { return };
    t.wait(&["No jobs yet", "starts a demo on this machine", "local ok"]);
    t.keys(&["D"]);
    t.wait(&["[2 overview]", "demo-"]);
    t.wait(&["connected socket", "16/16", "announced Socket"]);
    t.keys(&["3"]);
    t.wait(&["node × node", "T TCP socket"]);
    t.keys(&["4"]);
    t.wait(&["NCCL INFO", "lines"]);
    t.keys(&["Q"]);
    t.wait(&["ended with 0"]);
}

#[test]
fn submit_with_a_rule_switched_off() {
    let Some(t) = Tmux::start("submit", 120, 40) else { return };
    t.wait(&["local ok"]);
    t.keys(&["n"]);
    t.wait(&["New job", "> name"]);
    let job = write(
        &t.home.path().join("job.toml"),
        "name = \"off\"\nlaunch = \"per-rank\"\nnodes = 2\ngpus-per-node = 1\n\
         command = [\"sh\", \"-c\", \"echo debug is $NCCL_DEBUG.\"]\n",
    );
    t.keys(&["C-o"]);
    t.wait(&["job file:"]);
    t.type_text(&job);
    t.keys(&["Enter"]);
    t.wait(&["job taken", "NCCL_DEBUG=INFO", "detect.nccl-debug"]);
    // To the whole document and back: that also puts the cursor on the list of changes.
    t.keys(&["C-d"]);
    t.wait(&["> whole document"]);
    t.keys(&["C-d"]);
    t.wait(&["> what the fabric adds"]);
    let under_cursor =
        |screen: &str| screen.lines().any(|line| line.contains("│>") && line.contains("env NCCL_DEBUG=INFO"));
    t.until("the cursor on NCCL_DEBUG", under_cursor, || t.keys(&["j"]));
    t.keys(&["Space"]);
    t.wait(&["rule detect.nccl-debug is off"]);
    t.keys(&["C-s"]);
    t.wait(&["submit this job?", "--no-fabric-rule detect.nccl-debug"]);
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
echo "$p Using network $net"; sleep 1000"#;
    let path = write(&t.home.path().join("odd.sh"), script);
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

#[test]
fn follow_through_a_restart() {
    let Some(t) = Tmux::start("restart", 80, 24) else { return };
    t.wait(&["local ok"]);
    let mark = t.home.path().join("mark");
    let script = format!(
        "if [ -e {0} ]; then echo second life; exit 0; fi; touch {0}; echo first life; exit 3",
        mark.display()
    );
    let job = write(
        &t.home.path().join("restart.toml"),
        &format!(
            "name = \"restart\"\nlaunch = \"per-rank\"\nnodes = 1\nranks-per-node = 1\nrestart = {{max = 2}}\n\
             command = [\"sh\", \"-c\", \"{script}\"]\n"
        ),
    );
    t.weftrun(&["submit", &job]);
    t.keys(&["C-l"]);
    t.wait(&["restart"]);
    t.keys(&["Enter", "4"]);
    t.wait(&["first life", "second life"]);
}

#[test]
fn cancel_asks_and_cancels_that_job() {
    let Some(t) = Tmux::start("cancel", 80, 24) else { return };
    t.wait(&["local ok"]);
    let shape = ["submit", "--name", "long", "--nodes", "1", "--ranks-per-node", "1", "--launch", "per-rank"];
    let handle = t.weftrun(&[&shape[..], &["--", "sleep", "1000"]].concat());
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
