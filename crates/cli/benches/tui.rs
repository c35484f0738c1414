//! The terminal UI's speed, measured where the user sits: keys go into a terminal, frames come out of it, and the
//! clock runs between the two. lnav runs beside it where it is installed.
//!
//! `just bench-tui`. The same binary is the program whose log is read (`--print LINES RATE`), so that nothing else has
//! to be built. A terminal comes from util-linux' `script`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark is a program of its own"
)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const COLUMNS: u16 = 160;
const ROWS: u16 = 48;
/// What ends a frame: the end of a synchronized update.
const FRAME_END: &[u8] = b"\x1b[?2026l";
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(2);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|word| word == "--print") {
        let number = |at: usize| arguments.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        print_lines(number(at + 1), number(at + 2));
        return;
    }
    let wanted = |name: &str| {
        let names: Vec<&String> = arguments.iter().skip(1).filter(|word| !word.starts_with('-')).collect();
        names.is_empty() || names.iter().any(|word| name.contains(word.as_str()))
    };
    let cluster = TestCluster::new();
    println!("| what | figure | goal |\n|---|---|---|");
    if wanted("follow") {
        follow(&cluster, 20_000, 8, 33.0);
        follow(&cluster, 100_000, 8, 50.0);
    }
    if wanted("idle") {
        idle(&cluster);
    }
    if wanted("gigabyte") {
        gigabyte(&cluster);
    }
    if wanted("wide") {
        wide(&cluster);
    }
}

/// A line of a talkative rank: numbered, so that a lost one would be seen.
fn line(number: u64) -> String {
    if number % 50 == 7 {
        format!(
            "gpu-1:4845:4845 [0] NCCL INFO Channel {:02}/16 : 0[0] -> 1[0] [send] via NET/Libfabric/0/GDRDMA line {number}\n",
            number % 16
        )
    } else {
        format!(
            "2026-11-21 12:04:31,118 INFO train.py:212 step {number} loss 2.4135 lr 1.0e-4 samples/s 912.7 grad_norm 0.73 mem 61.2 GiB line {number}\n"
        )
    }
}

/// Prints numbered lines, so many a second; 0 for as fast as it goes.
fn print_lines(count: u64, rate: u64) {
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let begun = Instant::now();
    let mut printed = 0;
    while printed < count {
        let due = if rate == 0 {
            count
        } else {
            (begun.elapsed().as_micros() as u64 * rate / 1_000_000).min(count)
        };
        for number in printed..due {
            if out.write_all(line(number).as_bytes()).is_err() {
                return;
            }
        }
        printed = printed.max(due);
        let _ = out.flush();
        if rate > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The program that is measured: `WEFTRUN_BIN`, else the one built with this benchmark.
fn binary() -> String {
    std::env::var("WEFTRUN_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_weftrun").to_owned())
}

/// A home of its own, and the binary.
struct TestCluster {
    home: tempfile::TempDir,
}

impl TestCluster {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir_in(std::env::var_os("BENCH_DIR").unwrap_or_else(|| "/var/tmp".into()))
                .expect("a folder"),
        }
    }

    fn weftrun(&self) -> Command {
        let mut command = Command::new(binary());
        command.env("HOME", self.home.path()).env("XDG_STATE_HOME", self.home.path().join("state"));
        command.env("XDG_CONFIG_HOME", self.home.path().join("config"));
        command
    }

    /// Submits a job of one rank that prints lines; gives its handle.
    fn submit(&self, name: &str, count: u64, rate: u64) -> String {
        let me = std::env::current_exe().expect("a name");
        self.start(name, &[&me.display().to_string(), "--print", &count.to_string(), &rate.to_string()])
    }

    /// Submits a job of one rank; gives its handle.
    fn start(&self, name: &str, command: &[&str]) -> String {
        let out = self
            .weftrun()
            .args([
                "submit",
                "--name",
                name,
                "--nodes",
                "1",
                "--ranks-per-node",
                "1",
                "--launch",
                "per-rank",
                "--",
            ])
            .args(command)
            .output()
            .expect("weftrun runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    fn wait(&self, handle: &str) {
        let _ = self.weftrun().args(["wait", handle]).output().expect("weftrun runs");
    }

    fn tui(&self, arguments: &str) -> Screen {
        let home = self.home.path().display();
        let binary = binary();
        let state = format!("HOME={home} XDG_STATE_HOME={home}/state XDG_CONFIG_HOME={home}/config");
        Screen::start(&format!(
            "env -u NO_COLOR -u SSH_TTY -u SSH_CONNECTION {state} {binary} tui --fresh {arguments}"
        ))
    }
}

