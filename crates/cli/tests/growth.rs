//! What grows with its input grows with it and not with its square, and a bomb is refused: the real binary reads each shape
//! of input with so many parts and with twice as many, and takes at most [`MOST`] times the processor's time; and none takes
//! more memory than it is given.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends with a panic, and says why"
)]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "cli/place.rs"]
mod place;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use place::{Done, Place};
use weftrun_testkit::child;

/// The ratio that twice as much may take; linear work takes twice as long, quadratic work four times.
const MOST: f64 = 2.6;

fn repeat(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, at| {
        let _ = writeln!(text, "{}", line(at));
        text
    })
}

const HEAD: &str = "name = \"a\"\nimage = \"i:1\"\nlaunch = \"torchrun\"\ncommand = [\"t.py\"]\nnodes = 2\ngpus_per_node = 8\n";

fn manifest(inside: &str) -> String {
    format!(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      \
         replicas: 2\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            image: i:1\n            \
         command: [torchrun, t.py]\n            resources: {{limits: {{nvidia.com/gpu: 8, memory: 9Gi}}}}\n{inside}"
    )
}

const MUTATE: &str = "mutate --profile dgxc --instance-type p5.48xlarge";
const MUTATE_DIFF: &str = "mutate --profile dgxc --instance-type p5.48xlarge --diff";
const SCRIPT: &[&str] = &["lint", "import"];
const WHY: &[&str] = &["report -o json"];

/// The worker of a PyTorchJob, below a `spec:` that two blanks indent.
const WORKER: &str = r"
    pytorchReplicaSpecs:
      Worker:
        replicas: 2
        template:
          spec:
            containers:
            - name: pytorch
              image: i:1
              command: [torchrun, t.py]
              resources: {limits: {nvidia.com/gpu: 8, memory: 9Gi}}";

const RAS: &str = "SERVER PROTOCOL 2\nOK\nERROR: Unknown command SET FORMAT json\nNCCL version 2.26.2 compiled with CUDA 12.8\n\
    Communicators... (0.00s)\n\n";

const TESTS: &str = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n\
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n";

fn row(bytes: usize) -> String {
    format!("  {bytes}   {}     float     sum      -1    10737.4    100.0    187.5      0", bytes / 4)
}

/// The container's variables, each as an item of the list.
fn environment(count: usize, item: impl Fn(usize) -> String) -> String {
    format!("            env:\n{}", repeat(count, |at| format!("            - {}", item(at))))
}

/// A text behind many lines of comments: what counts the lines before each place takes long.
fn far(text: &str, count: usize) -> String {
    format!("{}{text}", format!("# {}\n", "comment ".repeat(12)).repeat(count * 2))
}

fn script(body: &str) -> String {
    format!("#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gpus-per-node=8\n{body}srun python t.py\n")
}

fn joined(at: usize) -> String {
    format!(
        "vm:{}:{} [{}] NCCL INFO ncclCommInitRankConfig comm {:#x} rank {at} nranks 9999999 cudaDev {} nvmlDev 0 busId 60 \
         commId 0x368a - Init COMPLETE",
        at + 1000,
        at + 1000,
        at % 8,
        at + 0x1000_0000,
        at % 8
    )
}

fn watchdog(at: usize, seq: usize) -> String {
    format!(
        "[rank{at}]:[E1122 03:13:19.253258924 ProcessGroupNCCL.cpp:689] [Rank {at}] Watchdog caught collective operation timeout: \
         WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=65792, NumelOut=65792, Timeout(ms)=12000) ran for 12016 milliseconds before \
         timing out."
    )
}

