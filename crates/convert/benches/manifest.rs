//! A stream of 10,000 documents through the mutation, and through other programs that read YAML if they are here. What
//! counts is processor time, so that other work on the machine changes little.
//!
//! `cargo bench -p weftrun-convert --bench manifest`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark is a program of its own")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;
use weftrun_convert::{MutateOptions, Splitter, Start, mutate};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::Profiles;
use weftrun_core::request::FabricRequest;

const DOCUMENTS: usize = 10_000;

/// Every document another: names, counts, comments and images differ.
fn job(index: usize) -> String {
    let env: String = (0..index % 7)
        .map(|n| format!("            - name: VAR_{n}\n              value: \"{}\" # {n}\n", index * n))
        .collect();
    let env = if env.is_empty() { String::new() } else { format!("            env:\n{env}") };
    format!(
        "# job {index}\napiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: job-{index}\n  namespace: team-{}\n  labels: {{app: train, run: \"{index}\"}}\nspec:\n  nprocPerNode: '8'\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: {}\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            image: nvcr.io/nvidia/pytorch:25.0{}-py3\n            command:\n            - torchrun\n            - --nnodes={}\n            - /workspace/train.py # the script\n{env}            resources:\n              limits:\n                nvidia.com/gpu: 8\n                memory: 1800Gi\n      restartPolicy: OnFailure\n",
        index % 50,
        2 + index % 30,
        1 + index % 9,
        2 + index % 30,
    )
}

fn other(index: usize) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cm-{index}\ndata:\n  key: |\n    some text {index}\n    of two lines\n"
    )
}

fn main() {
    let jobs: String = (0..DOCUMENTS).map(|index| format!("---\n{}", job(index))).collect();
    let mixed: String = (0..DOCUMENTS)
        .map(|index| format!("---\n{}", if index % 2 == 0 { job(index) } else { other(index) }))
        .collect();
    let ours = measure("mutate, all jobs", &jobs);
    measure("mutate, half jobs", &mixed);
    compare("yq", &["."], &jobs, ours);
    compare("kubectl", &["annotate", "--local", "-f", "-", "a=b", "-o", "yaml"], &jobs, ours);
}

fn measure(name: &str, stream: &str) -> f64 {
    let profile = Profiles::builtin().get("dgxc").unwrap();
    let (catalogue, options) = (Catalogue::builtin(), FabricRequest::default());
    let settings = MutateOptions::offline(&profile, &options, &catalogue);
    let started = Clock::start();
    let (mut splitter, mut out, mut changed) = (Splitter::default(), 0, 0);
    for chunk in stream.as_bytes().chunks(256 * 1024) {
        splitter.push(chunk);
        while let Some(document) = splitter.next_document() {
            let text = String::from_utf8(document).unwrap();
            let done = mutate(&text, Start::of("bench"), &settings).unwrap();
            out += done.text.len();
            changed += done.jobs.iter().filter(|job| job.changed).count();
        }
    }
    splitter.finish();
    while let Some(document) = splitter.next_document() {
        out += document.len();
    }
    report(name, stream.len(), &started, &format!("{changed} changed, {out} bytes out"))
}

/// Processor time of this process and of those it waited for, and the time on the wall.
struct Clock {
    processor: f64,
    wall: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { processor: processor_seconds(), wall: Instant::now() }
    }
}

/// Linux counts in hundredths of a second (`proc(5)`, fields 14 to 17 of `/proc/self/stat`).
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind_name.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / 100.0
}

fn report(name: &str, bytes: usize, started: &Clock, note: &str) -> f64 {
    let seconds = processor_seconds() - started.processor;
    let wall = started.wall.elapsed().as_secs_f64();
    let rate = bytes as f64 / 1e6 / seconds.max(0.01);
    println!(
        "{name:<24} {rate:>8.1} MB/s a core  ({:.1} MB in {seconds:.2} s of processor, {wall:.2} s on the wall; {note})",
        bytes as f64 / 1e6
    );
    rate
}

/// The same stream through another program; a tenth of it, as they are slow.
fn compare(program: &str, args: &[&str], stream: &str, ours: f64) {
    let border = stream[..stream.len() / 10].rfind("\n---\n").map_or(stream.len(), |at| at + 1);
    let stream = &stream[..border];
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        println!("{program:<24} is not here");
        return;
    };
    let started = Clock::start();
    let written = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(stream.as_bytes()).is_ok());
    let good = child.wait().is_ok_and(|status| status.success());
    if !written || !good {
        println!("{program:<24} could not read the stream");
        return;
    }
    let theirs = report(program, stream.len(), &started, "a tenth of the stream");
    println!("{:<24} {:>8.0} times as fast as {program}", "weftrun is", ours / theirs);
}
