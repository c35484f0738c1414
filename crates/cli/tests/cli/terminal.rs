//! No text from a cluster, a file, a log or an argument reaches a terminal as a control sequence, whichever
//! verb prints it: every verb runs in a real terminal with hostile names, and its output must be text and
//! styles.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use weftrun::core::backend::{
    BackendEntry, ClusterFacts, Document, ExecRequest, ExecSink, ExecStream, Language, Placeholder,
    PlannedJob, Registry, Rendered, Scope, TargetConfig,
};
use weftrun::core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId,
};
use weftrun::core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};
use weftrun::{Backend, Capability, Error, ErrorKind, Finding, Result};
use weftrun_testkit::ras::Personality;

use crate::place::Place;

/// A text that talks to a terminal in every way: OSC 52 and a title, DCS, CSI in 7 and 8 bits, C0, C1, DEL, bidirectional
/// overrides, invisible characters.
const HOSTILE: &str = "evil\u{1b}]52;c;QUJD\u{7}\u{9d}0;title\u{9c}\u{1b}P1$r\u{1b}\\\u{1b}[2J\u{9b}3J\u{1b}c\u{8}\u{7f}\u{85}\u{90}\u{202e}\u{2066}\u{200b}\u{1b}[8mend";

/// The part of it that YAML may contain verbatim: it reverses and hides text.
const UNSEEN: &str = "evil\u{202e}\u{2066}\u{200b}\u{85}end";

/// The first thing in what a terminal got that is neither text nor a style; none if there is none.
fn control_in(bytes: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Some(format!("not UTF-8: {error}")),
    };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = rest.strip_prefix("\u{1b}[").and_then(|inner| {
            let end = inner.find(|c: char| !(c.is_ascii_digit() || c == ';' || c == ':'))?;
            let harmless = !inner[..end].split(';').any(|number| number == "8");
            (inner[end..].starts_with('m') && harmless).then(|| &inner[end + 1..])
        });
        if let Some(behind) = style {
            rest = behind;
            continue;
        }
        let bidi = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if bidi || (c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
            let near: String = rest.chars().take(20).collect();
            return Some(format!("{near:?}"));
        }
        rest = &rest[c.len_utf8()..];
    }
    None
}

/// Runs a program in a terminal of its own and gives what the terminal got.
fn in_terminal(mut command: Command) -> Vec<u8> {
    let (mut master, slave) = open_terminal();
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR").stdin(Stdio::null());
    command.stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    // The last copies of the terminal's other end: with the child's own gone, reading ends.
    drop(command);
    let mut got = Vec::new();
    // A terminal whose other end is closed gives EIO.
    let _ = master.read_to_end(&mut got);
    child.wait().unwrap();
    got
}

/// The two ends of a new terminal: what a person sees and types, and what a program has.
pub fn open_terminal() -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (File::from(master), slave)
}

/// A backend whose every answer is hostile.
#[derive(Debug)]
struct Hostile;

fn handle() -> JobHandle {
    JobHandle::new("hostile", "hostile", [HOSTILE])
}

fn finding() -> Finding {
    let mut finding = Finding::warning("W-HOSTILE", format!("message {HOSTILE}\n{HOSTILE}")).fix(HOSTILE);
    finding.subject = Some(HOSTILE.to_owned());
    finding
}

fn summary(phase: JobPhase) -> JobSummary {
    let mut summary = JobSummary::new(handle(), phase);
    summary.name = HOSTILE.to_owned();
    summary.reason = HOSTILE.to_owned();
    summary.queue = Some(HOSTILE.to_owned());
    summary.kind = HOSTILE.to_owned();
    summary.labels.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    summary
}

fn replica() -> ReplicaStatus {
    let mut replica = ReplicaStatus::new(HOSTILE, HOSTILE, 0, JobPhase::Failed);
    replica.reason = HOSTILE.to_owned();
    replica.node = Some(HOSTILE.to_owned());
    replica
}