/// A name, the file of so many parts, and the command lines that read it.
type Case = (&'static str, fn(usize) -> String, &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "env.toml",
        |count| format!("{HEAD}[env]\n{}", repeat(count, |at| format!("V{at} = \"x\""))),
        &[
            "plan -b local",
            "render -b slurm",
            "render -b kubeflow -n n",
            "render -b local",
            "render --as docker",
            "lint",
        ],
    ),
    (
        "roles.yaml",
        |count| {
            format!(
                "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a}}\nspec:\n  pytorchReplicaSpecs:\n{}",
                repeat(count, |at| format!(
                    "    R{at}: {{template: {{spec: {{containers: [{{name: pytorch, image: i, command: [torchrun, t.py]}}]}}}}}}"
                ))
            )
        },
        &["lint", "import", "mutate --profile dgxc"],
    ),
    (
        "tokens.toml",
        |count| format!("{HEAD}[env]\n{}", repeat(count, |at| format!("V{at}_TOKEN = \"x\""))),
        &["lint", "render -b slurm"],
    ),
    (
        "names.toml",
        |count| format!("{HEAD}[env]\n{}", repeat(count, |at| format!("\"a-{at}\" = \"x\""))),
        &["lint"],
    ),
    ("keys.toml", |count| format!("{HEAD}{}", repeat(count, |at| format!("key{at} = 1"))), &["lint"]),
    (
        "env.nul.toml",
        |count| format!("{HEAD}[env]\n{}", repeat(count, |at| format!("V{at} = \"\\u0000\""))),
        &["lint"],
    ),
    (
        "secrets.toml",
        |count| format!("{HEAD}[secrets]\n{}", repeat(count, |at| format!("S{at} = \"a/b\""))),
        &["render -b slurm", "render -b kubeflow -n n"],
    ),
    (
        "annotations.toml",
        |count| format!("{HEAD}[annotations]\n{}", repeat(count, |at| format!("\"a.io/k{at}\" = \"x\""))),
        &["render -b kubeflow -n n"],
    ),
    (
        "env.yaml",
        |count| {
            manifest(&format!(
                "            env:\n{}",
                repeat(count, |at| format!("            - {{name: V{at}, value: \"x\"}}"))
            ))
        },
        &["lint", "import", "mutate --profile dgxc --instance-type p5.48xlarge"],
    ),
    (
        "containers.yaml",
        |count| manifest(&repeat(count, |at| format!("          - {{name: c{at}, image: i}}"))),
        &["lint", "import", "mutate --profile dgxc --instance-type p5.48xlarge"],
    ),
    (
        "mounts.yaml",
        |count| {
            manifest(&format!(
                "            volumeMounts:\n{}          volumes:\n{}",
                repeat(count, |at| format!("            - {{name: v{at}, mountPath: /m{at}}}")),
                repeat(count, |at| format!("          - {{name: v{at}, hostPath: {{path: /h{at}}}}}"))
            ))
        },
        &["lint", "import", "mutate --profile dgxc --instance-type p5.48xlarge"],
    ),
    (
        "documents.yaml",
        |count| repeat(count, |at| format!("---\nkind: ConfigMap\nmetadata: {{name: m{at}}}")),
        &["lint", "mutate --profile dgxc"],
    ),
    (
        "exports.sbatch",
        |count| {
            format!(
                "#!/bin/bash\n#SBATCH -N 2\n{}srun python t.py\n",
                repeat(count, |at| format!("export V{at}=x"))
            )
        },
        &["lint", "import", "mutate --profile parallelcluster"],
    ),
    (
        "directives.sbatch",
        |count| {
            format!(
                "#!/bin/bash\n{}srun python t.py\n",
                repeat(count, |at| format!("#SBATCH --comment=x{at}"))
            )
        },
        &["lint", "import", "mutate --profile parallelcluster"],
    ),
    (
        "hosts.log",
        |count| repeat(count, |at| format!("h:7:7 [0] NCCL INFO NCCL_HOSTID set by environment to id{at}")),
        &["transport"],
    ),
    (
        "threads.log",
        |count| {
            let begin = "h:7:7 [0] NCCL INFO ncclCommInitRank comm 0xaa rank 0 nranks 2 cudaDev 0 busId 10 commId 0xcc - Init START\n";
            let line = |at| {
                format!(
                    "h:7:{} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0 comm 0xaa nRanks 02",
                    at + 8
                )
            };
            format!("{begin}{}", repeat(count, line))
        },
        &["transport"],
    ),
    (
        "communicators.log",
        |count| {
            let begin = repeat(count.min(1000), |at| {
                format!(
                    "h:7:7 [0] NCCL INFO ncclCommInitRank comm {at:#x} rank 0 nranks 9999 cudaDev 0 busId 10 commId {at:#x} - Init COMPLETE"
                )
            });
            let line = |at| {
                format!(
                    "h:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> {}[1] [send] via NET/Socket/0",
                    at % 9000 + 1
                )
            };
            format!("{begin}{}", repeat(count, line))
        },
        &["transport"],
    ),
    (
        "splits.log",
        |count| {
            let begin = "h:7:7 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 9 cudaDev 0 busId 10 commId 0x1 - Init COMPLETE\n";
            let line = |at| {
                format!(
                    "h:7:7 [0] NCCL INFO ncclCommSplit comm {:#x} rank 0 nranks 9 cudaDev 0 busId 10 parent {:#x} splitCount 1 color 1 key 0 - Init COMPLETE",
                    at + 2,
                    at + 1
                )
            };
            format!("{begin}{}", repeat(count, line))
        },
        &["transport -o json"],
    ),
    (
        "introducers.log",
        |count| repeat(count.div_ceil(100), |_| "\u{9d}\u{90}".repeat(8000) + "NCCL WARN x"),
        &["transport"],
    ),
    (
        "list.yaml",
        |count| {
            let job = |at| {
                format!(
                    "- apiVersion: kubeflow.org/v1\n  kind: PyTorchJob\n  metadata: {{name: a{at}}}\n  spec:{WORKER}"
                )
            };
            format!("apiVersion: v1\nkind: List\nitems:\n{}", repeat(count / 20, job))
        },
        &[MUTATE, MUTATE_DIFF, "lint", "import --name a0"],
    ),
    (
        "ended-documents.yaml",
        |count| {
            repeat(count / 20, |at| {
                format!(
                    "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: a{at}}}\nspec:{WORKER}\n..."
                )
            })
        },
        &[MUTATE, MUTATE_DIFF, "lint"],
    ),
    (
        "misspelt.yaml",
        |count| {
            far(&manifest(&environment(count / 4, |at| format!("{{name: NCCL_DEBGU{at}, value: x}}"))), count)
        },
        &["lint", "lint -o sarif"],
    ),
    (
        "misspelt-in-one-line.yaml",
        |count| {
            let all =
                (0..count / 4).map(|at| format!("{{name: NCCL_DEBGU{at}, value: {}}}", "x".repeat(200)));
            manifest(&format!("            env: [{}]\n", all.collect::<Vec<_>>().join(", ")))
        },
        &["lint", MUTATE],
    ),
    (
        "same-keys.yaml",
        |count| far(&manifest(&repeat(count, |_| "          hostNetwork: true".to_owned())), count),
        &["lint", MUTATE],
    ),
    (
        "keys-twice.yaml",
        |count| {
            let keys = repeat(count, |at| format!("            k{at}: v"));
            manifest(&format!("          nodeSelector:\n{keys}{keys}"))
        },
        &[MUTATE, "lint"],
    ),
    (
        "tolerations.yaml",
        |count| {
            let items = repeat(count, |at| format!("          - {{key: k{at}, operator: Exists}}"));
            manifest(&format!("          tolerations:\n{items}"))
        },
        &[MUTATE, "lint", "import"],
    ),
    (
        "affinity.yaml",
        |count| {
            let values = repeat(count, |at| format!("                    - t{at}.large"));
            manifest(&format!(
                "          affinity:\n            nodeAffinity:\n              requiredDuringSchedulingIgnoredDuringExecution:\n                \
                 nodeSelectorTerms:\n                - matchExpressions:\n                  - key: node.kubernetes.io/instance-type\n                    \
                 operator: In\n                    values:\n{values}"
            ))
        },
        &[MUTATE, "lint"],
    ),
    (
        "tags.yaml",
        |count| manifest(&environment(count, |at| format!("{{name: !!str V{at}, value: !!str 1}}"))),
        &["import", MUTATE],
    ),
    (
        "merge-keys.yaml",
        |count| {
            let keys = repeat(count, |at| format!("            k{at}: v"));
            format!(
                "x: &base\n{keys}{}          nodeSelector:\n            <<: *base\n{}",
                manifest(""),
                repeat(count, |at| format!("            k{}: w", count - 1 - at))
            )
        },
        &["import", MUTATE],
    ),
    (
        "anchors.yaml",
        |count| {
            let pair = |at| {
                format!("{{name: V{at}, value: &v{at} x}}\n            - {{name: W{at}, value: *v{at}}}")
            };
            manifest(&environment(count, pair))
        },
        &["import", MUTATE],
    ),
    (
        "comments.yaml",
        |count| {
            let one = |at| format!("            # comment - {at}\n            - {{name: V{at}, value: x}}");
            manifest(&format!("            env:\n{}", repeat(count, one)))
        },
        &["import", MUTATE_DIFF],
    ),
    (
        "roles.toml",
        |count| {
            format!(
                "name = \"a\"\nimage = \"i:1\"\n{}",
                repeat(count, |at| format!("[roles.r{at}]\ncommand = [\"x\"]"))
            )
        },
        &["lint"],
    ),
    ("script-exports.sbatch", |count| script(&repeat(count, |at| format!("export V{at}=x"))), SCRIPT),
    (
        "script-misspelt.sbatch",
        |count| script(&repeat(count, |at| format!("export NCCL_DEBGU{at}=x"))),
        SCRIPT,
    ),
    ("substitutions.sbatch", |count| script(&format!("echo {}\n", "$( ".repeat(count))), SCRIPT),
    (
        "chain.sbatch",
        |count| script(&format!("V0=x\n{}", repeat(count, |at| format!("V{}=${{V{at}}}x", at + 1)))),
        SCRIPT,
    ),
    (
        "read-by-one.sbatch",
        |count| {
            let used = (0..count).map(|at| format!("$V{at} ")).collect::<String>();
            script(&format!("{}echo {used}\n", repeat(count, |at| format!("V{at}=x"))))
        },
        SCRIPT,
    ),
    ("exports.sbatch", |count| script(&repeat(count, |at| format!("export NCCL_V{at}=x"))), SCRIPT),
    ("names-of-secrets.sbatch", |count| script(&format!("# {}\n", "token=-".repeat(count))), &["lint"]),
    ("beginnings-of-tokens.sbatch", |count| script(&format!("# {}\n", "sk-".repeat(count))), &["lint"]),
    ("lists.sbatch", |count| script(&repeat(count, |_| "L+=(x)".to_owned())), SCRIPT),
    (
        "functions.sbatch",
        |count| script(&repeat(count, |at| format!("f{at}() {{ f{}; f{}; }}", at + 1, at + 1))),
        SCRIPT,
    ),
    ("long-function.sbatch", |count| script(&format!("f() {{\n{}}}\nf\n", "f\n".repeat(count))), SCRIPT),
    ("unclosed-documents.sbatch", |count| script(&repeat(count, |at| format!("cat <<E{at}"))), SCRIPT),
    (
        "unclosed-documents-in-one-line.sbatch",
        |count| script(&format!("cat{}\nx\n", (0..count).map(|at| format!(" <<E{at}")).collect::<String>())),
        SCRIPT,
    ),
    ("long-document.sbatch", |count| script(&format!("cat <<E\n{}E\n", "mpirun x\n".repeat(count))), SCRIPT),
    ("true.sbatch", |count| script(&format!("{}\n", "true; ".repeat(count))), SCRIPT),
    ("pipeline.sbatch", |count| script(&format!("{}a\n", "a | ".repeat(count))), SCRIPT),
    ("brackets.sbatch", |count| script(&format!("{}\n", "((".repeat(count))), SCRIPT),
    ("blank-lines.sbatch", |count| script(&"\n".repeat(count)), SCRIPT),
    ("lines.sbatch", |count| script(&"true\n".repeat(count)), SCRIPT),
    (
        "headings.ras",
        |count| {
            let one = |at| {
                format!(
                    "#0-{at} ({:016x}) INCOMPLETE\n  Rank 3 -- GPU 1 managed by process 965 on node 192.0.2.2\n",
                    at + 1
                )
            };
            format!("{RAS}{}", repeat(count, one))
        },
        &["health -o json --address ADDRESS"],
    ),
    (
        "missing.ras",
        |count| {
            let one = |at| format!("  Rank {at} -- GPU 1 managed by process {at} on node 192.0.2.2");
            format!("{RAS}#0-0 (c4cf64bc550944d1) INCOMPLETE\n{}", repeat(count, one))
        },
        &["health -o json --address ADDRESS"],
    ),
    (
        "watchdogs.log",
        |count| format!("{}{}", repeat(count, joined), repeat(count, |at| watchdog(at, 11))),
        WHY,
    ),
    ("watchdogs-apart.log", |count| repeat(count / 4, |at| watchdog(at, at)), WHY),
    (
        "groups.log",
        |count| {
            repeat(count / 4, |at| {
                format!(
                    "[rank{at}]:[E1122 03:13:19.253455643 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID {at}(g{at}) Rank {at}]  failure \
                     detected by watchdog at work sequence id: 11 PG status: last enqueued work: 11, last completed work: 10\n{}",
                    watchdog(at, 11)
                )
            })
        },
        WHY,
    ),
    ("processes.log", |count| format!("{}\n{}", watchdog(0, 11), repeat(count, joined)), WHY),
    (
        "tracebacks.log",
        |count| {
            repeat(count, |at| {
                format!(
                    "[rank{at}]: Traceback (most recent call last):\n[rank{at}]:   File \"/job/t.py\", line 7, in f\n[rank{at}]: ValueError: {at}"
                )
            })
        },
        WHY,
    ),
    (
        "sizes.tests",
        |count| {
            format!("# nThread 1 nGpus 1 minBytes 8\n{TESTS}{}", repeat(count, |at| row((1 << 30) + at * 8)))
        },
        &["verify -o json --instance-type p5.48xlarge --from"],
    ),
    (
        "runs.tests",
        |count| {
            let run = format!("# Collective test starting: all_reduce_perf\n{TESTS}{}", row(1 << 30));
            repeat(count / 4, |_| run.clone())
        },
        &["verify -o json --instance-type p5.48xlarge --from"],
    ),
];

