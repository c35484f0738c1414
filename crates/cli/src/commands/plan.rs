//! `plan`: every decision with its reason.

use clap::Args;
use weftrun::convert::decision_text;
use weftrun::core::exit_codes;
use weftrun::core::fabric::evidence::{FabricEvidence, Score, Site};
use weftrun::core::fabric::{FABRIC_UNMET, FabricPlan};
use weftrun::core::log::clean_text;
use weftrun::core::request::Fabric;
use weftrun::core::text::counted;
use weftrun::report::{PlanReport, TasksShape};
use weftrun::{ErrorKind, Finding, Plan, Result};

use crate::context::Context;
use crate::global::Format;
use crate::job_flags::JobFlags;
use crate::output::style;

#[derive(Args, Debug)]
pub struct PlanArgs {
    /// The job
    #[command(flatten)]
    pub job: JobFlags,
    /// Ask the cluster for its facts; otherwise they are assumed and marked as such
    #[arg(long)]
    pub online: bool,
    /// Read the image from its registry and report what does not fit the plan
    #[arg(long)]
    pub check_image: bool,
}

/// Prints every decision with its reason.
pub fn run(context: &Context, args: &PlanArgs) -> Result<u8> {
    let spec = args.job.spec(context)?;
    let client = context.client()?;
    let target = context.target(&client)?;
    let mut plan = if args.online {
        context.block_on(client.plan_for(target, &spec))?
    } else {
        client.plan_offline_for(target, &spec)?
    };
    if args.check_image {
        context.block_on(check_image(context, &mut plan))?;
    }
    let mut findings = plan.findings();
    // Findings that only rendering shows: values without a field on the cluster, names and amounts that it
    // does not have, the working directory.
    let rendered = context.block_on(plan.render());
    findings.extend(rendered.iter().flat_map(|rendered| rendered.findings.iter().cloned()));
    // What the cluster would refuse, as `submit --dry-run=server` queries it; the plan is printed in any
    // case.
    let checked = match &rendered {
        Ok(rendered) if args.online => context.block_on(plan.check_rendered(rendered)),
        _ => Ok(Vec::new()),
    };
    if let Ok(refused) = &checked {
        findings.extend(without(refused, &findings));
    }
    let fabric =
        rendered.as_ref().map_or_else(|_| plan.fabric().clone(), |rendered| plan.announced(rendered));
    if context.out.format == Format::Table {
        context.out.text(&text(&plan, &fabric))?;
        context.out.findings(&findings);
    } else {
        // They were printed on stderr when the job file was read.
        findings.extend(without(&context.noted(), &findings));
        let mut report = PlanReport::new(&spec.name, &fabric, &findings);
        report.code = spec.code_content();
        report.tasks = TasksShape::of(&spec);
        context.out.value(&report)?;
    }
    checked?;
    // A job that cannot be rendered cannot be submitted; offline, a missing cluster is not an error of the
    // job.
    rendered.map(drop).or_else(|error| match error.kind() {
        ErrorKind::InvalidSpec | ErrorKind::InvalidConfig | ErrorKind::Unsupported | ErrorKind::Usage => {
            Err(error)
        }
        _ if args.online => Err(error),
        _ => Ok(()),
    })?;
    let failed = findings.iter().any(Finding::is_error);
    Ok(if failed { exit_codes::INVALID_SPEC } else { exit_codes::OK })
}

/// Reads the job's images, prints their contents, and adds to the plan's findings.
pub async fn check_image(context: &Context, plan: &mut Plan) -> Result<()> {
    let out = context.out;
    for image in plan.check_image(|text| out.say(text)).await? {
        out.say(clean_text(&format!("image {}: {}", image.reference, image.line())));
    }
    Ok(())
}

/// Returns the findings that are not among known ones.
pub fn without(found: &[Finding], known: &[Finding]) -> Vec<Finding> {
    let is_new = |one: &&Finding| {
        !known.iter().any(|known| (&known.code, &known.message) == (&one.code, &one.message))
    };
    found.iter().filter(is_new).cloned().collect()
}

