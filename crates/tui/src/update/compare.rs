//! Compares the two marked jobs.

use std::collections::BTreeSet;

use weftrun::core::job::JobHandle;
use weftrun::core::log::clean_text;
use weftrun::core::spec::to_toml;

use crate::model::Model;
use crate::model::layer::Layer;
use crate::msg::{Effect, Known};

/// Asks for what is known of the two marked jobs.
pub(super) fn ask(model: &mut Model) -> Vec<Effect> {
    let marked: Vec<JobHandle> = model.jobs.marked.iter().cloned().collect();
    let Ok(both) = <[JobHandle; 2]>::try_from(marked) else {
        let (mark, count) = (model.keymap.first_key("mark").to_owned(), model.jobs.marked.len());
        model.say(format!("two jobs are compared, and {count} are marked: {mark} marks one"));
        return Vec::new();
    };
    model.say("describing both jobs …");
    vec![Effect::Compare(both)]
}

/// Shows in what two jobs differ.
pub(super) fn show(model: &mut Model, answer: Result<Box<[Known; 2]>, String>) {
    let both = match answer {
        Ok(both) => both,
        Err(error) => return model.fail(format!("not compared: {error}")),
    };
    model.notice = None;
    let [first, second] = &*both;
    let (mut different, mut same, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for ((name, a), (_, b)) in facts(model, first).into_iter().zip(facts(model, second)) {
        match (a, b) {
            (None, None) => unknown.push(name),
            (a, b) if a == b => same.push(name),
            (a, b) => {
                let word = |fact: Option<String>| fact.unwrap_or_else(|| "not known".to_owned());
                let wide = name.len().max(12);
                different.push(format!("{name:wide$} A  {}", word(a)));
                different.push(format!("{:wide$} B  {}", "", word(b)));
            }
        }
    }
    let mut lines = vec![
        format!("A  {}", first.detail.summary.handle),
        format!("B  {}", second.detail.summary.handle),
        String::new(),
    ];
    lines.extend(different);
    for (words, names) in [("the same", same), ("not known of either", unknown)] {
        if !names.is_empty() {
            lines.push(format!("{words}: {}", names.join(", ")));
        }
    }
    lines.push("fabric and speed are those that the logs showed: of a job that was opened here".to_owned());
    for (title, texts) in
        [("the job", [job(first), job(second)]), ("what the fabric adds", [plan(first), plan(second)])]
    {
        lines.push(String::new());
        lines.push(format!("{title}:"));
        lines.extend(only_in(&texts));
    }
    let lines = lines.iter().map(|line| clean_text(line).into_owned()).collect();
    model.layers.push(Layer::Text { title: "Two jobs".to_owned(), lines, scroll: 0 });
}

/// Returns what is known of a job beside its file, by name; none where it is not known.
fn facts(model: &Model, known: &Known) -> Vec<(&'static str, Option<String>)> {
    let job = &known.detail.summary;
    let nodes: BTreeSet<&str> =
        known.detail.replicas.iter().filter_map(|replica| replica.node.as_deref()).collect();
    let entry = model.jobs.get(&job.handle);
    let fabric = entry.and_then(|entry| {
        let proved = entry.proved_fabric()?;
        Some(match entry.learned.verdict.as_ref().and_then(|(_, is_planned)| *is_planned) {
            Some(true) => format!("{proved}, as asked for"),
            Some(false) => format!("{proved}, not what was asked for"),
            None => proved.to_owned(),
        })
    });
    let open = model.open.as_ref().filter(|open| open.handle == job.handle);
    let speed =
        open.and_then(|open| Some((open.transport_view.throughput.last()?, &open.transport_view.unit)));
    let image = known.spec.as_ref().and_then(|spec| spec.image.clone());
    vec![
        ("state", Some(job.phase.to_string())),
        ("image", image),
        ("nodes", (!nodes.is_empty()).then(|| nodes.into_iter().collect::<Vec<_>>().join(" "))),
        ("fabric", fabric),
        ("speed", speed.map(|(speed, unit)| format!("{speed:.1} {unit}"))),
    ]
}

/// Returns the lines of a job's file; none of a job that was submitted elsewhere.
fn job(known: &Known) -> Option<Vec<String>> {
    let mut table = String::new();
    let text = to_toml(known.spec.as_ref()?);
    // A line is named with its table: the same key is in several.
    let line = |line: &str| {
        if line.starts_with('[') {
            line.clone_into(&mut table);
        }
        if table.is_empty() || line.starts_with('[') { line.to_owned() } else { format!("{table} {line}") }
    };
    Some(text.lines().map(line).filter(|line| !line.is_empty()).collect())
}

/// Returns the changes of a job's plan.
fn plan(known: &Known) -> Option<Vec<String>> {
    Some(known.plan.as_ref()?.ops.iter().map(crate::view::submit::change_text).collect())
}

/// Returns the lines that only one of them has.
fn only_in(texts: &[Option<Vec<String>>; 2]) -> Vec<String> {
    let [Some(first), Some(second)] = texts else {
        return vec!["  not known of both: one was submitted elsewhere".to_owned()];
    };
    let sets = [first, second].map(|lines| lines.iter().collect::<BTreeSet<_>>());
    let of = |sign: &str, lines: &[String], other: &BTreeSet<&String>| {
        let own = lines.iter().filter(|line| !other.contains(line));
        own.map(|line| format!("  {sign}  {line}")).collect::<Vec<_>>()
    };
    let lines = [of("A", first, &sets[1]), of("B", second, &sets[0])].concat();
    if lines.is_empty() { vec!["  the same".to_owned()] } else { lines }
}
