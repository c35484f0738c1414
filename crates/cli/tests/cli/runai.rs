//! The command line beside a control plane of our own.

use weftrun_testkit::fake_runai::{CLIENT_SECRET, FakeRunAi, Fault, Trouble};

use weftrun_testkit::ras::recording;

use crate::place::{Place, repo};

/// A runtime that serves while commands run, and a control plane in it.
fn control_plane(place: &Place) -> (tokio::runtime::Runtime, FakeRunAi) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let fake = runtime.block_on(FakeRunAi::start(24)).unwrap();
    let secret = place.write("secret", CLIENT_SECRET);
    place.configure(&format!(
        "[target.plane]\nbackend = \"runai\"\nurl = \"{}\"\nproject = \"nlp\"\nclient-id = \"weftrun-tests\"\n\
         client-secret-file = \"{}\"\npoll-seconds = 1\n",
        fake.url(),
        secret.display()
    ));
    (runtime, fake)
}

/// Under every fault of a control plane, an attempt is one workload; asked for again, it is the same one.
#[test]
fn an_attempt_is_one_workload_under_every_fault() {
    let place = Place::new();
    let (_runtime, fake) = control_plane(&place);
    let faults = [
        Trouble::CutAfter,
        Trouble::CutBefore,
        Trouble::RetryAfter(1),
        Trouble::Status(500),
        Trouble::Status(503),
        Trouble::Html(502),
        Trouble::TokenExpired,
    ];
    for (number, trouble) in faults.into_iter().enumerate() {
        let (name, marker) = (format!("again{number}"), place.path(&format!("marker{number}")));
        let script = format!(
            "[ -e {0} ] && exit 0; touch {0}; echo 'NVRM: Xid (PCI:0000:b3:00): 79, pid=7, GPU has fallen off the bus.'; exit 1",
            marker.display()
        );
        place.write(
            "job.toml",
            format!(
                "name = \"{name}\"\nimage = \"example.test/trainer:1\"\nlaunch = \"per-node\"\nnodes = 1\ngpus_per_node = 1\n\
                 fabric = \"off\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\n"
            ),
        );
        place.run("submit -b plane --wait job.toml").code(1);
        let of = format!("{trouble:?}");
        fake.fail(Fault { method: "POST", path: "/api/v1/workloads", times: 1, trouble });
        let mut said = String::new();
        for _ in 0..4 {
            let done = place.run(&format!("retry -b plane {name}"));
            said += &done.err;
            if done.code == 0 {
                break;
            }
        }
        let again = place.run(&format!("retry -b plane {name}"));
        assert!(
            again.code == 0 && again.err.contains("was submitted before, without node-1"),
            "{of}: {said} {again:?}"
        );
        let listed = place.run("list -a -b plane -o json").ok().json();
        let count = |name: String| {
            listed["jobs"].as_array().unwrap().iter().filter(|job| job["name"] == name.as_str()).count()
        };
        let found = [count(name.clone()), count(format!("{name}-r2")), count(format!("{name}-r3"))];
        assert_eq!(found, [0, 1, 0], "one line of both attempts: {of}: {said}");
    }
}

const LINE: &str = "host:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0";