/// Returns the sum of the evidence of the fabric that has most of it.
pub fn score(evidence: &[FabricEvidence]) -> Option<String> {
    let site = Site::named(&evidence.first()?.fabric)?;
    Some(format!("{}: {}", site.name, Score::of(site, evidence)))
}

/// Returns how many tasks there are, and the values of the first.
fn tasks_line(tasks: &TasksShape) -> String {
    let mut line =
        format!("{}, each like this", counted(usize::try_from(tasks.count).unwrap_or(usize::MAX), "task"));
    line.extend(tasks.parallel.map(|most| format!(", at most {most} at once")));
    if !tasks.first.is_empty() {
        let more = usize::try_from(tasks.count).is_ok_and(|count| count > tasks.first.len());
        line.push_str(&format!(": {}{}", tasks.first.join("; "), if more { "; …" } else { "" }));
    }
    line
}

/// Formats decisions of a plan as text: each setting, followed by its reason.
pub fn text(plan: &Plan, fabric: &FabricPlan) -> String {
    let (bold, dim, note) = (style::BOLD, style::DIM, style::NOTE);
    let spec = &plan.planned().spec;
    let refused = fabric.findings.iter().any(|finding| finding.code == FABRIC_UNMET);
    let network = match (fabric.fabric, spec.fabric.kind) {
        (Fabric::Auto, requested @ (Fabric::Efa | Fabric::Roce | Fabric::InfiniBand)) => {
            format!("no fabric (requested: {requested})")
        }
        (_, requested) if refused => format!("no fabric (requested: {requested})"),
        (network, _) => format!("fabric {network}"),
    };
    let number = |count: u32, noun: &str| counted(usize::try_from(count).unwrap_or(usize::MAX), noun);
    let started = "ranks unknown (the command starts them)";
    let ranks = match (spec.ranks(), spec.processes_of_script()) {
        (Some(ranks), _) => number(ranks, "rank"),
        (None, Some(tasks)) => format!("{}, {started}", number(tasks, "task")),
        (None, None) => started.to_owned(),
    };
    let mut text = format!(
        "{bold}{}{bold:#}: {}, {ranks} on {} ({}), {network}\n",
        spec.name,
        number(spec.nodes(), "node"),
        plan.target().name,
        plan.target().backend
    );
    if let Some(tasks) = TasksShape::of(spec) {
        text.push_str(&format!("{dim}{}{dim:#}\n", clean_text(&tasks_line(&tasks))));
    }
    if let Some((dir, Some(content))) = spec.code_folder() {
        text.push_str(&format!("{dim}code {}: {}{dim:#}\n", clean_text(dir), content.line()));
    }
    if let Some(profile) = &fabric.profile {
        text.push_str(&format!("{dim}profile {profile}{dim:#}\n"));
    }
    for evidence in &fabric.evidence {
        let shown = evidence.to_string();
        let shown = clean_text(&shown);
        let by = if evidence.online { "the cluster" } else { "the job" };
        text.push_str(&format!(
            "{dim}evidence of {}: {shown}, in {by} (weight {}){dim:#}\n",
            evidence.fabric, evidence.weight
        ));
    }
    if let Some(score) = score(&fabric.evidence) {
        text.push_str(&format!("{dim}evidence in all: {score}{dim:#}\n"));
    }
    for decision in &fabric.decisions {
        let (target, value, why) = decision_text(decision, &plan.target().backend);
        text.push_str(&format!(
            "{note}{:<18}{note:#} {target} = {bold}{value}{bold:#}\n{:<18} {dim}{why}{dim:#}\n",
            decision.rule, ""
        ));
    }
    for skipped in &fabric.skipped {
        text.push_str(&format!(
            "{dim}{:<18} skipped ({}): {}{dim:#}\n",
            skipped.rule, skipped.reason, skipped.why
        ));
    }
    text
}
