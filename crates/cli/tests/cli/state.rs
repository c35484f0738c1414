//! State and configuration that others could have a hand in: files found in a folder, variables without a sound value, other
//! processes on the same state folder, scripts outside the job's folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Done, Place, SMALL_JOB};
use weftrun_testkit::child;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Counts the occurrences of a text in another.
fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

const LOG_VALUE: &str = "name = \"small\"\ncommand = [\"sh\", \"-c\", \"echo value=$SHOWN\"]\n";

#[test]
fn nothing_of_an_untrusted_projects_file_counts_whatever_it_says() {
    let place = Place::new();
    place.write("job.toml", LOG_VALUE);
    let canary = place.path("canary");
    place.write("evil.sh", format!("touch {}\n", canary.display()));
    let hostile = [
        format!("[job]\nenv = {{ BASH_ENV = \"{}\", SHOWN = \"evil\" }}\n", place.path("evil.sh").display()),
        "[job]\nenv.SHOWN = \"evil\"\n".to_owned(),
        "[job]\nimage = \"evil:1\"\n".to_owned(),
        "[job]\nsecrets = { SHOWN = \"evil/key\" }\n".to_owned(),
        "[job]\nlabels.team = \"evil\"\n".to_owned(),
        "output = \"json\"\ncolor = \"always\"\n".to_owned(),
        "default_target = \"evil\"\nnamespace = \"evil\"\ndefault_profile = \"evil\"\n".to_owned(),
        "[profile.dgxc]\nenv.SHOWN = \"evil\"\n".to_owned(),
        "this is not even = = TOML evil".to_owned(),
    ];
    for text in hostile {
        place.write(".weftrun.toml", &text);
        let done = place.run("submit --wait --follow job.toml").ok();
        let all = format!("{}{}", done.out, done.err);
        assert!(all.contains("value=\n") || all.contains("value="), "{all}");
        assert!(!all.contains("evil") && !all.contains("\"schema\"") && !canary.exists(), "{text}\n{all}");
        assert_eq!(count(&done.err, "weftrun config trust"), 1, "{text}\n{}", done.err);
        for line in [
            "render job.toml -b kubeflow --image a:1",
            "plan job.toml",
            "config show --origin",
            "lint job.toml",
        ] {
            let done = place.run(line).ok();
            assert!(!done.out.contains("evil"), "{line}: {}", done.out);
            assert_eq!(count(&done.err, "weftrun config trust"), 1, "{line}: {}", done.err);
        }
        // With -o json the values are the same, and the warning is on stderr.
        let done = place.run("list -a -o json").ok();
        assert!(done.json()["jobs"].is_array() && done.err.contains("is ignored"), "{done:?}");
    }
    place.write(".weftrun.toml", "[job]\nenv.SHOWN = \"mine\"\n");
    place.run("config trust").ok();
    let done = place.run("submit --wait --follow job.toml").ok();
    assert!(
        format!("{}{}", done.out, done.err).contains("value=mine") && !done.err.contains("trust"),
        "{done:?}"
    );
}

#[test]
fn a_projects_file_that_others_could_have_written_is_never_trusted() {
    let place = Place::new();
    let file = place.write(".weftrun.toml", "[job]\nqueue = \"evil\"\n");
    place.run("config trust").ok();
    assert!(place.run("config show").ok().out.contains("evil"), "it is trusted");
    let refused = |what: &str| {
        let done = place.run("config show").ok();
        assert!(
            !done.out.contains("evil") && count(&done.err, ".weftrun.toml is ignored") == 1,
            "{what}: {done:?}"
        );
        let done = place.run("config trust");
        assert!(done.code != 0 && done.err.contains("cannot be trusted"), "{what}: {done:?}");
    };
    for open in [0o664, 0o622, 0o666] {
        mode(&file, open);
        refused(&format!("file {open:o}"));
    }
    mode(&file, 0o644);
    for open in [0o775, 0o777] {
        mode(&place.path(""), open);
        refused(&format!("folder {open:o}"));
    }
    mode(&place.path(""), 0o755);
    assert!(place.run("config show").ok().out.contains("evil"));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(4321), None).unwrap();
        refused("another owner");
    }
}

