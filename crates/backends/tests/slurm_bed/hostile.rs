//! Names, values and paths full of quotes, `$`, newlines and `;` come back as data, through sbatch, srun and the log.

use futures_util::StreamExt as _;
use weftrun_core::backend::Backend;
use weftrun_core::job::JobHandle;
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{Code, JobSpec, Launch, Role};
use weftrun_testkit::planned;

use crate::bed::{Bed, EVERY};

/// What must come back as it is.
pub const NASTY: &str = "it's \"$HOME\" `id` $(id); rm -rf / \\ \n two\t# * ~ !x é🦀 %j a=b,c";

/// Everything the ranks of a job wrote, once it has ended.
pub async fn output(backend: &dyn Backend, job: &JobHandle) -> String {
    let mut batches = backend.logs(job, LogOptions::follow());
    let mut bytes = Vec::new();
    while let Some(batch) = batches.next().await {
        bytes.extend_from_slice(&batch.expect("a batch").bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn printable(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_text_comes_back_as_data() {
    let Some(bed) = Bed::find() else { return };
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
        let backend = bed.connect(way);
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
