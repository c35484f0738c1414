use serde_json::json;

use super::*;

fn codes(job: &Imported) -> Vec<&str> {
    job.findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// The line from EPFL's notes.
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
    let job =
        import_runai("runai training submit n -i a:b --imge x --frobnicate a,b --workers many -- x").unwrap();
    let said: Vec<_> =
        job.findings.iter().map(|f| (f.code.as_str(), f.subject.as_deref().unwrap_or_default())).collect();
    let left = ["imge", "frobnicate", "--workers"].map(|flag| ("W-IMPORT-LOST", flag));
    assert_eq!(said[..3], left);
    for line in ["", "runai", "runai list", "kubectl apply", "runai submit 'x", "runai submit --image"] {
        assert_eq!(import_runai(line).unwrap_err().code, "E-IMPORT-JOB", "{line}");
    }
}

fn own(job: &Imported) -> &serde_json::Value {
    &job.spec.backend["runai"]["spec"]
}

/// `runai distributed submit` with its frameworks.
#[test]
fn a_distributed_command_line_names_its_framework() {
    let line = |framework: &str| {
        format!(
            "runai distributed submit d {framework} --workers=5 --no-master -g 1 -i a:b -p x --command -- python t.py"
        )
    };
    let job = import_runai(&line("-f TF")).unwrap();
    assert_eq!((job.spec.nodes(), &own(&job)["distributedFramework"]), (5, &json!("TF")));
    let job = import_runai(&line("--framework PyTorch")).unwrap();
    assert!(job.spec.launch == Launch::PerNode && !job.spec.backend.contains_key("runai"));
    assert_eq!(import_runai(&line("--framework=MPI")).unwrap().spec.launch, Launch::Mpi);
    assert_eq!(codes(&import_runai(&line("-f Ray")).unwrap())[0], "W-IMPORT-LOST");
}

/// Without a command the image's entrypoint is started; words that are only options are its arguments.
#[test]
fn a_command_line_without_a_command_starts_the_entrypoint() {
    let job = import_runai("runai training pytorch submit x -i a:b -g 1 --workers 1").unwrap();
    assert!(job.spec.roles[0].command.is_empty() && job.spec.validate().iter().all(|f| !f.is_error()));
    assert_eq!(codes(&job), ["I-IMPORT-COMMAND"]);
    for line in [
        "runai pytorch submit x -i a:b -- -a one -b 'two words'",
        "runai pytorch submit x -i a:b --args \"-a one -b 'two words'\"",
    ] {
        let job = import_runai(line).unwrap();
        assert_eq!(own(&job)["args"], "-a one -b 'two words'", "{line}");
        assert!(job.spec.roles[0].command.is_empty(), "{line}");
    }
    let job =
        import_runai("runai training submit x -i a:b --command 'python t.py' --args '--steps 3'").unwrap();
    assert_eq!(job.spec.roles[0].command, ["python", "t.py", "--steps", "3"]);
}

/// Parts of a GPU, by share and by memory, each with what the official client adds.
#[test]
fn parts_of_a_gpu_are_whole_requests() {
    let compute = |flags: &str| {
        let job = import_runai(&format!("runai workspace submit x -i a:b {flags} -- sleep 1")).unwrap();
        assert_eq!(codes(&job), ["I-IMPORT-ENTRYPOINT"], "{flags}");
        (own(&job)["compute"].clone(), job.spec.roles[0].gpus_per_node)
    };
    let memory = json!({"gpuMemoryRequest": "24G", "gpuRequestType": "memory", "gpuDevicesRequest": 1});
    assert_eq!(compute("--gpu-memory 24GB"), (memory, 0));
    let portion = json!({"gpuPortionRequest": 0.1, "gpuRequestType": "portion", "gpuDevicesRequest": 1});
    assert_eq!(compute("--gpu-portion-request 0.1"), (portion, 0));
    let both = json!({"gpuRequestType": "portion", "gpuPortionRequest": 0.5});
    assert_eq!(
        compute("--gpu-request-type portion --gpu-portion-request 0.5 --gpu-devices-request 1"),
        (both, 1)
    );
    let limited = json!({"gpuMemoryRequest": "4G", "gpuMemoryLimit": "12Gi", "gpuRequestType": "memory"});
    assert_eq!(compute("-g 2 --gpu-memory-request 4G --gpu-memory-limit 12GiB"), (limited, 2));
}

