//! Names of networks: the user's, the profile's, or those that the cluster has.

use weftrun_core::backend::{ClusterFacts, NetworkApi, PodNetwork};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{FabricPlan, decide};
use weftrun_core::request::FabricRequest;

use super::situation::{codes, online, ops, profile, pytorch, worker};

fn network(api: NetworkApi, name: &str, driver: &str) -> PodNetwork {
    let mut network = PodNetwork::default();
    (network.api, network.name) = (api, name.to_owned());
    network.driver = Some(driver.to_owned());
    network
}

fn on(cluster: &ClusterFacts, name: &str, options: &FabricRequest) -> FabricPlan {
    decide(&pytorch(worker("Worker")), &profile(name), options, &Catalogue::builtin(), cluster)
}

fn gke(names: &[(&str, &str)]) -> ClusterFacts {
    online(|facts| {
        facts.networks = names.iter().map(|(name, mode)| network(NetworkApi::Gke, name, mode)).collect();
    })
}

/// Returns the networks of eth1, eth2, … in the annotation of the plan.
fn attached(plan: &FabricPlan) -> Vec<String> {
    let text = ops(plan).into_iter().find(|op| op.contains("networking.gke.io/interfaces")).unwrap();
    let list = &text[text.find('[').unwrap()..];
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    let names = list.as_array().unwrap().iter().filter_map(|one| one["network"].as_str());
    names.filter(|name| *name != "default").map(str::to_owned).collect()
}

#[test]
fn networks_of_a_cluster_replace_the_names_of_the_profile() {
    let tcpx = |number: usize| (number, format!("gpu-net-{number}"));
    let names: Vec<String> = (0..4).map(|number| tcpx(number).1).collect();
    // The API server lists them in any order.
    let listed: Vec<(&str, &str)> = names.iter().rev().map(|name| (name.as_str(), "NetDevice")).collect();
    let plan = on(&gke(&listed), "gke-tcpx", &FabricRequest::default());
    assert_eq!((attached(&plan), codes(&plan).len()), (names, 0));
}

#[test]
fn networks_that_the_cluster_has_keep_their_names() {
    let there = ["vpc1", "vpc2", "vpc3", "vpc4", "extra1", "extra2", "extra3", "extra4"];
    let there: Vec<(&str, &str)> = there.iter().map(|name| (*name, "NetDevice")).collect();
    let plan = on(&gke(&there), "gke-tcpx", &FabricRequest::default());
    assert_eq!(attached(&plan), ["vpc1", "vpc2", "vpc3", "vpc4"]);
}

#[test]
fn the_mode_tells_networks_apart() {
    let mut there = vec![("a", "NetDevice"), ("b", "NetDevice"), ("c", "NetDevice"), ("d", "NetDevice")];
    there.extend([("r0", "RDMA"), ("r1", "RDMA")]);
    let plan = on(&gke(&there), "gke-tcpx", &FabricRequest::default());
    assert_eq!((attached(&plan), codes(&plan).len()), (["a", "b", "c", "d"].map(str::to_owned).to_vec(), 0));
}

#[test]
fn too_few_networks_are_reported_and_the_profile_stays() {
    let plan = on(&gke(&[("a", "NetDevice")]), "gke-tcpx", &FabricRequest::default());
    assert_eq!((attached(&plan).len(), codes(&plan)), (4, vec!["W-NO-NETWORK"]));
}

#[test]
fn named_networks_are_taken_as_they_are() {
    let options = FabricRequest {
        networks: ["x", "y", "z", "w"].map(str::to_owned).to_vec(),
        ..FabricRequest::default()
    };
    let plan = on(&gke(&[("a", "NetDevice")]), "gke-tcpx", &options);
    assert_eq!((attached(&plan), codes(&plan).len()), (["x", "y", "z", "w"].map(str::to_owned).to_vec(), 0));
}

#[test]
fn a_missing_attachment_is_reported_where_its_namespace_was_read() {
    let cluster =
        |name: &str| online(|facts| facts.networks = vec![network(NetworkApi::Multus, name, "macvlan")]);
    let known =
        |name: &str| codes(&on(&cluster(name), "oci", &FabricRequest::default())).contains(&"W-NO-NETWORK");
    assert!(known("default/other"));
    assert!(!known("default/rdma-vf"));
    assert!(!known("team/other"), "the networks of another namespace are unknown");
}
