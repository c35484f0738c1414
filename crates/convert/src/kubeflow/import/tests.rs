use serde_json::json;

use super::*;
use crate::Imported;
use weftrun_core::spec::RestartPolicy;

fn read(text: &str) -> Imported {
    import(text, Start::of("job.yaml")).unwrap().remove(0)
}

/// Returns the messages of what was not carried over.
fn lost(job: &Imported) -> Vec<&str> {
    job.findings.iter().filter(|one| one.code == "W-IMPORT-LOST").map(|one| one.message.as_str()).collect()
}

fn mpijob(launcher: &str, worker: &str, worker_container: &str) -> String {
    format!(
        "apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: a}}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template:
        {launcher}
        spec:
          containers:
          - {{name: launcher, image: x, command: [mpirun, ./a]}}
    Worker:
      replicas: 2
      template:
        {worker}
          containers:
          - name: worker
            image: x
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
            {worker_container}
"
    )
}

/// After the manifests of github.com/oracle-quickstart/oci-hpc-oke (manifests/nccl-tests, 2026-11-23) and
/// the examples of github.com/kubeflow/mpi-operator.
#[test]
fn what_the_workers_run_is_kept_unless_the_operator_runs_the_same() {
    for (command, kept) in [
        (
            "command: [/bin/bash, -c, 'mkdir -p /var/run/sshd; /usr/sbin/sshd -D -p 2222;']",
            Some(json!(["/bin/bash", "-c", "mkdir -p /var/run/sshd; /usr/sbin/sshd -D -p 2222;"])),
        ),
        (
            "command: [/usr/sbin/sshd]\n            args: [-De, -f, /home/mpiuser/.sshd_config]",
            Some(json!(["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"])),
        ),
        ("command: [sh, -c, 'echo \"$$(A)\"']", Some(json!(["sh", "-c", "echo \"$(A)\""]))),
        ("command: [sh, -c, 'echo \"']", Some(json!(["sh", "-c", "echo \""]))),
        ("command: [/usr/sbin/sshd, -De]", None),
        ("command: [/bin/bash, -c, 'exec /usr/sbin/sshd -D;']", None),
        ("command: [sleep, 365d]", None),
        ("command: [tail, -f, /dev/null]", None),
        ("", None),
    ] {
        let job = read(&mpijob("", "spec:", command));
        assert_eq!(job.spec.backend["kubeflow"].get("worker-command"), kept.as_ref(), "{command}");
        assert!(lost(&job).is_empty(), "{command}: {:?}", lost(&job));
    }
    let job = read(&mpijob("", "spec:", "args: [-De, -f, /home/mpiuser/.sshd_config]"));
    assert!(lost(&job)[0].starts_with("the workers' arguments are left out"), "{:?}", lost(&job));
}

#[test]
fn what_differs_between_launcher_and_workers_is_named() {
    let job = read(&mpijob(
        "metadata: {labels: {part: launcher, team: a}}",
        "metadata: {labels: {part: worker, team: a}}\n        spec:\n          \
         volumes: [{name: ib, hostPath: {path: /dev/infiniband}}, {name: nvme, hostPath: {path: /mnt/nvme}}]",
        "volumeMounts: [{name: ib, mountPath: /dev/infiniband}, {name: nvme, mountPath: /data}]",
    ));
    assert_eq!(job.spec.labels["part"], "worker");
    assert_eq!(job.spec.labels["team"], "a");
    let said = lost(&job);
    assert!(said.iter().any(|text| text.contains("Launcher.template.metadata.labels.part")), "{said:?}");
    assert!(said.iter().any(|text| text.contains("the launcher gets the workers' `/mnt/nvme`")), "{said:?}");
    assert_eq!(said.len(), 2, "a launcher gets no device: {said:?}");

    let text = mpijob("", "spec:\n          nodeSelector: {pool: gpu}", "");
    let text = text.replace(
        "containers:\n          - {name: launcher",
        "nodeSelector: {pool: cpu, zone: b}\n          containers:\n          - {name: launcher",
    );
    let job = read(&text);
    assert_eq!(job.spec.backend["kubeflow"]["node-selector"], json!({"pool": "gpu", "zone": "b"}));
    assert!(lost(&job)[0].contains("Launcher.template.spec.nodeSelector.pool"), "{:?}", lost(&job));
}

