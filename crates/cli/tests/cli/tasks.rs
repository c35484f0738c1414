//! Jobs of many tasks and jobs that start after others, on this machine.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::Place;

/// Six tasks, two at once; each notes how many run beside it, and task 3 fails.
const SWEEP: &str = r#"
name = "lr"
parallel = 2
command = ["sh", "-c", "mkdir $HERE/runs-{task} && ls -d $HERE/runs-* | wc -l >> $HERE/at-once; echo lr={lr} seed=$WEFTRUN_SWEEP_SEED of $WEFTRUN_TASKS; sleep 0.3; rmdir $HERE/runs-{task}; echo {task} >> $HERE/ran; test {task} != 3"]
[sweep]
lr = [1e-3, "1e-4", 0.5]
seed = [1, 2]
"#;

fn write(place: &Place, file: &str, job: &str) {
    let here = place.path("").display().to_string();
    place.write(file, job.replacen("[sweep]", &format!("env = {{ HERE = \"{here}\" }}\n[sweep]"), 1));
}

fn numbers(place: &Place, file: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(place.path(file)).unwrap();
    text.lines().map(|line| line.trim().parse().unwrap()).collect()
}

fn jobs(place: &Place, line: &str) -> Vec<Value> {
    place.run(line).ok().json()["jobs"].as_array().unwrap().clone()
}

#[test]
fn a_sweep_is_one_job_whose_tasks_run_two_at_a_time() {
    let place = Place::new();
    write(&place, "sweep.toml", SWEEP);
    let planned = place.run("plan -b local sweep.toml").ok().out;
    assert!(
        planned.contains("6 tasks, each like this, at most 2 at once: lr=1e-3 seed=1; lr=1e-3 seed=2"),
        "{planned}"
    );
    let tasks = place.run("plan -b local -o json sweep.toml").ok().json()["tasks"].clone();
    assert_eq!((&tasks["count"], &tasks["parallel"]), (&Value::from(6), &Value::from(2)), "{tasks}");

    let handle = place.run("submit -b local sweep.toml").ok().out.trim().to_owned();
    assert!(handle.starts_with("local://local/set/lr#"), "one handle: {handle}");
    let listed = jobs(&place, "list -b local --all -o json");
    assert_eq!(listed.len(), 1, "one line: {listed:?}");
    assert_eq!(listed[0]["tasks"]["total"], 6, "{listed:?}");
    let waited = place.run(&format!("wait {handle}")).code(1);
    assert!(waited.err.contains("1/6 failed, 5 succeeded"), "{}", waited.err);
    assert!(waited.err.contains("1 task failed: 3 (lr=1e-4 seed=2)"), "{}", waited.err);

    let mut ran = numbers(&place, "ran");
    ran.sort_unstable();
    assert_eq!(ran, [0, 1, 2, 3, 4, 5], "each task ran once");
    let most = numbers(&place, "at-once").into_iter().max();
    assert!(most.is_some_and(|most| most <= 2), "{most:?} at once");
    assert_eq!(jobs(&place, "list -b local -o json"), Vec::<Value>::new(), "it has ended");
    let listed = jobs(&place, "list -b local --all -o json");
    assert_eq!((listed.len(), &listed[0]["phase"]), (1, &Value::from("failed")), "{listed:?}");
    assert_eq!(listed[0]["tasks"]["phases"], serde_json::json!({"succeeded": 5, "failed": 1}));
    assert_eq!(jobs(&place, "list -b local --all --all-tasks -o json").len(), 6);

    let described = place.run("describe -b local lr").ok().out;
    assert!(described.contains("lr-3                     failed     lr=1e-4 seed=2 exit 1"), "{described}");
    let logs = place.run("logs -b local lr").ok().out;
    assert!(
        logs.contains("task5/node0| lr=0.5 seed=2 of 6") && logs.contains("task0/node0| lr=1e-3 seed=1"),
        "{logs}"
    );
    let retried = place.run("wait -b local lr --retry 2").code(1);
    assert!(retried.err.contains("not submitted again: the job has many tasks"), "{}", retried.err);
    assert_eq!(numbers(&place, "ran").len(), 6, "nothing ran again");
    let one = place.run("logs -b local --no-prefix --task 4 lr").ok().out;
    assert_eq!(one, "lr=0.5 seed=1 of 6\n");
    place.run("logs -b local --task 6 lr").code(6);
    let why = place.run("why -b local lr").ok().out;
    assert!(why.contains("1 task failed: 3 (lr=1e-4 seed=2); the cause is that of task 3"), "{why}");
    let task = place.run("wait -b local lr-3").code(1);
    assert!(task.err.contains("local://local/lr-3#"), "a task has a name of its own: {}", task.err);
    let refused = place.run("exec -b local lr -- true");
    assert!(refused.code == 2 && refused.err.contains("one task is needed"), "{}", refused.err);
    place.run("delete -b local --yes lr").ok();
    assert_eq!(jobs(&place, "list -b local --all --all-tasks -o json"), Vec::<Value>::new());
}

