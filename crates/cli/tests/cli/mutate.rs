//! `mutate`: filter, review, in place, report, KRM function.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::cases::{case, data, read};
use crate::place::Place;

/// The flags a case's `case.yaml` means.
fn flags(place: &Place, folder: &Path) -> String {
    let text = fs::read_to_string(folder.join("case.yaml")).unwrap();
    let options = data(&text).remove(0)["options"].clone();
    let mut flags = Vec::new();
    for (key, value) in options.as_object().into_iter().flatten() {
        let flag = match key.as_str() {
            "trainer" => "--trainer-version".to_owned(),
            "instance" => "--instance-type".to_owned(),
            key => format!("--{key}"),
        };
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in values {
            match value {
                Value::Bool(true) => flags.push(flag.clone()),
                Value::Bool(false) | Value::Null => {}
                Value::String(text) => flags.extend([flag.clone(), text]),
                other => flags.extend([flag.clone(), other.to_string()]),
            }
        }
    }
    if let Ok(runtime) = fs::read_to_string(folder.join("runtime.yaml")) {
        place.write("runtime.yaml", &runtime);
        flags.extend(["--runtime".to_owned(), "runtime.yaml".to_owned()]);
    }
    // The specification's cases are those of DGX Cloud, unless a fabric is requested.
    if options["profile"].is_null() && options["fabric"].is_null() {
        flags.push("--profile dgxc".to_owned());
        // Beside a webhook, which a named profile of a mounted stack assumes, every template has its opt-out too.
        if options["webhook"].is_null() {
            flags.push("--webhook no".to_owned());
        }
    }
    flags.join(" ")
}

/// The version of the Trainer is that of the target, where its configuration says it.
#[test]
fn the_target_says_the_version_of_the_trainer() {
    let place = Place::new();
    place.configure("[target.old]\nbackend = \"kubeflow\"\nprofile = \"dgxc\"\ntrainer-version = \"2.1\"\n");
    place.write(
        "job.yaml",
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec:\n  runtimeRef: {name: torch-distributed}\n  \
         trainer:\n    image: i\n    numNodes: 2\n    resourcesPerNode: {limits: {nvidia.com/gpu: 8, memory: 1Ti}}\n",
    );
    let written =
        |flags: &str| place.run(&format!("mutate -f job.yaml --instance-type p5.48xlarge {flags}")).ok().out;
    assert!(written("-b old").contains("podTemplateOverrides:"));
    assert!(written("-b old --trainer-version 2.3").contains("runtimePatches:"));
}

#[test]
fn every_case_as_a_user_runs_it() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/mutate");
    let mut folders: Vec<_> = fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders.into_iter().filter(|folder| folder.is_dir()) {
        let place = Place::new();
        let before = fs::read_to_string(folder.join("before.yaml")).unwrap();
        place.write("before.yaml", &before);
        let flags = flags(&place, &folder);
        let ran = place.run(&format!("mutate -f before.yaml --report report.json {flags}"));
        let wanted = data(&fs::read_to_string(folder.join("report.yaml")).unwrap()).remove(0);
        let report: Value = serde_json::from_str(&read(&place, "report.json")).unwrap();
        assert_eq!(report["changed"], wanted["changed"], "{}: {}", folder.display(), ran.err);
        assert_eq!(report["error"]["code"], wanted["error"]["code"], "{}", folder.display());
        if !wanted["error"].is_null() {
            assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{}", folder.display());
            continue;
        }
        assert_eq!(ran.code, 0, "{}: {}", folder.display(), ran.err);
        let after = fs::read_to_string(folder.join("after.yaml")).unwrap_or_else(|_| before.clone());
        assert_eq!(data(&ran.out), data(&after), "{}", folder.display());
        let again = place.feed(&format!("mutate {flags}"), ran.out.as_bytes());
        assert_eq!(again.out, ran.out, "{}: a second pass changes nothing", folder.display());
    }
}

