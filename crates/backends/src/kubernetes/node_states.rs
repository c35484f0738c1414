//! What a cluster says against a node: that it is cordoned, its conditions and taints, and what NVSentinel found.
//!
//! NVSentinel's words are those of github.com/NVIDIA/NVSentinel at 264bfab: the annotation `quarantineHealthEvent` (a list of health
//! events, `fault-quarantine/pkg/common/common.go` and `data-models/protobufs/health_event.proto`), the label
//! `dgxc.nvidia.com/nvsentinel-state` (`commons/pkg/statemanager`), and the labels `PREFIXcordon-by`, `PREFIXcordon-reason` and
//! `PREFIXcordon-timestamp` (`docs/configuration/fault-quarantine.md`). Its monitors also set conditions.

use jiff::Timestamp;
use serde_json::Value;
use weftrun_core::fabric::NodeState;

use super::error::one_line;

/// The label with the step of NVSentinel's repair: `quarantined`, `draining`, `remediation-failed`.
const SENTINEL_STATE: &str = "dgxc.nvidia.com/nvsentinel-state";
/// The annotation with the health events for which NVSentinel quarantined a node.
const SENTINEL_EVENTS: &str = "quarantineHealthEvent";
/// The end of the label with the service that cordoned a node.
const CORDON_BY: &str = "cordon-by";
/// Most events of NVSentinel that are listed for a node.
const MOST_EVENTS: usize = 4;
/// Longest message of an event, in characters.
const LONGEST: usize = 120;

