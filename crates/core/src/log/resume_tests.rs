use proptest::prelude::*;

use super::*;

/// A node that serves a log file as the kubelet does: every line whose stamp is not before a whole second.
struct Node {
    lines: Vec<(Timestamp, String)>,
}

impl Node {
    fn serve(&self, since: Option<Timestamp>) -> Vec<u8> {
        let from = since.map_or(i64::MIN, Timestamp::as_second);
        let lines = self.lines.iter().filter(|(time, _)| time.as_second() >= from);
        lines.flat_map(|(time, text)| format!("{time:.9} {text}\n").into_bytes()).collect()
    }

    fn truth(&self) -> String {
        self.lines.iter().map(|(_, text)| format!("{text}\n")).collect()
    }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_763_690_000_000 + millis).unwrap()
}

/// Reads through connections that break after so many bytes.
fn read(node: &Node, cuts: &[usize], resume: &mut Resume) -> (String, Vec<Mark>) {
    let (mut all, mut marks) = (Vec::new(), Vec::new());
    for connection in 0..=cuts.len() {
        let served = node.serve(resume.since());
        let end = cuts.get(connection).map_or(served.len(), |cut| cut % (served.len() + 1));
        resume.opened();
        for piece in served[..end].chunks(23) {
            let mut out = Fed::default();
            if resume.feed(piece, &mut out).is_err() {
                resume.rotated();
                resume.feed(&[], &mut out).unwrap();
            }
            assert_eq!(out.lines.len(), memchr::memchr_iter(b'\n', &out.bytes).count());
            all.extend(out.bytes);
            marks.extend(out.mark);
        }
    }
    let mut out = Fed::default();
    resume.finish(&mut out).unwrap();
    all.extend(out.bytes);
    (String::from_utf8(all).unwrap(), marks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No line is lost and none repeated, wherever the connection breaks, with equal stamps, with equal lines, and with
    /// stamps that run backwards by less than a second.
    #[test]
    fn exact_wherever_it_breaks(
        steps in proptest::collection::vec((0i64..1500, -900i64..1, 0u8..3), 1..60),
        cuts in proptest::collection::vec(0usize..10_000, 0..8),
    ) {
        let mut now = 0;
        let lines = steps.iter().map(|(step, back, text)| {
            now += step;
            (at(now + back), format!("line {text}"))
        });
        let node = Node { lines: lines.collect() };
        let (all, marks) = read(&node, &cuts, &mut Resume::new("pod/c", 0));
        prop_assert_eq!(all, node.truth());
        prop_assert!(marks.is_empty(), "{:?}", marks);
    }

    /// A cursor that was stored continues exactly.
    #[test]
    fn exact_from_a_stored_cursor(
        steps in proptest::collection::vec(0i64..1500, 2..60),
        cuts in proptest::collection::vec(0usize..10_000, 0..4),
        stop in 0usize..60,
    ) {
        let mut now = 0;
        let mut line = |(index, step): (usize, &i64)| { now += step; (at(now), format!("line {index}")) };
        let lines: Vec<_> = steps.iter().enumerate().map(&mut line).collect();
        let node = Node { lines: lines[..stop % lines.len()].to_vec() };
        let mut resume = Resume::new("pod/c", 0);
        let (before, _) = read(&node, &cuts, &mut resume);
        let stored: Cursor = serde_json::from_str(&serde_json::to_string(&resume.cursor()).unwrap()).unwrap();
        let node = Node { lines };
        let (after, _) = read(&node, &cuts, &mut Resume::from_cursor(stored));
        prop_assert_eq!(before + &after, node.truth());
    }
}

#[test]
fn a_line_longer_than_what_is_held_is_whole_after_a_break() {
    let node = Node { lines: vec![(at(0), "x".repeat(200_000)), (at(10), "end".into())] };
    for cut in [100, 70_000, 130_000, 200_031, 200_040] {
        let (all, marks) = read(&node, &[cut, cut + 1], &mut Resume::new("pod/c", 0));
        assert!(all == node.truth() && marks.is_empty(), "cut at {cut}");
    }
}

#[test]
fn rotation_is_told_from_overlap_and_gap() {
    let lines: Vec<_> = (0..10).map(|index| (at(index * 400), format!("line {index}"))).collect();
    let read_half = || {
        let mut resume = Resume::new("pod/c", 0);
        read(&Node { lines: lines[..6].to_vec() }, &[], &mut resume);
        resume
    };
    // The first lines of the requested second are gone, but lines read before are left: nothing is lost.
    let mut resume = read_half();
    let (all, marks) = read(&Node { lines: lines[5..].to_vec() }, &[], &mut resume);
    assert_eq!(all, "line 6\nline 7\nline 8\nline 9\n");
    assert_eq!(marks, [Mark::Resumed { lost: Some(0), repeated: 0 }]);
    // No line read before is left: lines may be gone, and that is reported.
    let mut resume = read_half();
    let (all, marks) = read(&Node { lines: lines[8..].to_vec() }, &[], &mut resume);
    assert_eq!(all, "line 8\nline 9\n");
    assert!(matches!(&marks[..], [Mark::Gap { reason }] if reason.contains("rotated")), "{marks:?}");
}

#[test]
fn a_start_in_the_middle_of_a_second_resumes_by_the_stamps() {
    let lines: Vec<_> = (0..6).map(|index| (at(index * 100), format!("line {index}"))).collect();
    let node = Node { lines };
    let mut resume = Resume::new("pod/c", 0).in_the_middle();
    let mut out = Fed::default();
    resume.opened();
    let served = node.serve(None);
    let tail = served.len() / 6 * 4;
    resume.feed(&served[tail..], &mut out).unwrap();
    assert_eq!(String::from_utf8_lossy(&out.bytes), "line 4\nline 5\n");
    let (again, marks) = read(&node, &[], &mut resume);
    assert!(again.is_empty() && marks.is_empty(), "{again} {marks:?}");
}

#[test]
fn what_the_node_says_is_not_the_containers() {
    let mut resume = Resume::new("pod/c", 0);
    let mut out = Fed::default();
    resume.opened();
    resume.feed(b"unable to retrieve container logs for containerd://3b8f", &mut out).unwrap();
    resume.finish(&mut out).unwrap();
    assert!(out.bytes.is_empty());
    assert_eq!(out.notes, ["unable to retrieve container logs for containerd://3b8f"]);
}
