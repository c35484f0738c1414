//! Networks that pods can be attached to beside the default one.

use std::collections::BTreeMap;

use serde_json::Value;
use weftrun_core::backend::{NetworkApi, PodNetwork};

use super::{Cluster, Resource};

const ATTACHMENTS: Resource =
    Resource::of("k8s.cni.cncf.io", "v1", "network-attachment-definitions", "NetworkAttachmentDefinition");
// https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods (2026-11-23)
const GKE_NETWORKS: Resource =
    Resource { namespaced: false, ..Resource::of("networking.gke.io", "v1", "networks", "Network") };
const GKE_PARAMETERS: Resource = Resource {
    namespaced: false,
    ..Resource::of("networking.gke.io", "v1", "gkenetworkparamsets", "GKENetworkParamSet")
};
const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";
/// Longest configuration of a CNI plugin that is read.
const MAX_CONFIG: usize = 64 * 1024;

/// Returns the networks of the namespace and of the cluster. Most clusters serve none of these kinds, and the
/// API server also answers "forbidden" for a kind that it does not serve, so an error means that none are known.
pub async fn networks(cluster: &Cluster) -> Vec<PodNetwork> {
    let (attachments, gke, parameters) = tokio::join!(
        cluster.list(&ATTACHMENTS, ""),
        cluster.list(&GKE_NETWORKS, ""),
        cluster.list(&GKE_PARAMETERS, "")
    );
    let modes = parameters.unwrap_or_default();
    let modes: BTreeMap<&str, &str> = modes
        .iter()
        .filter_map(|set| Some((set["metadata"]["name"].as_str()?, set["spec"]["deviceMode"].as_str()?)))
        .collect();
    let attachments = attachments.unwrap_or_default();
    let gke = gke.unwrap_or_default();
    attachments
        .iter()
        .filter_map(attachment)
        .chain(gke.iter().filter_map(|network| gke_network(network, &modes)))
        .collect()
}

fn attachment(object: &Value) -> Option<PodNetwork> {
    let metadata = &object["metadata"];
    let mut network = PodNetwork::default();
    network.name = format!("{}/{}", metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    network.api = NetworkApi::Multus;
    network.resource = metadata["annotations"][RESOURCE_NAME].as_str().map(str::to_owned);
    let config = object["spec"]["config"].as_str().filter(|text| text.len() <= MAX_CONFIG);
    let config: Value = config.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    // A list of plugins has its types one level deeper; the first creates the interface.
    network.driver = [&config["type"], &config["plugins"][0]["type"]]
        .into_iter()
        .find_map(Value::as_str)
        .map(str::to_owned);
    Some(network)
}

fn gke_network(object: &Value, modes: &BTreeMap<&str, &str>) -> Option<PodNetwork> {
    // The default network and those of type L3 give no device to a pod.
    if object["spec"]["type"].as_str()? != "Device" {
        return None;
    }
    let mut network = PodNetwork::default();
    network.name = object["metadata"]["name"].as_str()?.to_owned();
    network.api = NetworkApi::Gke;
    let parameters = object["spec"]["parametersRef"]["name"].as_str();
    network.driver = parameters.and_then(|name| modes.get(name)).map(|mode| (*mode).to_owned());
    Some(network)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn driver_and_resource_of_an_attachment() {
        let of = |config: &str| {
            attachment(&json!({
                "metadata": {"name": "rdma", "namespace": "team", "annotations": {RESOURCE_NAME: "nvidia.com/rdma-vf"}},
                "spec": {"config": config},
            }))
        };
        let one = of(r#"{"cniVersion": "0.3.1", "type": "host-device"}"#).unwrap();
        assert_eq!((one.name.as_str(), one.driver.as_deref()), ("team/rdma", Some("host-device")));
        assert_eq!(one.resource.as_deref(), Some("nvidia.com/rdma-vf"));
        let list = of(r#"{"plugins": [{"type": "ib-sriov"}, {"type": "tuning"}]}"#).unwrap();
        assert_eq!(list.driver.as_deref(), Some("ib-sriov"));
        for hostile in ["", "{", "[]", "7", &"[".repeat(MAX_CONFIG + 1)] {
            assert_eq!(of(hostile).unwrap().driver, None, "{hostile:.10}");
        }
        assert_eq!(attachment(&json!({"spec": {}})), None);
    }

    #[test]
    fn a_gke_network_has_the_mode_of_its_parameters() {
        let modes = BTreeMap::from([("rdma-0", "RDMA")]);
        let network = |kind: &str, parameters: &str| {
            gke_network(
                &json!({"metadata": {"name": "n"}, "spec": {"type": kind, "parametersRef": {"name": parameters}}}),
                &modes,
            )
        };
        assert_eq!(network("Device", "rdma-0").unwrap().driver.as_deref(), Some("RDMA"));
        assert_eq!(network("Device", "other").unwrap().driver, None);
        assert_eq!(network("L3", "rdma-0"), None);
    }
}