/// Returns a node's name with what is said against it; none where nothing is.
pub fn of_node(node: &Value) -> Option<(String, Vec<NodeState>)> {
    let mut states: Vec<NodeState> = cordoned(node).into_iter().chain(sentinel(node)).collect();
    states.extend(items(&node["status"]["conditions"]).filter_map(condition));
    states.extend(items(&node["spec"]["taints"]).filter_map(taint));
    let name = node["metadata"]["name"].as_str().filter(|_| !states.is_empty())?;
    Some((name.to_owned(), states))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn state(what: &str, since: Option<Timestamp>) -> NodeState {
    NodeState { what: one_line(what), since }
}

/// Returns that a node is cordoned, with who did so and why, where labels say it.
fn cordoned(node: &Value) -> Option<NodeState> {
    let is_cordoned = node["spec"]["unschedulable"] == true;
    let labels = &node["metadata"]["labels"];
    let mut keys = labels.as_object().into_iter().flat_map(|labels| labels.keys());
    let by = keys.find(|key| key.ends_with(CORDON_BY) && !key.ends_with("uncordon-by"));
    let prefix = by.and_then(|key| key.strip_suffix(CORDON_BY)).unwrap_or_default();
    let label = |name: &str| text(labels, &format!("{prefix}cordon-{name}"));
    let who = if label("by").is_empty() { String::new() } else { format!(" by {}", label("by")) };
    let why = if label("reason").is_empty() { String::new() } else { format!(" ({})", label("reason")) };
    let taint =
        items(&node["spec"]["taints"]).find(|taint| taint["key"] == "node.kubernetes.io/unschedulable");
    let since = time_of_label(label("timestamp")).or_else(|| time(&taint?["timeAdded"]));
    is_cordoned.then(|| state(&format!("cordoned{who}{why}"), since))
}

/// Parses `2026-11-27T05-04-03Z`: the value of a label has no colons.
fn time_of_label(text: &str) -> Option<Timestamp> {
    let (date, clock) = text.split_once('T')?;
    format!("{date}T{}", clock.replace('-', ":")).parse().ok()
}

/// Returns what NVSentinel says of a node.
fn sentinel(node: &Value) -> Vec<NodeState> {
    let meta = &node["metadata"];
    let step = Some(text(&meta["labels"], SENTINEL_STATE)).filter(|step| !step.is_empty());
    let mut states: Vec<NodeState> =
        step.map(|step| state(&format!("NVSentinel: {step}"), None)).into_iter().collect();
    let events: Value = serde_json::from_str(text(&meta["annotations"], SENTINEL_EVENTS)).unwrap_or_default();
    // Older versions have one event and no list.
    let events = if events.is_object() { vec![events] } else { items(&events).cloned().collect() };
    states
        .extend(events.iter().filter(|event| event["isHealthy"] != true).take(MOST_EVENTS).map(health_event));
    states
}

fn health_event(event: &Value) -> NodeState {
    let codes: Vec<&str> = items(&event["errorCode"]).filter_map(Value::as_str).collect();
    let of = items(&event["entitiesImpacted"])
        .map(|entity| format!("{} {}", text(entity, "entityType"), text(entity, "entityValue")));
    let about: Vec<String> =
        codes.iter().map(|code| format!("code {code}")).chain(of).take(MOST_EVENTS).collect();
    let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
    let message: String = text(event, "message").chars().take(LONGEST).collect();
    let message = if message.is_empty() { message } else { format!(": {message}") };
    // As Go writes the fields of a protobuf timestamp, or as protobuf's own JSON does.
    let at = &event["generatedTimestamp"];
    let at = time(at).or_else(|| Timestamp::from_second(at["seconds"].as_i64()?).ok());
    state(&format!("NVSentinel: {}{about}{message}", text(event, "checkName")), at)
}

/// Returns a condition that is bad: `Ready` and `AcceleratedHardwareReady` are good where they hold, `DiskPressure` and
/// `KernelDeadlock` where not.
fn condition(condition: &Value) -> Option<NodeState> {
    let (kind, status, reason) =
        (text(condition, "type"), text(condition, "status"), text(condition, "reason"));
    let is_good = ["Ready", "Healthy"].iter().any(|end| kind.ends_with(end));
    let is_bad = if is_good { status != "True" } else { status == "True" };
    let because = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    is_bad.then(|| state(&format!("{kind}={status}{because}"), time(&condition["lastTransitionTime"])))
}

/// Returns a taint that keeps pods away, except that of a cordon, those of conditions, which are named already, and those that
/// keep jobs without GPUs away.
fn taint(taint: &Value) -> Option<NodeState> {
    let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
    let says_more =
        effect != "PreferNoSchedule" && !key.starts_with("node.kubernetes.io/") && !key.ends_with("/gpu");
    let value = if value.is_empty() { String::new() } else { format!("={value}") };
    says_more.then(|| state(&format!("taint {key}{value}:{effect}"), time(&taint["timeAdded"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weftrun_core::job::age;

    use super::*;

    fn lines(node: &Value) -> Vec<String> {
        let now = "2026-11-27T12:00:00Z".parse().unwrap();
        let line = |state: &NodeState| {
            format!(
                "{}{}",
                state.what,
                state.since.map_or(String::new(), |since| format!(" for {}", age(now, since)))
            )
        };
        of_node(node).map_or_else(Vec::new, |(_, states)| states.iter().map(line).collect())
    }

    #[test]
    fn what_kubernetes_says_has_its_age() {
        let ready = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": "2026-11-27T09:00:00Z"});
        let fine = json!({"type": "DiskPressure", "status": "False"});
        let node = json!({"metadata": {"name": "n"}, "status": {"conditions": [ready, fine]}, "spec": {
            "unschedulable": true,
            "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-11-25T12:00:00Z"},
                {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
                {"key": "team/repair", "value": "x\u{1b}[2J", "effect": "NoExecute"},
            ],
        }});
        let expected = [
            "cordoned for 2d",
            "Ready=Unknown (NodeStatusUnknown) for 3h",
            "taint team/repair=x [2J:NoExecute",
        ];
        assert_eq!(lines(&node), expected);
        assert!(lines(&json!({"metadata": {"name": "n"}, "status": {"conditions": [fine]}})).is_empty());
        // A taint for GPUs is no fault, and a problem that a detector reports is one.
        let gpu = json!({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]});
        assert!(lines(&json!({"metadata": {"name": "n"}, "spec": gpu})).is_empty());
        let deadlock = json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "KernelDeadlock", "status": "True"}]});
        assert_eq!(lines(&json!({"metadata": {"name": "n"}, "status": deadlock})), ["KernelDeadlock=True"]);
    }

    /// As NVSentinel writes them; the times are those of its formats.
    #[test]
    fn what_nvsentinel_says_is_read_from_labels_and_annotations() {
        let events = json!([
            {"version": 1, "agent": "gpu-health-monitor", "componentClass": "GPU", "checkName": "GpuXidError", "isFatal": true,
             "message": "XID 79", "recommendedAction": 15, "errorCode": ["79"], "nodeName": "n",
             "entitiesImpacted": [{"entityType": "GPU", "entityValue": "3"}],
             "generatedTimestamp": {"seconds": 1_795_773_600, "nanos": 5}},
            {"checkName": "Fine", "isHealthy": true},
        ]);
        let mut node = json!({"metadata": {"name": "n", "labels": {
            "dgxc.nvidia.com/nvsentinel-state": "draining",
            "k8saas.nvidia.com/cordon-by": "NVSentinel", "k8saas.nvidia.com/cordon-reason": "GPU-fatal",
            "k8saas.nvidia.com/cordon-timestamp": "2026-11-27T11-30-00Z", "k8saas.nvidia.com/uncordon-by": "x",
        }, "annotations": {"quarantineHealthEvent": events.to_string()}}, "spec": {"unschedulable": true}});
        let expected = [
            "cordoned by NVSentinel (GPU-fatal) for 30m",
            "NVSentinel: draining",
            "NVSentinel: GpuXidError (code 79, GPU 3): XID 79 for 2h",
        ];
        assert_eq!(lines(&node), expected);
        for hostile in ["", "[1, null, {}]", "not JSON", "{\"checkName\": 7}"] {
            node["metadata"]["annotations"]["quarantineHealthEvent"] = hostile.into();
            assert!(lines(&node).len() >= 2, "{hostile}");
        }
    }
}
