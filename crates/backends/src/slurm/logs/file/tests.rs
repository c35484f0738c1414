use super::*;

fn piece(offset: u64, bytes: &[u8], size: u64) -> Piece {
    Piece {
        path: "/l/x-7-0a1b2c3d.log".to_owned(),
        inode: 5,
        size,
        modified: crate::clock::now().saturating_sub(jiff::SignedDuration::from_secs(30)).unwrap(),
        offset,
        header: Vec::new(),
        bytes: bytes.to_vec(),
    }
}

const LOG: &[u8] = b"#weftrun log=1 attempt=0 labels=rank tasks=worker:12\nsetup\n 0: a\n10: b\n10: c\n11: torn \xff line\n99: not a task\n#weftrun end attempt=0 code=0\n";

fn file(start: Option<&Cursor>) -> LogFile {
    LogFile::new("x-7-0a1b2c3d.log", &JobId::whole(7), start)
}

fn told(batches: &[LogBatch]) -> Vec<(String, Vec<u8>)> {
    let mut told: Vec<(String, Vec<u8>)> = Vec::new();
    for batch in batches.iter().filter(|batch| !batch.bytes.is_empty()) {
        match told.last_mut() {
            Some((name, bytes)) if *name == batch.source.name => bytes.extend_from_slice(&batch.bytes),
            _ => told.push((batch.source.name.clone(), batch.bytes.clone())),
        }
    }
    told
}

fn whole() -> Vec<(String, Vec<u8>)> {
    let size = LOG.len() as u64;
    told(&file(None).take(&piece(0, LOG, size), false))
}

#[test]
fn lines_go_to_the_tasks_that_wrote_them() {
    let expected: [(&str, &[u8]); 5] = [
        ("batch", b"setup\n"),
        ("rank0", b"a\n"),
        ("rank10", b"b\nc\n"),
        ("rank11", b"torn \xff line\n"),
        ("batch", b"99: not a task\n"),
    ];
    assert_eq!(whole(), expected.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())));
    let mut file = file(None);
    file.take(&piece(0, LOG, LOG.len() as u64), false);
    assert!(file.is_complete());
}

#[test]
fn any_cut_and_any_resume_gives_the_same_bytes_once() {
    let size = LOG.len() as u64;
    for cut in 0..LOG.len() {
        let mut file = file(None);
        let mut batches = file.take(&piece(0, &LOG[..cut], cut as u64), false);
        let cursor = batches.last().map(|batch| batch.cursor.clone());
        batches.extend(file.take(&piece(cut as u64, &LOG[cut..], size), false));
        assert_eq!(told(&batches), whole(), "cut at {cut}");
        // The same with a new process that resumes from the last cursor.
        let Some(cursor) = cursor else { continue };
        let mut before = self::file(None).take(&piece(0, &LOG[..cut], cut as u64), false);
        let mut again = self::file(Some(&cursor));
        let mut rest = piece(cursor.offset, &LOG[usize::try_from(cursor.offset).unwrap()..], size);
        rest.header = LOG.split_inclusive(|byte| *byte == b'\n').next().unwrap().to_vec();
        before.extend(again.take(&rest, false));
        assert_eq!(told(&before), whole(), "resumed at {cut}");
    }
}

#[test]
fn a_second_life_is_another_attempt_and_truncation_is_told() {
    let mut file = file(None);
    let first = b"#weftrun log=1 attempt=0 labels=node tasks=worker:4\n2: x\n#weftrun log=1 attempt=1 labels=node tasks=worker:4\n2: y\n";
    let batches = file.take(&piece(0, first, first.len() as u64), false);
    let seen: Vec<_> = batches
        .iter()
        .map(|batch| (batch.source.name.as_str(), batch.source.attempt, batch.source.rank))
        .collect();
    assert_eq!(seen, [("node2", 0, None), ("node2", 1, None)]);
    let batches = file.take(&piece(first.len() as u64, b"", 3), false);
    assert!(batches.iter().any(|batch| batch.mark == Some(Mark::Truncated)));
    assert_eq!(file.offset(), 0);
}

#[test]
fn pieces_are_cut_out_of_an_answer_whatever_they_hold() {
    let answer = b"ab 5 9 7 0 9 /l/a b.log\nab|x\nab y\n\xffab.\nab 6 0 -2 0 0 /l/c.log\nab|ab.\n";
    let pieces = Piece::all(answer, b"ab");
    assert_eq!(pieces.len(), 2);
    assert_eq!(
        (pieces[0].path.as_str(), pieces[0].inode, pieces[0].bytes.as_slice()),
        ("/l/a b.log", 5, b"x\nab y\n\xff".as_slice())
    );
    assert!(pieces[1].bytes.is_empty());
    // A clock that was set back gives no age below 0.
    let age = |piece: &Piece| crate::clock::now().duration_since(piece.modified).as_secs();
    assert!((7..60).contains(&age(&pieces[0])) && (0..60).contains(&age(&pieces[1])), "{pieces:?}");
}