#[test]
fn one_bad_document_lets_none_through() {
    let place = Place::new();
    let good = case("01-pytorchjob-full-nodes", "before.yaml");
    let bad = case("12-no-memory-request", "before.yaml");
    let demanded = "mutate --profile dgxc --fabric-rule efa.hugepages";
    let ran = place.feed(demanded, format!("{good}\n---\n{bad}").as_bytes());
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert!(ran.err.contains("E-HP-NEEDS-MEMORY") && ran.err.contains("--memory"), "{}", ran.err);
    let unreadable = place.feed("mutate", format!("{good}\n---\nkind: [\n# kubeflow").as_bytes());
    assert_eq!((unreadable.code, unreadable.out.as_str()), (3, ""), "{}", unreadable.err);
}

#[test]
fn what_is_no_job_passes_to_the_byte() {
    let place = Place::new();
    let job = case("01-pytorchjob-full-nodes", "before.yaml");
    let other = "# mine\nkind:   Service\napiVersion: v1\nspec: {ports: [ {port: 0o17} ]}\n";
    let text = format!("{other}---\n{job}\n---\n{other}");
    let ran = place.feed("mutate", text.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with(&format!("{other}---\n")) && ran.out.ends_with(&format!("---\n{other}")));
    let alone = place.feed("mutate", other.as_bytes());
    assert_eq!((alone.code, alone.out.as_str()), (0, other));
    assert!(alone.err.contains("passed through"), "{}", alone.err);
    let old = "apiVersion: kubeflow.org/v1alpha2\nkind: MPIJob\nmetadata: {name: old}\nspec: {}\n";
    let ran = place.feed("mutate", old.as_bytes());
    assert_eq!((ran.code, ran.out.as_str()), (0, old));
    assert!(ran.err.contains("api-version") && ran.err.contains("v1alpha2"), "{}", ran.err);
}

#[test]
fn json_and_lists_stay_what_they_are() {
    let place = Place::new();
    let object = data(&case("01-pytorchjob-full-nodes", "before.yaml")).remove(0);
    let wanted = data(&case("01-pytorchjob-full-nodes", "after.yaml")).remove(0);
    let pretty = serde_json::to_string_pretty(&object).unwrap();
    let ran = place.feed("mutate --profile dgxc --webhook no", pretty.as_bytes());
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), wanted, "{}", ran.err);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod"}, object]});
    let ran = place.feed("mutate --profile dgxc --webhook no", list.to_string().as_bytes());
    let after: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(after["items"][1], wanted);
    assert_eq!(after["items"][0], json!({"kind": "Pod"}));
}

#[test]
fn a_review_names_the_rule_and_the_reason_of_each_part() {
    let place = Place::new();
    place.write("job.yaml", case("03-mpijob-v2beta1-argv", "before.yaml"));
    let ran = place.run("mutate --profile dgxc --diff -f job.yaml");
    assert_eq!(ran.code, 0);
    for part in ["--- a/job.yaml", "+++ b/job.yaml", "@@", "# efa.devices:", "# efa.mpirun:", "+"] {
        assert!(ran.out.contains(part), "{part} in\n{}", ran.out);
    }
    assert!(!ran.out.contains('\u{1b}'), "no colour where it is no terminal");
    let coloured = place.run("mutate --profile dgxc --diff --color always -f job.yaml");
    assert!(coloured.out.contains('\u{1b}'));
    // The reviewer's text is the same as the patch.
    let plain: String =
        ran.out.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    place.write("job.patch", &plain);
    let patched = place.program("patch").args(["-s", "-o", "patched.yaml", "job.yaml", "job.patch"]).status();
    if patched.is_ok_and(|status| status.success()) {
        let mutated = place.run("mutate --profile dgxc -f job.yaml");
        assert_eq!(read(&place, "patched.yaml"), mutated.out);
    }
}

