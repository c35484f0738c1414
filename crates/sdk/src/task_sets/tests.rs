use super::*;

#[test]
fn a_set_has_a_handle_of_its_own() {
    for (task, set) in [
        ("local://here/lr-0#1", "local://here/set/lr#abc"),
        ("kubeflow://prod/ns/pytorchjob/lr-0#1", "kubeflow://prod/ns/set/lr#abc"),
    ] {
        let task: JobHandle = task.parse().unwrap();
        let handle = set_handle(&task, "lr", "abc");
        assert_eq!(handle.to_string(), set);
        assert_eq!((set_of(&handle), set_of(&task)), (Some("abc"), None));
    }
}

#[test]
fn the_submissions_of_tasks_differ_from_their_beginning() {
    let set = SubmissionId::from_random(7);
    let mut beginnings: Vec<String> =
        (0..MAX_TASKS).map(|task| submission_of(&set, task).as_str().chars().take(8).collect()).collect();
    assert_eq!(submission_of(&set, 3), submission_of(&set, 3));
    beginnings.sort();
    beginnings.dedup();
    assert_eq!(beginnings.len(), usize::try_from(MAX_TASKS).unwrap());
}
