//! The functions of a host (`node.sh`) in the shells that hosts have: claims, starts and keys under many programs at once.
#![cfg(feature = "hosts")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use weftrun_testkit::child;

const NODE: &str = include_str!("../../src/hosts/node.sh");
const SUPERVISE: &str = include_str!("../../src/hosts/supervise.sh");

/// Functions of the tests, and the ids `$A` and `$B` of two jobs: a job's processes are found by its id, and other tests run beside
/// this one. What a script prints has the letter only. `prepare ID [LINE]` prepares a job of one process that runs LINE; `age FILE` makes a time old;
/// `wait_for ID WORD` waits for a line of its state.
const FUNCTIONS: &str = r#"
A=A${HOME##*/} B=B${HOME##*/}
prepare() {
  id=$1 line=${2:-exec sleep 600}
  weftrun_write() {
    printf 'submission %s\nname j\nfabric none\nlaunch per-rank\ncreated 0\nrestarts %s\ngrace 2\nlimit 0\nport 1\nnode 0\nhost a 127.0.0.1 22 me 1 w 0\n' \
      "$id" "${RESTARTS:-0}" > "$1/place"
    printf 'weftrun_prepare() { :; }\nweftrun_environment() { :; }\nweftrun_process() { %s\n}\n' "$line" > "$1/job"
    cp "$SUPERVISE" "$1/supervise"
  }
  weftrun_prepare_job "$1"
}
age() { read -r was of < "$1"; printf '%s %s\n' "$((was - 700))" "$of" > "$1"; }
wait_for() {
  tries=0
  until grep -qx "$2" "$weftrun_root/jobs/$1/state" 2> /dev/null; do
    tries=$((tries + 1)); [ "$tries" -lt 300 ] || { echo "$1 was never: $2"; return 1; }
    sleep 0.1
  done
}
"#;

/// The shells of hosts. In the last one every program is busybox' too.
const SHELLS: [(&str, &[&str]); 4] =
    [("dash", &["dash"]), ("bash", &["bash"]), ("busybox", &["busybox", "sh"]), ("only busybox", &["sh"])];

/// A folder with a link to busybox for each of its programs.
fn applets(dir: &Path) -> PathBuf {
    let applets = dir.join("applets");
    std::fs::create_dir(&applets).expect("a folder");
    let done =
        child::command("busybox").args(["--install", "-s"]).arg(&applets).status().expect("busybox runs");
    assert!(done.success(), "busybox --install");
    applets
}

/// Returns whether a shell's program is there, and reports one that is not.
fn is_installed((name, shell): &(&str, &[&str])) -> bool {
    let program = if *name == "only busybox" { "busybox" } else { shell[0] };
    let there = child::command(program).arg("-c").arg("true").output().is_ok();
    if !there {
        weftrun_testkit::skipped(format_args!("{program} is not installed ({name})"));
    }
    there
}

/// Runs a script in each shell that is installed, with `$weftrun_root` and `$HOME` in a folder of its own, and returns what each printed.
fn each(script: &str) -> Vec<(&'static str, String)> {
    let run = |(name, shell): (&'static str, &[&str])| {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).expect("written");
            file
        };
        let supervise = write("supervise", &format!("{NODE}\n{SUPERVISE}"));
        let text = format!(
            "{NODE}\n{FUNCTIONS}\nweftrun_root=$HOME/root\nmkdir -p \"$weftrun_root/jobs\"\n{script}"
        );
        let program = write("program", &text);
        let mut command = child::command(shell[0]);
        if name == "only busybox" {
            let applets = applets(dir.path());
            command = child::command(applets.join("sh"));
            command.env("PATH", applets);
        }
        command.args(&shell[1..]).arg(&program).env("HOME", dir.path()).env("SUPERVISE", &supervise);
        let output = command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let unique = dir.path().file_name().expect("a name").to_string_lossy();
        (name, String::from_utf8_lossy(&output.stdout).replace(&*unique, ""))
    };
    SHELLS.into_iter().filter(is_installed).map(run).collect()
}

