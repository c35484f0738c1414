//! `lint`: findings at their lines, SARIF, and what `--fix` corrects.

use serde_json::{Value, json};

use crate::cases::read;
use crate::place::{Done, Place};

const JOB: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: slips}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: pytorch
            image: x
            command: [bash, -c, 'export NCCL_SOKET_IFNAME=eth0; torchrun t.py'] # NCCL_BUFFERSIZE
            env:
            - name: NCCL_BUFFERSIZE # why
              value: '8388608'
            - {name: NCCL_INFO, value: DEBUG}
            - name: FI_HMEM_CUDA_USE_BMABUF
              value: '1'
            resources:
              limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32, memory: 1Ti}
";

#[test]
fn findings_stand_at_their_lines_and_say_what_to_do() {
    let place = Place::new();
    place.write("job.yaml", JOB);
    let ran = place.run("lint job.yaml");
    assert_eq!(ran.code, 3, "an error is among them\n{}", ran.out);
    for part in
        ["job.yaml:15:", "NCCL_BUFFSIZE", "L-NAME-UNKNOWN", "NCCL_DEBUG=INFO", "L-HUGEPAGES-MISSING", "fix:"]
    {
        assert!(ran.out.contains(part), "{part} in\n{}", ran.out);
    }
    let value: Value = serde_json::from_str(&place.run("lint -o json job.yaml").out).unwrap();
    assert_eq!(value["schema"], "weftrun/v1");
    assert!(value["findings"].as_array().unwrap().iter().all(|one| one["fix"]["text"].is_string()));
}

#[test]
fn job_files_and_scripts_are_looked_at_too() {
    let place = Place::new();
    place.write("job.toml", "name = \"a\"\ncommand = \"x\"\nenv = { NCCL_BUFFERSIZE = \"1\" }\n");
    place.write("run.sbatch", "#!/bin/bash\n#SBATCH -N 2\nexport NCCL_BUFFERSIZE=1\nsrun x\n");
    let ran = place.run("lint job.toml run.sbatch");
    assert_eq!(ran.out.matches("L-NAME-MISSPELT").count(), 2, "{}", ran.out);
    assert_eq!(ran.code, 0);
}

/// Exit code 3 and the same code in JSON: neither passes a file without a job as if it were fine. Other objects are no jobs, and
/// fine.
#[test]
fn a_file_without_a_job_is_an_error() {
    let place = Place::new();
    place.write("empty.yaml", "");
    place.write("comments.yaml", "# a\n---\n# b\n");
    place.write(
        "submit.sh",
        "#!/bin/bash\nID=$(sbatch --parsable <<EOF\n#!/bin/bash\n#SBATCH -N 2\nsrun a\nEOF\n)\n",
    );
    place.write("other.yaml", "# a\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# b\n");
    for file in ["empty.yaml", "comments.yaml", "submit.sh"] {
        for verb in ["lint", "mutate", "import"] {
            let ran = place.run(&format!("{verb} {file}"));
            assert_eq!(ran.code, 3, "{verb} {file}: {ran:?}");
            assert!(format!("{}{}", ran.out, ran.err).contains("E-NO-JOB"), "{verb} {file}: {ran:?}");
        }
        let value: Value = serde_json::from_str(&place.run(&format!("lint -o json {file}")).out).unwrap();
        assert_eq!(value["findings"][0]["code"], "E-NO-JOB", "{file}");
    }
    for verb in ["lint", "mutate"] {
        assert_eq!(place.run(&format!("{verb} other.yaml")).code, 0, "{verb}");
        assert_eq!(place.run(&format!("{verb} other.yaml empty.yaml")).code, 3, "{verb}");
    }
}

#[test]
fn what_has_one_right_form_is_corrected_in_place() {
    let place = Place::new();
    place.write("job.yaml", JOB);
    let ran = place.run("lint --fix job.yaml");
    let fixed = read(&place, "job.yaml");
    assert!(
        fixed.contains("- name: NCCL_BUFFSIZE # why") && fixed.contains("- name: FI_HMEM_CUDA_USE_DMABUF"),
        "{fixed}"
    );
    assert!(
        fixed.contains("export NCCL_SOCKET_IFNAME=eth0") && fixed.contains("# NCCL_BUFFERSIZE\n"),
        "{fixed}"
    );
    assert_eq!(fixed.lines().count(), JOB.lines().count());
    assert!(!ran.out.contains("L-NAME-MISSPELT") && ran.out.contains("L-NAME-UNKNOWN"), "{}", ran.out);
    place.run("lint --fix job.yaml");
    assert_eq!(read(&place, "job.yaml"), fixed, "a second time changes nothing");
}

/// What SARIF 2.1.0 requires of the parts we write (sarif-schema-2.1.0.json, `required` and enumerations).
fn sarif_shape() -> Value {
    json!({
        "type": "object", "required": ["version", "runs"],
        "properties": {
            "version": {"const": "2.1.0"},
            "runs": {"type": "array", "items": {
                "required": ["tool"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {"required": ["driver"], "properties": {"driver": {
                        "required": ["name"],
                        "properties": {
                            "informationUri": {"type": "string", "format": "uri"},
                            "rules": {"type": "array", "uniqueItems": true, "items": {
                                "required": ["id"],
                                "properties": {
                                    "shortDescription": {"required": ["text"]},
                                    "fullDescription": {"required": ["text"]},
                                    "help": {"required": ["text"]},
                                }}},
                        }}}},
                    "results": {"type": "array", "items": {
                        "required": ["message"],
                        "properties": {
                            "message": {"required": ["text"]},
                            "level": {"enum": ["none", "note", "warning", "error"]},
                            "ruleIndex": {"type": "integer", "minimum": -1},
                            "locations": {"type": "array", "items": {"properties": {"physicalLocation": {
                                "required": ["artifactLocation"],
                                "properties": {"region": {"properties": {
                                    "startLine": {"type": "integer", "minimum": 1},
                                    "startColumn": {"type": "integer", "minimum": 1},
                                    "byteOffset": {"type": "integer", "minimum": -1},
                                    "byteLength": {"type": "integer", "minimum": 0},
                                }}}}}}},
                        }}},
                }}},
        },
    })
}

#[test]
fn sarif_names_a_file_by_an_encoded_address() {
    let place = Place::new();
    for (name, expected) in [
        ("a b/job #1%.yaml", "a%20b/job%20%231%25.yaml"),
        ("ü:x?.yaml", "%C3%BC%3Ax%3F.yaml"),
        ("back\\slash.yaml", "back%5Cslash.yaml"),
    ] {
        place.write(name, JOB);
        let done = Done::of(place.command(["lint", "-o", "sarif", "-f", name]));
        let found = &done.json()["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
        assert_eq!(found["artifactLocation"]["uri"], expected);
    }
}

#[test]
fn sarif_has_the_shape_code_hosts_read() {
    let place = Place::new();
    place.write("job.yaml", JOB);
    let ran = place.run("lint -o sarif -f job.yaml");
    let sarif: Value = serde_json::from_str(&ran.out).unwrap();
    let validator = jsonschema::validator_for(&sarif_shape()).unwrap();
    let errors: Vec<String> = validator.iter_errors(&sarif).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let run = &sarif["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    for result in run["results"].as_array().unwrap() {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "job.yaml");
    }
}