/// Runs a command with a limit of memory and of time, so that a reader without bounds fails and not the machine.
fn limited(place: &Place, line: &[&str]) -> Done {
    let like = place.command(line);
    Done::of(child::within("sh", ["-c", "ulimit -v 4000000; exec timeout 60 \"$@\"", "sh"], &like))
}

#[test]
fn files_that_lie_somewhere_are_regular_and_bounded() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    fs::create_dir_all(place.config().parent().unwrap()).unwrap();
    let fifo = place.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let large = place.path("large");
    fs::File::create(&large).unwrap().set_len(3 << 30).unwrap();
    let sources = [Path::new("/dev/zero"), &fifo, &large];
    // A project's file is ignored, the user's own is an error.
    for source in sources {
        let link = place.path(".weftrun.toml");
        symlink(source, &link).unwrap();
        let done = limited(&place, &["config", "show"]);
        assert!(done.code == 0 && done.err.contains("is ignored"), "{}: {done:?}", source.display());
        fs::remove_file(&link).unwrap();
        symlink(source, place.config()).unwrap();
        let done = limited(&place, &["list"]);
        assert!(done.code == 3 && done.err.contains("config.toml"), "{}: {done:?}", source.display());
        fs::remove_file(place.config()).unwrap();
    }
    // So is what the state folder holds.
    place.run("submit --wait job.toml").ok();
    for (number, source) in sources.iter().enumerate() {
        symlink(source, place.state().join(format!("journal/{number:032x}.json"))).unwrap();
    }
    let done = limited(&place, &["list", "-a"]);
    assert!(done.code == 0 && done.out.contains("small"), "{done:?}");
    // A script that the job file names, and files with credentials.
    for source in sources {
        let _ = fs::remove_file(place.path("train.py"));
        symlink(source, place.path("train.py")).unwrap();
        place.write("script.toml", "name = \"s\"\nimage = \"x:1\"\ncommand = [\"python\", \"train.py\"]\ncode.script = \"train.py\"\n");
        let done = limited(&place, &["plan", "--allow-outside", "script.toml"]);
        assert_eq!(done.code, 3, "{}: {done:?}", source.display());
        for setting in ["token-file", "ca-file", "client-secret-file"] {
            place.configure(&format!(
                "[target.cloud]\nbackend = \"runai\"\nurl = \"http://127.0.0.1:9\"\nproject = \"p\"\nclient-id = \"x\"\n{setting} = \"{}\"\n",
                source.display()
            ));
            let done = limited(&place, &["list", "-b", "cloud"]);
            assert!(
                done.code > 0 && done.code != 124 && done.code < 128,
                "{setting} {}: {done:?}",
                source.display()
            );
            fs::remove_file(place.config()).unwrap();
        }
    }
}

#[test]
fn a_path_that_the_user_names_may_be_a_pipe_and_is_bounded() {
    let place = Place::new();
    place.feed("plan /dev/stdin", SMALL_JOB.as_bytes()).ok();
    place.feed("plan -", SMALL_JOB.as_bytes()).ok();
    place.feed("config show --config /dev/stdin", b"[job]\nqueue = \"piped\"\n").ok();
    for line in [["plan", "/dev/zero"], ["lint", "/dev/zero"], ["config", "show"]] {
        let mut all = line.to_vec();
        if line[0] == "config" {
            all.extend(["--config", "/dev/zero"]);
        }
        let done = limited(&place, &all);
        assert!(done.code > 0 && done.code < 100, "{line:?}: {done:?}");
    }
}

