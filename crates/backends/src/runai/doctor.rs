//! Diagnoses what prevents jobs: names, addresses, certificates, rights, versions. The endpoints of private
//! clusters are only visible inside a network, and most failures there look alike to a client.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;

use reqwest::Url;
use serde_json::Value;
use weftrun_core::backend::ClusterFacts;
use weftrun_core::{Error, ErrorKind, Finding, Result, Severity};

use super::certificate::{self, Certificate};
use super::config::Credentials;
use super::logs::cluster_api;
use super::resolve::Project;
use super::{Shared, discover};
use crate::private_access::{self, PATIENCE, explain_with_facts, resolve, with_networks};
use crate::proxy::proxy_for;

/// Returns all facts about a target. If the control plane cannot be used, the error contains the facts
/// gathered before.
pub async fn facts(shared: &Shared, private_access: bool) -> Result<ClusterFacts> {
    let mut facts = ClusterFacts::default();
    let base = shared.settings.base(&shared.target)?;
    endpoint(shared, "control plane", &base, private_access, &mut facts).await;
    credentials(shared, &mut facts);
    let project = match discover::of_project(shared, &mut facts).await {
        Ok(project) => project,
        Err(error) => return Err(explain_with_facts(&error, "RUNAI-DOCTOR", facts)),
    };
    let plane = shared.plane().await?;
    discover::of_cluster(plane, &project, &mut facts).await;
    quota(shared, &project, &mut facts).await;
    rights(shared, &mut facts).await;
    match cluster_api::domain(shared).await {
        Ok(domain) => {
            endpoint(shared, "cluster", &domain, private_access, &mut facts).await;
            match cluster_api::base(shared).await {
                Ok(_) => row(&mut facts, "logs", "over the cluster's API"),
                Err(error) => no_cluster_api(shared, &error, &mut facts),
            }
        }
        Err(error) => no_cluster_api(shared, &error, &mut facts),
    }
    if private_access && shared.has_kubeconfig() {
        let what = "kubeconfig's cluster";
        match shared.cluster().await {
            Ok(cluster) => {
                private_access::check_url(what, &cluster.server, cluster.proxy.as_deref(), &mut facts).await;
                let error = match tokio::time::timeout(PATIENCE, cluster.raw("/version")).await {
                    Ok(answer) => answer.err(),
                    Err(_) => {
                        let message =
                            format!("the API server did not answer within {} s", PATIENCE.as_secs());
                        Some(Error::new(ErrorKind::Timeout, message))
                    }
                };
                let found = error.and_then(|error| private_access::of_answer(what, &error, &facts.notes));
                facts.notes.extend(found);
            }
            Err(error) => facts.notes.push(Finding::error(private_access::CODE, error.message()).at(what)),
        }
    }
    Ok(facts)
}

/// Adds the project's GPU quota and its usage, per node pool if the control plane reports it.
async fn quota(shared: &Shared, project: &Project, facts: &mut ClusterFacts) {
    let Ok(plane) = shared.plane().await else { return };
    let path = format!("/api/v1/org-unit/projects/{}", weftrun_core::text::percent::encode(&project.id));
    let found: Result<Value> = plane.get("cannot read the project's quota", &path, &[]).await;
    match found {
        Ok(project) => {
            for (key, value) in quota_rows(&project) {
                row(facts, &key, value);
            }
        }
        Err(error) => {
            facts.notes.push(discover::hidden(
                "the project's quota",
                &error,
                "how many GPUs are free is not known",
            ));
        }
    }
}

/// Returns the rows of a project: GPUs of its quota, used, free; then of each node pool.
fn quota_rows(project: &Value) -> Vec<(String, String)> {
    let number = |pointer: &str| project.pointer(pointer).and_then(Value::as_f64);
    let mut rows = Vec::new();
    if let Some(quota) = number("/totalResources/gpuQuota") {
        rows.push(("GPU quota".to_owned(), used(quota, number("/status/quotaStatus/allocated/gpu"), None)));
    }
    let pools = project.get("resources").and_then(Value::as_array).into_iter().flatten();
    let statuses = project.pointer("/status/nodePoolQuotaStatuses").and_then(Value::as_array);
    for pool in pools {
        let Some(name) = pool.pointer("/nodePool/name").and_then(Value::as_str) else { continue };
        let Some(quota) = pool.pointer("/gpu/deserved").and_then(Value::as_f64) else { continue };
        let status = statuses.into_iter().flatten().find(|status| {
            let shown = status.get("nodePoolName").or_else(|| status.pointer("/nodePool/name"));
            shown.and_then(Value::as_str) == Some(name)
        });
        let allocated = status.and_then(|status| status.pointer("/allocated/gpu")).and_then(Value::as_f64);
        let limit = pool.pointer("/gpu/limit").and_then(Value::as_f64);
        let name = weftrun_core::log::clean_text(name);
        rows.push((format!("GPU quota of node pool {name}"), used(quota, allocated, limit)));
    }
    rows
}

