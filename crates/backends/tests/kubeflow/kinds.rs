//! What the server stores is what `weftrun mutate` makes of the same job.

use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, FabricPlan, Profiles};
use weftrun_core::spec::{JobSpec, Launch, Role};

use crate::bed::{bed, name, plan};

fn spec(launch: Launch) -> JobSpec {
    JobSpec::builder(name("efa"))
        .image("example.test/mpi:1")
        .launch(launch)
        .fabric(Fabric::Efa)
        .role(Role::worker().nodes(4).gpus_per_node(8).memory("64Gi").command(["train.py"]))
        .build()
        .unwrap()
}

/// The dry run takes the mutated job of each kind, with the fabric's resources in it.
#[tokio::test]
async fn the_server_takes_mutated_jobs() {
    let Some(bed) = bed() else { return };
    let backend = bed.connect().await;
    for launch in [Launch::Torchrun, Launch::PerNode, Launch::Mpi] {
        let mut planned = plan(&*backend, spec(launch)).await;
        let profile = Profiles::builtin().get("dgxc").unwrap();
        planned.plan = FabricPlan::new(&planned.spec, &Catalogue::builtin(), &planned.facts, &profile);
        let rendered = backend.render(&planned).unwrap();
        assert!(rendered.inexpressible.is_empty(), "{:?}", rendered.inexpressible);
        let text = &rendered.documents[0].text;
        assert!(
            text.contains("vpc.amazonaws.com/efa") && text.contains("hugepages-2Mi"),
            "{launch:?}:\n{text}"
        );
        let findings = backend.check(&rendered).await.unwrap();
        assert!(findings.is_empty(), "{launch:?}: {findings:?}\n{text}");
    }
}