/// A job is read by its name as by its handle; the list shows the fabric, which the control plane has no place for.
#[test]
fn a_job_goes_by_its_name() {
    let place = Place::new();
    let (_runtime, _fake) = control_plane(&place);
    place.write(
        "job.toml",
        format!(
            "name = \"named\"\nimage = \"example.test/trainer:1\"\nlaunch = \"per-node\"\nnodes = 2\ngpus_per_node = 1\nfabric = \"tcp\"\n\
             command = [\"sh\", \"-c\", \"echo '{LINE}'\"]\n"
        ),
    );
    let handle = place.run("submit -b plane --wait job.toml").ok().out.trim().to_owned();
    // The pods' logs are read at the same time; whose first line comes first differs.
    let transport = |job: &str| {
        let mut report = place.run(&format!("transport -o json {job}")).ok().json();
        report["ranks"].as_array_mut().unwrap().sort_by_key(|rank| rank["source"].to_string());
        report
    };
    let by_name = transport("-b plane named");
    assert_eq!(by_name, transport(&handle));
    assert!(
        by_name.to_string().contains("NET/Socket") || by_name.to_string().contains("socket"),
        "{by_name:#}"
    );
    assert_eq!(place.run("logs -b plane named").ok().out.matches(LINE).count(), 2);
    let listed = place.run("list -a -b plane -o json").ok().json();
    assert_eq!(listed["jobs"][0]["fabric"], "tcp", "{listed:#}");
    // The error for a name that is neither a file nor a job mentions both.
    let missing = place.run("transport -b plane nothing");
    assert!(missing.code != 0 && missing.err.contains("no job `nothing`"), "{missing:?}");
    assert!(missing.err.contains("no file or folder `nothing`"), "{missing:?}");
}

/// `plan` names what the control plane has no field for, without asking it.
#[test]
fn a_plan_names_what_is_not_applied() {
    let place = Place::new();
    place.configure(
        "[target.plane]\nbackend = \"runai\"\nproject = \"nlp\"\nurl = \"https://tenant.example.test\"\n",
    );
    place.write(
        "job.toml",
        "name = \"limits\"\nimage = \"i\"\nnodes = 2\ntime_limit = \"2h\"\nshm = \"48Gi\"\ncommand = [\"train\"]\n",
    );
    for verb in ["plan", "render", "submit --dry-run"] {
        let done = place.run(&format!("{verb} -b plane job.toml")).ok();
        let all = format!("{}{}", done.out, done.err);
        assert!(all.contains("no time limit") && all.contains("48Gi of role"), "{verb}: {all}");
    }
}

/// The pods play a recorded talk with NCCL's RAS service; it is reached over a forwarded port, or by a command where ports are
/// refused, and is named as unreachable without a kubeconfig.
#[test]
fn health_asks_the_pods_of_a_workload() {
    let place = Place::new();
    let (_runtime, fake) = control_plane(&place);
    let kubeconfig = place.write("kubeconfig", fake.kubeconfig());
    let config = std::fs::read_to_string(place.config()).unwrap();
    let command = format!(
        "python3 {} {} 0",
        repo("crates/testkit/data/ras_server.py").display(),
        recording("v2.30.7/hang").display()
    );
    place.write(
        "job.toml",
        format!(
            "name = \"hangs\"\nimage = \"example.test/trainer:1\"\nlaunch = \"per-node\"\nnodes = 2\n\
             command = [\"sh\", \"-c\", {command:?}]\n"
        ),
    );
    let handle = place.run("submit -q -b plane job.toml").ok().out.trim().to_owned();
    let health = || place.run(&format!("health -o json --observe 0s {handle}")).json();
    let without = health();
    assert!(without["reason"].as_str().unwrap().contains("kubeconfig"), "{without:#}");
    place.configure(&format!("{config}kubeconfig = {kubeconfig:?}\n"));
    for (refuse, via) in [(false, "port-forward"), (true, "exec")] {
        fake.state().refuse_ports = refuse;
        let began = std::time::Instant::now();
        let report = loop {
            let report = health();
            if report["state"] != "unreachable" || began.elapsed().as_secs() > 60 {
                break report;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        };
        assert_eq!(
            (&report["state"], &report["culprits"][0]["rank"]),
            (&"suspect".into(), &3.into()),
            "{report:#}"
        );
        assert!(report["asked"]["via"].as_str().unwrap().starts_with(via), "{via}: {report:#}");
    }
    place.run(&format!("cancel {handle}")).ok();
    let ended = place.run(&format!("health -o json {handle}")).code(5).json();
    assert!(ended["reason"].as_str().unwrap().contains("exists only while it runs"), "{ended:#}");
}