fn each_prints(script: &str, wanted: &str) {
    for (shell, said) in each(script) {
        assert_eq!(said, wanted, "{shell}");
    }
}

#[test]
fn of_many_programs_one_takes_a_host_whose_claim_is_over() {
    let script = r#"
round=0
while [ "$round" -lt 25 ]; do
  round=$((round + 1))
  weftrun_claim; echo "gone 0 x" > "$weftrun_root/claim-$((claim + 1))"
  for i in 1 2 3 4; do
    mkdir "$weftrun_root/jobs/J$round.$i"
    ( weftrun_take "J$round.$i" 0 > /dev/null && : > "$HOME/won.$i" ) &
  done
  wait
  set -- "$HOME"/won.*
  [ "$#" = 1 ] && [ -f "$1" ] || echo "round $round: $*"
  rm -rf "$HOME"/won.* "$weftrun_root"/jobs/*
done
echo done
"#;
    each_prints(script, "done\n");
}

#[test]
fn a_job_starts_only_where_its_claim_still_holds_the_host() {
    let script = r#"
prepare $A; echo "A is prepared: $?"
for file in "$weftrun_root"/jobs/$A/ready-*/at; do age "$file"; done
prepare $B; echo "B is prepared: $?"
weftrun_go $B 0; echo "B is started: $?"
weftrun_go $A 0; echo "A is started: $?"
wait_for $B 'phase running'
weftrun_ask $B cancel 1; wait_for $B 'phase ended'
weftrun_go $A 0; echo "A is started: $?"
weftrun_go $A 0; echo "A is started: $?"
weftrun_look | grep busy
weftrun_ask $A cancel 2; wait_for $A 'phase ended'
weftrun_go $A 1; echo "A is started again: $?"
weftrun_look | grep -c busy
"#;
    each_prints(
        script,
        "A is prepared: 0\nB is prepared: 0\nB is started: 0\nbusy B\nA is started: 90\nA is started: 0\nA is started: 0\n\
         busy A\nA is started again: 95\n0\n",
    );
}

#[test]
fn a_host_is_not_free_between_the_claim_of_a_restart_and_its_supervisor() {
    let script = r#"
prepare $A 'exit 3'; weftrun_go $A 0; wait_for $A 'phase ended'
weftrun_look | grep -c busy
# The program is cut off here, or there.
weftrun_take $A 1; echo "A has it: $?"
prepare $B; echo "B: $?"
mv "$weftrun_root/jobs/$A/ready-$token" "$weftrun_root/jobs/$A/go-1"
prepare $B; echo "B: $?"
weftrun_look $A | grep alive
# The supervisor of that start never began, and shall not when it is given up.
age "$weftrun_root/jobs/$A/go-1/at"
weftrun_look $A | grep alive
prepare $B; echo "B: $?"
(cd "$weftrun_root/jobs/$A" && sh ./supervise 1); echo "too late: $?"
"#;
    each_prints(
        script,
        "0\nA has it: 0\nbusy A\nB: 90\nbusy A\nB: 90\nalive none\nalive no\nB: 0\ntoo late: 1\n",
    );
}

#[test]
fn a_mistake_in_setup_is_refused_and_leaves_nothing() {
    let script = r#"
prepare $A 'echo "unbalanced' 2> "$HOME/said"; echo "$?"
grep -c . "$HOME/said"
find "$weftrun_root" -name "*$A*" | grep -c .
"#;
    each_prints(script, "92\n1\n0\n");
}