#[test]
fn files_are_written_all_or_none() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let before = case("01-pytorchjob-full-nodes", "before.yaml");
    place.write("good.yaml", &before);
    place.write("bad.yaml", case("12-no-memory-request", "before.yaml"));
    fs::set_permissions(place.path("good.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
    let demanded = "mutate --profile dgxc --webhook no --fabric-rule efa.hugepages --write";
    let ran = place.run(&format!("{demanded} -f good.yaml -f bad.yaml"));
    assert_eq!((ran.code, read(&place, "good.yaml")), (3, before), "{}", ran.err);
    let ran = place.run("mutate --profile dgxc --webhook no --write good.yaml");
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert_eq!(data(&read(&place, "good.yaml")), data(&case("01-pytorchjob-full-nodes", "after.yaml")));
    assert_eq!(fs::metadata(place.path("good.yaml")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(place.feed("mutate --write", b"a: 1").code, 2, "stdin cannot be written");
}

#[test]
fn the_report_is_json_or_yaml_by_its_ending() {
    let place = Place::new();
    place.write("job.yaml", case("11-instance-p5en", "before.yaml"));
    place.run("mutate -f job.yaml --report report.json");
    place.run("mutate -f job.yaml --report report.yaml");
    let report: Value = serde_json::from_str(&read(&place, "report.json")).unwrap();
    assert_eq!(report["schema"], "weftrun/v1");
    assert_eq!(data(&read(&place, "report.yaml")).remove(0), report);
    let decision = report["documents"][0]["decisions"].as_array().unwrap();
    let devices = decision.iter().find(|one| one["rule"] == "efa.devices").unwrap();
    assert_eq!(devices["value"], "16");
    assert!(devices["why"].as_str().unwrap().contains("p5en.48xlarge") && devices["source"].is_string());
}

#[test]
fn scripts_are_mutated_too() {
    let place = Place::new();
    let script =
        "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8 -p p5en\nsrun --container-image=x python t.py\n";
    let ran = place.feed("mutate", script.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out.contains("export FI_EFA_USE_DEVICE_RDMA=1") && ran.out.contains("--container-env="),
        "{}",
        ran.out
    );
    assert_eq!(place.feed("mutate", ran.out.as_bytes()).out, ran.out);
    let out = place.feed("mutate", script.replace("srun", "# weftrun: fabric=off\nsrun").as_bytes());
    assert!(out.err.contains("opt-out") && !out.out.contains("export"));
}

#[test]
fn the_evidence_for_a_fabric_is_shown() {
    let place = Place::new();
    place.write("job.yaml", case("11-instance-p5en", "before.yaml"));
    let ran = place.run("mutate -f job.yaml --report report.json");
    assert!(ran.err.contains("AWS EFA") && ran.err.contains("p5en.48xlarge"), "{}", ran.err);
    let report: Value = serde_json::from_str(&read(&place, "report.json")).unwrap();
    let job = &report["documents"][0];
    assert_eq!((&job["profile"], &job["evidence"][0]["kind"]), (&json!("eks-image"), &json!("instance")));
    place.write("job.toml", &place.run("import job.yaml").out);
    let plan = place.run("plan job.toml -b kubeflow");
    assert!(plan.out.contains("evidence of AWS EFA: instance `p5en.48xlarge`"), "{} {}", plan.out, plan.err);
    let plan: Value = serde_json::from_str(&place.run("plan job.toml -b kubeflow -o json").out).unwrap();
    assert_eq!((&plan["profile"], &plan["evidence"][0]["online"]), (&json!("eks-image"), &json!(false)));
    place.write("plain.yaml", case("01-pytorchjob-full-nodes", "before.yaml"));
    let ran = place.run("mutate -f plain.yaml");
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("fabric-unknown") && ran.err.contains("--profile"), "{}", ran.err);
    assert_eq!(ran.out, read(&place, "plain.yaml"));
}

#[test]
fn the_users_own_profile_and_instance_types_count() {
    let place = Place::new();
    place.configure(
        "[profile.lab]\nextends = \"dgxc\"\n[profile.lab.stack]\nhost-path = \"/srv/efa\"\n\
         [instances.\"lab.8x\"]\nextends = \"p5.48xlarge\"\nefa_max = 7\n",
    );
    place.write("job.yaml", case("01-pytorchjob-full-nodes", "before.yaml"));
    let ran = place.run("mutate --profile lab --instance-type lab.8x job.yaml");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("path: /srv/efa"), "{}", ran.out);
    assert!(
        ran.out.contains("vpc.amazonaws.com/efa: '7'") || ran.out.contains("vpc.amazonaws.com/efa: \"7\"")
    );
    assert_eq!(place.run("lint --profile lab job.yaml").code, 0);
    let none = place.run("mutate --profile labb job.yaml");
    assert!(none.code == 6 && none.err.contains("did you mean `lab`"), "{} {}", none.code, none.err);
}

#[test]
fn detection_and_strictness_are_for_those_who_ask() {
    let place = Place::new();
    place.write("job.yaml", case("03-mpijob-v2beta1-argv", "before.yaml"));
    let plain = place.run("mutate --profile dgxc job.yaml");
    assert!(!plain.out.contains("NCCL_NET\n") && !plain.out.contains("- NCCL_NET"));
    let asked = place.run("mutate --profile dgxc --detect --strict job.yaml");
    assert!(asked.out.contains("AWS Libfabric"), "{}", asked.out);
}

#[test]
fn a_krm_function_is_called_as_kustomize_does() {
    let place = Place::new();
    let object = data(&case("01-pytorchjob-full-nodes", "before.yaml")).remove(0);
    let list = |config: Value| {
        json!({
            "apiVersion": "config.kubernetes.io/v1", "kind": "ResourceList", "functionConfig": config,
            "items": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, object],
        })
    };
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"instance-type": "p5en.48xlarge"}});
    let ran = place.feed("mutate --krm", list(config).to_string().as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let out = data(&ran.out).remove(0);
    assert_eq!(out["kind"], "ResourceList");
    assert_eq!(out["items"][0]["kind"], "ConfigMap");
    let worker =
        &out["items"][1]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
    assert_eq!(worker["resources"]["limits"]["vpc.amazonaws.com/efa"], "16");
    assert!(out["results"].as_array().into_iter().flatten().all(|one| one["severity"] != "error"));
    let wrong = place.feed("mutate --krm", list(json!({"spec": {"fabrik": "efa"}})).to_string().as_bytes());
    assert!(wrong.code == 2 && wrong.out.is_empty(), "{}", wrong.err);
    let wrong = json!({"spec": {"no-fabric-rule": ["efa.none"]}});
    let wrong = place.feed("mutate --krm", list(wrong).to_string().as_bytes());
    assert!(wrong.code == 3 && wrong.out.is_empty(), "{}", wrong.err);
    for part in ["a key of `functionConfig`", "error functionConfig: no-fabric-rule: "] {
        assert!(wrong.err.contains(part), "{part} in\n{}", wrong.err);
    }
    assert!(!wrong.err.contains("--no-fabric-rule"), "{}", wrong.err);
    // Its networks replace those of the command line.
    let config = json!({"spec": {"network": ["b"], "profile": "roce"}});
    let ran = place.feed("mutate --krm --network a", list(config).to_string().as_bytes());
    let template = &data(&ran.out)[0]["items"][1]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
    let networks = &template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"];
    assert_eq!((ran.code, networks), (0, &json!("b")), "{}", ran.err);
    assert_eq!(place.feed("mutate --krm", b"kind: Pod\n").code, 3);
}