#[test]
fn flags_that_repeat_are_lists() {
    let job = import_runai("runai training submit x -i a:b --node-pools a --node-pools b,c --exclude-node n1 --exclude-node n2 -- x").unwrap();
    assert_eq!((own(&job)["nodePools"].clone(), &job.spec.queue), (json!(["a", "b", "c"]), &None));
    let rule = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]});
    assert_eq!(own(&job)["nodeAffinityRequired"]["nodeSelectorTerms"][0]["matchExpressions"], json!([rule]));
    let job = import_runai("runai training submit x -i a:b --node-pools h100 -- x").unwrap();
    assert_eq!(job.spec.queue.as_deref(), Some("h100"));
}

#[test]
fn ids_of_a_user_have_a_source() {
    let security = |flags: &str| {
        own(&import_runai(&format!("runai submit x -i a:b {flags} -- x")).unwrap())["security"].clone()
    };
    assert_eq!(
        security("--run-as-uid 1000 --run-as-gid 100"),
        json!({"runAsUid": 1000, "runAsGid": 100, "uidGidSource": "custom"})
    );
    assert_eq!(
        security("--run-as-uid 1000 --user-group-source fromTheImage"),
        json!({"runAsUid": 1000, "uidGidSource": "fromTheImage"})
    );
    let job = import_runai("runai training submit x -i a:b --run-as-user -g 1 -- x").unwrap();
    assert_eq!((codes(&job)[0], job.spec.roles[0].gpus_per_node), ("W-IMPORT-LOST", 1));
}

/// Every kind of volume, port and address, with each part in its field.
#[test]
fn volumes_ports_and_addresses_are_carried() {
    let line = "runai training submit x -i a:b --git-sync name=n,repository=https://h/r.git,path=/code,secret=s,rev=main,depth=1 \
                --new-pvc claimname=shm,storageclass=fast,size=64GB,path=/dev/shm,accessmode-rwm,ephemeral \
                --s3 name=b,bucket=data,path=/s3,accesskey=k,url=https://s3.example.test --nfs path=/x,server=h,mountpath=/nfs,readwrite \
                --configmap-map-volume name=c,path=/c,subpath=f --secret-volume path=/s,name=sec --empty-dir-volume path=/e,medium=Memory,size-limit=2GiB \
                --port container=8888,service-type=NodePort,external=30022 --port 22:2222 \
                --external-url container=9443,url=https://e.example.test,authusers=u --toleration operator=Exists,key=gpu,seconds=30s \
                --preemptible --parallelism 2 --completions=4 --auto-deletion-time-after-completion 2h30m --termination-grace-period 45s -- x";
    let job = import_runai(line).unwrap();
    let wanted = json!({
        "storage": {
            "git": [{"name": "n", "repository": "https://h/r.git", "path": "/code", "passwordSecret": "s", "revision": "main"}],
            "pvc": [{"existingPvc": false, "readOnly": false, "claimName": "shm", "path": "/dev/shm", "ephemeral": true,
                     "claimInfo": {"storageClass": "fast", "size": "64G",
                                   "accessModes": {"readWriteMany": true, "readWriteOnce": false}}}],
            "s3": [{"name": "b", "bucket": "data", "path": "/s3", "accessKeySecret": "k", "url": "https://s3.example.test"}],
            "nfs": [{"path": "/x", "server": "h", "mountPath": "/nfs", "readOnly": false}],
            "configMapVolume": [{"configMap": "c", "mountPath": "/c", "subPath": "f"}],
            "secretVolume": [{"mountPath": "/s", "secret": "sec"}],
            "emptyDirVolume": [{"path": "/e", "medium": "Memory", "sizeLimit": "2Gi"}],
        },
        "ports": [{"container": 8888, "serviceType": "NodePort", "external": 30022}, {"container": 2222, "external": 22}],
        "exposedUrls": [{"container": 9443, "url": "https://e.example.test", "authorizedUsers": ["u"]}],
        "tolerations": [{"operator": "Exists", "key": "gpu", "seconds": 30}],
        "preemptibility": "preemptible", "parallelism": 2, "completions": 4,
        "autoDeletionTimeAfterCompletionSeconds": 9000, "terminationGracePeriodSeconds": 45,
    });
    assert_eq!(*own(&job), wanted);
    let lost: Vec<&str> =
        job.findings.iter().filter(|f| f.code == "W-IMPORT-LOST").map(|f| f.message.as_str()).collect();
    assert_eq!(lost, ["`depth` of `--git-sync` is not known here and was left out"]);
}