/// A program in a terminal.
struct Screen {
    child: Child,
    bytes: Receiver<(Instant, Vec<u8>)>,
    parser: vt100::Parser,
    begun: Instant,
    frames: u64,
    tail: VecDeque<u8>,
}

impl Screen {
    fn start(command: &str) -> Self {
        let begun = Instant::now();
        let inside = format!("stty rows {ROWS} cols {COLUMNS}; exec {command}");
        let mut child = Command::new("script")
            .args(["-qefc", &inside, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script of util-linux runs");
        let mut out = child.stdout.take().expect("a pipe");
        let (sender, bytes) = channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                if sender.send((Instant::now(), buffer[..count].to_vec())).is_err() {
                    break;
                }
            }
        });
        let parser =
            vt100::Parser::new(ROWS.try_into().expect("rows"), COLUMNS.try_into().expect("columns"), 0);
        Self { child, bytes, parser, begun, frames: 0, tail: VecDeque::new() }
    }

    fn key(&mut self, keys: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        let _ = input.write_all(keys.as_bytes()).and_then(|()| input.flush());
    }

    fn text(&self) -> String {
        self.parser.screen().contents()
    }

    /// Takes in what comes until a time; gives when the last of it came.
    fn take(&mut self, until: Instant) -> Option<Instant> {
        match self.bytes.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((at, bytes)) => {
                self.parser.process(&bytes);
                for byte in bytes {
                    self.tail.push_back(byte);
                    if self.tail.len() > FRAME_END.len() {
                        self.tail.pop_front();
                    }
                    self.frames += u64::from(self.tail.iter().eq(FRAME_END));
                }
                Some(at)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits until the screen is as wanted; gives when it was.
    fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> Instant {
        let end = Instant::now() + PATIENCE;
        loop {
            let at = self.take(end);
            if wanted(&self.text()) {
                return at.unwrap_or_else(Instant::now);
            }
            assert!(at.is_some() && Instant::now() < end, "{what} did not come:\n{}", self.text());
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.take(end);
        }
    }

    /// The process of the program itself.
    fn process(&self) -> Option<PathBuf> {
        let children = |pid: u32| {
            let path = format!("/proc/{pid}/task/{pid}/children");
            std::fs::read_to_string(path)
                .unwrap_or_default()
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        };
        let mut pid = self.child.id();
        while let Some(child) = children(pid).first() {
            pid = *child;
        }
        Some(PathBuf::from(format!("/proc/{pid}"))).filter(|path| path.exists())
    }

    /// Largest resident memory so far, MB.
    fn memory(&self) -> f64 {
        let status = self
            .process()
            .and_then(|path| std::fs::read_to_string(path.join("status")).ok())
            .unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1000.0
    }

    /// Seconds of a core used so far.
    fn cpu(&self) -> f64 {
        let stat = self
            .process()
            .and_then(|path| std::fs::read_to_string(path.join("stat")).ok())
            .unwrap_or_default();
        let fields: Vec<f64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|f| f.parse().unwrap_or(0.0))
            .collect();
        (fields.get(11).unwrap_or(&0.0) + fields.get(12).unwrap_or(&0.0)) / 100.0
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn row(what: &str, figure: &str, goal: &str) {
    println!("| {what} | {figure} | {goal} |");
}

fn quantile(sorted: &[f64], of: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * of).round() as usize]
}