/// `8, 6 used, 2 free`.
fn used(quota: f64, allocated: Option<f64>, limit: Option<f64>) -> String {
    let mut text = quota.to_string();
    match allocated {
        Some(allocated) => text += &format!(", {allocated} used, {} free", (quota - allocated).max(0.0)),
        None => text += ", used is not known",
    }
    // Without a limit, or with a negative one, a project may borrow idle GPUs of others.
    if let Some(limit) = limit.filter(|limit| *limit >= 0.0) {
        text += &format!(", at most {limit} with GPUs of others");
    }
    text
}

fn row(facts: &mut ClusterFacts, key: &str, value: impl Into<String>) {
    facts.extra.insert(key.to_owned(), Value::String(value.into()));
}

fn no_cluster_api(shared: &Shared, error: &Error, facts: &mut ClusterFacts) {
    let other = shared.has_kubeconfig();
    let message = format!("logs cannot be read over the cluster's API: {}", error.message());
    facts.notes.push(match other {
        true => Finding::info("RUNAI-CLUSTER-API", message),
        false => Finding::warning("RUNAI-CLUSTER-API", message)
            .fix("the cluster's domain must be reachable from here (VPN, private DNS), or set `kubeconfig` in the target's table"),
    });
    row(facts, "logs", if other { "over the kubeconfig" } else { "not from here" });
}

/// Checks the endpoint of a base URL: addresses, connections, the proxy, the certificate.
async fn endpoint(shared: &Shared, what: &str, base: &str, private_access: bool, facts: &mut ClusterFacts) {
    let Ok(url) = base.parse::<Url>() else {
        facts.notes.push(Finding::error("RUNAI-URL", format!("`{base}` is not a URL")).at(what));
        return;
    };
    let (host, port) =
        (url.host_str().unwrap_or_default().to_owned(), url.port_or_known_default().unwrap_or(443));
    let proxy = shared.settings.proxy.clone().or_else(|| proxy_for(base, &shared.target.env));
    if let Some(proxy) = &proxy {
        // A proxy's URL may contain a password.
        let shown = proxy.rsplit_once('@').map_or(proxy.as_str(), |(_, rest)| rest);
        row(facts, &format!("{what} proxy"), shown);
        if private_access {
            private_access::check(what, &host, &[], Some(shown), facts);
        }
    } else if !reachable(what, &host, port, private_access, facts).await {
        // With a proxy, the proxy resolves names and connects.
        return;
    }
    if url.scheme() != "https" {
        let message = format!("`{base}` is not encrypted: tokens travel in the clear");
        let finding = if crate::requests::is_clear(base) {
            Finding::warning("RUNAI-HTTP", message)
        } else {
            Finding::info("RUNAI-HTTP", message)
        };
        facts.notes.push(finding.at(what));
        return;
    }
    match certificate::shown_by(shared, base).await {
        Ok(Some(certificate)) => said_of(what, &host, &certificate, private_access, facts),
        Ok(None) => facts.notes.push(Finding::info("RUNAI-TLS", "no certificate could be seen").at(what)),
        Err(error) => {
            let finding = Finding::warning("RUNAI-TLS", error.message()).at(what);
            facts.notes.push(if private_access { as_error(finding) } else { finding });
        }
    }
    if private_access && let Ok(Some(why)) = certificate::refusal(shared, base).await {
        facts.notes.push(Finding::error("RUNAI-TLS", why).at(what).fix(private_access::OTHER_SERVER));
    }
    if shared.settings.insecure {
        let message = "`insecure` is set: a machine on the network path can read the token";
        facts.notes.push(Finding::warning("RUNAI-INSECURE", message).at(what).fix("set `ca-file` instead"));
    }
}

fn as_error(mut finding: Finding) -> Finding {
    finding.severity = Severity::Error;
    finding
}