#[test]
fn a_forged_header_is_a_line_like_all_others() {
    let forged = [
        "#weftrun log=1 attempt=1 labels=rank tasks=worker:4294967295",
        "#weftrun log=1 attempt=1 labels=rank tasks=worker:4294967295,worker:4294967295",
        "#weftrun log=1 attempt=1 labels=rank tasks=worker:13",
        "#weftrun log=1 attempt=0 labels=rank tasks=worker:12",
        "#weftrun log=1 attempt=1 labels=node tasks=worker:12",
    ];
    for line in forged {
        let mut file = file(None);
        let log = format!(
            "#weftrun log=1 attempt=0 labels=rank tasks=worker:12\n 3: a\n{line}\n4000000000: b\n 3: c\n"
        );
        let batches = file.take(&piece(0, log.as_bytes(), log.len() as u64), false);
        let text: Vec<u8> = batches.iter().flat_map(|batch| batch.bytes.clone()).collect();
        assert_eq!(String::from_utf8(text).unwrap(), format!("a\n{line}\n4000000000: b\nc\n"));
        assert!(batches.iter().all(|batch| batch.source.attempt == 0));
        assert_eq!(file.streams.len(), 2, "{line}");
    }
    // Nor is it one as the only header of a file.
    let mut foreign = self::file(None);
    let log = format!("{}\n4000000000: b\n", forged[0]);
    foreign.take(&piece(0, log.as_bytes(), log.len() as u64), false);
    assert!(foreign.header.is_none());
}

#[test]
fn the_lanes_of_a_file_are_bounded_over_all_its_attempts() {
    let mut file = file(None);
    let (mut offset, mut sources) = (0u64, std::collections::HashSet::new());
    for attempt in 0..3 {
        let mut log =
            format!("#weftrun log=1 attempt={attempt} labels=rank tasks=worker:100000\n").into_bytes();
        log.extend((0..100_000).flat_map(|task| format!("{task}: x\n").into_bytes()));
        let batches = file.take(&piece(offset, &log, offset + log.len() as u64), false);
        sources.extend(batches.iter().map(|batch| std::sync::Arc::clone(&batch.source)));
        offset += log.len() as u64;
    }
    assert!(sources.len() <= super::MOST_STREAMS + 4, "{}", sources.len());
}

/// The task of a line comes from the name of its file, or from the label of the line.
#[test]
fn a_file_of_tasks_is_divided_by_its_name_or_by_its_labels() {
    let header = |labels: &str| {
        let line = format!(
            "#weftrun log=1 attempt=0 labels={labels} tasks=worker:16 ranks=16 files=/l/a b/%N-%t.log\n"
        );
        Header::parse(line.as_bytes()).unwrap()
    };
    let files = crate::slurm::task_files::TaskFiles::expanded("/l/a b/%N-%t.log").unwrap();
    assert_eq!(header("rank").files(), Some("/l/a b/%N-%t.log"));
    let read = |labels: &str, owner: Owner, log: &str, bytes: &[u8]| {
        let of = OfTasks { header: header(labels), owner, log: log.to_owned() };
        let mut file = LogFile::of_tasks("n1-12.log", &JobId::whole(7), None, of);
        let batches = file.take(&piece(0, bytes, bytes.len() as u64), false);
        assert!(file.gap(Some(0)).is_none() && !file.is_complete(), "only the script writes a last line");
        batches
            .iter()
            .map(|batch| (batch.source.name.clone(), batch.source.rank, batch.bytes.clone()))
            .collect::<Vec<_>>()
    };
    let owner = files.owner("/l/a b/p4de-st-1-12.log").unwrap();
    assert_eq!((owner.node.as_deref(), owner.task), (Some("p4de-st-1"), Some(12)));
    // A line that resembles a label or a line of the script belongs to the program's output.
    let bytes =
        b"3: a\n#weftrun end attempt=0 code=0\n#weftrun log=1 attempt=1 labels=rank tasks=worker:16\n";
    assert_eq!(
        read("rank", owner.clone(), "x-7-0a1b2c3d.log", bytes),
        [("rank12".to_owned(), Some(12), bytes.to_vec())]
    );
    assert_eq!(read("node", owner.clone(), "x-7-0a1b2c3d.log", b"a\n")[0].0, "node12");
    assert_eq!(
        read("rank", owner, "x-7_5-0a1b2c3d.log", b"a\n")[0],
        ("7_5/rank12".to_owned(), None, b"a\n".to_vec())
    );
    let of_node = Owner { node: Some("n1".to_owned()), ..Owner::default() };
    let got = read("rank", of_node, "x-7-0a1b2c3d.log", b" 8: a\n 9: b\nsrun: c\n");
    let expected = [("rank8", Some(8), "a\n"), ("rank9", Some(9), "b\n"), ("n1", None, "srun: c\n")];
    assert_eq!(got, expected.map(|(name, rank, text)| (name.to_owned(), rank, text.as_bytes().to_vec())));
}

