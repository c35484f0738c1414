//! Names, values and paths full of quotes, `$`, newlines and `;` come back as data, through sbatch, srun and the log.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use weftrun_core::backend::Backend;
use weftrun_core::job::JobHandle;
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{Code, JobSpec, Launch, Role};
use weftrun_testkit::planned;

use crate::cluster::{EVERY, TestCluster};

/// What must come back as it is.
pub const NASTY: &str = "it's \"$HOME\" `id` $(id); rm -rf / \\ \n two\t# * ~ !x é🦀 %j a=b,c";

/// Time limit of a stream, so that no test waits forever.
const LONGEST: Duration = Duration::from_mins(3);
/// How many of the last items are shown of a stream that did not end.
const SHOWN: usize = 20;

/// A stream that fails the test, with the last things it gave, where it does not end in time.
pub fn bounded<T: Debug + Send + 'static>(stream: BoxStream<'static, T>) -> BoxStream<'static, T> {
    let until = tokio::time::Instant::now() + LONGEST;
    let next = move |(mut stream, mut seen): (BoxStream<'static, T>, VecDeque<String>)| async move {
        let Ok(item) = tokio::time::timeout_at(until, stream.next()).await else {
            panic!("no end within {LONGEST:?}; the last items were\n{}", Vec::from(seen).join("\n"));
        };
        let item = item?;
        seen.push_back(format!("{item:?}").chars().take(400).collect());
        if seen.len() > SHOWN {
            seen.pop_front();
        }
        Some((item, (stream, seen)))
    };
    futures_util::stream::unfold((stream, VecDeque::new()), next).boxed()
}

/// Everything the ranks of a job wrote, once it has ended.
pub async fn output(backend: &dyn Backend, job: &JobHandle) -> String {
    let mut batches = bounded(backend.logs(job, LogOptions::follow()));
    let mut bytes = Vec::new();
    while let Some(batch) = batches.next().await {
        bytes.extend_from_slice(&batch.expect("a batch").bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn printable(text: &str) -> String {
    text.bytes()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|half| char::from_digit(half.into(), 16))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_text_comes_back_as_data() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in EVERY {
        let script = "hex() { od -An -v -tx1 | tr -d ' \\n'; }\nprintf %s \"$1\" | hex; echo\nprintf %s \"$NASTY\" | hex; echo\ncat 'we ird;$(x).txt' 2>/dev/null; pwd\n";
        let spec = JobSpec::builder("it's $(id); \"x\"")
            .launch(Launch::PerRank)
            .role(Role::worker().command(["sh", "show.sh", NASTY]))
            .env("NASTY", NASTY)
            .code(Code::Script { name: "show.sh".into(), text: script.into() });
        let mut spec = spec.build().unwrap_or_else(|_| {
            // The spec may want a DNS label; Slurm does not, and foreign scripts have any name.
            JobSpec::builder("plain")
                .launch(Launch::PerRank)
                .role(Role::worker().command(["sh", "show.sh", NASTY]))
                .env("NASTY", NASTY)
                .code(Code::Script { name: "show.sh".into(), text: script.into() })
                .build()
                .expect("valid")
        });
        spec.name = "it's $(id); \"x\"".to_owned();
        let backend = cluster.connect(way);
        let rendered = backend.render(&planned(spec)).expect("renders");
        let job = backend.submit(&rendered).await.expect("is taken");
        let text = output(&*backend, &job).await;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.first().copied(), Some(printable(NASTY).as_str()), "{way:?}: {text}");
        assert_eq!(lines.get(1).copied(), Some(printable(NASTY).as_str()), "{way:?}: {text}");
        let name = backend.describe(&job).await.expect("is there").summary.name;
        assert_eq!(name, "it's $(id); \"x\"", "{way:?}");
    }
}