#[test]
fn variables_that_hold_no_absolute_path_are_ignored() {
    let canary = |place: &Place| place.path("canary");
    for name in [
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_CACHE_HOME",
        "HOME",
        "WEFTRUN_STATE_DIR",
        "WEFTRUN_CONFIG_DIR",
    ] {
        for value in ["", ".", "./", "sub", "../work", "~"] {
            let place = Place::new();
            let evil = format!(
                "default_target = \"cloud\"\n[target.cloud]\nbackend = \"runai\"\nurl = \"http://127.0.0.1:9\"\nproject = \"p\"\ntoken-command = [\"touch\", \"{}\"]\n",
                canary(&place).display()
            );
            for folder in ["weftrun", ".config/weftrun", "sub/weftrun", "sub", "~/weftrun", "config", "."] {
                place.write(&format!("{folder}/config.toml"), &evil);
            }
            place.write("job.toml", SMALL_JOB);
            let before = names(&place.path(""));
            let mut command = place.command(["list"]);
            command.env(name, value);
            if name == "HOME" {
                // Without a home the state is in the temporary folder, which is to be one of this test's own.
                let temporary = place.path("").parent().unwrap().join("tmp");
                fs::create_dir(&temporary).unwrap();
                command.env("TMPDIR", &temporary);
            }
            let done = Done::of(command).ok();
            assert!(!canary(&place).exists(), "{name}={value:?} runs what lies in the folder: {done:?}");
            assert_eq!(names(&place.path("")), before, "{name}={value:?} writes into the folder");
            let said = name.starts_with("WEFTRUN_") && !value.is_empty();
            assert_eq!(
                count(&done.err, "is not an absolute path"),
                usize::from(said),
                "{name}={value:?}: {}",
                done.err
            );
        }
    }
    let place = Place::new();
    place.write("relative.toml", "[job]\nqueue = \"evil\"\n");
    for value in ["relative.toml", "./relative.toml", ""] {
        let mut command = place.command(["config", "show"]);
        command.env("WEFTRUN_CONFIG", value);
        assert!(!Done::of(command).ok().out.contains("evil"), "{value:?}");
    }
    // A flag was typed here, by who is here.
    assert!(place.run("config show --config relative.toml").ok().out.contains("evil"));
    let mut command = place.command(["config", "show"]);
    command.env("WEFTRUN_CONFIG", place.path("relative.toml"));
    assert!(Done::of(command).ok().out.contains("evil"));
    // A sound value is honoured.
    let mut command = place.command(["config", "path"]);
    command.env("XDG_CONFIG_HOME", "/x/y");
    assert_eq!(Done::of(command).ok().out.trim(), "/x/y/weftrun/config.toml");
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn a_script_outside_the_job_files_folder_is_named_and_asked_for() {
    let place = Place::new();
    let secret = place.write("secret", "print('outside')\n");
    let folder = place.path("job");
    fs::create_dir_all(folder.join("inside")).unwrap();
    fs::write(folder.join("inside/ok.py"), "print('inside')\n").unwrap();
    symlink(&secret, folder.join("link.py")).unwrap();
    symlink(place.path(""), folder.join("up")).unwrap();
    symlink(folder.join("inside/ok.py"), folder.join("near.py")).unwrap();
    let job = |script: &str| {
        place.write(
            "job/job.toml",
            format!("name = \"s\"\ncommand = [\"python3\", \"x\"]\ncode.script = \"{script}\"\n"),
        )
    };
    for script in ["inside/ok.py", "./inside/../inside/ok.py", "near.py"] {
        job(script);
        let done = place.run("render job/job.toml -b local").ok();
        assert!(done.out.contains("inside") && !done.err.contains("outside"), "{script}: {done:?}");
    }
    for script in ["../secret", secret.to_str().unwrap(), "link.py", "up/secret", "inside/../../secret"] {
        job(script);
        for verb in ["render job/job.toml -b local", "plan job/job.toml", "submit --yes job/job.toml"] {
            let done = place.run(verb).code(3);
            assert!(!done.out.contains("outside"), "{script}: {done:?}");
            for said in ["is outside the job file's folder", "--allow-outside", secret.to_str().unwrap()] {
                assert!(done.err.contains(said), "{verb} {script}: `{said}` is not in {}", done.err);
            }
        }
        let done = place.run("plan --allow-outside job/job.toml").ok();
        assert!(done.err.contains(secret.to_str().unwrap()), "the plan names it: {done:?}");
        let plan = place.run("plan --allow-outside job/job.toml -o json").ok().json();
        let found =
            plan["findings"].as_array().unwrap().iter().any(|finding| finding["code"] == "SPEC-OUTSIDE");
        assert!(found, "{plan}");
        assert!(place.run("render --allow-outside job/job.toml -b local").ok().out.contains("outside"));
    }
    // From stdin the folder is the one that the user is in.
    let text = "name = \"s\"\ncommand = [\"python3\", \"x\"]\ncode.script = \"/etc/hostname\"\n";
    place.feed("plan -", text.as_bytes()).code(3);
    // A path on the command line was typed by the user.
    job("inside/ok.py");
    place.run("plan job/job.toml --script secret").ok();
}

#[test]
fn a_job_file_from_a_pipe_names_scripts_of_the_current_folder() {
    let place = Place::new();
    place.write("x.py", "print('beside')\n");
    let text = "name = \"s\"\ncommand = [\"python3\", \"x\"]\ncode.script = \"x.py\"\n";
    for file in ["-", "/dev/stdin", "/proc/self/fd/0"] {
        let done = place.feed(&format!("render {file} -b local"), text.as_bytes()).ok();
        assert!(done.out.contains("beside"), "{file}: {done:?}");
        place.feed(&format!("plan {file}"), text.replace("x.py", "/etc/hostname").as_bytes()).code(3);
    }
}

/// Every path below a folder.
fn walk(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            walk(&path, all);
        }
        all.push(path);
    }
}

