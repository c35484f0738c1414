//! A full disk, a home that cannot be written, no home, no terminal, few open files, a clock that jumped: each is an
//! answer that a person can use, and what was there before is whole afterwards.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::{Done, Place, SMALL_JOB};
use weftrun_testkit::child;

/// A command as the argument of another program.
fn within(place: &Place, program: &str, before: &[&str], line: &str) -> Command {
    child::within(program, before, &place.command(line.split_whitespace()))
}

/// Runs a command in a mount namespace in which a script was run first; none where that is not allowed.
fn mounted(place: &Place, mount: &str, line: &str) -> Option<Done> {
    let works = place.program("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !works.is_ok_and(|done| done.status.success()) {
        weftrun_testkit::skipped("mounting needs root");
        return None;
    }
    let state = place.state();
    fs::create_dir_all(&state).unwrap();
    let script = format!("{mount}; exec \"$@\"").replace("STATE", state.to_str().unwrap());
    Some(Done::of(within(place, "unshare", &["-m", "sh", "-ec", &script, "sh"], line)))
}

#[test]
fn a_full_disk_is_said_and_nothing_is_submitted() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    let full =
        "mount -t tmpfs -o size=64k none STATE; dd if=/dev/zero of=STATE/full bs=1k 2>/dev/null || true";
    let Some(done) = mounted(&place, full, "submit job.toml") else { return };
    assert!(done.code != 0 && done.out.is_empty(), "{done:?}");
    assert!(done.err.contains("No space left") && done.err.contains("WEFTRUN_STATE_DIR"), "{}", done.err);
    for line in ["plan job.toml", "render job.toml", "list", "targets"] {
        mounted(&place, full, line).unwrap().ok();
    }
}

#[test]
fn a_home_that_cannot_be_written_stops_only_what_writes() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    let read_only = "mount -t tmpfs none STATE; mount -o remount,ro none STATE";
    let Some(done) = mounted(&place, read_only, "submit job.toml") else { return };
    assert!(done.code != 0 && done.out.is_empty(), "{done:?}");
    assert!(done.err.contains("Read-only") && done.err.contains("WEFTRUN_STATE_DIR"), "{}", done.err);
    for line in ["plan job.toml", "render job.toml", "list -a", "backends"] {
        mounted(&place, read_only, line).unwrap().ok();
    }
}

#[test]
fn a_state_folder_that_is_a_file_is_said() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    let file = place.write("file", "");
    let mut command = place.command(["submit", "job.toml"]);
    let done = Done::of(std::mem::replace(&mut command, place.command::<&str>([])));
    drop(done.ok());
    let mut command = place.command(["submit", "--name", "other", "job.toml"]);
    command.env("WEFTRUN_STATE_DIR", &file);
    let done = Done::of(command);
    assert!(done.code != 0 && done.err.contains(file.to_str().unwrap()), "{done:?}");
}

/// A command without HOME and with a temporary folder of its own.
fn homeless(place: &Place, line: &str) -> Command {
    let mut command = place.command(line.split_whitespace());
    // An empty HOME counts as unset: without it, the system's user database is read.
    command.env("HOME", "").env("TMPDIR", place.path("tmp"));
    command
}

#[test]
fn without_a_home_jobs_are_kept_in_a_folder_of_ones_own() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    fs::create_dir(place.path("tmp")).unwrap();
    let handle = Done::of(homeless(&place, "submit --wait job.toml")).ok().out;
    let folders: Vec<_> =
        fs::read_dir(place.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    assert_eq!(folders[0].metadata().unwrap().mode() & 0o777, 0o700);
    let listed = Done::of(homeless(&place, "list -a")).ok().out;
    assert!(listed.contains(handle.trim()), "{listed}");
    Done::of(homeless(&place, &format!("delete --yes {}", handle.trim()))).ok();
}

#[test]
fn without_a_home_what_others_left_in_the_temporary_folder_is_not_read() {
    let place = Place::new();
    let user = fs::metadata("/proc/self").unwrap().uid();
    let planted = place.write(&format!("tmp/weftrun-{user}/config.toml"), "default_target = \"planted\"\n");
    let folder = planted.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let done = Done::of(homeless(&place, "config show --origin"));
    assert!(done.code != 0 && done.err.contains("not a folder of yours alone"), "{done:?}");
    assert!(!done.out.contains("planted"), "{done:?}");
    // A link to somewhere else is not a folder of ours either.
    fs::rename(folder, place.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.path("elsewhere"), folder).unwrap();
    let done = Done::of(homeless(&place, "config show --origin"));
    assert!(done.code != 0 && !done.out.contains("planted"), "{done:?}");
}