fn took(place: &Place, line: &str, file: &str) -> Duration {
    // Limits of the kernel: 4 GiB of addresses, which a debug build's threads reserve half of, and two minutes of CPU. The time
    // of the CPU is measured, which a busy machine does not change.
    let like = place.command(line.split(' ').chain([file]));
    let times = place.path("times");
    let limits = "ulimit -v 4194304 -t 120; \"$0\" \"$@\"; code=$?; times >\"$TIMES\"; exit $code";
    let mut command = child::within("bash", ["-c", limits], &like);
    command.env("TIMES", &times);
    let done = Done::of(command);
    assert!([0, 3, 7].contains(&done.code), "{line} {file}: {} {}", done.code, done.err);
    // The second line is that of the children: `0m1.230s 0m0.040s`.
    let text = std::fs::read_to_string(&times).unwrap();
    let seconds = |word: &str| {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    };
    Duration::from_secs_f64(text.lines().nth(1).unwrap().split_whitespace().map(seconds).sum())
}

/// The processor's time for a verb on an input of so many parts. `ADDRESS` is that of a service that answers with the input.
fn time_of(place: &Place, case: &Case, line: &str, count: usize) -> Duration {
    let (name, make, _) = case;
    let text = make(count);
    if !line.contains("ADDRESS") {
        place.write(name, text);
        return took(place, line, name);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer: Arc<str> = text.into();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), answer) = (stream, Arc::clone(&answer)) else { return };
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    let (verb, _) = line.rsplit_once(' ').unwrap();
    took(place, verb, &address)
}