/// Asserts that only the owner has rights to the state and configuration folders and their contents.
fn assert_private(place: &Place, when: &str) -> usize {
    let roots = [place.state(), place.config().parent().unwrap().to_owned()];
    let mut all = roots.to_vec();
    roots.iter().for_each(|root| walk(root, &mut all));
    for path in &all {
        let found = fs::symlink_metadata(path).unwrap();
        assert!(
            found.is_symlink() || found.mode() & 0o077 == 0,
            "{when}: {:o} {}",
            found.mode(),
            path.display()
        );
    }
    all.len()
}

/// A command under a mask that takes no rights away.
fn careless(place: &Place, line: &str) -> Done {
    let like = place.command(line.split_whitespace());
    Done::of(child::within("sh", ["-c", "umask 0; exec \"$@\"", "sh"], &like))
}

#[test]
fn state_and_configuration_stay_private_whatever_verb_runs() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    place.write(".weftrun.toml", "[job]\nqueue = \"x\"\n");
    let handle = careless(&place, "submit --wait job.toml").ok().out.trim().to_owned();
    for line in [
        "config set job.labels.team nlp",
        "config trust",
        "list -a",
        "plan job.toml",
        &format!("describe {handle}"),
        &format!("logs {handle}"),
        &format!("wait {handle}"),
        &format!("cancel {handle}"),
        "doctor -b local",
    ] {
        careless(&place, line);
        assert!(assert_private(&place, line) > 8, "{line}");
    }
    // Access that an earlier version, or a chmod, granted to others is removed at the next use.
    let mut all = vec![place.state()];
    walk(&place.state(), &mut all);
    for path in &all {
        mode(path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    careless(&place, "list -a").ok();
    assert_private(&place, "opened by hand");
}

#[test]
fn parallel_changes_of_the_configuration_lose_nothing() {
    let place = Place::new();
    place.configure("# kept\n");
    let children: Vec<Child> = (0..24)
        .map(|number| {
            let mut command = place.command(["config", "set", &format!("job.labels.k{number}"), "v"]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let text = fs::read_to_string(place.config()).unwrap();
    for number in 0..24 {
        assert!(text.contains(&format!("k{number} = ")), "k{number} is lost:\n{text}");
    }
    assert!(text.contains("# kept\n"), "{text}");
}

#[test]
fn a_linked_configuration_stays_a_link() {
    let place = Place::new();
    let real = place.write("dotfiles/weftrun.toml", "# real\n");
    fs::create_dir_all(place.config().parent().unwrap()).unwrap();
    symlink(&real, place.config()).unwrap();
    place.run("config set job.queue gpu").ok();
    assert!(fs::symlink_metadata(place.config()).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("gpu"));
    // The file that it leads to may still have to be made, and the link may be relative.
    fs::remove_file(&real).unwrap();
    place.run("config set job.queue cpu").ok();
    assert!(fs::symlink_metadata(place.config()).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("cpu"));
    fs::remove_file(place.config()).unwrap();
    symlink("beside.toml", place.config()).unwrap();
    place.run("config set job.queue gpu").ok();
    assert!(fs::read_to_string(place.config().with_file_name("beside.toml")).unwrap().contains("gpu"));
}

/// The journal's records by state, wherever they lie.
fn states(place: &Place) -> Vec<String> {
    let mut all = Vec::new();
    walk(&place.state().join("journal"), &mut all);
    let records = all.iter().filter(|path| path.extension().is_some_and(|end| end == "json"));
    let state =
        |path: &PathBuf| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap()["state"].clone();
    records.map(|path| state(path).as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_submission_in_flight_is_left_alone_by_a_list_beside_it() {
    let place = Place::new();
    place.write("job.toml", "name = \"slow\"\ncommand = [\"true\"]\n");
    let mut child = crate::killed::start_at(&place, "before submit");
    for _ in 0..3 {
        let done = place.run("list -a").ok();
        assert!(done.err.contains("`slow`") && done.err.contains("is being sent"), "{done:?}");
        assert!(done.err.contains(&format!("process {}", child.id())), "{done:?}");
        assert!(!done.err.contains("submit it again"), "{done:?}");
    }
    // Not even a job of that name that was submitted meanwhile makes it forgotten.
    place.run("submit --wait job.toml").ok();
    place.run("list -a").ok();
    let mut found = states(&place);
    found.sort();
    assert_eq!(found, ["intended", "submitted"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let done = place.run("list -a").ok();
    assert!(!done.err.contains("is being sent"), "its process has ended: {done:?}");
}

#[test]
fn records_of_another_machine_are_believed_for_a_while() {
    let place = Place::new();
    let home = crate::place::repo("crates/cli/tests/upgrade/0.1/home/.local/state/weftrun/journal");
    let old = fs::read_dir(home).unwrap().next().unwrap().unwrap().path();
    let mut record: Value = serde_json::from_slice(&fs::read(old).unwrap()).unwrap();
    record["state"] = "intended".into();
    record["handle"] = Value::Null;
    record["owner"] = serde_json::json!({"host": "another-login-node", "pid": 1, "started": 1});
    let id = record["submission"].as_str().unwrap().to_owned();
    let now = jiff::Timestamp::now();
    for (age, said) in [(60, "is being sent"), (3600, "never reached")] {
        record["created"] = (now - Duration::from_secs(age)).to_string().into();
        let folder = place.state().join("journal");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{id}.json")), record.to_string()).unwrap();
        fs::write(folder.join(format!("{id}.lock")), "").unwrap();
        let done = place.run("list -a -b local").ok();
        assert!(done.err.contains(said), "{age}: {done:?}");
    }
    // Said once, and forgotten.
    let again = place.run("list -a -b local").ok();
    assert!(!again.err.contains("never reached"), "{again:?}");
}

#[test]
fn what_became_of_an_unknown_submission_is_looked_up_and_never_called_refused() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    let handle = place.run("submit --wait job.toml").ok().out.trim().to_owned();
    let file = names(&place.state().join("journal"))
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "json"));
    let file = file.unwrap();
    let mut record: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    record["state"] = "unknown".into();
    record["handle"] = Value::Null;
    fs::write(&file, record.to_string()).unwrap();
    let done = place.run("list -a").ok();
    assert!(done.err.contains("had lost its answer") && done.err.contains(&handle), "{done:?}");
    assert!(!done.err.contains("refused"), "{done:?}");
    assert_eq!(states(&place), ["submitted"]);
}

#[test]
fn a_journal_of_thousands_costs_a_list_no_more_than_one_of_a_few() {
    let place = Place::new();
    let home = crate::place::repo("crates/cli/tests/upgrade/0.1/home/.local/state/weftrun");
    let old = fs::read_dir(home.join("journal")).unwrap().next().unwrap().unwrap().path();
    let mut record: Value = serde_json::from_slice(&fs::read(old).unwrap()).unwrap();
    let folder = place.state().join("journal");
    fs::create_dir_all(&folder).unwrap();
    for number in 1..=3000u32 {
        let id = format!("{number:032x}");
        record["submission"] = id.as_str().into();
        record["handle"] = format!("local://local/kept#{number:08x}").into();
        record["created"] =
            format!("2026-01-01T{:02}:{:02}:{:02}Z", number / 3600, number / 60 % 60, number % 60).into();
        fs::write(folder.join(format!("{id}.json")), record.to_string()).unwrap();
    }
    place.run("list -a").ok();
    let left = names(&folder).iter().filter(|path| path.is_file()).count();
    assert!(left <= 100, "{left} records are read by every list");
    assert_eq!(states(&place).len(), 3000, "none is lost");
}

#[test]
fn an_insecure_target_says_so_at_every_use() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB.replace("launch", "image = \"x:1\"\nlaunch"));
    place.configure(
        "[target.open]\nbackend = \"runai\"\nurl = \"http://127.0.0.1:9\"\nproject = \"p\"\ninsecure = true\ntimeout-seconds = 2\ntoken-env = \"TOKEN\"\n\
         [target.head]\nbackend = \"slurm\"\nrest = \"http://127.0.0.1:9\"\ninsecure = true\n\
         [target.safe]\nbackend = \"runai\"\nurl = \"http://127.0.0.1:9\"\nproject = \"p\"\n",
    );
    let warned = |line: &str| {
        let mut command = place.command(line.split_whitespace());
        let done = Done::of({
            command.env("TOKEN", "t").env("SLURM_JWT", "t");
            command
        });
        assert!(!done.out.contains("insecure ="), "{line}: {}", done.out);
        count(&done.err, "`insecure = true`")
    };
    for target in ["open", "head"] {
        for line in ["plan job.toml", "plan job.toml -o json", "doctor", "doctor -q", "list", "list -o json"]
        {
            assert_eq!(warned(&format!("{line} -b {target}")), 1, "{line} -b {target}");
        }
    }
    assert_eq!(warned("describe runai://open/p/distributed/x#1"), 1);
    // A kubeconfig that says so warns too.
    let kubeconfig = "{apiVersion: v1, kind: Config, current-context: x, users: [{name: u, user: {token: t}}], \
        contexts: [{name: x, context: {cluster: c, user: u}}], \
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:9', insecure-skip-tls-verify: true}}]}";
    place.write("kubeconfig", kubeconfig);
    place.configure(&format!(
        "[target.kube]\nbackend = \"kubeflow\"\nkubeconfig = \"{}\"\n",
        place.path("kubeconfig").display()
    ));
    for line in ["plan job.toml", "plan job.toml -o json", "list", "list -q", "list -o json"] {
        let done = Done::of(place.command(format!("{line} -b kube").split_whitespace()));
        assert_eq!(count(&done.err, "insecure-skip-tls-verify"), 1, "{line}: {done:?}");
    }
    place.configure("[target.open]\nbackend = \"runai\"\nurl = \"http://127.0.0.1:9\"\nproject = \"p\"\ninsecure = true\ntoken-env = \"TOKEN\"\n[target.safe]\nbackend = \"runai\"\nurl = \"http://127.0.0.1:9\"\nproject = \"p\"\ntimeout-seconds = 2\n");
    for line in ["plan job.toml -b safe", "list -b safe", "targets"] {
        assert_eq!(warned(line), 0, "{line}");
    }
    assert!(place.run("plan job.toml -b open -o json").ok().json().is_object());
}

#[test]
fn waiting_for_the_lock_of_the_configuration_ends() {
    let place = Place::new();
    place.configure("");
    let lock = fs::File::create(place.config().with_file_name(".config.toml.lock")).unwrap();
    lock.lock().unwrap();
    let mut command = place.command(["config", "set", "job.queue", "gpu"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it does not wait");
    drop(lock);
    let began = Instant::now();
    assert!(child.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(fs::read_to_string(place.config()).unwrap().contains("gpu"));
}