/// Keys while a rank floods its log, and whether every line came.
fn follow(cluster: &TestCluster, rate: u64, seconds: u64, goal: f64) {
    let count = rate * seconds;
    let handle = cluster.submit(&format!("flood-{rate}"), count, rate);
    let mut screen = cluster.tui(&format!("'{handle}'"));
    screen.until("the overview", |text| text.contains("[2 overview]"));
    screen.key("4");
    screen.until("the flood", |text| text.contains("FOLLOW") && text.contains("step "));
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds.saturating_sub(3)) {
        for (key, word) in [("?", "esc closes"), ("\r", "")] {
            let pressed = Instant::now();
            screen.key(key);
            let seen = screen.until(key, |text| text.contains("esc closes") != word.is_empty());
            times.push((seen - pressed).as_secs_f64() * 1000.0);
            screen.run_for(Duration::from_millis(37));
        }
    }
    let all = format!("step {} ", count - 1);
    screen.until("the last line", |text| text.contains(&all));
    let total = format!(" {count} lines");
    screen.until("all lines", |text| text.contains(&total) && !text.contains("dropped"));
    times.sort_by(f64::total_cmp);
    let (p50, p99) = (quantile(&times, 0.5), quantile(&times, 0.99));
    row(
        &format!("follow {rate} lines/s: key to frame p50 / p99 of {}", times.len()),
        &format!("{p50:.1} / {p99:.1} ms; {count} of {count} lines; {:.0} MB", screen.memory()),
        &format!("p99 ≤ {goal} ms, none lost"),
    );
}

/// Nothing happens: nothing is drawn. While a job runs without output, its age and silence are.
fn idle(cluster: &TestCluster) {
    let handle = cluster.submit("idle", 10_000, 0);
    cluster.wait(&handle);
    rest(cluster, &handle, "a job that has ended", "0; ≤ 0.3 %");
    let handle = cluster.start("quiet", &["sh", "-c", "echo step 9999 of a quiet job; exec sleep 600"]);
    rest(cluster, &handle, "a quiet job that runs", "≤ 0.3 %");
    let _ = cluster.weftrun().args(["cancel", &handle]).output();
}

fn rest(cluster: &TestCluster, handle: &str, what: &str, goal: &str) {
    for (key, place) in [("4", "log"), ("2", "overview")] {
        let mut screen = cluster.tui(&format!("'{handle}'"));
        screen.until("the overview", |text| text.contains("[2 overview]"));
        screen.key("4");
        screen.until("the log", |text| text.contains("step 9999 "));
        screen.key(key);
        screen.run_for(Duration::from_secs(3));
        let (frames, cpu) = (screen.frames, screen.cpu());
        screen.run_for(Duration::from_secs(20));
        let (frames, cpu) = (screen.frames - frames, (screen.cpu() - cpu) / 20.0 * 100.0);
        row(
            &format!("idle for 20 s, {place} of {what}: frames; of a core"),
            &format!("{frames}; {cpu:.2} %"),
            goal,
        );
    }
}