/// Resolves and connects; returns false if either failed.
async fn reachable(
    what: &str,
    host: &str,
    port: u16,
    private_access: bool,
    facts: &mut ClusterFacts,
) -> bool {
    // Without the cluster there are no logs; where private access to it is asked for, the check has failed.
    let is_needed = private_access || what == "control plane";
    let addresses = match resolve(host, port).await {
        Ok(addresses) => addresses,
        Err(error) => return refused(what, "RUNAI-DNS", &error, is_needed, facts),
    };
    let mut ips: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
    ips.dedup();
    if private_access {
        private_access::check(what, host, &ips, None, facts);
    }
    row(facts, &format!("{what} address"), with_networks(&ips));
    let (mut failed, mut open) = (String::new(), false);
    for address in &addresses {
        match tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(address)).await {
            Ok(Ok(_)) => open = true,
            Ok(Err(error)) => failed = format!("{address}: {error}"),
            Err(_) => failed = format!("{address} did not answer within 10 s"),
        }
        if open {
            return true;
        }
    }
    refused(what, "RUNAI-CONNECT", &failed, is_needed, facts)
}

fn refused(what: &str, code: &str, message: &str, is_error: bool, facts: &mut ClusterFacts) -> bool {
    let private = facts
        .extra
        .get(&format!("{what} address"))
        .and_then(Value::as_str)
        .is_some_and(|text| text.contains("private"));
    let fix = match (code, private) {
        ("RUNAI-DNS", _) => {
            "a private endpoint resolves inside its network only: connect the VPN, or use its DNS (step 4 of private access); or correct `url`"
        }
        (_, true) => private_access::NO_WAY,
        _ => {
            "a firewall or a wrong port; ask your network administrator from where the endpoint is reachable"
        }
    };
    let finding = if is_error { Finding::error(code, message) } else { Finding::warning(code, message) };
    facts.notes.push(finding.at(what).fix(fix));
    false
}

fn said_of(
    what: &str,
    host: &str,
    certificate: &Certificate,
    private_access: bool,
    facts: &mut ClusterFacts,
) {
    row(facts, &format!("{what} certificate"), certificate.to_string());
    let fits = |name: &String| {
        name == host
            || name
                .strip_prefix("*.")
                .is_some_and(|rest| host.split_once('.').is_some_and(|(_, tail)| tail == rest))
    };
    if !certificate.names.is_empty() && !certificate.names.iter().any(fits) {
        let message = format!("the certificate is not for `{host}`: something else answers there");
        let finding = Finding::warning("RUNAI-TLS-NAME", message);
        let finding = if private_access { as_error(finding) } else { finding };
        facts.notes.push(
            finding
                .at(what)
                .fix("correct the URL, or find out which server has that address (with private access: step 4, the record's target)"),
        );
    }
}

/// Checks the source of the token.
fn credentials(shared: &Shared, facts: &mut ClusterFacts) {
    let said = match shared.settings.credentials(&shared.target) {
        Ok(Credentials::Application { id, .. }) => format!("application `{id}`"),
        Ok(Credentials::Token(_)) => "a token of the environment".to_owned(),
        Ok(Credentials::File(path)) => format!("a token in {}", path.display()),
        Ok(Credentials::Official(_)) => "the login of the official command line".to_owned(),
        Ok(Credentials::Command(argv)) => format!("`{}`", argv.first().map_or("", String::as_str)),
        Err(error) => error.message().to_owned(),
    };
    row(facts, "credentials", said);
    let files = [&shared.settings.token_file, &shared.settings.client_secret_file];
    for file in files.into_iter().flatten().filter(|file| others_may_read(file)) {
        let message = format!("others on this machine may read {}", file.display());
        facts.notes.push(
            Finding::warning("RUNAI-SECRET-FILE", message).fix(format!("chmod 600 {}", file.display())),
        );
    }
}

fn others_may_read(file: &std::path::Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
}

/// Checks the rights of the token, as far as reads can show them.
async fn rights(shared: &Shared, facts: &mut ClusterFacts) {
    let Ok(plane) = shared.plane().await else { return };
    let asked = [
        ("projects", "/api/v1/org-unit/projects"),
        ("clusters", "/api/v1/clusters"),
        ("node pools", "/api/v1/node-pools"),
        ("workloads", "/api/v1/workloads"),
    ];
    let (mut may, mut not) = (Vec::new(), Vec::new());
    for (what, path) in asked {
        let answer: Result<Value> =
            plane.get("cannot find out a right", path, &[("limit", "1".to_owned())]).await;
        match answer {
            Ok(_) => may.push(what),
            Err(error) if error.kind() == ErrorKind::Credentials => not.push(what),
            Err(_) => {}
        }
    }
    row(facts, "may read", may.join(", "));
    if !not.is_empty() {
        row(facts, "may not read", not.join(", "));
    }
    if not.contains(&"workloads") {
        let message = "the token may not list workloads: a lost answer to a submit could not be cleared up";
        facts.notes.push(
            Finding::error("RUNAI-RIGHTS", message)
                .fix("ask your Run:ai administrator for the role of a researcher in the project"),
        );
    }
}
