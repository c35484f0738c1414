//! Whether the project would take a body: its name, and the names in it.

use serde_json::Value;
use weftrun_core::backend::Rendered;
use weftrun_core::{ErrorKind, Finding, Result};

use super::lookup::{self, Asset, text, unknown};
use super::{Shared, render};

/// Longest name: pods are called `NAME-worker-NNNN`, and a DNS label has 63 characters.
pub const LONGEST_NAME: usize = 50;

/// The findings of a rendered job. One request asks whether the name is taken; others are made only for names the
/// job has.
pub async fn check(shared: &Shared, rendered: &Rendered) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if rendered.name.len() > LONGEST_NAME {
        let message = format!("`{}` is longer than {LONGEST_NAME} characters", rendered.name);
        findings.push(Finding::error("RUNAI-NAME", message));
    }
    let taken = shared.listed(Some(&rendered.name), None).await?;
    if let Some(other) = taken.iter().find(|w| text(w, "deletedAt").is_none_or(str::is_empty)) {
        let phase = text(other, "phase").unwrap_or("there");
        let message = format!("the project has a workload `{}` already ({phase})", rendered.name);
        findings
            .push(Finding::error("RUNAI-NAME-TAKEN", message).fix("choose another name, or `--name-suffix`"));
    }
    let body: Value = rendered
        .documents
        .first()
        .and_then(|document| serde_json::from_str(&document.text).ok())
        .unwrap_or_default();
    for found in [
        node_pools(shared, &body).await,
        priority(shared, &body).await,
        template(shared, rendered, &body).await,
        assets(shared, &body).await,
    ] {
        match found {
            Ok(found) => findings.extend(found),
            // A researcher may not read everything, and can submit nevertheless.
            Err(error) if matches!(error.kind(), ErrorKind::Credentials | ErrorKind::NotFound) => findings
                .push(Finding::info(
                    "RUNAI-HIDDEN",
                    format!("a name could not be checked: {}", error.message()),
                )),
            Err(error) => return Err(error),
        }
    }
    Ok(findings)
}

async fn node_pools(shared: &Shared, body: &Value) -> Result<Vec<Finding>> {
    let wanted: Vec<&str> = texts(body.pointer("/spec/nodePools"));
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let known = lookup::node_pools(shared.plane().await?, &shared.project().await?.cluster).await?;
    Ok(wanted.into_iter().filter_map(|name| unknown("RUNAI-NODE-POOL", "node pool", name, &known)).collect())
}

async fn priority(shared: &Shared, body: &Value) -> Result<Vec<Finding>> {
    let Some(name) = body.pointer("/spec/priorityClass").and_then(Value::as_str) else {
        return Ok(Vec::new());
    };
    let known = lookup::priorities(shared.plane().await?).await?;
    Ok(unknown("RUNAI-PRIORITY", "priority", name, &known).into_iter().collect())
}

async fn template(shared: &Shared, rendered: &Rendered, body: &Value) -> Result<Vec<Finding>> {
    let Some(name) = render::template_of(body) else { return Ok(Vec::new()) };
    match lookup::template(shared.plane().await?, render::kind_of(rendered), name).await {
        Ok(_) => Ok(Vec::new()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let finding = Finding::error("RUNAI-TEMPLATE", error.message());
            Ok(vec![match error.hints().first() {
                Some(hint) => finding.fix(hint.clone()),
                None => finding,
            }])
        }
        Err(error) => Err(error),
    }
}

/// Claims and secrets that are called by the name of an asset.
async fn assets(shared: &Shared, body: &Value) -> Result<Vec<Finding>> {
    let mut named: Vec<(Asset, &str)> = Vec::new();
    for claim in body.pointer("/spec/storage/pvc").and_then(Value::as_array).into_iter().flatten() {
        named.extend(text(claim, "claimName").map(|name| (Asset::Claim, name)));
    }
    for var in body.pointer("/spec/environmentVariables").and_then(Value::as_array).into_iter().flatten() {
        let secret = var.get("secret").and_then(|secret| text(secret, "name"));
        named.extend(secret.map(|name| (Asset::Credentials, name)));
    }
    named.dedup();
    let mut findings = Vec::new();
    for (asset, name) in named {
        let project = &shared.project().await?.id;
        let real = lookup::asset(shared.plane().await?, project, asset, name).await?;
        if let Some(real) = real.filter(|real| real != name) {
            let what = if asset == Asset::Claim { "volume claim" } else { "secret" };
            let message =
                format!("`{name}` is the name of an asset, and Kubernetes knows its {what} as `{real}`");
            findings.push(Finding::warning("RUNAI-ASSET", message).fix(format!("write `{real}`")));
        }
    }
    Ok(findings)
}

fn texts(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}
