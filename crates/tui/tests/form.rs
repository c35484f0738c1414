//! The new-job form: its fields, its files and the equivalent command.

mod common;

use common::{press, with_jobs};
use weftrun_tui::model::Screen;
use weftrun_tui::model::draft::{Choices, Field, NewJobForm};

/// A draft of a job, as if it had come from a file.
fn draft_of(spec: weftrun::core::spec::JobSpec, file: Option<&str>) -> NewJobForm {
    let choices = Choices { targets: vec!["prod".into()], profiles: Vec::new() };
    NewJobForm::new(spec, file.map(str::to_owned), choices, "prod")
}

fn set(draft: &mut NewJobForm, field: Field, text: &str) {
    for (_, input) in draft.inputs.iter_mut().filter(|(known, _)| *known == field) {
        *input = text.into();
    }
}

#[test]
fn every_field_survives_a_file_and_a_restart() {
    let mut spec = weftrun::core::spec::JobSpec::builder("all")
        .role(weftrun::core::spec::Role::worker().nodes(2).gpus_per_node(8).command(["train.py"]))
        .build()
        .unwrap();
    spec.time_limit = Some(std::time::Duration::from_hours(1));
    let mut draft = draft_of(spec, None);
    for (field, _) in Field::LABELS.into_iter().filter(|(field, _)| field.is_text()) {
        let text = match field {
            Field::Nodes | Field::Gpus => "4",
            Field::Memory => "64Gi",
            Field::Storage => "data:/data=claim:c",
            Field::Env => "TOKEN='a b' N=1",
            Field::Command => "python 'a b' --lr 1e-4",
            _ => "some",
        };
        set(&mut draft, field, text);
    }
    for (field, at) in [(Field::Launch, 2), (Field::Fabric, 2), (Field::Bandwidth, 1)] {
        *draft.choice(field).unwrap().1 = at;
    }
    draft.off.insert("detect.nccl-debug".into());
    draft.revision = 2;
    let wanted = draft.spec().unwrap();
    assert_eq!(wanted.workers().next().unwrap().memory.as_deref(), Some("64Gi"));
    let file = weftrun::core::spec::to_toml(&wanted);
    let read = weftrun::core::spec::JobFile::parse("job.toml", file.as_bytes()).unwrap().spec;
    assert_eq!(draft_of(read, None).spec().unwrap(), wanted, "{file}");
    // Input that is not yet a valid job, such as an unclosed quote, is also saved.
    set(&mut draft, Field::Command, "python 'a");
    let kept = draft.keep().unwrap();
    let choices = || Choices { targets: vec!["prod".into()], profiles: Vec::new() };
    let mut again = NewJobForm::restored(&kept, choices());
    assert_eq!(again.text(Field::Command), "python 'a");
    set(&mut again, Field::Command, "python 'a b' --lr 1e-4");
    assert_eq!(again.spec().unwrap(), wanted);
    // A target that was removed stays selected, so that the job is not submitted to another cluster.
    let others = Choices { targets: vec!["other".into()], profiles: Vec::new() };
    assert_eq!(NewJobForm::restored(&kept, others).target_name(), "prod");
    let none = Choices { targets: Vec::new(), profiles: Vec::new() };
    assert_eq!(NewJobForm::restored(&kept, none).target_name(), "prod");
}

#[test]
fn a_letter_on_a_choice_chooses_and_does_nothing_else() {
    let mut model = with_jobs();
    press(&mut model, "n");
    let at = |model: &mut weftrun_tui::model::Model, field| {
        let draft = model.draft.as_mut().unwrap();
        let (names, chosen) = draft.choice(field).unwrap();
        names[*chosen].to_owned()
    };
    for (field, letters, wanted) in [
        (Field::Launch, "p", "per-rank"),
        (Field::Launch, "p", "per-node"),
        (Field::Launch, "P", "per-rank"),
        (Field::Launch, "m", "mpi"),
        (Field::Launch, "m", "mpi"),
        (Field::Fabric, "i", "infiniband"),
        (Field::Fabric, "z", "infiniband"),
        (Field::Bandwidth, "m", "measure"),
        (Field::Bandwidth, "m", "measure"),
        (Field::Bandwidth, "o", "off"),
    ] {
        model.draft.as_mut().unwrap().field = field;
        press(&mut model, letters);
        assert_eq!(at(&mut model, field), wanted, "{letters}");
    }
    for letter in ('a'..='z').chain('A'..='Z') {
        for field in [Field::Target, Field::Profile, Field::Launch, Field::Fabric, Field::Bandwidth] {
            model.draft.as_mut().unwrap().field = field;
            press(&mut model, &letter.to_string());
            assert_eq!((model.screen, model.layers.len()), (Screen::Submit, 0), "{letter} on {field:?}");
            assert_eq!(model.draft.as_ref().unwrap().field, field);
        }
    }
}