#[async_trait]
impl Backend for Hostile {
    fn capability(&self) -> Capability {
        Capability {
            backend: "hostile".to_owned(),
            suspend: true,
            hold: true,
            requeue: true,
            delete: true,
            ..Capability::default()
        }
    }
    async fn discover(&self, _: &Scope) -> Result<ClusterFacts> {
        let mut facts = ClusterFacts::default();
        facts.online = true;
        facts.notes.push(finding());
        facts.extra.insert(HOSTILE.to_owned(), HOSTILE.into());
        Ok(facts)
    }
    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        let document = Document {
            title: HOSTILE.to_owned(),
            language: Language::Yaml,
            text: format!("a: {HOSTILE}\r\nb: {}\n", job.spec.name),
        };
        let mut rendered = Rendered::new(HOSTILE, job.submission.clone(), document);
        rendered.placeholders.push(Placeholder { name: HOSTILE.to_owned(), what: HOSTILE.to_owned() });
        rendered.findings.push(finding());
        Ok(rendered)
    }
    async fn check(&self, _: &Rendered) -> Result<Vec<Finding>> {
        Ok(vec![finding()])
    }
    async fn submit(&self, _: &Rendered) -> Result<JobHandle> {
        Ok(handle())
    }
    async fn find(&self, _: &SubmissionId) -> Result<Option<JobHandle>> {
        Ok(None)
    }
    async fn list(&self, _: &JobFilter) -> Result<Vec<JobSummary>> {
        Ok(vec![summary(JobPhase::Failed)])
    }
    async fn describe(&self, _: &JobHandle) -> Result<JobDetail> {
        let mut detail = JobDetail::new(summary(JobPhase::Failed));
        detail.replicas.push(replica());
        detail.findings.push(finding());
        detail.facts.push((HOSTILE.to_owned(), HOSTILE.to_owned()));
        Ok(detail)
    }
    async fn act(&self, _: &JobHandle, _: Action) -> Result<()> {
        let error = Error::new(ErrorKind::Refused, format!("refused {HOSTILE}"));
        Err(error.with(HOSTILE, HOSTILE).hint(HOSTILE).with_source(std::io::Error::other(HOSTILE)))
    }
    async fn exec(&self, _: &JobHandle, _: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        for stream in [ExecStream::Stdout, ExecStream::Stderr] {
            for piece in HOSTILE.as_bytes().chunks(3) {
                sink(stream, piece)?;
            }
        }
        Ok(3)
    }
    fn watch(&self, _: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        let job = handle();
        let text = HOSTILE.to_owned();
        let events = vec![
            Ok(JobEvent::Replica { job: job.clone(), replica: replica() }),
            Ok(JobEvent::Stuck { job: job.clone(), finding: finding() }),
            Ok(JobEvent::Disconnected { lost: true, reason: text }),
            Ok(JobEvent::Status { job: summary(JobPhase::Failed) }),
        ];
        stream::iter(events).boxed()
    }
    fn logs(&self, _: &JobHandle, _: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let source = Arc::new(SourceId::new(HOSTILE));
        let lines = format!("{HOSTILE}\nhost:1:1 [0] NCCL INFO Using network {HOSTILE}\n").into_bytes();
        let cut = Mark::Gap { reason: HOSTILE.to_owned() };
        let batches = vec![
            Ok(LogBatch::new(Arc::clone(&source), lines, Cursor::default())),
            Ok(LogBatch::marked(source, cut, Cursor::default())),
        ];
        stream::iter(batches).boxed()
    }
}

#[allow(clippy::unused_async, reason = "a registry keeps an async function")]
async fn connect(_: TargetConfig) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Hostile))
}

#[test]
#[ignore = "the process that the tests below run in a terminal"]
fn weftrun_with_a_hostile_cluster() {
    let Ok(line) = std::env::var("WEFTRUN_TEST_LINE") else { return };
    let summary = "hostile \u{1b}]52;c;QUJD\u{7}summary";
    let entry = BackendEntry::new("hostile", summary, "cli-tests", |target| Box::pin(connect(target)));
    let words: Vec<String> = serde_json::from_str(&line).unwrap();
    let code = weftrun_cli::run(Registry::linked().with(entry), words);
    std::process::exit(i32::from(code));
}

