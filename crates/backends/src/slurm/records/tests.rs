use super::*;

#[test]
fn rows_of_squeue_with_hostile_names() {
    let row = |id: &str, task: &str, name: &str| {
        format!(
            "{id}|50|{task}|RUNNING|None|n[1-2]|2|gpu|1795053600|1795053601|N/A|me|weftrun:0a1b:efa|{name}"
        )
        .replace('|', "\u{1f}")
    };
    let text = format!("{}\u{1e}\n{}\u{1e}\n", row("50_3", "3", "a\nb\u{7}=x"), row("55+1", "N/A", "het"));
    let jobs = queue(&text).unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!((jobs[0].number, jobs[0].task, jobs[0].name.as_str()), (50, Some(3), "a\nb\u{7}=x"));
    assert_eq!((jobs[1].number, jobs[1].component, jobs[1].task), (55, Some(1), None));
    assert_eq!(jobs[0].marker.as_ref().map(|marker| marker.submission.as_str()), Some("0a1b"));
    assert!(
        jobs[0].belongs_to(&JobId::whole(50)) && !jobs[0].belongs_to(&JobId { number: 50, task: Some(4) })
    );
}

#[test]
fn what_is_no_answer_of_squeue_is_no_empty_queue() {
    assert_eq!(queue("").unwrap(), []);
    assert_eq!(queue("\n").unwrap(), []);
    let error = queue("\u{1b}]0;PWNED\u{7}<html>502 Bad Gateway").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(
        error.to_string().contains("502 Bad Gateway") && !error.to_string().contains('\u{1b}'),
        "{error}"
    );
}

#[test]
fn lives_of_a_requeued_job() {
    let row = |state: &str, exit: &str, name: &str| {
        let submit = "sbatch --comment=weftrun:0a1b:efa -J x";
        format!("124|124|{state}|{exit}|n[1-2]|2|gpu|1795053600|1795053601|Unknown|{submit}|{name}")
            .replace('|', "\u{1f}")
    };
    let text = format!("{}\n{}\n", row("NODE_FAIL", "0:0", "two\nlines"), row("RUNNING", "0:0", "x"));
    let lives = accounting(&text).unwrap();
    assert_eq!(lives.iter().map(|life| life.state.as_str()).collect::<Vec<_>>(), ["NODE_FAIL", "RUNNING"]);
    assert_eq!(lives[0].name, "two\nlines");
    assert_eq!(lives[1].marker.as_ref().map(Marker::text).as_deref(), Some("weftrun:0a1b:efa"));
}

/// Labels are the last part of the marker, and an older weftrun reads what stands before them.
#[test]
fn a_marker_carries_the_labels_of_a_job() {
    for (text, labels) in [
        ("weftrun:0a1b:efa::team=nlp,x.dev/tier=a_1.b", &[("team", "nlp"), ("x.dev/tier", "a_1.b")][..]),
        ("weftrun:0a1b::ps,worker:team=nlp", &[("team", "nlp")]),
        ("weftrun:0a1b:efa", &[]),
    ] {
        let marker = Marker::find(&format!("--comment={text} -J x")).unwrap();
        let read = marker.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        assert_eq!(read.collect::<Vec<_>>(), labels, "{text}");
        assert_eq!(marker.text(), text);
    }
}

/// Each component of a heterogeneous job is shown under the name of its role.
#[test]
fn a_marker_names_the_roles_of_components() {
    for (text, roles) in [
        ("--comment=weftrun:0a1b:efa:ps,chief-worker -J x", &["ps", "chief-worker"][..]),
        ("weftrun:0a1b:efa", &[]),
        ("weftrun:0a1b:", &[]),
    ] {
        let marker = Marker::find(text).unwrap();
        assert_eq!(marker.roles, roles, "{text}");
        assert!(text.contains(&marker.text()), "{text}");
        let job = Job { component: Some(1), nodes: "n7".into(), marker: Some(marker), ..Job::default() };
        let shown = crate::slurm::status::replicas(&[&job]);
        assert_eq!(shown[0].role, roles.get(1).copied().unwrap_or("component1"));
    }
}

