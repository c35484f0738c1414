//! What the pods of a job use now, where the cluster measures it.

use serde_json::Value;
use weftrun_core::text::{Quantity, counted, rounded_size};

/// Returns the bytes of memory that the containers of a pod use, from its `PodMetrics`.
pub fn memory(metrics: &Value) -> u64 {
    let containers = metrics["containers"].as_array().into_iter().flatten();
    let used = containers.filter_map(|container| Quantity::parse(container["usage"]["memory"].as_str()?));
    used.map(Quantity::whole).fold(0, u64::saturating_add)
}

/// Returns the memory of all pods as a fact of the job.
pub fn fact(pods: &[u64]) -> Option<(String, String)> {
    let most = *pods.iter().max().filter(|most| **most > 0)?;
    let all = pods.iter().copied().fold(0, u64::saturating_add);
    let text = format!(
        "{} now in {}, {} at most in one",
        rounded_size(all),
        counted(pods.len(), "pod"),
        rounded_size(most)
    );
    Some(("memory".to_owned(), text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_memory_of_pods_is_summed() {
        let pod = |sizes: &[&str]| {
            let containers: Vec<Value> =
                sizes.iter().map(|size| json!({"usage": {"cpu": "1", "memory": size}})).collect();
            memory(&json!({"kind": "PodMetrics", "containers": containers}))
        };
        let pods = [pod(&["2Gi", "512Mi"]), pod(&["1048576Ki"]), pod(&["x"]), pod(&[])];
        let (key, text) = fact(&pods).unwrap();
        assert_eq!(
            (key.as_str(), text.as_str()),
            ("memory", "3.5 GiB now in 4 pods, 2.5 GiB at most in one")
        );
        assert_eq!((fact(&[]), fact(&[0, 0]), memory(&json!([]))), (None, None, 0));
    }
}
