//! What grows with its input grows with it and not with its square, and a bomb is refused: each reader of files, run by the
//! real binary with four times as much, takes less than ten times as long; and none takes more memory than it is given.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use crate::place::{Done, Place};

/// Time that is not significant: a start of the program on a busy machine.
const START: Duration = Duration::from_secs(3);

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
         command: [torchrun, t.py]\n            resources: {{limits: {{nvidia.com/gpu: 8}}}}\n{inside}"
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
        |count| repeat(count / 100 + 1, |_| "\u{9d}\u{90}".repeat(8000) + "NCCL WARN x"),
        &["transport"],
    ),
];

fn took(place: &Place, line: &str, file: &str) -> Duration {
    // Limits of the kernel: 4 GiB of addresses, which a debug build's threads reserve half of, and two minutes of CPU. The time
    // of the CPU is measured, which a busy machine does not change.
    let like = place.command(line.split(' ').chain([file]));
    let times = place.path("times");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -v 4194304 -t 120; \"$0\" \"$@\"; code=$?; times >\"$TIMES\"; exit $code"])
        .arg(like.get_program())
        .args(like.get_args());
    command.env_clear().envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = Done::of({
        command.env("TIMES", &times).current_dir(like.get_current_dir().unwrap());
        command
    });
    assert!([0, 3, 7].contains(&done.code), "{line} {file}: {} {}", done.code, done.err);
    // The second line is that of the children: `0m1.230000s 0m0.040000s`.
    let text = std::fs::read_to_string(&times).unwrap();
    let seconds = |word: &str| {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    };
    Duration::from_secs_f64(text.lines().nth(1).unwrap().split_whitespace().map(seconds).sum())
}

#[test]
fn four_times_as_much_takes_less_than_ten_times_as_long() {
    let place = Place::new();
    let mut slow = Vec::new();
    for (name, make, lines) in CASES {
        let (small, large) = (format!("small-{name}"), format!("large-{name}"));
        place.write(&small, make(1500));
        place.write(&large, make(6000));
        for line in *lines {
            let (once, four) = (took(&place, line, &small), took(&place, line, &large));
            if four > once * 10 + START {
                slow.push(format!("{line} {name}: {once:?}, and {four:?} with four times as much"));
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
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
