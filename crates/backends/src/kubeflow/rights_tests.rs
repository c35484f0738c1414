//! The published roles grant exactly the rights that weftrun uses.

use serde_json::{Value, json};

use super::discover::{no_job, wanted_rights};
use super::kinds::Kind;
use crate::kubernetes::Resource;

fn roles() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backends/rbac.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn has(list: &Value, word: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|own| own == word))
}

fn grants(role: &Value, verb: &str, group: &str, resource: &str) -> bool {
    role["rules"].as_array().unwrap().iter().any(|rule| {
        has(&rule["apiGroups"], group) && has(&rule["resources"], resource) && has(&rule["verbs"], verb)
    })
}

#[test]
fn the_researchers_role_grants_what_the_backend_asks() {
    let role = roles().into_iter().find(|role| role["kind"] == "Role").unwrap();
    for right in wanted_rights() {
        let Resource { group, plural, .. } = right.resource;
        let resource = [plural, right.subresource].join("/");
        let resource = resource.trim_end_matches('/');
        assert!(grants(&role, right.verb, group, resource), "{} {group}/{resource}", right.verb);
    }
    for kind in Kind::ALL {
        let Resource { group, plural, .. } = kind.resource();
        for verb in ["create", "get", "list", "watch", "patch", "delete"] {
            assert!(grants(&role, verb, group, plural), "{verb} {group}/{plural}");
        }
    }
}

#[test]
fn no_role_grants_more_than_reading_outside_the_namespace() {
    let secret = ["secrets", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token", "*"];
    for role in roles() {
        // The role for `health` is granted separately, and contains nothing else.
        if role["metadata"]["name"] == "weftrun-health" {
            let port_forward =
                json!([{"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]}]);
            assert_eq!((&role["kind"], &role["rules"]), (&json!("Role"), &port_forward));
            continue;
        }
        for rule in role["rules"].as_array().unwrap() {
            assert!(!has(&rule["verbs"], "*") && !has(&rule["apiGroups"], "*"), "{rule}");
            assert!(!secret.iter().any(|word| has(&rule["resources"], word)), "{rule}");
            let writes = ["create", "update", "patch", "delete", "escalate", "bind", "impersonate"];
            let writes = writes.iter().any(|verb| has(&rule["verbs"], verb));
            assert!(role["kind"] == "Role" || !writes, "{rule}");
        }
    }
}

#[test]
fn what_stops_every_job_is_an_error() {
    let rights = wanted_rights();
    let answers = |may: &dyn Fn(&str) -> Option<bool>| -> Vec<_> {
        rights.iter().map(|right| (right, may(right.resource.plural))).collect()
    };
    let served = [Kind::PyTorchJob, Kind::TrainJob];
    let code = |served: &[Kind], may: &dyn Fn(&str) -> Option<bool>| {
        no_job("nlp", served, &answers(may)).map(|finding| (finding.is_error(), finding.code))
    };
    assert_eq!(code(&served, &|_| Some(true)), None);
    assert_eq!(code(&served, &|plural| Some(plural == "trainjobs")), None);
    assert_eq!(code(&served, &|_| None), None, "what the cluster does not say is tried");
    assert_eq!(code(&served, &|_| Some(false)), Some((true, "K8S-NO-RIGHT".to_owned())));
    assert_eq!(code(&served, &|plural| Some(plural == "mpijobs")), Some((true, "K8S-NO-RIGHT".to_owned())));
    assert_eq!(code(&[], &|_| Some(true)), Some((true, "K8S-NO-KIND".to_owned())));
}