const PYTORCHJOB: &str = "apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: a}
spec:
  runPolicy: {schedulingPolicy: {minAvailable: 4, queue: q, priorityClass: high}}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template: &pod
        spec:
          volumes: [{name: d, persistentVolumeClaim: {claimName: c, readOnly: true}}]
          containers:
          - name: pytorch
            image: x
            command: [python, t.py]
            resources: {limits: {nvidia.com/gpu: 8}}
            volumeMounts: [{name: d, mountPath: /data}]
    Worker:
      replicas: 3
      restartPolicy: Never
      template: *pod
";

#[test]
fn policies_that_a_job_file_cannot_hold_are_named() {
    let job = read(PYTORCHJOB);
    assert_eq!((lost(&job), job.spec.nodes()), (Vec::new(), 4));
    assert!(job.spec.volumes[0].read_only);
    for (before, after, named) in [
        ("minAvailable: 4", "minAvailable: 2", "schedulingPolicy.minAvailable"),
        ("restartPolicy: Never", "restartPolicy: OnFailure", "Master.restartPolicy"),
        ("        spec:", "        spec:\n          priorityClassName: low", "spec.priorityClassName"),
        (
            "persistentVolumeClaim: {claimName: c, readOnly: true}",
            "hostPath: {path: /d, type: DirectoryOrCreate}",
            "volumes[0].hostPath.type",
        ),
    ] {
        let job = read(&PYTORCHJOB.replacen(before, after, 1));
        let said = lost(&job);
        assert!(!said.is_empty() && said.iter().all(|text| text.contains(named)), "{after}: {said:?}");
        assert_eq!(job.spec.restart, RestartPolicy::Never, "{after}: as the Worker says");
        assert_eq!(job.spec.priority.as_deref(), Some("high"), "{after}");
    }
}

#[test]
fn policies_of_a_jobset_are_read_or_named() {
    let text = "apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: a}
spec:
  failurePolicy: {maxRestarts: 3}
  startupPolicy: {startupPolicyOrder: InOrder}
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            containers:
            - {name: a, image: x, command: [./a], resources: {limits: {nvidia.com/gpu: 8}}}
";
    let job = read(text);
    assert_eq!(job.spec.restart, RestartPolicy::OnFailure { max: 3 });
    assert_eq!(lost(&job), ["a job file has no key for `spec.startupPolicy`"]);
}

/// A job file is literal: `render` escapes what `import` undid, so that the program gets the same words.
#[test]
fn dollars_of_kubernetes_are_undone_and_references_are_named() {
    for (written, of_program) in [
        ("--node_rank=$$RANK", "--node_rank=$RANK"),
        ("--node_rank=$RANK", "--node_rank=$RANK"),
        ("$$(hostname)", "$(hostname)"),
        ("$(hostname)", "$(hostname)"),
        ("$$$$", "$$"),
        ("$$$(hostname)", "$$(hostname)"),
        ("5$", "5$"),
        ("$(", "$("),
        ("$(open $$X", "$(open $X"),
        ("$(a$$b)", "$(a$$b)"),
    ] {
        assert_eq!(container::unescape(written), of_program, "{written}");
        let text = PYTORCHJOB.replace("[python, t.py]", &format!("[sh, -c, '{written}']"));
        let env = format!("image: x\n            env: [{{name: V, value: '{written}'}}]");
        let job = read(&text.replace("image: x", &env));
        assert_eq!(job.spec.roles[0].command, ["sh", "-c", of_program], "{written}");
        assert_eq!(job.spec.env[0].value, of_program, "{written}");
        assert_eq!(lost(&job), Vec::<&str>::new(), "{written}");
    }
    // From a secret, from a field of the pod, and set by the operator or the cluster.
    let secret = "{name: key, valueFrom: {secretKeyRef: {name: s, key: k}}}";
    let field = "{name: node, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}";
    for (env, name) in [(secret, "key"), (field, "node"), ("", "LWS_GROUP_SIZE"), ("", "RANK")] {
        let text = PYTORCHJOB.replace("[python, t.py]", &format!("[sh, -c, 'a $({name})']"));
        let job = read(&text.replace("image: x", &format!("image: x\n            env: [{env}]")));
        let wanted = format!("the command refers to $({name}), which a job file takes literally");
        assert!(lost(&job).contains(&wanted.as_str()), "{name}: {:?}", lost(&job));
    }
}