/// Returns the command lines to run, each as its words; `HOSTILE` is replaced by the text and `FILE` by a
/// hostile file.
fn lines() -> Vec<Vec<String>> {
    let handle = handle().to_string();
    let texts = [
        "submit -b hostile job.toml",
        "submit -b hostile --dry-run job.toml",
        "submit -b hostile --dry-run=server job.toml",
        "submit -b hostile --wait job.toml",
        "submit -b slurm --dry-run hostile.toml",
        "plan -b hostile hostile.toml",
        "plan hostile.yaml",
        "render -b hostile job.toml",
        "render -b slurm hostile.toml",
        "render -b kubeflow -n team hostile.toml",
        "render -b kubeflow -n team hostile.toml -o json",
        "render --as docker hostile.toml",
        "mutate hostile-manifest.yaml --profile dgxc --instance-type p5.48xlarge",
        "mutate --diff hostile-manifest.yaml --profile dgxc --instance-type p5.48xlarge",
        "mutate --diff --color always hostile-manifest.yaml --profile dgxc --instance-type p5.48xlarge",
        "mutate hostile-manifest.yaml -o json --profile dgxc --instance-type p5.48xlarge",
        "mutate broken.yaml",
        "mutate hostile.sbatch --profile parallelcluster",
        "mutate --diff hostile.sbatch --profile parallelcluster",
        "mutate --diff --color never hostile.sbatch --profile parallelcluster",
        "lint hostile-manifest.yaml hostile.sbatch hostile.toml broken.yaml",
        "lint -o json hostile.toml",
        "lint -o sarif hostile.toml",
        "import hostile-manifest.yaml",
        "import hostile.sbatch",
        "explain HOSTILE",
        "explain efa.devices",
        "transport hostile.log",
        "bandwidth hostile.jsonl",
        "bandwidth HANDLE",
        "transport -o json hostile.log",
        "transport -o mermaid hostile.log",
        "transport -o html hostile.log",
        "transport HOSTILE",
        "verify --from hostile.log",
        "verify -o html --from hostile.log",
        "verify -o json --from hostile.log",
        "verify --baseline compare,save --from hostile.log",
        "verify --history",
        "probe HOSTILE",
        "report -o html hostile.log",
        "report -o json failed.log",
        "report HANDLE -o html",
        "report HOSTILE",
        "why hostile.log",
        "why failed.log",
        "why -o json failed.log",
        "why -o html failed.log",
        "why HOSTILE",
        "logs HANDLE",
        "logs -o json HANDLE",
        "logs --color always HANDLE",
        "exec HANDLE --rank 1 -- COMMAND",
        "port-forward HANDLE --rank 1 0:9",
        "health HANDLE",
        "health -o json HANDLE",
        "health --timeout 1s --address ADDRESS",
        "watch HANDLE",
        "watch -o json HANDLE",
        "wait HANDLE",
        "retry HANDLE",
        "retry --dry-run -o json HANDLE",
        "nodes -b hostile",
        "nodes -b hostile HOSTILE",
        "history -b HOSTILE",
        "history --forget --node HOSTILE -b hostile",
        "version",
        "help HOSTILE",
        "list --phase HOSTILE",
        "list -b hostile -l HOSTILE=HOSTILE",
        "list -b hostile -a -o wide",
        "list -o name -b hostile -a",
        "cancel --dry-run HANDLE",
        "wait -o yaml HANDLE",
        "list -b hostile -a",
        "list -b hostile -a -o json",
        "describe HANDLE",
        "describe -o json HANDLE",
        "cancel HANDLE",
        "cancel -o json HANDLE",
        "delete --yes HANDLE",
        "suspend HANDLE",
        "resume HANDLE",
        "hold HANDLE",
        "release HANDLE",
        "requeue HANDLE",
        "backends",
        "config show --origin",
        "config path",
        "config set HOSTILE HOSTILE",
        "init --yes --name HOSTILE",
        "init --yes --image HOSTILE",
        "instances HOSTILE",
        "advisories",
        "profiles",
        "profiles HOSTILE",
        "targets",
        "doctor -b hostile",
        "doctor --private-access -b hostile",
        "demo --nodes HOSTILE",
        "supervise HOSTILE",
        "completions bash",
        "man",
        "mcp",
        "skill",
        "skill --dir HOSTILE",
        "tui --keys",
        "plan --config HOSTILE job.toml",
        "plan --profile HOSTILE job.toml",
        "list -b HOSTILE",
    ];
    let member = serde_json::json!({ "rank": 1, "host": HOSTILE, "pid": 7 });
    let comm = serde_json::json!({ "hash": "0x1", "size": 2, "missing_ranks": [member] });
    let report = serde_json::json!({ "nccl_version": HOSTILE, "communicators": [comm] });
    let port = Personality { json: vec![report.to_string()], ..Personality::default() }.serve();
    let word = |word: &str| match word {
        "HOSTILE" => HOSTILE.to_owned(),
        "HANDLE" => handle.clone(),
        "ADDRESS" => format!("127.0.0.1:{port}"),
        word => word.to_owned(),
    };
    texts.iter().map(|line| line.split(' ').map(word).collect()).collect()
}

