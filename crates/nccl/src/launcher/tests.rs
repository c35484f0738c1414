//! What each prefix says, and that nothing else is one.

use super::*;

#[test]
fn launchers_prefixes_are_taken_off() {
    let line = prefix(b"[default3]:vm:5272:5299 [1] NCCL INFO Using network Socket");
    assert_eq!((line.local, line.len, line.body), (Some((&b"default"[..], 3)), 11, 11));
    assert_eq!(prefix(b"[1,13]<stderr>: text").tag, Some(13));
    let line = prefix(b"[prterun-n1-77@1,3]<stdout>:text");
    assert_eq!((line.told_rank(), line.len), (Some(3), 28));
    let nested = prefix(b"12: [trainer0]:hello");
    assert_eq!((nested.task, nested.local, nested.len), (Some(12), Some((&b"trainer"[..], 0)), 15));
}

#[test]
fn other_prefixes_stay_in_sight_and_are_no_part_of_the_message() {
    let line = prefix(b"[rank56]: Traceback (most recent call last):");
    assert_eq!((line.rank, line.len, line.body), (Some(56), 0, 10));
    let time = &b"2026-03-12 14:17:56"[..];
    let line = prefix(b"[2026-03-12 14:17:56] gpu-1:77:90 [0] net.cc:12 NCCL WARN x");
    assert_eq!((line.time, line.len, line.body), (Some(time), 0, 22));
}

#[test]
fn every_prefix_is_read_once_in_any_order() {
    let of = |line: &'static str| {
        let found = prefix(line.as_bytes());
        (found.place(), found.told_rank(), &line[found.body..])
    };
    for (line, wanted) in [
        ("[pod/w-0/main] RuntimeError: x", (Some("w-0"), None, "RuntimeError: x")),
        ("[pod/w-0/main] 2026-03-01T10:00:00.1Z [rank3]: x", (Some("w-0"), Some(3), "x")),
        ("2026-03-01T10:00:00.123456789Z stderr F [default1]:x", (None, None, "x")),
        ("2026-03-01T10:00:00+02:00 n1 kernel: NVRM: Xid", (Some("n1"), None, "NVRM: Xid")),
        ("Mar  1 10:00:00 n1 kernel: NVRM: Xid", (Some("n1"), None, "NVRM: Xid")),
        ("2025-05-16T16:39:55.210-07:00ip-10-1-2-3:7:7 [0] NCCL", (None, None, "ip-10-1-2-3:7:7 [0] NCCL")),
        ("  | 2025-05-16T16:39:55.216-07:00gpu-7:31:32 [3] NCCL", (None, None, "gpu-7:31:32 [3] NCCL")),
        ("  | x", (None, None, "  | x")),
        ("worker-1  | [rank1]: x", (Some("worker-1"), Some(1), "x")),
        ("> (train pid=954, ip=10.0.0.2) x", (Some("10.0.0.2"), None, "x")),
        ("(VllmWorker rank=3 pid=406) x", (None, Some(3), "x")),
        ("(head, rank=0, pid=2669) x", (None, None, "x")),
        ("[1,0]<stdout>:[rank5]: x", (None, Some(5), "x")),
        ("[1,0]<stdout>:[default5]:x", (None, None, "x")),
        ("worker-0 [1] Channel 00/0 : 0[0]", (Some("worker-0"), None, "Channel 00/0 : 0[0]")),
        // Part of the message.
        (
            "hostg: Test CUDA failure common.cu:1",
            (Some("hostg"), None, "hostg: Test CUDA failure common.cu:1"),
        ),
        (
            "[1,2]<stdout>: .. w0 pid 75: Test failure x",
            (Some("w0"), Some(2), ".. w0 pid 75: Test failure x"),
        ),
        // Nobody's prefix.
        ("loss-1 | 2.5", (None, None, "loss-1 | 2.5")),
        ("Test: Test the best", (None, None, "Test: Test the best")),
        ("loss | 2.5", (None, None, "loss | 2.5")),
        ("(epoch=7) x", (None, None, "(epoch=7) x")),
        ("2026-03-01 x", (None, None, "2026-03-01 x")),
    ] {
        assert_eq!(of(line), wanted, "{line}");
    }
    assert_eq!(prefix(b"worker-0 [1] Channel 00/0 : 0[0]").device, Some(1));
    assert_eq!(prefix(b"(train pid=954, ip=10.0.0.2) x").pid, Some(954));
}