/// Says what is wrong if twice as much takes too long.
fn slower_than_linear(place: &Place, case: &Case, line: &str, measurable: Duration) -> Option<String> {
    let (mut count, mut once) = (200, Duration::ZERO);
    while once < measurable {
        count *= 2;
        once = time_of(place, case, line, count);
    }
    let (mut twice, mut ratio) = (Duration::MAX, f64::MAX);
    for round in 0..5 {
        if round > 0 {
            once = once.min(time_of(place, case, line, count));
        }
        twice = twice.min(time_of(place, case, line, 2 * count));
        ratio = twice.as_secs_f64() / once.as_secs_f64();
        // Far from the limit, three more measurements would show the same.
        if round > 0 && ratio < 2.2 {
            break;
        }
    }
    (ratio > MOST).then(|| {
        format!("{line} {}: {once:?} for {count} parts, {ratio:.1} times that for twice as many", case.0)
    })
}

/// Measures the cases of some files, two at a time. With inputs that take less than so many milliseconds, the start of
/// the program and what is linear hide what is quadratic.
fn twice_as_much(ends: &[&str], measurable: u64) {
    let of_files = CASES.iter().filter(|case| ends.iter().any(|end| case.0.ends_with(end)));
    let work: Vec<(&Case, &str)> =
        of_files.flat_map(|case| case.2.iter().map(move |line| (case, *line))).collect();
    let (next, slow) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let place = Place::new();
                while let Some((case, line)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if slower_than_linear(&place, case, line, Duration::from_millis(measurable)).is_some() {
                        slow.lock().unwrap().push((case, *line));
                    }
                }
            });
        }
    });
    // A case that looks slow beside other programs is measured again, alone, with twice the input and three times: what is
    // quadratic is slow each time.
    let place = Place::new();
    let again = |(case, line): (&&Case, &str)| {
        let measured =
            (0..3).map(|_| slower_than_linear(&place, case, line, Duration::from_millis(2 * measurable)));
        measured.collect::<Option<Vec<String>>>()?.pop()
    };
    let slow: Vec<String> = slow.into_inner().unwrap().into_iter().filter_map(again).collect();
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