fn place() -> Place {
    let place = Place::new();
    let quoted = HOSTILE.chars().fold(String::new(), |out, c| {
        if c.is_ascii_graphic() {
            out + &c.to_string().replace('\\', "\\\\")
        } else {
            format!("{out}\\U{:08X}", u32::from(c))
        }
    });
    let job = |extra: &str| {
        format!(
            "name = \"job\"\nimage = \"i:1\"\nlaunch = \"torchrun\"\nnodes = 2\ngpus_per_node = 8\ncommand = [\"train.py\"]\n{extra}"
        )
    };
    place.write("job.toml", job(""));
    place.write(
        "hostile.toml",
        job(&format!("annotations = {{ \"example.com/a\" = \"{quoted}\" }}\n[env]\nV = \"{quoted}\"\nW_TOKEN = \"{quoted}\"\n")),
    );
    place.write(
        "hostile.jsonl",
        (0..2)
            .map(|rank| {
                format!(
                    "{{\"weftrun_nccl\":1,\"t\":1795695725000,\"host\":\"evil {quoted}\",\"pid\":7,\"comm\":\"0x1{quoted}\",\"rank\":{rank},\"n\":2,\"nodes\":1,\"op\":\"All{quoted}\",\"count\":9,\"bytes\":1024,\"ns\":2000,\"min\":1,\"max\":9,\"seq\":0,\"seq_bytes\":9,\"seq_ns\":9,\"dropped\":0}}\n"
                )
            })
            .collect::<String>(),
    );
    place.write("hostile.yaml", format!("name: \"{quoted}\"\nnodes: \"{quoted}\"\n\"{quoted}\": 1\n"));
    place.write(
        "hostile-manifest.yaml",
        format!(
            "# {UNSEEN}\napiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: \"{quoted}\"\n  namespace: \"{quoted}\"\n\
             spec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n\
             \x20         - name: pytorch\n            image: i:1\n            command: [torchrun, t.py] # {UNSEEN}\n\
             \x20           resources: {{limits: {{nvidia.com/gpu: 8, cpu: 8, memory: 1800Gi}}}}\n            env:\n            - {{name: V, value: \"{quoted}\"}}\n"
        ),
    );
    place
        .write("broken.yaml", format!("kind: PyTorchJob\nmetadata: {{name: \"{quoted}\"\n  x: [{HOSTILE}\n"));
    place.write(
        "hostile.sbatch",
        format!("#!/bin/bash\n#SBATCH -N 2 --exclusive --gpus-per-node=8\n#SBATCH --job-name={HOSTILE}\nexport V='{HOSTILE}'\nsrun python t.py {HOSTILE}\n"),
    );
    place.write(
        "failed.log",
        format!(
            "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/x/{HOSTILE}.py\", line 3, in {HOSTILE}\n\
             [rank3]:     step()\n[rank3]: ValueError: evil {HOSTILE}\n"
        ),
    );
    place.write(
        "hostile.log",
        format!(
            "{HOSTILE}:7:7 [0] NCCL INFO NCCL_HOSTID set by environment to {HOSTILE}\nh:7:7 [0] NCCL INFO Using network {HOSTILE}\n\
             h:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{HOSTILE}/0\n\
             h:7:7 [0] x.cc:1 NCCL WARN Call to {HOSTILE} failed : Connection refused {HOSTILE}\n\
             h:7:7 [0] NCCL INFO NCCL version {HOSTILE}\n"
        ),
    );
    place.configure(&format!("[target.\"t\"]\nbackend = \"kubeflow\"\nnamespace = \"{quoted}\"\n"));
    place
}