#[test]
fn a_restart_on_one_host_reads_no_exit_code_of_the_attempt_before() {
    let script = r#"
RESTARTS=2 prepare $A 'echo "$WEFTRUN_PROCESS"; exit 3'; weftrun_go $A 0; wait_for $A 'attempt 2'; wait_for $A 'phase ended'
grep -c . "$weftrun_root"/jobs/$A/logs/*/rank0.log | sed 's/.*logs//'
grep -E 'code|how' "$weftrun_root/jobs/$A/state"
ls "$weftrun_root/jobs/$A" | grep -c run-
weftrun_look | grep -c busy
"#;
    each_prints(script, "/0/rank0.log:1\n/1/rank0.log:1\n/2/rank0.log:1\nhow failed\ncode 3\n0\n0\n");
}

#[test]
fn the_users_keys_survive_many_programs_and_one_that_was_killed() {
    let script = r#"
keys=$HOME/.ssh/authorized_keys
mkdir -p "$keys.weftrun"; printf 'ssh-ed25519 A me\nssh-ed25519 B me' > "$keys"
# One that was killed, before all names of the others.
: > "$keys.weftrun/A.dead"
all() { for i in 1 2 3 4 5 6 7 8; do ( "$@" "S$i" "ssh-ed25519 K weftrun-S$i" || echo "failed: $?" ) & done; wait; }
all weftrun_allow_key; grep -c 'me$' "$keys"; grep -c 'weftrun-S.$' "$keys"
all weftrun_forget_key; cat "$keys"; ls "$HOME/.ssh"
"#;
    each_prints(script, "2\n8\nssh-ed25519 A me\nssh-ed25519 B me\nauthorized_keys\n");
}

#[test]
fn the_next_submission_removes_the_key_of_a_job_whose_supervisor_was_killed() {
    let script = r#"
prepare $A; weftrun_go $A 0; wait_for $A 'phase running'
# A supervisor that is killed before its rank has started leaves a shell that starts it later.
until for process in $(weftrun_marked $A); do tr '\0' ' ' < /proc/$process/cmdline; echo; done 2> /dev/null | grep -q '^sleep 600'; do
  sleep 0.1
done
weftrun_allow_key $A "ssh-ed25519 K weftrun-$A"
weftrun_clean 30; grep -c weftrun-$A "$HOME/.ssh/authorized_keys"
read -r pid rest < "$weftrun_root/jobs/$A/go-0/supervisor"; kill -9 "$pid"
weftrun_clean 30; grep -c weftrun-$A "$HOME/.ssh/authorized_keys"
for process in $(weftrun_marked $A); do kill -9 "$process"; done
while [ -n "$(weftrun_marked $A)" ]; do sleep 0.1; done
weftrun_clean 30; grep -c weftrun-$A "$HOME/.ssh/authorized_keys"
"#;
    each_prints(script, "1\n1\n0\n");
}

#[test]
fn a_process_is_found_by_its_mark_wherever_it_is_and_by_no_longer_one() {
    let script = r#"
env -i "FIRST=two
lines" WEFTRUN_SUBMISSION=$A LAST=1 /bin/sleep 600 & its=$!
WEFTRUN_SUBMISSION=${A}1 sleep 600 & longer=$!
until grep -qz FIRST /proc/$its/environ; do sleep 0.1; done
[ "$(weftrun_marked $A)" = "$its " ] && echo found
weftrun_end $A 5; wait $its; echo "$?"
kill $longer && echo "the other runs"
"#;
    each_prints(script, "found\n143\nthe other runs\n");
}

#[test]
fn a_prepared_job_that_lost_its_host_is_removed() {
    let script = r#"
prepare $A; prepare $B; echo "$?"
for file in "$weftrun_root"/jobs/$A/ready-*/at; do age "$file"; done
weftrun_clean 30; ls "$weftrun_root/jobs"
prepare $B; echo "$?"
weftrun_clean 30; ls "$weftrun_root/jobs"
"#;
    each_prints(script, "busy A\n90\nA\n0\nB\n");
}

