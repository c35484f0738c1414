//! Checks whether the project would accept a body: its name, and the names in it.

use std::collections::BTreeSet;

use serde_json::Value;
use weftrun_core::backend::Rendered;
use weftrun_core::text::did_you_mean;
use weftrun_core::{ErrorKind, Finding, Result};

use super::Shared;
use super::render::{CreateRequest, ServerId};
use super::resolve::{self, Asset, text, unknown};
use crate::submit_once::prepared;

/// Longest name: pods are named `NAME-worker-NNNN`, and a DNS label has at most 63 characters.
pub const LONGEST_NAME: usize = 50;

/// Returns the findings of a rendered job. One request checks whether the name is taken; others are sent only
/// for names that the job contains.
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
    let request: &CreateRequest = prepared(rendered)?;
    let body = &request.body;
    for found in [
        node_pools(shared, body).await,
        priority(shared, body).await,
        template(shared, request).await,
        assets(shared, body).await,
    ] {
        match found {
            Ok(found) => findings.extend(found),
            // A researcher may have no right to read some of it, and can submit nevertheless.
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
    let known = resolve::node_pools(shared.plane().await?, &shared.project().await?.cluster).await?;
    Ok(wanted.into_iter().filter_map(|name| unknown("RUNAI-NODE-POOL", "node pool", name, &known)).collect())
}

async fn priority(shared: &Shared, body: &Value) -> Result<Vec<Finding>> {
    let Some(name) = body.pointer("/spec/priorityClass").and_then(Value::as_str) else {
        return Ok(Vec::new());
    };
    let known = resolve::priorities(shared.plane().await?).await?;
    Ok(unknown("RUNAI-PRIORITY", "priority", name, &known).into_iter().collect())
}

async fn template(shared: &Shared, request: &CreateRequest) -> Result<Vec<Finding>> {
    let name = request.unknown_ids.iter().find_map(|id| match id {
        ServerId::Template(name) => Some(name),
        _ => None,
    });
    let Some(name) = name else { return Ok(Vec::new()) };
    match resolve::template(shared.plane().await?, request.kind, name).await {
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

/// Returns findings for claims and secrets that use the name of an asset, or one close to it.
async fn assets(shared: &Shared, body: &Value) -> Result<Vec<Finding>> {
    let list = |pointer: &str| body.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let claims = list("/spec/storage/pvc").filter_map(|claim| text(claim, "claimName"));
    let secrets = list("/spec/environmentVariables").filter_map(|var| text(var.get("secret")?, "name"));
    let mut findings = Vec::new();
    for (asset, names) in
        [(Asset::Claim, claims.collect()), (Asset::Credentials, secrets.collect::<BTreeSet<_>>())]
    {
        if !names.is_empty() {
            let project = &shared.project().await?.id;
            let known = resolve::assets(shared.plane().await?, project, asset).await?;
            findings.extend(names.into_iter().filter_map(|name| misnamed(asset, name, &known)));
        }
    }
    Ok(findings)
}

/// Returns a finding for a name that belongs to an asset. Claims and secrets may exist without an asset: a
/// name unlike all of the project's is not reported.
fn misnamed(asset: Asset, name: &str, known: &[(String, String)]) -> Option<Finding> {
    if known.iter().any(|(_, real)| real == name) {
        return None;
    }
    let what = if asset == Asset::Claim { "volume claim" } else { "secret" };
    if let Some((_, real)) = known.iter().find(|(shown, _)| shown == name) {
        let message = format!("`{name}` is the name of an asset; in Kubernetes its {what} is named `{real}`");
        return Some(Finding::warning("RUNAI-ASSET", message).fix(format!("write `{real}`")));
    }
    let near = did_you_mean(name, known.iter().flat_map(|(shown, real)| [shown.as_str(), real.as_str()]))?;
    let (_, real) = known.iter().find(|(shown, real)| shown == near || real == near)?;
    let message = format!("no asset of the project is the {what} `{name}`");
    Some(Finding::warning("RUNAI-ASSET", message).fix(format!("did you mean `{real}`?")))
}

fn texts(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}