/// A value that only the shell has is reported; an expansion that no shell does is kept as text, with a
/// warning, unless a shell in the container reads it.
#[test]
fn variables_are_text_or_unknown() {
    let line = "IMAGE=a:b\nrunai training submit \"$NAME\" -i $IMAGE -g \"$GPUS\" -e TOKEN=$TOKEN -e KEPT='$HOME' -- \
                start --url='/${RUNAI_PROJECT}' \"$ARGUMENT\"";
    let job = import_runai(line).unwrap();
    assert_eq!((job.spec.name.as_str(), job.spec.image.as_deref()), ("imported", Some("a:b")));
    assert_eq!(job.spec.env.iter().map(|var| var.value.as_str()).collect::<Vec<_>>(), ["$TOKEN", "$HOME"]);
    assert_eq!(job.spec.roles[0].command, ["start", "--url=/${RUNAI_PROJECT}", "$ARGUMENT"]);
    let mut found = codes(&job);
    found.retain(|code| code.starts_with('W'));
    let (variable, literal) = ("W-IMPORT-VARIABLE", "W-IMPORT-LITERAL");
    assert_eq!(found, [variable, variable, variable, literal, literal, variable]);
    let job = import_runai("runai training submit x -i a:b -c -- bash -lc 'echo $RANK'").unwrap();
    assert_eq!((codes(&job), job.spec.roles[0].command.len()), (Vec::new(), 3));
}

/// The master's own flags: if they equal the workers', the master is one of them.
#[test]
fn a_master_of_its_own_has_only_what_differs() {
    let line = |gpus: u32| {
        format!(
            "runai training pytorch submit x -i a:b --workers 3 -g 4 --cpu-core-request 8 --restart-policy Never \
             --master-gpu-devices-request {gpus} --master-cpu-core-request 8 --master-restart-policy Never --command -- x"
        )
    };
    let same = import_runai(&line(4)).unwrap();
    assert_eq!(same.spec.backend["runai"], json!({"spec": {"restartPolicy": "Never"}}));
    let other = import_runai(&line(1)).unwrap();
    assert_eq!(other.spec.backend["runai"]["master"], json!({"compute": {"gpuDevicesRequest": 1}}));
    assert!(codes(&other).is_empty(), "{:?}", other.findings);
}

/// Older syntax: a secret as a variable, a claim that is created, `-c` for CPUs; and text around the
/// command line.
#[test]
fn older_words_and_what_stands_around_are_read() {
    let line = "cd /x\nMSYS_NO_PATHCONV=1 exec ~/.runai/bin/runai submit x -i a:b -c 8 -e KEY=SECRET:wandb,token --pvc home:/home --run-as-uid 7 -- x && echo sent";
    let job = import_runai(line).unwrap();
    assert_eq!(
        (job.spec.roles[0].cpus.as_deref(), job.spec.secrets[0].secret.as_str()),
        (Some("8"), "wandb")
    );
    assert_eq!(job.spec.roles[0].command, ["x"]);
}

#[test]
fn dollars_that_kubernetes_reads_are_undone() {
    let command = |word: &str| {
        let text = format!("runai training submit a -i x --command -- bash -c '{word}'");
        import_runai(&text).unwrap().spec.roles[0].command[2].clone()
    };
    assert_eq!(
        (command("echo $$RANK").as_str(), command("echo $RANK").as_str()),
        ("echo $RANK", "echo $RANK")
    );
}
