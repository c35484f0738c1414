//! SARIF 2.1.0, as code hosts read it.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use weftrun::core::text::percent;
use weftrun::diagnose::explain;
use weftrun::diagnose::explain::Page;
use weftrun::{Finding, Severity};

pub fn document(findings: &[Finding]) -> Json {
    let ids: BTreeSet<&str> = findings.iter().map(|finding| finding.code.as_str()).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "weftrun",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": ids.iter().map(|id| rule(id)).collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "results": findings.iter().map(|finding| result(finding, &ids)).collect::<Vec<_>>(),
        }],
    })
}

fn rule(id: &str) -> Json {
    match explain::page(id) {
        Some(Page::Code(code)) => json!({
            "id": id,
            "shortDescription": { "text": code.title },
            "fullDescription": { "text": code.meaning },
            "help": { "text": code.fix },
        }),
        _ => json!({ "id": id }),
    }
}

/// Returns a path as a relative reference (RFC 3986, section 4.2), which SARIF 2.1.0 requires in section 3.4.3.
fn uri(path: &str) -> String {
    path.split('/').map(percent::encode).collect::<Vec<_>>().join("/")
}

fn result(finding: &Finding, ids: &BTreeSet<&str>) -> Json {
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    };
    let fix = finding.fix.as_ref().map(|fix| format!(". {}", fix.text)).unwrap_or_default();
    let mut result = json!({
        "ruleId": finding.code,
        "ruleIndex": ids.iter().position(|id| *id == finding.code),
        "level": level,
        "message": { "text": format!("{}{fix}", finding.message) },
    });
    if let Some(span) = &finding.span {
        result["locations"] = json!([{ "physicalLocation": {
            "artifactLocation": { "uri": uri(&span.file) },
            "region": {
                "startLine": span.line, "startColumn": span.column,
                "byteOffset": span.start, "byteLength": span.end - span.start,
            },
        } }]);
    }
    result
}