/// The name of a later task is taken, while those before it have ended: nothing of the second set may run.
#[test]
fn a_set_whose_name_is_taken_is_refused_before_any_task_runs() {
    let place = Place::new();
    let here = place.path("").display().to_string();
    let job = format!(
        "echo {{task}} >> {here}/ran; test {{task}} = 0 || until test -e {here}/go; do sleep 0.1; done"
    );
    let submit = |name: &str, array: &str| {
        let words = ["submit", "-b", "local", "--name", name, "--array", array, "--parallel", "1", "--"];
        crate::place::Done::of(place.command([&words[..], &["sh", "-c", &job]].concat()))
    };
    let set = submit("lr", "0-2").ok().out.trim().to_owned();
    until(&place, &["succeeded", "running", "pending"]);
    let again = submit("lr", "0-2").code(4);
    assert!(again.err.contains("LOCAL-NAME") && again.err.contains("a job named `lr-"), "{again:?}");
    assert!(again.err.contains(&format!("weftrun cancel {set}")), "{again:?}");
    assert_eq!((numbers(&place, "ran"), phases(&place).len()), (vec![0, 1], 3), "nothing was sent");
    let task =
        crate::place::Done::of(place.command(["submit", "-b", "local", "--name", "lr-2", "--", "true"]));
    assert!(task.code == 4 && task.err.contains(&set), "a plain job, too: {task:?}");
    place.write("go", "");
    place.run(&format!("wait {set}")).ok();
    submit("lr", "0-2").ok();
}

#[test]
fn a_cancelled_sweep_starts_no_task_that_waited() {
    let place = Place::new();
    write(&place, "sweep.toml", &SWEEP.replace("sleep 0.3", "sleep 30"));
    place.run("submit -b local sweep.toml --parallel 1").ok();
    let ends = Instant::now() + Duration::from_secs(30);
    while !place.path("at-once").exists() {
        assert!(Instant::now() < ends, "no task began");
        std::thread::sleep(Duration::from_millis(50));
    }
    place.run("cancel -b local lr").ok();
    place.run("wait -b local lr").code(1);
    let listed = jobs(&place, "list -b local --all -o json");
    assert_eq!(listed[0]["tasks"]["phases"], serde_json::json!({"cancelled": 6}), "{listed:?}");
    assert_eq!(numbers(&place, "at-once").len(), 1, "only the first one began");
}