fn run(place: &Place, words: &[String]) -> Vec<u8> {
    let mut command = place.program(std::env::current_exe().unwrap());
    command.args([
        "--ignored",
        "--exact",
        "terminal::weftrun_with_a_hostile_cluster",
        "--nocapture",
        "--color=never",
        "--quiet",
    ]);
    let line: Vec<&str> = ["weftrun"].into_iter().chain(words.iter().map(String::as_str)).collect();
    command.env("WEFTRUN_TEST_LINE", serde_json::to_string(&line).unwrap());
    in_terminal(command)
}

#[test]
fn every_verb_has_a_line_in_the_terminal() {
    let lines = lines();
    for verb in weftrun_cli::command().get_subcommands() {
        let name = verb.get_name();
        assert!(
            lines.iter().any(|line| line[0] == name),
            "`{name}` is not run in a terminal with hostile names: add a line"
        );
    }
}

#[test]
fn no_verb_passes_a_control_sequence_on_to_the_terminal() {
    let place = place();
    let mut failed = Vec::new();
    let mut said_evil = 0;
    for words in lines() {
        let got = run(&place, &words);
        said_evil += usize::from(String::from_utf8_lossy(&got).contains("evil"));
        if let Some(found) = control_in(&got) {
            failed.push(format!("{words:?}: {found}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // The hostile text did come through, or the test would show nothing.
    assert!(said_evil > 40, "only {said_evil} lines printed the hostile text");
}

#[test]
fn what_was_typed_is_repeated_without_its_controls() {
    let place = place();
    for verb in weftrun_cli::command().get_subcommands() {
        for argument in [HOSTILE.to_owned(), format!("--{HOSTILE}"), format!("--output={HOSTILE}")] {
            // A verb that takes anything as its last words runs nothing without what it needs.
            let words = [verb.get_name().to_owned(), "--no-such-flag".to_owned(), argument];
            let got = run(&place, &words);
            assert_eq!(control_in(&got), None, "{words:?}");
        }
    }
    let got = run(&place, &[HOSTILE.to_owned()]);
    assert_eq!(control_in(&got), None);
}

#[test]
fn a_pipe_gets_the_exact_bytes() {
    let place = place();
    let rendered = place.command("render -b slurm hostile.toml".split(' ')).output().unwrap();
    let text = String::from_utf8(rendered.stdout).unwrap();
    assert!(text.contains(HOSTILE), "{text:?}");
    for (line, kept) in [
        ("mutate hostile-manifest.yaml --profile dgxc --instance-type p5.48xlarge", format!("# {UNSEEN}\n")),
        (
            "mutate --diff hostile-manifest.yaml --profile dgxc --instance-type p5.48xlarge",
            format!("t.py] # {UNSEEN}\n"),
        ),
        (
            "mutate hostile.sbatch --profile parallelcluster --instance-type p5.48xlarge",
            format!("export V='{HOSTILE}'\n"),
        ),
        (
            "mutate --diff hostile.sbatch --profile parallelcluster --instance-type p5.48xlarge",
            format!(" export V='{HOSTILE}'\n"),
        ),
    ] {
        let done = place.command(line.split(' ')).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(text.contains(&kept), "{line}: {text:?}");
    }
}

#[test]
fn it_is_said_that_controls_are_shown_escaped() {
    let place = place();
    let got = run(&place, &["render", "-b", "slurm", "hostile.toml"].map(str::to_owned));
    let text = String::from_utf8(got).unwrap();
    assert!(text.contains("\\u001b]52;c;QUJD\\u0007"), "{text:?}");
    assert!(text.contains("control characters shown escaped"), "{text:?}");
}

#[test]
fn the_judge_finds_what_it_is_for() {
    for bad in ["a\u{1b}]52;c;x\u{7}", "\u{9b}2J", "\u{202e}", "\u{1b}[2J", "\u{1b}[8m", "\u{8}", "\u{1b}[1A"]
    {
        assert!(control_in(bad.as_bytes()).is_some(), "{bad:?}");
    }
    assert_eq!(control_in("a\tb\r\n\u{1b}[1;31mc\u{1b}[0mé".as_bytes()), None);
}
