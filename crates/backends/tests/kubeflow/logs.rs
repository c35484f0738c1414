//! Logs that are hard to follow: of jobs that are over, over rotations of the node, over cut lines, with new credentials.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use weftrun_core::ErrorKind;
use weftrun_core::job::{Action, JobPhase};
use weftrun_core::log::{LogOptions, Mark};
use weftrun_core::spec::{Code, JobSpec, Launch, Role};

use crate::cluster::{
    IMAGE, PATIENCE, Read, Running, TestCluster, cluster, job, name, of_kind, poll, restarting,
};
use crate::ending::Ending;
use crate::line::Line;

fn following(change: impl FnOnce(&mut LogOptions)) -> LogOptions {
    let mut options = LogOptions::follow();
    change(&mut options);
    options
}

/// Every line of a job that counts once, in order, and nothing else.
fn assert_counted(read: &Read, to: usize) {
    let wanted: Vec<String> = (1..=to).map(|step| format!("step {step}")).collect();
    let seen: Vec<&str> = read.text.lines().collect();
    let differs = wanted.iter().zip(&seen).position(|(wanted, seen)| wanted != seen);
    let at = differs.unwrap_or(seen.len().min(wanted.len()));
    assert_eq!(seen.len(), to, "differs at {at}: {:?}; {:?}", seen.get(at), read.marks);
    assert_eq!(differs, None, "{:?} instead of {:?}; {:?}", seen[at], wanted[at], read.marks);
}

async fn ended(cluster: &TestCluster, what: &str, script: &str) -> Running {
    let running = cluster.submit(job(what, 1, script)).await;
    running.wait().await;
    running
}

/// A reader that starts after the end reads the same as one that followed.
#[tokio::test]
async fn a_job_that_is_over_is_followed_to_its_end() {
    let Some(cluster) = cluster() else { return };
    // On a node that does not rotate so small a log: what is rotated away, no server gives out any more. And it does not end
    // at once: what was read of such a log on a loaded node ended in the middle of a line (2026-11-21), and a runtime that has
    // yet to read a pipe whose writer is gone is one of the possible causes.
    let node = json!({"node-selector": {"kubernetes.io/hostname": "node-0"}});
    let script = "for i in $(seq 30000); do echo step $i; done; sleep 5";
    let running = cluster.submit(of_kind(job("over", 1, script), node)).await;
    running.wait().await;
    assert_counted(&running.follow().await, 30000);
    let tail = running.read(following(|options| options.tail = Some(3))).await;
    assert_eq!(tail.text, "step 29998\nstep 29999\nstep 30000\n", "{:?}", tail.marks);
    assert!(tail.gaps().is_empty(), "{:?}", tail.marks);
    let hour = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1);
    assert_counted(&running.read(following(|options| options.since = Some(hour))).await, 30000);
    let both = following(|options| (options.since, options.tail) = (Some(hour), Some(1)));
    assert_eq!(running.read(both).await.text, "step 30000\n");
    let later = jiff::Timestamp::now();
    let none = running.read(following(|options| options.since = Some(later))).await;
    assert_eq!(none.text, "");
    // It was never started again; `follow` changes nothing in that.
    let previous = running.read(following(|options| options.previous = true)).await;
    assert_eq!(previous.text, "");
    assert!(previous.notes()[0].contains("no previous attempt"), "{:?}", previous.marks);
    assert!(previous.gaps().is_empty(), "nothing is missing: {:?}", previous.marks);
    running.delete().await;
}

/// Pods that are gone have no logs, which is reported; an empty answer would look like a job without output.
#[tokio::test]
async fn a_job_without_pods_says_that_there_is_no_log() {
    let Some(cluster) = cluster() else { return };
    let running = ended(&cluster, "podless", "echo gone soon").await;
    let pod = format!("{}-worker-0", running.handle.name());
    cluster.kubectl(&["delete", "pod", &pod]);
    for options in [LogOptions::follow(), LogOptions::default()] {
        let read = running.read(options).await;
        assert_eq!(read.text, "");
        assert!(read.gaps().iter().any(|gap| gap.contains("no pods")), "{:?}", read.marks);
    }
    running.delete().await;
}

