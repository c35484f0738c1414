//! Jobs of many tasks: a set of jobs with one handle.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{cluster, name};
use crate::shell::Shell;

fn sweep(name: &str, values: &str) -> String {
    format!(
        "name = \"{name}\"\nimage = \"busybox:1.36\"\nnodes = 1\nfabric = \"off\"\n\
         command = [\"sh\", \"-c\", \"echo seed={{seed}} task=$WEFTRUN_TASK of $WEFTRUN_TASKS; test {{task}} != 1\"]\n\
         [sweep]\nseed = [{values}]\n"
    )
}

/// The jobs of a set, as the API server has them: each task's number, once for each job that has it.
fn tasks_of(shell: &Shell, name: &str) -> Vec<u32> {
    let all = shell.cluster.get(&["pytorchjobs"]);
    let of_set = |job: &Value| {
        let task = job["metadata"]["labels"]["weftrun.dev/task"].as_str()?;
        let own = job["metadata"]["name"].as_str()? == format!("{name}-{task}");
        own.then(|| task.parse().ok()).flatten()
    };
    let mut tasks: Vec<u32> = all["items"].as_array().into_iter().flatten().filter_map(of_set).collect();
    tasks.sort_unstable();
    tasks
}

#[test]
fn a_sweep_is_one_job_with_one_handle() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster, "researcher");
    let name = name("cli-sweep");
    shell.write("sweep.toml", &sweep(&name, "1, 2, 3"));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "sweep.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let handle = ran.stdout.trim().to_owned();
    assert!(handle.contains(&format!("/set/{name}#")), "{handle}");
    assert_eq!(tasks_of(&shell, &name), [0, 1, 2]);
    let listed = |further: &[&str]| {
        let words = [&["list", "-b", "kubeflow", "--all", "-o", "json"], further].concat();
        let jobs: Value = serde_json::from_str(&shell.weftrun(&words).stdout).unwrap();
        let jobs = jobs["jobs"].as_array().cloned().unwrap_or_default();
        jobs.into_iter()
            .filter(|job| job["name"].as_str().is_some_and(|own| own.starts_with(&name)))
            .collect::<Vec<_>>()
    };
    let folded = listed(&[]);
    assert_eq!((folded.len(), folded[0]["handle"].as_str()), (1, Some(handle.as_str())), "{folded:?}");
    assert_eq!(listed(&["--all-tasks"]).len(), 3);

    let waited = shell.weftrun(&["wait", &handle]);
    assert_eq!(waited.code, 1, "task 1 fails: {}", waited.stderr);
    assert!(waited.stderr.contains("1 task failed: 1 (seed=2)"), "{}", waited.stderr);
    assert_eq!(listed(&[])[0]["tasks"]["phases"], serde_json::json!({"succeeded": 2, "failed": 1}));
    let described = shell.weftrun(&["describe", &handle]);
    assert!(described.stdout.contains("seed=3"), "{}", described.stdout);
    let logs = shell.weftrun(&["logs", "--task", "2", "--no-prefix", &handle]);
    assert_eq!(logs.stdout, "seed=3 task=2 of 3\n", "{}", logs.stderr);
    shell.delete(&handle);
    let gone = || tasks_of(&shell, &name).is_empty().then_some(());
    crate::cluster::poll("the set is gone", gone);
}

/// A client that is killed in the middle of a submission: the same command submits the rest, and no task twice, also where
/// those before have failed meanwhile.
#[test]
fn a_submission_of_a_set_that_is_killed_is_continued() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster, "researcher");
    let name = name("cli-cut");
    shell.write("sweep.toml", &sweep(&name, "1, 2, 3, 4, 5, 6, 7, 8").replace("test {task} != 1", "false"));
    let mut command = shell.command(&shell.binary, &["submit", "-b", "kubeflow", "sweep.toml"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ends = Instant::now() + Duration::from_mins(1);
    while tasks_of(&shell, &name).len() < 2 {
        assert!(Instant::now() < ends, "no task was submitted");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = tasks_of(&shell, &name).len();
    std::thread::sleep(Duration::from_secs(5));
    let again = shell.weftrun(&["submit", "-b", "kubeflow", "sweep.toml"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    eprintln!("{before} of 8 tasks were submitted before the kill");
    assert!(again.stderr.contains("continuing with this job") || before == 8, "{}", again.stderr);
    assert_eq!(tasks_of(&shell, &name), (0..8).collect::<Vec<u32>>(), "each task once");
    shell.delete(again.stdout.trim());
}

/// What nothing in the cluster can do is refused before anything is sent.
#[test]
fn a_limit_of_tasks_is_refused_with_what_to_do() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster, "researcher");
    let name = name("cli-bound");
    shell.write("sweep.toml", &format!("parallel = 2\n{}", sweep(&name, "1, 2, 3")));
    let refused = shell.weftrun(&["submit", "-b", "kubeflow", "sweep.toml"]);
    assert!(refused.code == 4 && refused.stderr.contains("Kueue"), "{} {}", refused.code, refused.stderr);
    assert_eq!(tasks_of(&shell, &name), Vec::<u32>::new());
}
