//! Every case under `tests/cases/mutate`: the data of `after.yaml`, the codes of `report.yaml`, and no change by a
//! second pass. Cases 01 to 12 are the worked examples of the mutation's specification.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use weftrun_convert::{
    MutateOptions, Mutated, MutatedJob, Splitter, Start, TrainerVersion, mutate, runtimes_in,
};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Fabric, Gid, Inject, Profile, Profiles, RuleSetting, Stack, Webhook};
use weftrun_core::request::FabricRequest;
use weftrun_core::span::{yaml, yaml_documents};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/mutate")
}

struct Case {
    name: String,
    before: String,
    after: Option<String>,
    report: Json,
    options: FabricRequest,
    profile: Profile,
    trainer: Option<TrainerVersion>,
    runtimes: Vec<Json>,
    reformat: bool,
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn data(text: &str) -> Json {
    yaml(text).unwrap().root.to_json()
}

fn load(folder: &Path) -> Case {
    let said = data(&read(&folder.join("case.yaml")).unwrap())["options"].clone();
    let text = |key: &str| {
        said.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let mut options = FabricRequest::default();
    if let Some(fabric) = text("fabric") {
        options.kind = match fabric.as_str() {
            "efa" => Fabric::Efa,
            "roce" => Fabric::Roce,
            "infiniband" => Fabric::InfiniBand,
            "tcp" => Fabric::Tcp,
            "off" => Fabric::Off,
            _ => Fabric::Auto,
        };
    }
    options.stack = match text("stack").as_deref() {
        Some("bundled") => Stack::Bundled,
        Some("mounted") => Stack::Mounted,
        _ => Stack::Auto,
    };
    options.inject =
        if text("inject").as_deref() == Some("server") { Inject::Server } else { Inject::Client };
    options.webhook = match text("webhook").as_deref() {
        Some("yes" | "true") => Webhook::Yes,
        Some("no" | "false") => Webhook::No,
        _ => Webhook::Auto,
    };
    options.gid = text("gid").map(|gid| match gid.as_str() {
        "auto" => Gid::Auto,
        "compute" => Gid::Compute,
        number => Gid::Index(number.parse().unwrap()),
    });
    options.networks = text("network").into_iter().collect();
    options.instance_type = text("instance").or_else(|| text("instance-type"));
    options.memory = text("memory");
    options.detect = said["detect"].as_bool();
    for rule in said["no-fabric-rule"].as_array().into_iter().flatten() {
        options.rules.insert(rule.as_str().unwrap().to_owned(), RuleSetting::Off);
    }
    let profiles = Profiles::builtin();
    let name = text("profile").unwrap_or_else(|| Profiles::for_manifest(options.kind).to_owned());
    let runtime = read(&folder.join("runtime.yaml"));
    Case {
        name: folder.file_name().unwrap().to_string_lossy().into_owned(),
        before: read(&folder.join("before.yaml")).unwrap(),
        after: read(&folder.join("after.yaml")),
        report: read(&folder.join("report.yaml")).map_or(Json::Null, |text| data(&text)),
        profile: profiles.get(&name).unwrap(),
        options,
        trainer: text("trainer").map(|version| TrainerVersion::parse(&version).unwrap()),
        runtimes: runtime
            .iter()
            .flat_map(|text| yaml_documents(text).unwrap())
            .map(|d| d.root.to_json())
            .collect(),
        reformat: said["reformat"].as_bool().unwrap_or(false),
    }
}

fn run(case: &Case, text: &str) -> (String, Vec<MutatedJob>) {
    let catalogue = Catalogue::builtin();
    let learned: Vec<Json> = case.runtimes.iter().cloned().chain(runtimes_in(text)).collect();
    let settings = MutateOptions {
        trainer: case.trainer,
        runtimes: &learned,
        reformat: case.reformat,
        ..MutateOptions::offline(&case.profile, &case.options, &catalogue)
    };
    let mut splitter = Splitter::default();
    splitter.push(text.as_bytes());
    splitter.finish();
    let (mut out, mut jobs) = (String::new(), Vec::new());
    while let Some(document) = splitter.next_document() {
        let document = String::from_utf8(document).unwrap();
        let done: Mutated<'_> = mutate(&document, Start::of("before.yaml"), &settings).unwrap();
        out.push_str(&done.text);
        jobs.extend(done.jobs);
    }
    (out, jobs)
}

/// Codes that may accompany those of a report, which lists only the codes that the worked examples are
/// about.
const BESIDE: [&str; 6] = [
    "I-TRAINER-ASSUMED",
    "I-WEBHOOK-UNKNOWN",
    "W-EFA-ASSUMED",
    "W-INSTANCE-UNKNOWN",
    "I-RUNTIME-ASSUMED",
    "W-PROFILE-ASSUMED",
];

fn codes(notes: impl IntoIterator<Item = (String, String)>) -> BTreeSet<(String, String)> {
    notes.into_iter().filter(|(code, _)| !BESIDE.contains(&code.as_str())).collect()
}

#[test]
fn every_case_comes_out_as_written() {
    let mut folders: Vec<_> = fs::read_dir(cases()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    assert!(folders.len() >= 12);
    let mut wrong = Vec::new();
    for folder in folders {
        let case = load(&folder);
        if let Err(why) = std::panic::catch_unwind(|| check(&case)) {
            let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
            wrong.push(format!("{}: {why}", case.name));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

/// Writes the output of a new case, for a person to review before it is kept.
fn accept(case: &Case, after: &str, jobs: &[MutatedJob]) {
    let job = jobs.iter().find(|job| job.changed || job.error().is_some()).unwrap_or(&jobs[0]);
    let note = |finding: &weftrun_core::Finding| serde_json::json!({"code": finding.code, "where": finding.subject, "msg": finding.message});
    let notes: Vec<Json> =
        job.notes().filter(|finding| !BESIDE.contains(&finding.code.as_str())).map(note).collect();
    let report = serde_json::json!({
        "changed": job.changed, "skip": job.skip(), "error": job.error().map(note), "actions": job.actions,
        "notes": notes,
    });
    let folder = cases().join(&case.name);
    fs::write(folder.join("report.yaml"), serde_saphyr::to_string(&report).unwrap()).unwrap();
    if job.changed {
        fs::write(folder.join("after.yaml"), after).unwrap();
    }
}

fn check(case: &Case) {
    let (after, jobs) = run(case, &case.before);
    if case.report.is_null() {
        assert!(
            std::env::var_os("WEFTRUN_ACCEPT").is_some(),
            "no report.yaml; WEFTRUN_ACCEPT=1 writes it, to be read"
        );
        accept(case, &after, &jobs);
        return;
    }
    let job = jobs.iter().find(|job| job.changed || job.error().is_some()).unwrap_or(&jobs[0]);
    assert_eq!(Json::from(job.changed), case.report["changed"], "changed; {:?}", job.error());
    assert_eq!(Json::from(job.skip()), case.report["skip"], "skip");
    let error = job.error().map(|error| error.code.clone());
    assert_eq!(Json::from(error), case.report["error"]["code"], "error {:?}", job.error());
    let ours = codes(job.notes().map(|note| (note.code.clone(), note.subject.clone().unwrap_or_default())));
    let notes = case.report["notes"].as_array().unwrap();
    let text = |note: &Json, key: &str| note[key].as_str().unwrap_or_default().to_owned();
    let theirs = codes(notes.iter().map(|note| (text(note, "code"), text(note, "where"))));
    assert_eq!(ours, theirs, "notes");
    let actions: Vec<&str> =
        case.report["actions"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
    let (mut mine, mut written) = (job.actions.clone(), actions);
    mine.sort();
    written.sort_unstable();
    assert_eq!(mine, written, "actions");
    let wanted = case.after.clone().unwrap_or_else(|| case.before.clone());
    let all = |text: &str| yaml_documents(text).unwrap().iter().map(|d| d.root.to_json()).collect::<Vec<_>>();
    assert_eq!(all(&after), all(&wanted), "data of\n{after}");
    assert!(job.changed || after == case.before, "untouched to the byte");
    let (again, second) = run(case, &after);
    assert_eq!(again, after, "a second pass changes nothing; it did {:?}", second[0].actions);
    // Every line of the old text is in the new one, unless a value in it was replaced.
    if !case.reformat {
        let kept = case.before.lines().filter(|line| after.contains(*line)).count();
        let lines = case.before.lines().count();
        assert!(lines - kept <= 6, "{} of {lines} lines are gone", lines - kept);
    }
}