/// The pods of a job that had the name before are not this job's, though they have its label and are still there.
#[tokio::test]
async fn pods_of_a_job_of_the_same_name_are_not_read() {
    let Some(cluster) = cluster() else { return };
    let script = "trap 'echo old ends; sleep 6; exit 0' TERM; echo old; while :; do sleep 0.1; done";
    let old = cluster.submit(job("same", 1, script)).await;
    old.phase(JobPhase::Running).await;
    let name = old.handle.name().to_owned();
    old.delete().await;
    let mut spec = job("same", 1, "echo new");
    spec.name = name;
    let new = cluster.submit(spec).await;
    let (read, (end, _)) = tokio::join!(new.follow(), new.wait());
    assert_eq!(end.phase, JobPhase::Succeeded, "{end:?}");
    assert_eq!(read.text, "new\n", "{:?}", read.marks);
    new.delete().await;
}

/// With fewer streams than containers they take turns: all is read, once.
#[tokio::test]
async fn fewer_streams_than_containers() {
    let Some(cluster) = cluster() else { return };
    let script = "for i in $(seq 40); do echo $NODE_RANK at $i; sleep 0.5; done";
    let running = cluster.submit(job("turns", 3, script)).await;
    let mut logs = running.backend.logs(&running.handle, following(|options| options.max_streams = 1));
    let mut read = Read::default();
    // One that waits until another is done would be read only when that one has counted to its end.
    let mut late = Vec::new();
    let reading = async {
        while let Some(batch) = logs.next().await {
            read.add(&batch.unwrap());
            for node in 0..3 {
                if !late.contains(&node) && read.count(&format!("{node} at 1")) == 1 {
                    late.push(node);
                    let done = (0..3).any(|node| read.count(&format!("{node} at 40")) == 1);
                    assert!(!done, "node {node} had to wait for the end of another");
                }
            }
        }
    };
    tokio::time::timeout(2 * PATIENCE, reading).await.unwrap();
    for node in 0..3 {
        for step in 1..=40 {
            assert_eq!(read.count(&format!("{node} at {step}")), 1, "node {node}, {step}: {:?}", read.marks);
        }
    }
    assert!(read.gaps().is_empty(), "{:?}", read.marks);
    running.delete().await;
}

/// Streams beyond the first 16 share HTTP/2 connections, and each line is read once.
#[tokio::test]
async fn more_containers_than_have_a_connection_of_their_own() {
    const NODES: u32 = 24;
    let Some(cluster) = cluster() else { return };
    let script = "for i in $(seq 10); do echo $NODE_RANK at $i; sleep 1; done";
    let running = cluster.submit(job("shared", NODES, script)).await;
    let read = running.follow().await;
    for node in 0..NODES {
        for step in 1..=10 {
            assert_eq!(read.count(&format!("{node} at {step}")), 1, "node {node}, {step}: {:?}", read.marks);
        }
    }
    assert!(read.gaps().is_empty(), "{:?}", read.marks);
    running.delete().await;
}

/// A stream that ends well while its container runs is not the end: it is opened again, and no line is lost or comes twice.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_the_server_ends_are_opened_again() {
    let Some(cluster) = cluster() else { return };
    let ending = Ending::start(&cluster, 3).await;
    let running =
        cluster.submit(job("ends", 1, "for i in $(seq 400); do echo step $i; sleep 0.1; done")).await;
    let backend = cluster.connect_to(cluster.target(&ending.proxy.kubeconfig)).await.unwrap();
    let running = Running { backend, handle: running.handle };
    let read = running.follow().await;
    assert_counted(&read, 400);
    assert_eq!(ending.left.load(Ordering::SeqCst), 0, "not all of the streams were ended");
    running.delete().await;
}

/// Init containers are read on request.
#[tokio::test]
async fn init_containers_on_request() {
    let Some(cluster) = cluster() else { return };
    // With torchrun there is a master, for which the workers' init containers wait. Its end ends the job.
    let text = "[ $RANK = 1 ] || sleep 5\necho trained\n".into();
    let code = Code::Script { name: "train.py".into(), text };
    let spec = JobSpec::builder(name("init")).image(IMAGE).launch(Launch::Torchrun).code(code);
    let spec = spec.role(Role::worker().nodes(2).command(["train.py"])).build().unwrap();
    let running = cluster.submit(spec).await;
    let init = |read: &Read| read.sources.iter().filter(|source| source.ends_with("/init-pytorch")).count();
    let (whole, plain) =
        tokio::join!(running.read(following(|options| options.init = true)), running.follow());
    assert_eq!((init(&plain), init(&whole)), (0, 1), "{:?} {:?}", plain.sources, whole.sources);
    // The operator's own one looks up the master's name.
    assert!(whole.text.contains("-master-0") && !plain.text.contains("-master-0"), "{}", whole.text);
    assert!(plain.count("trained") >= 1 && whole.count("trained") >= 1, "{}", plain.text);
    running.delete().await;
}