/// The recorded outputs of real clusters; for their origin see `tests/cases/slurm/README.md`.
#[test]
fn scontrol_of_every_release() {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/slurm");
    for release in ["22.05", "24.11", "26.05"] {
        let text = std::fs::read_to_string(format!("{cases}/{release}/show-job.txt"))
            .expect("the case is in the tree");
        let jobs = shown(&text).unwrap();
        let read: Vec<_> = jobs
            .iter()
            .map(|job| (job.state.as_str(), job.exit_code, job.step_exit_code, job.restarts))
            .collect();
        assert_eq!(
            read,
            [
                ("FAILED", Some(3), Some(0), 0),
                ("FAILED", Some(255), Some(0), 0),
                ("FAILED", Some(137), Some(0), 0),
                ("FAILED", Some(139), Some(139), 0),
                ("COMPLETED", Some(0), Some(5), 0),
                ("PENDING", Some(0), None, 1),
            ],
            "{release}"
        );
        assert!(
            jobs.iter().all(|job| job.stdout.as_deref().is_some_and(|path| path.starts_with("/fsx/slurm-"))),
            "{release}"
        );
    }
}

/// Renders each row of a release: id, phase, reason, exit code, marker, name.
fn told(jobs: &[Job]) -> String {
    let one = |job: &Job| {
        let phase = job.phase();
        let code = job.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        let marker =
            job.marker.as_ref().map_or("-", |marker| marker.fabric.map_or("", |fabric| fabric.as_str()));
        let said = crate::slurm::state::sentence(&job.state, &job.reason);
        format!("{:<4} {phase} exit {code} {marker} {:?} on {:?}: {said}", job.printed, job.name, job.nodes)
    };
    jobs.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// The outputs that `test-cluster/slurm/record.sh` recorded of each release.
#[test]
fn rows_of_every_release() {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/slurm");
    for release in ["22.05", "24.11", "26.05"] {
        let file = |name: &str| {
            std::fs::read_to_string(format!("{cases}/{release}/{name}.txt")).expect("the case is in the tree")
        };
        let (queue, accounting) = (queue(&file("queue")).unwrap(), accounting(&file("accounting")).unwrap());
        insta::assert_snapshot!(format!("queue_{release}"), told(&queue));
        insta::assert_snapshot!(format!("accounting_{release}"), told(&accounting));
        // Epoch seconds everywhere: no row depends on the head node's time zone.
        assert!(queue.iter().chain(&accounting).all(|job| job.submitted.is_some()), "{release}");
        assert!(queue.iter().all(|job| job.user == "researcher"), "{release}");
    }
}

/// The tasks of an array that wait are one row of Slurm; each counts, and has a line of its own.
#[test]
fn the_tasks_of_an_array_that_wait_are_counted_and_listed() {
    let waiting = Job {
        printed: "7_[2-5,9%2]".to_owned(),
        number: 7,
        state: "PENDING".to_owned(),
        reason: "JobArrayTaskLimit".to_owned(),
        node_count: 2,
        ..Job::default()
    };
    let mut running = Job::task_of_array(0, "RUNNING");
    (running.node_count, running.exit_code) = (2, Some(0));
    let rows = [&waiting, &running];
    let handle = weftrun_core::job::JobHandle::new("slurm", "pc", ["7"]);
    let summary = crate::slurm::status::summary(handle.clone(), &rows, None);
    assert_eq!((summary.ready, summary.reason.as_str()), ((2, 12), "1 running, 5 pending"));
    let tasks: Vec<Job> = rows.iter().flat_map(|row| row.each_task()).collect();
    let shown = crate::slurm::status::replicas(&tasks.iter().collect::<Vec<_>>());
    let lines: Vec<(&str, u32, Option<i32>)> =
        shown.iter().map(|task| (task.name.as_str(), task.index, task.exit_code)).collect();
    assert_eq!(
        lines,
        [
            ("7_2", 2, None),
            ("7_3", 3, None),
            ("7_4", 4, None),
            ("7_5", 5, None),
            ("7_9", 9, None),
            ("7_0", 0, None)
        ],
        "a task that runs has no exit code"
    );
    let held = Job { reason: "JobHeldUser".to_owned(), ..waiting.clone() };
    let summary = crate::slurm::status::summary(handle, &[&held, &running], None);
    assert_eq!(summary.reason, "1 running, 5 held");
    let many = Job { printed: "7_[0-4000000]".to_owned(), ..waiting };
    assert_eq!(many.each_task(), std::slice::from_ref(&many), "nothing is built of too many");
}

/// Slurm has NO_VAL for the number of a task that is none yet.
#[test]
fn a_log_of_waiting_tasks_has_no_number_of_slurms_own() {
    let shown =
        shown("JobId=7 ArrayJobId=7 ArrayTaskId=2-5%2\n   StdOut=/fsx/a-7_4294967294-0a.log\n").unwrap();
    assert_eq!(shown[0].stdout.as_deref(), Some("/fsx/a-7_%a-0a.log"));
}
