//! Facts about this machine as a cluster with one node.

use std::collections::BTreeSet;
use std::path::Path;

use weftrun_core::backend::{ClusterFacts, NodeGroup};
use weftrun_core::fabric::DeviceKind;

use super::config::Config;

impl Config {
    /// Returns the facts about this machine as a cluster with one node.
    pub fn facts(&self) -> ClusterFacts {
        let mut node = NodeGroup::default();
        node.count = 1;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        node.allocatable.insert("cpu".to_owned(), cpus.to_string());
        let gpus = gpus(Path::new("/dev"));
        if gpus > 0 {
            node.allocatable.insert("nvidia.com/gpu".to_owned(), gpus.to_string());
        }
        node.devices = devices(Path::new("/sys/class"));
        let mut facts = ClusterFacts::default();
        facts.online = true;
        facts.efa_webhook = Some(false);
        facts.nodes.push(node);
        for (name, found) in [("torchrun", &self.torchrun), ("mpirun", &self.mpirun)] {
            if let Some(path) = found {
                facts.serves.push(name.to_owned());
                facts.extra.insert(name.to_owned(), path.display().to_string().into());
            }
        }
        facts
    }
}

/// Counts NVIDIA's device files, one of which every driver creates for each GPU.
fn gpus(dev: &Path) -> usize {
    let Ok(entries) = dev.read_dir() else { return 0 };
    entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
            number.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        })
        .count()
}

/// Returns the kinds of the RDMA and Slingshot devices that have an active port.
fn devices(classes: &Path) -> BTreeSet<DeviceKind> {
    let mut kinds = BTreeSet::new();
    for class in ["infiniband", "cxi"] {
        let Ok(entries) = classes.join(class).read_dir() else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let driver = path.join("device/driver").read_link().ok();
            let driver = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
            let kind = |link: &str| {
                DeviceKind::of(
                    class,
                    &name,
                    driver.unwrap_or_default(),
                    link,
                    &first_line(&path.join("node_type")),
                )
            };
            let Ok(ports) = path.join("ports").read_dir() else {
                kinds.insert(kind(""));
                continue;
            };
            for port in ports.flatten().map(|port| port.path()) {
                let state = first_line(&port.join("state"));
                if state.is_empty() || state.contains("ACTIVE") {
                    kinds.insert(kind(&first_line(&port.join("link_layer"))));
                }
            }
        }
    }
    kinds
}

fn first_line(file: &Path) -> String {
    let text = crate::files::read_text(file, 4096).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_devices_of_the_kernel_are_found() {
        let classes = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = classes.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (device, link, state) in [
            ("mlx5_0", "InfiniBand", "4: ACTIVE"),
            ("mlx5_1", "Ethernet", "1: DOWN"),
            ("mlx5_2", "", "4: ACTIVE"),
        ] {
            write(&format!("infiniband/{device}/node_type"), "1: CA\n");
            write(&format!("infiniband/{device}/ports/1/link_layer"), &format!("{link}\n"));
            write(&format!("infiniband/{device}/ports/1/state"), &format!("{state}\n"));
        }
        write("cxi/cxi0/device/x", "");
        let found: Vec<DeviceKind> = devices(classes.path()).into_iter().collect();
        assert_eq!(found, [DeviceKind::InfiniBand, DeviceKind::Slingshot, DeviceKind::Unknown]);
        assert!(devices(Path::new("/nowhere")).is_empty());
    }
}