#[test]
fn without_a_home_a_relative_temporary_folder_is_not_used() {
    let place = Place::new();
    let user = fs::metadata("/proc/self").unwrap().uid();
    place.write(&format!("weftrun-{user}/config/config.toml"), "default_target = \"planted\"\n");
    for folder in ["weftrun-USER/config", "weftrun-USER"] {
        let folder = place.path(&folder.replace("USER", &user.to_string()));
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    for relative in ["", ".", "./", "../work"] {
        let mut command = homeless(&place, "config show --origin");
        command.env("TMPDIR", relative);
        let done = Done::of(command);
        assert!(!done.out.contains("planted"), "{relative:?}: {done:?}");
    }
}

#[test]
fn without_a_terminal_nothing_is_drawn_and_nothing_is_asked() {
    let place = Place::new();
    let done = place.run("");
    assert!(done.code == 2 && done.err.contains("terminal"), "{done:?}");
    assert!(!done.out.contains('\u{1b}') && !done.err.contains('\u{1b}'), "{done:?}");
    place.write("job.toml", SMALL_JOB);
    let done = place.run("submit --follow job.toml").ok();
    assert!(!done.out.contains('\u{1b}') && !done.err.contains('\u{1b}'), "{done:?}");
    // The job requests no GPU, so missing transports are not reported.
    assert!(!done.err.contains("NCCL-DEBUG") && !done.err.contains("transport:"), "{}", done.err);
    place.run("init made.toml").ok();
    // No stdout, no stderr: output that cannot be written does not cause a crash.
    let closed = within(&place, "sh", &["-c", "exec \"$@\" <&- >&- 2>&-", "sh"], "list -a");
    assert_eq!(Done::of(closed).code, 0);
}

#[test]
fn a_thousand_logs_are_read_with_few_open_files() {
    let place = Place::new();
    for file in 0..1000 {
        place.write(
            &format!("logs/rank{file}.log"),
            format!("h{file}:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"),
        );
    }
    let few = within(&place, "sh", &["-c", "ulimit -n 32; exec \"$@\"", "sh"], "transport -o json logs");
    let report = Done::of(few).ok().json();
    assert_eq!(report["totals"]["lines"], 1000);
}

#[test]
fn more_ranks_than_open_files_are_followed_to_the_end() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB.replace("ranks_per_node = 2", "ranks_per_node = 24"));
    let few = within(&place, "sh", &["-c", "ulimit -S -n 40; exec \"$@\"", "sh"], "submit --follow job.toml");
    let done = Done::of(few).ok();
    for rank in 0..48 {
        assert!(done.err.contains(&format!("rank {rank} of 48")), "rank {rank} is missing\n{}", done.err);
    }
}

/// Rewrites every time in a JSON file.
fn shift_times(value: &mut Value, to: &str) {
    match value {
        Value::Object(map) => map.values_mut().for_each(|inner| shift_times(inner, to)),
        Value::Array(list) => list.iter_mut().for_each(|inner| shift_times(inner, to)),
        Value::String(text) if text.len() > 18 && text.contains('T') && text.ends_with('Z') => {
            to.clone_into(text);
        }
        _ => {}
    }
}

#[test]
fn records_of_another_century_are_listed_as_any_other() {
    for then in ["1971-01-01T00:00:00Z", "2126-11-21T00:00:00Z"] {
        let place = Place::new();
        place.write("job.toml", SMALL_JOB);
        let handle = place.run("submit --wait job.toml").ok().out;
        let mut folders = vec![place.state()];
        let mut changed = 0;
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "json") {
                    let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
                    shift_times(&mut value, then);
                    fs::write(&path, value.to_string()).unwrap();
                    changed += 1;
                }
            }
        }
        assert!(changed >= 2);
        let listed = place.run("list -a").ok().out;
        assert!(listed.contains(handle.trim()) && listed.contains("succeeded"), "{then}: {listed}");
        place.run(&format!("describe {}", handle.trim())).ok();
        assert_eq!(place.run(&format!("wait {}", handle.trim())).code, 0);
        // A new job of that name is not taken for the one of that time.
        place.run("submit --wait job.toml").ok();
    }
}

/// A command that waits for a busy API server prints that it does, without `-v`.
#[test]
fn a_busy_api_server_is_reported_while_the_command_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            head.take_while(|line| !line.is_empty()).for_each(drop);
            let answer = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let place = Place::new();
    let kubeconfig = place.write(
        "kubeconfig",
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
             users: [{{name: c, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
        ),
    );
    place.configure(&format!("[target.busy]\nbackend = \"kubeflow\"\nkubeconfig = {kubeconfig:?}\n"));
    let mut child =
        place.command(["list", "-b", "busy"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The requested pause is far longer than this test takes.
    let first = BufReader::new(child.stderr.take().unwrap()).lines().next();
    child.kill().unwrap();
    child.wait().unwrap();
    let first = first.expect("it ends without a word").unwrap();
    assert!(first.starts_with("warning: the API server is busy (429"), "{first}");
}