/// Lines of a job whose log is rotated: about 5 MB on the node.
const ROTATED: u32 = 60_000;

/// A job on the node that rotates logs after a megabyte, as it sees every three seconds. It writes slowly enough for a
/// kubelet on a busy machine: one that lags behind a rotation skips the rest of the old file without a sign.
async fn rotating(cluster: &TestCluster, what: &str) -> Running {
    let script = format!(
        "i=0; while [ $i -lt {ROTATED} ]; do i=$((i + 1)); echo step $i; [ $((i % 250)) = 0 ] && sleep 0.1; done; true"
    );
    let node = json!({"node-selector": {"kubernetes.io/hostname": "node-3"}});
    let running = cluster.submit(of_kind(job(what, 1, &script), node)).await;
    running.phase(JobPhase::Running).await;
    running
}

/// The files of a container's log on the node.
fn rotated(cluster: &TestCluster, running: &Running) -> usize {
    let logs = cluster.state.join("nodes/node-3/logs");
    let ours = |entry: &std::fs::DirEntry| {
        entry.file_name().to_string_lossy().contains(&format!("{}-worker-0", running.handle.name()))
    };
    let pod = std::fs::read_dir(logs).unwrap().filter_map(Result::ok).find(ours).unwrap();
    std::fs::read_dir(pod.path().join("pytorch")).unwrap().count()
}

/// The kubelet rotates the log of a container while it is followed.
#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_is_rotated() {
    let Some(cluster) = cluster() else { return };
    let running = rotating(&cluster, "rotate").await;
    let (read, (end, _)) = tokio::join!(running.follow(), running.wait());
    assert_eq!(end.phase, JobPhase::Succeeded, "{end:?}");
    assert!(rotated(&cluster, &running) > 1, "the log was not rotated");
    assert_counted(&read, ROTATED as usize);
    running.delete().await;
}

/// The log is rotated while the connection is cut: the node serves only the new file, so lines are lost,
/// which is reported at that position.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_rotated_while_the_line_is_cut() {
    let Some(cluster) = cluster() else { return };
    let running = rotating(&cluster, "torn").await;
    let line = Line::start(&cluster).await;
    let backend = cluster.connect_to(cluster.target(&line.kubeconfig)).await.unwrap();
    let mut logs = backend.logs(&running.handle, LogOptions::follow());
    // The numbers in order, and the positions of reported gaps.
    let (mut seen, mut gaps) = (Vec::<u64>::new(), Vec::new());
    let reading = async {
        let mut cut = false;
        let mut text = String::new();
        while let Some(batch) = logs.next().await {
            let batch = batch.unwrap();
            if let Some(Mark::Gap { reason }) = &batch.mark {
                gaps.push((seen.len(), reason.clone()));
            }
            text.push_str(&String::from_utf8_lossy(&batch.bytes));
            let end = text.rfind('\n').map_or(0, |at| at + 1);
            let whole: String = text.drain(..end).collect();
            seen.extend(
                whole.lines().map(|line| line.strip_prefix("step ").unwrap().parse::<u64>().unwrap()),
            );
            if !cut && seen.len() > 3000 {
                cut = true;
                line.cut();
                let before = rotated(&cluster, &running);
                poll("a rotation", || (rotated(&cluster, &running) > before).then_some(()));
                // The file that holds what was read last is another one now.
                line.mend();
            }
        }
    };
    tokio::time::timeout(2 * PATIENCE, reading).await.unwrap();
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "repeated, or out of order");
    let missing: Vec<_> = (1..seen.len()).filter(|at| seen[*at] != seen[at - 1] + 1).collect();
    for at in &missing {
        let said = gaps.iter().any(|(before, reason)| before == at && reason.contains("rotated"));
        assert!(said, "between {} and {} without a mark: {gaps:?}", seen[at - 1], seen[*at]);
    }
    assert_eq!(seen.last(), Some(&u64::from(ROTATED)));
    running.delete().await;
}