#[test]
fn storage_and_priority_are_in_the_job_and_in_the_equal_command() {
    let role = weftrun::core::spec::Role::worker().gpus_per_node(8).command(["train.py"]);
    let spec = weftrun::core::spec::JobSpec::builder("sft").role(role).build().unwrap();
    let mut draft = draft_of(spec, None);
    set(&mut draft, Field::Priority, "train");
    set(&mut draft, Field::Storage, "data:/data=claim:corpus,ro 'ckpt:/ckpt=host:/fsx/my runs'");
    let spec = draft.spec().unwrap();
    assert_eq!(spec.priority.as_deref(), Some("train"));
    assert_eq!(spec.volumes.len(), 2);
    assert!(spec.volumes[0].read_only && spec.volumes[1].mount == "/ckpt");
    assert!(!draft.needs_file());
    let command = draft.command().unwrap();
    assert!(command.contains("--priority train --"), "{command}");
    let volumes = "--volume data:/data=claim:corpus,ro --volume 'ckpt:/ckpt=host:/fsx/my runs'";
    assert!(command.contains(volumes), "{command}");
    set(&mut draft, Field::Storage, "data=/data");
    let error = draft.spec().unwrap_err();
    assert!(error.contains("storage: `data=/data`") && error.contains("claim:CLAIM"), "{error}");
    assert_eq!(draft.command(), Err(error), "a wrong field has no equal command");
}

#[test]
fn what_flags_cannot_take_away_from_a_file_needs_another_file() {
    let role = weftrun::core::spec::Role::worker().gpus_per_node(8).command(["train.py"]);
    let mut spec = weftrun::core::spec::JobSpec::builder("sft").image("train:1").role(role).build().unwrap();
    spec.queue = Some("gpu".into());
    spec.volumes = vec!["data:/data=claim:corpus".parse().unwrap()];
    let fresh = || draft_of(spec.clone(), Some("sft.toml"));
    for (field, more) in [
        (Field::Queue, "other"),
        (Field::Storage, "data:/data=claim:corpus ckpt:/ckpt=memory"),
        (Field::Env, "A=b"),
        (Field::Image, "train:2"),
    ] {
        let mut draft = fresh();
        set(&mut draft, field, more);
        let command = draft.command().unwrap();
        assert!(!draft.needs_file() && command.contains("submit sft.toml"), "{command}");
    }
    for field in [Field::Queue, Field::Storage, Field::Image] {
        let mut draft = fresh();
        set(&mut draft, field, "");
        assert!(draft.needs_file(), "{field:?} is taken away");
    }
}

#[test]
fn measuring_is_in_the_job_and_in_the_equal_command() {
    let role = weftrun::core::spec::Role::worker().gpus_per_node(8).command(["train.py"]);
    let mut spec = weftrun::core::spec::JobSpec::builder("sft").image("train:1").role(role).build().unwrap();
    let mut draft = draft_of(spec.clone(), None);
    assert!(!draft.spec().unwrap().fabric.bandwidth && !draft.command().unwrap().contains("--bandwidth"));
    *draft.choice(Field::Bandwidth).unwrap().1 = 1;
    assert!(draft.spec().unwrap().fabric.bandwidth && !draft.needs_file());
    assert!(draft.command().unwrap().contains(" --bandwidth -- train.py"), "{:?}", draft.command());
    // Of a file that measures already, the flag adds nothing; and no flag takes it away.
    let mut draft = draft_of(spec.clone(), Some("sft.toml"));
    *draft.choice(Field::Bandwidth).unwrap().1 = 1;
    assert_eq!(draft.command().unwrap(), "weftrun submit sft.toml -b prod --bandwidth");
    spec.fabric.bandwidth = true;
    let mut draft = draft_of(spec, Some("sft.toml"));
    assert_eq!(draft.command().unwrap(), "weftrun submit sft.toml -b prod");
    *draft.choice(Field::Bandwidth).unwrap().1 = 0;
    assert!(draft.needs_file() && !draft.spec().unwrap().fabric.bandwidth);
}

/// The folder of the code is a field; what else a file sends with its job stays, unless a folder is named.
#[test]
fn the_folder_of_the_code_is_a_field() {
    use weftrun::core::spec::{Code, JobSpec, Role};
    let spec = JobSpec::builder("job").role(Role::worker().command(["train.py"])).build().unwrap();
    let mut draft = draft_of(spec.clone(), None);
    set(&mut draft, Field::Code, "./src");
    let with_folder = draft.spec().unwrap();
    assert_eq!(with_folder.code_folder(), Some(("./src", None)));
    assert!(draft.command().unwrap().contains("--code ./src "), "{:?}", draft.command());
    let mut behind = draft_of(with_folder, Some("job.toml"));
    assert!(!behind.command().unwrap().contains("--code"), "{:?}", behind.command());
    set(&mut behind, Field::Code, "other");
    assert!(behind.command().unwrap().contains("--code other"), "{:?}", behind.command());
    set(&mut behind, Field::Code, "");
    assert!(behind.needs_file() && behind.spec().unwrap().code.is_none());
    let script = Code::Script { name: "train.py".to_owned(), text: "print(1)".to_owned() };
    let mut base = spec;
    base.code = Some(script.clone());
    assert_eq!(draft_of(base, Some("job.toml")).spec().unwrap().code, Some(script));
}

