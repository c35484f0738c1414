//! Jobs of many tasks: a set of jobs with one handle.

use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{cluster, name};
use crate::losing::Losing;
use crate::shell::{Ran, Shell};

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
    // So many that the client is not done before it is killed, however slow the look at the cluster is.
    let seeds: Vec<String> = (0..24).map(|seed: u32| seed.to_string()).collect();
    shell.write("sweep.toml", &sweep(&name, &seeds.join(", ")).replace("test {task} != 1", "false"));
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
    eprintln!("{before} of 24 tasks were submitted before the kill");
    assert!(again.stderr.contains("continuing with this job") || before == 24, "{}", again.stderr);
    assert_eq!(tasks_of(&shell, &name), (0..24).collect::<Vec<u32>>(), "each task once");
    shell.delete(again.stdout.trim());
}

/// Each create goes through, and its answer never comes: it is sent once all the same, and the set is whole.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_inside_a_set_make_one_job_a_task() {
    let Some(cluster) = cluster() else { return };
    let losing = Losing::start(&cluster).await;
    let mut shell = Shell::of(cluster, "researcher");
    shell.kubeconfig.clone_from(&losing.proxy.kubeconfig);
    let name = name("cli-lost");
    shell.write("sweep.toml", &sweep(&name, "1, 2, 3, 4").replace("test {task} != 1", "true"));
    let mut command = shell.command(&shell.binary, &["submit", "-b", "kubeflow", "sweep.toml"]);
    let submitting = tokio::task::spawn_blocking(move || command.output().unwrap());
    let mut lost = 0;
    while !submitting.is_finished() {
        lost += usize::from(!losing.armed.swap(true, Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ran = Ran::from(submitting.await.unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(lost >= 3, "only {lost} answers were lost");
    assert_eq!(losing.creates.load(Ordering::SeqCst), 4, "none was sent again");
    losing.armed.store(false, Ordering::SeqCst);
    assert_eq!(tasks_of(&shell, &name), [0, 1, 2, 3], "each task once");
    shell.delete(ran.stdout.trim());
}

/// A job that does not start is cancelled, and its command says why it did not.
#[test]
fn a_job_has_a_time_to_start() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster, "researcher");
    let name = name("cli-late");
    let job = sweep(&name, "1").replace("busybox:1.36", "registry.invalid/none:1");
    shell.write("job.toml", job.split("[sweep]").next().unwrap_or_default());
    shell.write("sweep.toml", &job.replace("seed = [1]", "seed = [1, 2]"));
    for file in ["job.toml", "sweep.toml"] {
        let late = shell.weftrun(&["submit", "-b", "kubeflow", file, "--wait", "--start-timeout", "8s"]);
        assert_eq!(late.code, 124, "{}", late.stderr);
        let said = late.stderr;
        assert!(said.contains("did not start within 8 s, and was cancelled"), "{said}");
        assert!(said.contains("registry.invalid/none:1"), "why it did not: {said}");
        let listed = || shell.weftrun(&["list", "-b", "kubeflow", "-o", "json"]).stdout;
        crate::cluster::poll("it is cancelled", || (!listed().contains(&name)).then_some(()));
        let all = shell.weftrun(&["list", "-b", "kubeflow", "--all", "-o", "json"]);
        let all: Value = serde_json::from_str(&all.stdout).unwrap();
        let own = |job: &&Value| job["name"] == name.as_str();
        let handle = all["jobs"].as_array().into_iter().flatten().find(own).map(|job| job["handle"].clone());
        shell.delete(handle.as_ref().and_then(Value::as_str).unwrap());
    }
    let soon = sweep(&name, "1").replace("test {task} != 1", "true");
    shell.write("job.toml", soon.split("[sweep]").next().unwrap_or_default());
    let soon = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml", "--wait", "--start-timeout", "2m"]);
    assert_eq!(soon.code, 0, "{}", soon.stderr);
    shell.delete(soon.stdout.trim());
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