#[test]
fn no_bytes_make_it_fail() {
    let parts = [
        "[",
        "]",
        "(",
        ")",
        "pid=",
        ", ip=",
        "[rank1]",
        "2026-03-01T10:00:00",
        "Z",
        "1,2",
        "<stdout>:",
        " kernel: ",
        "n-1",
        " | ",
        ": Test ",
        " .. ",
        "> ",
        "3: ",
        "\u{fc}",
        "Mar  1 10:00:00 ",
        "stdout F ",
        "+02:00",
        "[pod/",
        "/",
        " [1] Channel ",
    ];
    for first in parts {
        for second in parts {
            for third in parts {
                let line = [first, second, third, first].concat();
                let found = prefix(line.as_bytes());
                assert!(found.len <= found.body && found.body <= line.len(), "{line}");
            }
        }
    }
}

#[test]
fn a_rank_is_told_behind_a_time_and_a_pod() {
    assert_eq!(rank_of_line(b"2026-03-01T10:00:00Z [rank3]:h:1:1 [0] NCCL INFO x"), Some(3));
    assert_eq!(rank_of_line(b"[pod/w-0/main] [1,13]<stdout>:h:1:1 [0] NCCL INFO x"), Some(13));
    // NCCL 2.29 begins a message with the rank of the communicator.
    assert_eq!(rank_of_line(b"h:1:1 [0] NCCL INFO [Rank 1] ncclCommInitRankConfig comm"), None);
    assert_eq!(rank_of_line(b"[default3]:h:1:1 [0] NCCL INFO x"), None);
}

#[test]
fn vllm_names_the_rank_of_a_worker() {
    let line =
        b"(VllmWorker rank=3 pid=406) ERROR 07-23 19:34:51 [multiproc_executor.py:487] RuntimeError: x";
    assert_eq!(rank_of_line(line), Some(3));
    assert_eq!(rank_of_line(b"(VllmWorkerProcess pid=406) x"), None);
}

#[test]
fn ray_names_the_node_of_an_actor() {
    assert_eq!(prefix(b"(train_fn pid=954, ip=10.0.0.2) box:954:31 [0] ").place(), Some("10.0.0.2"));
    for other in
        [&b"(train_fn pid=954) box:954:31 [0] "[..], b"pid=1, ip=", b"(a pid=1, ip=", b"", b"(a ip=) x"]
    {
        assert_eq!(prefix(other).place(), None);
    }
}

#[test]
fn plain_lines_have_none() {
    for line in [
        &b""[..],
        b"step 12: loss 3",
        b"[INFO] x",
        b"12:30:01 start",
        b"[1]<stdout>:x",
        b"[",
        b"[rank]",
        b"99999999999: x",
    ] {
        let found = prefix(line);
        assert_eq!(found, Prefix::default(), "{line:?}");
    }
}

#[test]
fn a_tag_in_the_middle_begins_a_piece_of_another_rank() {
    let of = |line: &'static str| pieces(line.as_bytes()).collect::<Vec<_>>();
    let torn = "[1,0]<stdout>:a | 1[1,14]<stdout>:node1 [6] NCCL[1,0]<stderr>: x";
    let wanted = ["[1,0]<stdout>:a | 1", "[1,14]<stdout>:node1 [6] NCCL", "[1,0]<stderr>: x"];
    assert_eq!(of(torn), wanted.map(str::as_bytes));
    for whole in
        ["", "[1,0]<stdout>:", "[1,0]<stdout>:[1,0]<stdout>:x", "said [1,3]<stdout>:x", "[rank3]: [1]"]
    {
        assert_eq!(of(whole), [whole.as_bytes()]);
    }
}

#[test]
fn a_rank_in_brackets_at_the_beginning_of_a_text_is_its_writer() {
    for line in [
        "[rank 3] step 5 loss 0.3313 1280.0 samples/s",
        "[default1]:[rank 3] done",
        "[rank3]:[E1122 03:12:05.018 ProcessGroupNCCL.cpp:689] [Rank 7] Watchdog caught",
        "[E1122 03:12:05.018 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught",
        "2026-11-22 03:12:05,018 INFO [Rank 3] begins",
        "RuntimeError: [Rank 3]: Rank 0 failed to pass monitoredBarrier",
        "[1,3]<stdout>:hello",
    ] {
        assert_eq!(rank_of_line(line.as_bytes()), Some(3), "{line}");
    }
    for line in [
        "waits for [rank 3] to join",
        "h:1:1 [0] NCCL INFO [Rank 3] ncclCommInitRankConfig comm",
        "[rank x] step 5",
        "[rank 3 of 4] step 5",
        "[rank 99999999999] step 5",
        "[rank ",
        "",
    ] {
        assert_eq!(rank_of_line(line.as_bytes()), None, "{line}");
    }
}