#[test]
fn twice_as_much_of_a_log_takes_about_twice_as_long() {
    twice_as_much(&[".log", ".ras", ".tests"], 150);
}

#[test]
fn twice_as_much_of_a_manifest_takes_about_twice_as_long() {
    twice_as_much(&[".yaml", ".toml"], 120);
}

#[test]
fn twice_as_much_of_a_script_takes_about_twice_as_long() {
    twice_as_much(&[".sbatch"], 60);
}

#[test]
fn sixty_thousand_variables_are_read_in_seconds() {
    let place = Place::new();
    for (name, make, lines) in CASES.iter().filter(|(name, ..)| name.starts_with("env.")) {
        place.write(name, make(60_000));
        for line in *lines {
            let took = took(&place, line, name);
            assert!(took < Duration::from_secs(45), "{line} {name}: {took:?}");
        }
    }
}

/// A pickle whose lists and texts are named again and again: 1 MB that means gigabytes.
fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let text = |text: &str| {
        [&[b'X'][..], &u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
    };
    // {"entries": [ENTRY, ENTRY, …]}, each the same.
    let of = |entry: &[u8], count: usize| {
        let mut dump = b"\x80\x02}".to_vec();
        dump.extend(text("entries"));
        dump.extend(b"](");
        dump.extend(entry);
        dump.extend(b"q\x01");
        dump.extend(b"h\x01".repeat(count));
        dump.extend(b"es.");
        dump
    };
    let entry = |key: &str, value: &[u8]| {
        let group = [b"](".to_vec(), text("0"), b"e".to_vec()].concat();
        [
            b"}(".to_vec(),
            text("process_group"),
            group,
            text("collective_seq_id"),
            b"K\x01".to_vec(),
            text(key),
            value.to_vec(),
            b"u".to_vec(),
        ]
        .concat()
    };
    let list = [b"](".to_vec(), b"K\x07".repeat(200_000), b"e".to_vec()].concat();
    let keys = [
        b"}(".to_vec(),
        (0..40_000).flat_map(|at| [text(&format!("k{at}")), b"N".to_vec()].concat()).collect(),
        b"u".to_vec(),
    ]
    .concat();
    vec![
        ("frames_0", of(&entry("frames", &list), 200_000)),
        ("sizes_0", of(&entry("input_sizes", &[b"](".to_vec(), list, b"ee".to_vec()].concat()), 200_000)),
        ("names_0", of(&entry("profiling_name", &text(&"x".repeat(500_000))), 200_000)),
        ("keys_0", of(&keys, 200_000)),
    ]
}

#[test]
fn a_pickle_that_names_itself_again_is_refused_or_read_in_seconds() {
    let place = Place::new();
    place.write("rank0.log", "h:7:7 [0] NCCL INFO Using network Socket\n");
    for (name, bytes) in bombs() {
        assert!(bytes.len() < 1_200_000, "{}", bytes.len());
        let dump = place.write(name, bytes);
        let took = took(&place, &format!("transport --flight-recorder {}", dump.display()), "rank0.log");
        assert!(took < Duration::from_secs(45), "{name}: {took:?}");
    }
}