/// A token expires while a job is followed: one that was renewed in its file is read again, and nothing is
/// lost; one that stays is refused, with the hint to log in again.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_expires_while_following() {
    let Some(cluster) = cluster() else { return };
    let rules = "[{apiGroups: ['', kubeflow.org], resources: [pods, pods/log, pytorchjobs, events], verbs: [get, list, watch]}]";
    let token = |kubeconfig: &std::path::Path| {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        text.split("{token: ").nth(1).unwrap().split('}').next().unwrap().to_owned()
    };
    let old = cluster.account("rotate-old", rules);
    let new = token(&cluster.account("rotate-new", rules));
    let folder = tempfile::tempdir().unwrap();
    let (file, config) = (folder.path().join("token"), folder.path().join("config"));
    std::fs::write(&file, token(&old)).unwrap();
    let text = std::fs::read_to_string(&old).unwrap();
    let inline = format!("{{token: {}}}", token(&old));
    std::fs::write(&config, text.replace(&inline, &format!("{{tokenFile: {}}}", file.display()))).unwrap();

    let running =
        cluster.submit(job("token", 1, "for i in $(seq 260); do echo step $i; sleep 0.5; done")).await;
    running.phase(JobPhase::Running).await;
    let (rotated, kept) = (Line::of(&config).await, Line::of(&old).await);
    let follow = async |line: &Line| {
        let backend = cluster.connect_to(cluster.target(&line.kubeconfig)).await.unwrap();
        let mut logs = backend.logs(&running.handle, LogOptions::follow());
        let (mut read, mut refused) = (Read::default(), None);
        let reading = async {
            while let Some(batch) = logs.next().await {
                match batch {
                    Ok(batch) => read.add(&batch),
                    Err(error) => refused = Some(error),
                }
            }
        };
        tokio::time::timeout(2 * PATIENCE, reading).await.expect("the logs do not end");
        (read, refused)
    };
    let expire = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        std::fs::write(&file, &new).unwrap();
        cluster.kubectl(&["delete", "serviceaccount", "rotate-old"]);
        // The API server believes for ten seconds more what it knew of a token.
        tokio::time::sleep(Duration::from_secs(12)).await;
        rotated.cut();
        kept.cut();
        rotated.mend();
        kept.mend();
    };
    let ((read, error), (_, refused), ()) = tokio::join!(follow(&rotated), follow(&kept), expire);
    assert!(error.is_none(), "{error:?}");
    assert_counted(&read, 260);
    let refused = refused.expect("an expired token is believed");
    assert_eq!(refused.kind(), ErrorKind::Credentials, "{refused}");
    assert!(refused.hints()[0].contains("log in again"), "{:?}", refused.hints());
    running.delete().await;
}

/// Only what a cursor leaves is read, also when the container was started again meanwhile.
#[tokio::test]
async fn a_cursor_of_an_attempt_before_is_continued_with_the_next() {
    let Some(cluster) = cluster() else { return };
    let script = "for i in $(seq 20); do echo step $i; sleep 0.3; done; exit 3";
    let running = cluster.submit(restarting(job("cursor", 1, script), 1)).await;
    let mut first = running.backend.logs(&running.handle, LogOptions::follow());
    let (mut before, mut cursor) = (Read::default(), None);
    while before.count("step 10") == 0 {
        let batch = first.next().await.unwrap().unwrap();
        before.add(&batch);
        cursor = Some(batch.cursor.clone());
    }
    drop(first);
    let rest = running.read(following(|options| options.from = cursor.into_iter().collect())).await;
    let attempts = rest.marks.iter().filter(|(_, _, mark)| matches!(mark, Mark::Ended { .. })).count();
    for step in 1..=20 {
        let line = format!("step {step}");
        // The operator ends the one after the last that is allowed, wherever it is by then.
        let times = before.count(&line) + rest.count(&line);
        assert!((2..=attempts).contains(&times), "{line} came {times} times: {:?}", rest.marks);
    }
    assert!(rest.gaps_below(2).is_empty(), "{:?}", rest.marks);
    running.backend.act(&running.handle, Action::Delete).await.unwrap();
}

/// Without the right to read logs a follower is refused while the job has no pods yet, not only when its first container starts.
#[tokio::test]
async fn a_follower_without_the_right_to_logs_is_refused_at_once() {
    let Some(cluster) = cluster() else { return };
    let running = cluster.submit(of_kind(job("blind", 1, "true"), json!({"suspend": true}))).await;
    let account = name("blind");
    let rules = "[{apiGroups: ['', kubeflow.org], resources: [pods, pytorchjobs, events], verbs: [get, list, watch]}]";
    let backend = cluster.connect_to(cluster.target(&cluster.account(&account, rules))).await.unwrap();
    let mut logs = backend.logs(&running.handle, LogOptions::follow());
    let first = tokio::time::timeout(PATIENCE, logs.next()).await.expect("nothing is reported");
    let error = first.expect("the logs have ended").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credentials, "{error}");
    assert!(error.hints()[0].contains("pods/log"), "{:?}", error.hints());
    running.delete().await;
}