#[test]
fn arrows_follow_the_rows_and_digits_never_leave_the_form() {
    let mut model = with_jobs();
    press(&mut model, "n");
    let field = |model: &weftrun_tui::model::Model| model.draft.as_ref().unwrap().field;
    model.draft.as_mut().unwrap().field = Field::Queue;
    for wanted in [Field::Priority, Field::Image, Field::Nodes] {
        press(&mut model, "down");
        assert_eq!(field(&model), wanted);
    }
    for wanted in [Field::Image, Field::Name, Field::Target, Field::Changes] {
        press(&mut model, "up");
        assert_eq!(field(&model), wanted);
    }
    for (known, _) in Field::LABELS.into_iter().filter(|(field, _)| *field != Field::Changes) {
        model.draft.as_mut().unwrap().field = known;
        press(&mut model, "3");
        assert_eq!(model.screen, Screen::Submit, "{known:?}");
        // The numbers of the screens are not shown while they do nothing.
        assert!(common::screen(&mut model, 120, 40).starts_with(" jobs "), "{known:?}");
    }
    model.draft.as_mut().unwrap().field = Field::Changes;
    assert!(common::screen(&mut model, 120, 40).starts_with(" 1 jobs "));
    press(&mut model, "1");
    assert_eq!(model.screen, Screen::Jobs);
}

#[test]
fn each_mistake_has_its_line_and_marks_its_field() {
    let mut model = with_jobs();
    press(&mut model, "n");
    let draft = model.draft.as_mut().unwrap();
    for (field, text) in
        [(Field::Nodes, "two"), (Field::Gpus, ""), (Field::Env, "A=1 B"), (Field::Command, "a 'b")]
    {
        set(draft, field, text);
    }
    let mistakes = draft.mistakes();
    let fields: Vec<Field> = mistakes.iter().map(|(field, _)| *field).collect();
    assert_eq!(fields, [Field::Nodes, Field::Gpus, Field::Command, Field::Env]);
    assert_eq!(draft.spec().unwrap_err(), mistakes[0].1);
    let shown = common::screen(&mut model, 120, 40);
    for text in ["!nodes", "!gpus/node", "!command", "!env"] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
    for (_, mistake) in mistakes {
        let lines = shown.lines().filter(|line| line.contains(&mistake)).count();
        assert_eq!(lines, 1, "{mistake}\n{shown}");
    }
}

#[test]
fn a_value_is_not_cut_beside_free_space() {
    let mut model = with_jobs();
    press(&mut model, "n");
    let draft = model.draft.as_mut().unwrap();
    set(draft, Field::Instance, "p5en.48xlarge.reserved-2");
    set(draft, Field::Name, "llama-70b-pretraining-fsdp-o-a7847-2");
    for columns in [80, 120, 200] {
        let shown = common::screen(&mut model, columns, 40);
        for value in ["p5en.48xlarge.reserved-2", "llama-70b-pretraining-fsdp-o-a7847-2"] {
            assert!(shown.contains(value), "{columns}\n{shown}");
        }
    }
}

#[test]
fn what_is_taken_out_of_a_job_looks_like_it() {
    use weftrun::core::fabric::{Change, Removed};
    let mut model = common::drafted();
    let draft = model.draft.as_mut().unwrap();
    let Some(Ok(planned)) = &mut draft.planned else { panic!("no plan") };
    let change = Change::Remove { what: Removed::Env, name: "NCCL_IB_HCA".into() };
    for op in planned.all.iter_mut().chain(&mut planned.plan.ops).take(1) {
        op.change = change.clone();
    }
    planned.plan.ops = planned.all.clone();
    let shown = common::screen(&mut model, 160, 48);
    let line = shown.lines().find(|line| line.contains("NCCL_IB_HCA")).unwrap();
    assert!(line.contains("-     no env NCCL_IB_HCA"), "{line}");
}

#[test]
fn a_file_is_asked_for_only_where_the_command_lacks_something() {
    let role = weftrun::core::spec::Role::worker().gpus_per_node(8).command(["train.py"]);
    let spec = weftrun::core::spec::JobSpec::builder("sft").role(role).build().unwrap();
    let mut draft = draft_of(spec.clone(), None);
    for (field, text) in
        [(Field::Env, "A=1"), (Field::Storage, "d:/d=memory"), (Field::Code, "src"), (Field::Memory, "1Gi")]
    {
        set(&mut draft, field, text);
    }
    assert_eq!(draft.why_file(), None);
    let mut more = spec;
    more.time_limit = Some(std::time::Duration::from_hours(1));
    let why = draft_of(more.clone(), None).why_file().unwrap();
    assert!(why.contains("time_limit") && !why.contains("name"), "{why}");
    assert_eq!(draft_of(more, Some("sft.toml")).why_file(), None, "the file has it");
}
