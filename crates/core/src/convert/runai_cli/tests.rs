use serde_json::json;

use super::*;

fn codes(job: &Imported) -> Vec<&str> {
    job.findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// The line of EPFL's notes.
#[test]
fn the_older_command_line_is_a_job() {
    let line = "runai submit-dist pytorch --name readme --workers=2 -g 4 -i registry.example.test/train:v1 \\\n    \
                --annotation k8s.v1.cni.cncf.io/networks=kube-system/roce --extended-resource rdma/rdma=1 -- \"sleep infinity\"";
    let job = import_runai(line).unwrap();
    let spec = &job.spec;
    assert_eq!((spec.name.as_str(), spec.nodes(), spec.roles[0].gpus_per_node), ("readme", 3, 4));
    assert_eq!(spec.roles[0].command, ["sleep", "infinity"]);
    assert_eq!(spec.roles[0].resources["rdma/rdma"], "1");
    assert_eq!(spec.annotations["k8s.v1.cni.cncf.io/networks"], "kube-system/roce");
    assert_eq!((spec.fabric.kind, spec.launch), (Fabric::Roce, Launch::PerNode));
    assert_eq!(codes(&job), ["I-IMPORT-ENTRYPOINT", "I-IMPORT-FABRIC"]);
}

#[test]
fn an_opt_out_is_kept() {
    let line = "runai submit-dist --name x -i a:b --annotation \"disable-auto-efa=true\" --workers 1 -- torchrun --nproc-per-node=8 a.py";
    let job = import_runai(line).unwrap();
    assert_eq!(job.spec.fabric.kind, Fabric::Off);
    assert_eq!(job.spec.launch, Launch::Torchrun);
    assert_eq!(job.spec.roles[0].ranks_per_node, Some(8));
}

#[test]
fn the_newer_command_line_is_a_job() {
    let line = "runai training pytorch submit llama -p nlp --image a:b --workers 3 -g 8 --node-pools h100 --priority high \
                --extended-resource vpc.amazonaws.com/efa=32 --large-shm --capability IPC_LOCK -e A=1=2 --env-secret T=s,key=k \
                --existing-pvc claimname=data,path=/data --host-path path=/x,mount=/y --toleration operator=Exists,key=gpu \
                --preemptibility preemptible --command -- bash -c 'torchrun $RANK a.py'";
    let job = import_runai(line).unwrap();
    let spec = &job.spec;
    assert_eq!((spec.nodes(), spec.fabric.kind), (4, Fabric::Efa));
    assert_eq!(spec.roles[0].command, ["bash", "-c", "torchrun $RANK a.py"]);
    assert_eq!(spec.env[0].value, "1=2");
    assert_eq!(spec.secrets[0].key, "k");
    assert_eq!(spec.volumes.len(), 2);
    assert!(spec.volumes[1].read_only && !spec.volumes[0].read_only);
    let own = json!({"spec": {
        "compute": {"largeShmRequest": true}, "security": {"capabilities": ["IPC_LOCK"]},
        "tolerations": [{"operator": "Exists", "key": "gpu"}], "preemptibility": "preemptible",
    }});
    assert_eq!(spec.backend["runai"], own);
    assert_eq!(codes(&job), ["I-IMPORT-PROJECT", "I-IMPORT-FABRIC"]);
}

#[test]
fn workers_of_mpi_are_all_nodes_and_a_workspace_is_one() {
    let job =
        import_runai("runai mpi submit n -i a:b --workers 2 -g 8 --slots-per-worker 8 -- all_reduce_perf")
            .unwrap();
    assert_eq!((job.spec.nodes(), job.spec.launch), (2, Launch::Mpi));
    let job = import_runai("runai submit --name n -i a:b -g 0.5 --interactive -- jupyter lab").unwrap();
    assert_eq!(job.spec.backend["runai"]["workspace"], true);
    assert_eq!(job.spec.backend["runai"]["spec"]["compute"]["gpuPortionRequest"], 0.5);
}

#[test]
fn what_is_not_known_is_said() {
    let job = import_runai("runai training submit n -i a:b --imge x --exclude-node a,b --workers many -- x")
        .unwrap();
    let said: Vec<_> =
        job.findings.iter().map(|f| (f.code.as_str(), f.subject.as_deref().unwrap_or_default())).collect();
    let left = ["imge", "exclude-node", "--workers"].map(|flag| ("W-IMPORT-LOST", flag));
    assert_eq!(said[..3], left);
    for line in ["", "runai", "runai list", "kubectl apply", "runai submit 'x", "runai submit --image"] {
        assert_eq!(import_runai(line).unwrap_err().code, "E-IMPORT-JOB", "{line}");
    }
}