#[test]
fn profiles_are_listed_with_their_sources() {
    let place = Place::new();
    let list = place.run("profiles");
    assert_eq!(list.code, 0, "{}", list.err);
    let line =
        |name: &str| list.out.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(
        line("oci").contains("never ran on the real cloud") && !line("dgxc").contains("never ran"),
        "{}",
        list.out
    );
    let one = place.run("profiles oci");
    assert!(one.out.contains("env.NCCL_IB_TC = 41  https://"), "{}", one.out);
    let json: Value = serde_json::from_str(&place.run("profiles oci -o json").out).unwrap();
    assert_eq!(json["profiles"][0]["untried"], true);
    assert_eq!(place.run("profiles nowhere").code, 6);
}

#[test]
fn advisories_are_listed_by_version() {
    let place = Place::new();
    let all = place.run("advisories");
    assert!(
        all.code == 0 && all.out.contains("AWS-OFI-NCCL-BCAST") && all.out.contains("https://"),
        "{}",
        all.out
    );
    let one = place.run("advisories nccl=2.27.7 aws-ofi-nccl=1.20.0");
    assert!(one.out.contains("NCCL-RAS-CRASH-2.27.7") && !one.out.contains("BCAST"), "{}", one.out);
    let none = place.run("advisories nccl=2.28.9");
    assert!(none.out.is_empty() && none.err.contains("no advisory"), "{}", none.err);
    assert_eq!(place.run("advisories cuda=12").code, 2);
}
