//! The demo, as the first thing a new user runs.

use crate::place::Place;

#[test]
fn the_demo_ends_with_the_verdict_and_what_it_costs() {
    let place = Place::new();
    let done = place.run("demo --replay").ok();
    let handle = done.out.trim();
    assert!(handle.starts_with("local://local/demo-") && !handle.contains('\n'), "{handle}");
    for said in [
        "4 ranks on 2 simulated nodes",
        "NCCL INFO",
        "NET/Socket on ",
        "transport: socket",
        "What a transport costs",
        "<- this job, between nodes",
    ] {
        assert!(done.err.contains(said), "`{said}` is not in:\n{}", done.err);
    }
    let last = done.err.find("What a transport costs").unwrap();
    assert!(done.err.find("transport: socket").unwrap() < last, "the verdict comes before the cost");
    // Its logs stay, and give the same result again.
    let again = place.run(&format!("transport -o json {handle}")).ok().json();
    assert_eq!(again["verdict"]["fabric"], "socket");
    assert_eq!(again["totals"]["torn_channel_lines"], 0);
}

#[test]
fn the_demo_as_json_is_one_event_a_line() {
    let place = Place::new();
    let events = place.run("demo --replay --pace 0 --capture ofi_tcp_2x2 -o json").ok().lines();
    assert_eq!(events.first().unwrap()["type"], "submitted");
    let end = events.last().unwrap();
    assert_eq!(end["type"], "ended");
    assert_eq!(end["job"]["phase"], "succeeded");
    assert_eq!(end["transport"]["verdict"]["fabric"], "libfabric-tcp");
    let links = events.iter().filter(|event| event["event"]["type"] == "link").count();
    assert!(links >= 4, "{links} connections were told");
}