/// Returns the phases of the tasks of `lr`, by number.
fn phases(place: &Place) -> Vec<String> {
    let mut tasks = jobs(place, "list -b local --all --all-tasks -o json");
    tasks.sort_by_key(|job| job["name"].to_string());
    tasks.iter().map(|job| job["phase"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the phases of the tasks are these.
fn until(place: &Place, expected: &[&str]) {
    let ends = Instant::now() + Duration::from_secs(30);
    while phases(place) != expected {
        assert!(Instant::now() < ends, "{:?} is not {expected:?}", phases(place));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A task that never started does not release its lane, which an earlier task still holds.
#[test]
fn a_waiting_task_that_is_cancelled_or_deleted_starts_none_beside_the_running_one() {
    let place = Place::new();
    let go = place.path("go");
    let job = format!("until test -e {}; do sleep 0.1; done", go.display());
    let submit = ["submit", "-b", "local", "--name", "lr", "--array", "0-5", "--parallel", "1", "--"];
    let submitted = crate::place::Done::of(place.command([&submit[..], &["sh", "-c", &job]].concat()));
    let set = submitted.ok().out.trim().to_owned();
    until(&place, &["running", "pending", "pending", "pending", "pending", "pending"]);
    place.run("cancel -b local lr-1").ok();
    place.run("delete -b local --yes lr-2").ok();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(phases(&place), ["running", "cancelled", "pending", "pending", "pending"]);
    let waits = jobs(&place, "list -b local -o json --all-tasks");
    let waits = waits.iter().find(|job| job["name"] == "lr-3").unwrap();
    assert_eq!(waits["reason"], "waits for the end of lr-0");

    // Of the whole set, those that run are suspended; those that wait have nothing to suspend.
    let began = Instant::now();
    let refused = place.run("suspend -b local lr-3").code(4);
    assert!(refused.err.contains("it waits for the end of lr-0"), "{}", refused.err);
    assert!(began.elapsed() < Duration::from_secs(5), "it is refused at once: {:?}", began.elapsed());
    place.run(&format!("suspend {set}")).ok();
    until(&place, &["suspended", "cancelled", "pending", "pending", "pending"]);
    place.run(&format!("resume {set}")).ok();
    until(&place, &["running", "cancelled", "pending", "pending", "pending"]);
    place.write("go", "");
    place.run(&format!("wait {set}")).code(1);
    assert_eq!(phases(&place), ["succeeded", "cancelled", "succeeded", "succeeded", "succeeded"]);
}

/// The handle of a set stands for all of its tasks.
#[test]
fn a_job_starts_after_all_tasks_of_a_set() {
    let place = Place::new();
    let go = place.path("go");
    let job = format!("until test -e {}; do sleep 0.1; done; test $WEFTRUN_TASK != 2", go.display());
    let submit = ["submit", "-b", "local", "--name", "lr", "--array", "0-2", "--"];
    let submitted = crate::place::Done::of(place.command([&submit[..], &["sh", "-c", &job]].concat()));
    let set = submitted.ok().out.trim().to_owned();
    let plan = place.run(&format!("submit -b local --dry-run=server --name x --after {set} -- true")).ok();
    assert!(!plan.err.contains("no job"), "{}", plan.err);
    place.run(&format!("submit -b local --name any --after afterany:{set} -- true")).ok();
    place.run(&format!("submit -b local --name needs --after {set} -- true")).ok();
    let waits = jobs(&place, "list -b local -o json");
    let any = waits.iter().find(|job| job["name"] == "any").unwrap();
    let reason = any["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("waits for the end of lr-") && reason.ends_with(" and 2 other jobs"), "{any}");
    place.write("go", "");
    place.run("wait -b local any").ok();
    let needs = place.run("wait -b local needs").code(1);
    assert!(needs.err.contains("lr-2 has ended (failed)"), "{}", needs.err);
    let late = place.run(&format!("submit -b local --name late --after {set} -- true"));
    assert!(late.code != 0 && late.err.contains("has ended (failed)"), "{}", late.err);
    place.run("delete -b local --yes lr-1").ok();
    let partial = place.run(&format!("submit -b local --name late --after afterany:{set} -- true"));
    assert!(partial.code != 0 && partial.err.contains("only 2 of the 3 tasks are there"), "{}", partial.err);
    let absent = place.run("submit -b local --name late --after local://local/set/no#abc -- true");
    assert!(absent.code != 0 && absent.err.contains("there is no job"), "{}", absent.err);
}

/// A kill in the middle of a submission: the same command submits the rest, and no task twice.
#[test]
fn a_submission_that_is_killed_is_continued() {
    let place = Place::new();
    let job = SWEEP
        .replace("parallel = 2", "parallel = 30")
        .replace("test {task} != 3", "true")
        .replace("sleep 0.3", "sleep 3");
    write(&place, "sweep.toml", &job.replace("seed = [1, 2]", "seed = [1, 2, 3, 4, 5, 6, 7, 8]"));
    let mut submitting = place.command(["submit", "-b", "local", "sweep.toml"]);
    let mut child = submitting.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let folder = place.state().join("targets/local/jobs");
    let ends = Instant::now() + Duration::from_secs(60);
    while std::fs::read_dir(&folder).map_or(0, Iterator::count) < 5 {
        assert!(Instant::now() < ends, "no task was submitted");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let listed = place.run("list -b local --all --all-tasks -o json").ok();
    assert!(listed.err.contains("the same `submit` command submits the rest"), "{}", listed.err);
    let before = listed.json()["jobs"].as_array().unwrap().len();
    assert!((4..24).contains(&before), "it was killed in the middle: {before}");

    let again = place.run("submit -b local sweep.toml").ok();
    assert!(again.err.contains("continuing with this job"), "{}", again.err);
    place.run(&format!("wait {}", again.out.trim())).ok();
    let listed = jobs(&place, "list -b local --all -o json");
    assert_eq!((listed.len(), &listed[0]["tasks"]["total"]), (1, &Value::from(24)), "{listed:?}");
    let mut ran = numbers(&place, "ran");
    ran.sort_unstable();
    assert_eq!(ran, (0..24).collect::<Vec<u32>>(), "each task ran once");
}

/// Starts the submission of many tasks, and waits until some are made.
fn submitting(place: &Place) -> std::process::Child {
    let values: Vec<String> = (0..300).map(|value| value.to_string()).collect();
    let mut line: Vec<String> =
        ["submit", "-b", "local", "--name", "many", "--sweep"].map(str::to_owned).to_vec();
    line.push(format!("v={}", values.join(",")));
    line.extend(["--parallel", "1", "--", "sleep", "60"].map(str::to_owned));
    let mut command = place.command(line);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let folder = place.state().join("targets/local/jobs");
    let ends = Instant::now() + Duration::from_secs(60);
    while std::fs::read_dir(&folder).map_or(0, Iterator::count) < 5 {
        assert!(Instant::now() < ends, "no task was submitted");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

/// Ctrl-C in the middle: the tasks so far run, the message has the handle, and the set stays cancelled once it was.
#[test]
fn a_submission_that_is_interrupted_says_how_far_it_came() {
    let place = Place::new();
    let child = submitting(&place);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let done = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(err.contains("interrupted before all tasks were submitted"), "{err}");
    assert!(err.contains("of 300 tasks") && err.contains("local://local/set/many#"), "{err}");
    let set = jobs(&place, "list -b local --all -o json");
    assert_eq!((set.len(), &set[0]["tasks"]["total"]), (1, &Value::from(300)), "{set:?}");
    let made = jobs(&place, "list -b local --all --all-tasks -o json").len();
    assert!(made < 300, "{made}");

    let cancelled = place.run("cancel -b local many").ok();
    assert!(cancelled.err.contains(&format!("{made} of its 300 tasks")), "{}", cancelled.err);
    let waited = place.run("wait -b local many").code(1);
    assert!(waited.err.contains("not in the cluster"), "{}", waited.err);
    let listed = place.run("list -b local --all -o json").ok();
    assert!(!listed.err.contains("submits the rest"), "{}", listed.err);
    assert_eq!(jobs(&place, "list -b local --all --all-tasks -o json").len(), made, "no more were made");
}

#[test]
fn a_job_starts_after_another_one() {
    let place = Place::new();
    let go = place.path("go");
    let script = format!("until test -e {}; do sleep 0.1; done; exit 3", go.display());
    let first =
        place.command(["submit", "-b", "local", "--name", "first", "--", "sh", "-c", script.as_str()]);
    let first = crate::place::Done::of(first).ok().out.trim().to_owned();
    place.run("submit -b local --name needs --after first -- true").ok();
    let any =
        place.run(&format!("submit -b local --name follows --after afterany:{first} -- echo done")).ok();
    let waits = jobs(&place, "list -b local -o json");
    let waits: Vec<&Value> = waits.iter().filter(|job| job["phase"] == "pending").collect();
    assert_eq!(waits.len(), 2, "{waits:?}");
    assert_eq!(waits[0]["reason"], "waits for the end of first");
    place.write("go", "");
    place.run(&format!("wait {}", any.out.trim())).ok();
    let needs = place.run("wait -b local needs").code(1);
    assert!(needs.err.contains("first has ended (failed)"), "{}", needs.err);
    for (after, said) in
        [("first", "has ended (failed)"), ("nojob", "there is no job"), ("aftercorr:first", "no condition")]
    {
        let refused = place.run(&format!("submit -b local --name never --after {after} -- true"));
        assert!(refused.code != 0 && refused.err.contains(said), "{after}: {}", refused.err);
    }
    assert!(jobs(&place, "list -b local --all -o json").iter().all(|job| job["name"] != "never"));
}

#[test]
fn what_a_backend_cannot_do_with_tasks_is_refused_with_what_to_do() {
    let place = Place::new();
    for (line, said) in [
        ("-b kubeflow --image i --array 0-3%2", "Kueue"),
        ("-b kubeflow --image i --after x", "weftrun wait HANDLE"),
        ("-b hosts --array 0-3", "does not run jobs of many tasks"),
        ("-b runai --image i --sweep lr=1,2", "does not run jobs of many tasks"),
        ("-b local --array 0-1000", "at most 1000"),
        ("-b local --sweep lr=1 --array 0-1", "remove one of them"),
        ("-b local --sweep LR=1", "cannot be the name of a parameter"),
        ("-b local --sweep task=1,2", "is the number of the task"),
        ("-b local --sweep lr=", "`lr` has an empty value"),
        ("-b local --sweep lr=1,,2", "`lr` has an empty value"),
        ("-b local --sweep lr=1 --env WEFTRUN_SWEEP_LR=2", "each task has its own `WEFTRUN_SWEEP_LR`"),
        ("-b local --array 0-1 --env WEFTRUN_TASK=2", "each task has its own `WEFTRUN_TASK`"),
        ("-b local --parallel 2", "for the tasks of an `array` or a `sweep`"),
        ("-b local --array 0-3%0", "is not a list of tasks"),
    ] {
        let done = place.run(&format!("render {line} -- true"));
        assert!(done.code > 1 && done.err.contains(said), "{line}: {} {}", done.code, done.err);
    }
    let retried = place.run("submit -b local --retry 2 --array 0-3 -- true");
    assert!(
        retried.code == 3 && retried.err.contains("those that succeeded would run twice"),
        "{}",
        retried.err
    );
    let union = place.run("plan -b local --sweep lr=1 --sweep seed=7 --sweep lr=2,3 -- true").ok();
    assert!(
        union.out.contains("3 tasks, each like this: lr=1 seed=7; lr=2 seed=7; lr=3 seed=7"),
        "{}",
        union.out
    );
    let one = place.run("plan -b local --sweep lr=1 -- true").ok();
    assert!(one.out.contains("1 task, each like this: lr=1"), "{}", one.out);
    let twice = place.run("plan -b local --sweep lr=1,1 -- true").ok();
    assert!(format!("{}{}", twice.out, twice.err).contains("`1` stands twice"), "{}", twice.err);
    let typo = place.run("render -b local --sweep lr=1,2 -- train.py {lr} {rl}").ok();
    assert!(typo.err.contains("`{rl}` in the command is no parameter"), "{}", typo.err);
    let many: Vec<String> = (0..1001).map(|value| value.to_string()).collect();
    let done = place.run(&format!("plan -b local --sweep lr={} -- true", many.join(",")));
    assert!(done.code == 3 && done.err.contains("1001 combinations"), "{}", done.err);
}

/// A manifest of each task, with names, labels and values of its own.
#[test]
fn a_sweep_on_kubernetes_is_a_job_for_each_task() {
    let place = Place::new();
    let done =
        place.run("render -b kubeflow --image i --name grid --sweep lr=1,2 -- train.py --lr={lr}").ok();
    let documents: Vec<&str> = done.out.split("---\n").collect();
    assert_eq!(documents.len(), 2, "{}", done.out);
    for (task, document) in documents.iter().enumerate() {
        for said in [
            format!("name: grid-{task}\n"),
            format!("weftrun.dev/task: '{task}'"),
            "weftrun.dev/tasks: '2'".to_owned(),
            format!("--lr={}", task + 1),
        ] {
            assert!(document.contains(&said), "{said}: {document}");
        }
    }
    assert_eq!(
        done.out,
        place.run("render -b kubeflow --image i --name grid --sweep lr=1,2 -- train.py --lr={lr}").ok().out
    );
}