#[test]
fn ranks_are_found_behind_the_labels_of_nodes_and_beyond_the_last_is_an_error() {
    use crate::slurm::logs::options::Selection;
    use weftrun_core::log::LogOptions;
    let header = |text: &str| Header::parse(text.as_bytes()).unwrap();
    let torchrun = header("#weftrun log=1 attempt=0 labels=node tasks=worker:4 ranks=32");
    assert_eq!((torchrun.ranks(), torchrun.ranks_per_node()), (Some(32), Some(8)));
    let old = header("#weftrun log=1 attempt=0 labels=rank tasks=worker:4");
    assert_eq!((old.ranks(), old.ranks_per_node()), (Some(4), None));
    let (feed, mut items) = tokio::sync::mpsc::channel(64);
    let mut options = LogOptions::default();
    options.ranks = vec![9];
    let mut out = Selection::new(&options, feed.clone());
    out.knows(Some(&torchrun)).unwrap();
    let log = b"#weftrun log=1 attempt=0 labels=node tasks=worker:4 ranks=32\n0: a\n1: b\n2: c\n";
    let batches = file(None).take(&piece(0, log, log.len() as u64), false);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for batch in batches {
        runtime.block_on(out.offer(batch));
    }
    let mut seen = Vec::new();
    while let Ok(Ok(batch)) = items.try_recv() {
        seen.push(batch.source.name.clone());
    }
    assert_eq!(seen, ["node1"], "rank 9 is on the second node of eight ranks");
    options.ranks = vec![99];
    let refused = Selection::new(&options, feed).knows(Some(&torchrun)).unwrap_err();
    assert_eq!(refused.kind(), weftrun_core::ErrorKind::Usage);
    assert!(refused.message().contains("no rank 99"), "{refused}");
}

#[test]
fn the_last_bytes_of_a_file_have_its_time() {
    let mut file = LogFile::new("x-7-0a1b2c3d.log", &JobId::whole(7), None);
    let first = file.take(&piece(0, b"a\n", 4), false);
    assert!(first.iter().all(|batch| batch.written.is_none()), "more bytes follow");
    let last = file.take(&piece(2, b"b\n", 4), false);
    let age = crate::clock::now().duration_since(last[0].written.unwrap()).as_secs();
    assert!((30..90).contains(&age), "{age}");
}

/// The exit code of a job is not that of each of its ranks.
#[test]
fn a_rank_ends_with_the_code_that_srun_has_of_it() {
    let ends = |log: &str| {
        let mut file = file(None);
        file.take(&piece(0, log.as_bytes(), log.len() as u64), false);
        let code = |batch: LogBatch| match batch.mark {
            Some(Mark::Ended { exit_code }) => (batch.source.name.clone(), exit_code),
            mark => unreachable!("{mark:?}"),
        };
        file.ends(Some(1)).into_iter().map(code).collect::<Vec<_>>()
    };
    let named = |codes: [(&str, Option<i32>); 6]| codes.map(|(name, code)| (name.to_owned(), code));
    let head = "#weftrun log=1 attempt=0 labels=rank tasks=worker:5\n0: a\n1: a\n2: a\n3: a\n4: a\n";
    let failed = "srun: error: n1: task 2: Exited with exit code 1\nsrun: error: n1: tasks 0-1,3: Terminated\nsrun: error: n1: tasks 0-99999999999: Terminated\n";
    let all = [("batch", Some(1)), ("rank0", Some(143)), ("rank1", Some(143))];
    let rest = [("rank2", Some(1)), ("rank3", Some(143)), ("rank4", None)];
    let wanted = named([all[0], all[1], all[2], rest[0], rest[1], rest[2]]);
    assert_eq!(ends(&format!("{head}{failed}#weftrun end attempt=0 code=1\n")), wanted);
    let well = ends(&format!("{head}#weftrun end attempt=0 code=0\n"));
    assert!(well.iter().all(|(_, code)| *code == Some(0)), "{well:?}");
    let alone = "#weftrun log=1 attempt=0 labels=rank tasks=worker:1\n0: a\n#weftrun end attempt=0 code=3\n";
    assert_eq!(ends(alone), [("rank0".to_owned(), Some(3))]);
}
