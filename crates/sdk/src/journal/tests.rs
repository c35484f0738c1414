use super::*;

fn record(number: u32, state: RecordState) -> Record {
    let plan =
        serde_json::json!({"fabric": "off", "decisions": [], "skipped": [], "findings": [], "ops": []});
    Record {
        submission: SubmissionId::from_random(u128::from(number)),
        target: "local".to_owned(),
        name: format!("job{}", number % 7),
        state,
        handle: (state == RecordState::Submitted)
            .then(|| format!("local://local/job#{number:08x}").parse().unwrap()),
        created: Timestamp::from_second(1_700_000_000 + i64::from(number)).unwrap(),
        owner: Some(Owner::this()),
        plan: serde_json::from_value(plan).unwrap(),
        spec: None,
        undelivered: false,
        namespace: None,
        project: None,
        attempt: None,
    }
}

#[test]
fn an_undelivered_record_stays_until_its_handle_was_seen() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::new(state.path());
    let lost = Record { undelivered: true, ..record(0, RecordState::Submitted) };
    journal.write(&lost).unwrap();
    assert_eq!(journal.undelivered(|_| true).unwrap(), None, "its process may still print it");
    let lost = Record { owner: Some(Owner { started: 1, ..Owner::this() }), ..lost };
    journal.write(&lost).unwrap();
    for number in 1..=200 {
        journal.write(&record(number, RecordState::Submitted)).unwrap();
    }
    journal.recent().unwrap();
    assert_eq!(journal.undelivered(|_| true).unwrap().as_ref(), Some(&lost));
    assert_eq!(journal.undelivered(|record| record.name == "other").unwrap(), None);
    journal.deliver(lost.handle.as_ref().unwrap()).unwrap();
    assert_eq!(journal.undelivered(|_| true).unwrap(), None);
    assert!(!fs::read_to_string(journal.path(&lost.submission)).unwrap().contains("undelivered"));
}

#[test]
fn a_damaged_record_is_reported_with_its_reason() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::new(state.path());
    journal.write(&record(1, RecordState::Submitted)).unwrap();
    let contents: [&[u8]; 5] = [b"", b"{\"half\":", b"\xff\xfe", b"null", b"{\"state\": \"newer\"}"];
    for (number, bytes) in contents.iter().enumerate() {
        fs::write(journal.dir.join(format!("{number}.json")), bytes).unwrap();
    }
    std::os::unix::fs::symlink("/dev/zero", journal.dir.join("device.json")).unwrap();
    // Its head is readable, and its plan is not.
    journal.write(&record(2, RecordState::Unknown)).unwrap();
    let path = journal.path(&record(2, RecordState::Unknown).submission);
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("\"decisions\": []", "\"decisions\": 5"))
        .unwrap();
    let (heads, damaged) = journal.recent_and_damaged().unwrap();
    assert_eq!((heads.len(), damaged.len()), (2, contents.len() + 2), "{damaged:?}");
    assert!(damaged.iter().all(|file| !file.reason.is_empty()), "{damaged:?}");
}

#[test]
fn a_handle_without_a_uid_names_the_newest_job_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    for number in [1, 2, 3] {
        journal.write(&record(number, RecordState::Submitted)).unwrap();
    }
    let found =
        |handle: &str| journal.find(&handle.parse().unwrap()).unwrap().map(|record| record.submission);
    let of = |number: u32| Some(record(number, RecordState::Submitted).submission);
    assert_eq!(found("local://local/job"), of(3));
    assert_eq!(found("local://local/job#00000002"), of(2));
    assert_eq!(found("local://local/other"), None);
    assert_eq!(found("local://elsewhere/job"), None);
}

#[test]
fn ended_records_are_archived_and_still_found() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::new(state.path());
    let all: Vec<Record> = (0..300).map(|number| record(number, RecordState::Submitted)).collect();
    for record in &all {
        journal.write(record).unwrap();
    }
    let open = Record { name: "alone".to_owned(), ..record(1000, RecordState::Unknown) };
    journal.write(&open).unwrap();
    assert_eq!(journal.recent().unwrap().len(), 301, "the first look sees all of them");
    let recent = journal.recent().unwrap();
    assert!(recent.len() <= MAX_RECENT + 1, "{}", recent.len());
    assert_eq!(recent[0].submission, open.submission, "what is unresolved stays");
    for record in &all {
        assert_eq!(journal.find(record.handle.as_ref().unwrap()).unwrap().as_ref(), Some(record));
        assert_eq!(journal.read(&record.submission).unwrap().as_ref(), Some(record));
    }
    assert_eq!(journal.records().unwrap().len(), 301);
    assert_eq!(journal.find(&"local://local/job#ffffffff".parse().unwrap()).unwrap(), None);
}

#[test]
fn the_archive_is_bounded() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::new(state.path());
    // Refused records in one handle's shard: the names of files decide, so that few are needed.
    let (shard, _) = journal.ended_place("local://local/job#00000000");
    files::make_private_dir(&shard).unwrap();
    for number in 0..MAX_ENDED + 50 {
        fs::write(shard.join(format!("{number:016x}-x.json")), "{}").unwrap();
    }
    for number in 0..=u32::try_from(MAX_RECENT).unwrap() {
        journal.write(&record(number, RecordState::Submitted)).unwrap();
    }
    journal.recent().unwrap();
    assert!(json_files(&shard).count() <= MAX_ENDED, "{}", json_files(&shard).count());
}

#[test]
fn a_record_is_being_sent_as_long_as_its_process_holds_the_lock() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::new(state.path());
    let mut one = record(1, RecordState::Intended);
    one.created = weftrun_backends::clock::now();
    assert!(!journal.is_being_sent(&one), "no lock was taken");
    let sending = journal.begin(&one.submission).unwrap();
    assert!(journal.is_being_sent(&one));
    assert!(!journal.is_being_sent(&Record { state: RecordState::Unknown, ..one.clone() }));
    drop(sending);
    assert!(!journal.is_being_sent(&one));
    // A killed process leaves the file, but not the lock.
    fs::write(journal.lock_path(&one.submission), "").unwrap();
    assert!(!journal.is_being_sent(&one));
    // The process id of another machine is meaningless here, and its lock may not be visible: age
    // decides.
    one.owner = Some(Owner { host: "another-machine".to_owned(), ..Owner::this() });
    assert!(journal.is_being_sent(&one));
    one.created = weftrun_backends::clock::now() - Duration::from_hours(1);
    assert!(!journal.is_being_sent(&one));
}