/// The program that started an attempt may be cut off before it started the supervisor.
#[test]
fn an_attempt_without_a_supervisor_is_started_by_the_next_look_or_start() {
    let script = r#"
cut_off() {
  prepare $1 'echo ran; exit 0'; weftrun_take $1 0
  weftrun_write_time "$weftrun_root/jobs/$1/ready-$token/at"
  mv "$weftrun_root/jobs/$1/ready-$token" "$weftrun_root/jobs/$1/go-0"
}
later() { read -r was of < "$1"; printf '%s %s\n' "$((was - 20))" "$of" > "$1"; }
cut_off $A
weftrun_look $A | grep alive
later "$weftrun_root/jobs/$A/go-0/at"
weftrun_look $A > /dev/null; weftrun_look $A > /dev/null
wait_for $A 'phase ended'; cat "$weftrun_root/jobs/$A/logs/0/rank0.log"
cut_off $B
weftrun_go $B 0; echo "B is started: $?"
wait_for $B 'phase ended'; cat "$weftrun_root/jobs/$B/logs/0/rank0.log"
"#;
    each_prints(script, "alive none\nran\nB is started: 0\nran\n");
}

/// `cancel` finds the processes that the supervisor, or a marked process, started.
#[test]
fn a_process_without_the_jobs_environment_ends_with_the_job() {
    let script = r#"
for how in 'env -i setsid' 'setsid env -i' 'env -i nohup' supervise; do
  # Arguments alone make no supervisor.
  case $how in supervise) before='env -i' after=$how ;; *) before=$how after= ;; esac
  prepare $A "$before sh -c 'sleep 600; : ${HOME##*/}' $after & sleep 600"
  weftrun_go $A 0; wait_for $A 'phase running'
  tries=0; until pgrep -f "^sh -c sleep 600; : ${HOME##*/}" > /dev/null || [ $tries -gt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
  weftrun_ask $A cancel 1; wait_for $A 'phase ended'
  pgrep -f "^sh -c sleep 600; : ${HOME##*/}"
  grep -c how "$weftrun_root/jobs/$A/state"
  weftrun_remove $A
done
"#;
    each_prints(script, "1\n1\n1\n1\n");
}

/// A job that a process of another job submitted is left alone; a process that only has a supervisor's arguments is not.
#[test]
fn the_supervisor_of_another_job_is_known_by_the_files_of_that_job() {
    let script = r#"
prepare $B; weftrun_go $B 0; wait_for $B 'phase running'
read -r hosts rest < "$weftrun_root/jobs/$B/go-0/supervisor"
mkdir "$HOME/local" "$HOME/none" "$HOME/cwd"; : > "$HOME/local/origin.json"
printf 'sleep 600; :\n' > "$HOME/cwd/supervise"
start() { (cd "$HOME/cwd" && exec sh "$@") & started=$!; until tr '\0' ' ' < /proc/$started/cmdline | grep -q supervise; do sleep 0.1; done; }
start supervise "$HOME/local"; local=$started
start supervise "$HOME/none"; none=$started
start ./supervise 0; elsewhere=$started
start -c 'sleep 600; :' supervise "$HOME/local"; later=$started
is() { case " $(weftrun_supervisors)" in *" $2 "*) echo "$1" ;; *) echo "not $1" ;; esac; }
is hosts $hosts; is local $local; is none $none; is elsewhere $elsewhere; is later $later
printf '{"supervisor":{"pid":%s,"start":1}}' $local > "$HOME/local/state.json"; is 'local by its record' $local
printf '{"supervisor":{"pid":1%s,"start":1}}' $local > "$HOME/local/state.json"; is 'local by its record' $local
tree=; found=" $(weftrun_tree $$)"
case $found in *" $hosts:"*) echo "B is ours" ;; *) echo "B is left alone" ;; esac
case $found in *" $none:"*) echo "the process is ours" ;; *) echo "the process is lost" ;; esac
tree=$(weftrun_tree $local $none $elsewhere $later); kill $local $none $elsewhere $later $(weftrun_still)
weftrun_ask $B cancel 1; wait_for $B 'phase ended'
"#;
    each_prints(
        script,
        "hosts\nlocal\nnot none\nnot elsewhere\nnot later\nlocal by its record\nnot local by its record\n\
         B is left alone\nthe process is ours\n",
    );
}