/// A gigabyte of log: opened, searched, remembered.
fn gigabyte(cluster: &TestCluster) {
    let count = 1_000_000_000 / line(1).len() as u64 / 50 * 50;
    let handle = cluster.submit("gigabyte", count, 0);
    cluster.wait(&handle);
    let last = format!("step {} ", count - 1);
    let mut opened = Vec::new();
    let mut screen = loop {
        let mut screen = cluster.tui(&format!("'{handle}'"));
        screen.key("4");
        let seen = screen.until("the last line", |text| text.contains(&last));
        opened.push((seen - screen.begun).as_secs_f64() * 1000.0);
        if opened.len() == 3 {
            break screen;
        }
    };
    let ours = opened.iter().copied().fold(f64::MAX, f64::min);
    row("open 1 GB to its tail, start included", &format!("{ours:.0} ms"), "≤ 300 ms");
    let total = format!(" {count} lines");
    let whole = screen
        .until("the whole log", |text| text.contains(&total) && !text.contains("reading the beginning"));
    row(
        "… until all of it was read, NCCL's lines too",
        &format!("{:.1} s", (whole - screen.begun).as_secs_f64()),
        "",
    );
    screen.run_for(Duration::from_millis(500));
    for needle in ["line 1234", "LINE 4321", "nowhere to be found"] {
        screen.key(&format!("/{}", needle.to_lowercase()));
        let shown = needle.to_lowercase();
        screen.until("the search", |text| text.contains(&format!("find: {shown}")));
        let (pressed, cpu) = (Instant::now(), screen.cpu());
        screen.key("\r");
        let seen = screen.until("the hit", |text| text.contains("PAUSED") || text.contains("is not here"));
        row(
            &format!("search `{shown}` in 1 GB"),
            &format!("{:.2} s, {:.2} s of a core", (seen - pressed).as_secs_f64(), screen.cpu() - cpu),
            "≤ 0.5 s",
        );
        screen.key("G");
        screen.until("the end", |text| !text.contains("PAUSED"));
    }
    row("memory with 1 GB open", &format!("{:.0} MB", screen.memory()), "≤ 256 MB");
    lnav(cluster, &last, ours);
}

/// lnav on the same bytes.
fn lnav(cluster: &TestCluster, last: &str, ours: f64) {
    if Command::new("lnav").arg("-V").output().is_err() {
        row("lnav on the same file", "not installed", "");
        return;
    }
    let Some(file) = largest(cluster.home.path()) else { return };
    let mut screen =
        Screen::start(&format!("env HOME={} lnav '{}'", cluster.home.path().display(), file.display()));
    let seen = screen.until("lnav's last line", |text| text.contains(last));
    let theirs = (seen - screen.begun).as_secs_f64() * 1000.0;
    row(
        "lnav opens the same file to its tail",
        &format!("{theirs:.0} ms, {:.0} MB: {:.1} times ours", screen.memory(), theirs / ours),
        "",
    );
}

fn largest(folder: &Path) -> Option<PathBuf> {
    let mut best = None;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            let (path, meta) = (entry.path(), entry.metadata().ok()?);
            if meta.is_dir() {
                open.push(path);
            } else if best.as_ref().is_none_or(|(size, _)| meta.len() > *size) {
                best = Some((meta.len(), path));
            }
        }
    }
    best.map(|(_, path)| path)
}

/// A thousand pods of eight ranks.
fn wide(cluster: &TestCluster) {
    let mut screen = cluster.tui("--replay socket_2x2 --nodes 1024 --ranks-per-node 8 --speed 0");
    let seen = screen.until("8,192 ranks", |text| text.contains("8192/8192") && text.contains("socket"));
    row(
        "8,192 ranks replayed: until the verdict",
        &format!("{:.1} s", (seen - screen.begun).as_secs_f64()),
        "",
    );
    screen.until("the end", |text| text.contains("DONE"));
    screen.run_for(Duration::from_secs(3));
    let mut times = Vec::new();
    let cpu = screen.cpu();
    for _ in 0..100 {
        for key in ["z", "j", "k", "c"] {
            let before = screen.frames;
            let pressed = Instant::now();
            screen.key(key);
            while screen.frames == before && pressed.elapsed() < PATIENCE {
                screen.take(Instant::now() + PATIENCE);
            }
            times.push(pressed.elapsed().as_secs_f64() * 1000.0);
            screen.run_for(Duration::from_millis(20));
        }
    }
    let cpu = screen.cpu() - cpu;
    times.sort_by(f64::total_cmp);
    row(
        "… key to frame of its overview p50 / p99",
        &format!(
            "{:.1} / {:.1} ms; {:.1} ms of a core each; {:.0} MB",
            quantile(&times, 0.5),
            quantile(&times, 0.99),
            cpu * 1000.0 / times.len() as f64,
            screen.memory()
        ),
        "≤ 16 ms, ≤ 512 MB",
    );
}
