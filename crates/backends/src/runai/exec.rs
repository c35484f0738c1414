//! Runs commands in the pod of a rank and connects to its ports, over the cluster's Kubernetes API with the user's
//! kubeconfig. Run:ai's own API offers neither.

use serde_json::Value;
use weftrun_core::backend::{ExecRequest, ExecSink, PortConnection};
use weftrun_core::job::JobHandle;
use weftrun_core::{Error, Result};

use super::render::CARRIER;
use super::resolve::text;
use super::{Shared, status, watch};
use crate::kubernetes::{self, Cluster, ClusterConfig, Pod, Resource, State, is_not_found, ranks_of};
use crate::refusals;

impl Shared {
    /// Returns whether the target selects a Kubernetes cluster. The kubeconfig of the environment alone does not count,
    /// since it may belong to another cluster.
    pub fn has_kubeconfig(&self) -> bool {
        self.settings.kubeconfig.is_some() || self.settings.context.is_some()
    }

    /// Returns the connection to the cluster, in the namespace of the project.
    pub async fn cluster(&self) -> Result<Cluster> {
        let project = self.project().await?;
        let namespace = match &project.namespace {
            Some(namespace) => namespace.clone(),
            None => format!("runai-{}", self.project_name()?),
        };
        let config = ClusterConfig {
            kubeconfig: self.settings.kubeconfig.clone(),
            context: self.settings.context.clone(),
            namespace: Some(namespace),
            env: self.target.env.clone(),
            patience: None,
        };
        config.connect().await
    }

    /// Runs a command in the pod of a rank.
    pub async fn exec(
        &self,
        handle: &JobHandle,
        request: &ExecRequest,
        sink: &mut ExecSink<'_>,
    ) -> Result<i32> {
        let (cluster, pod, container) = self.running(handle, request.rank, "exec").await?;
        kubernetes::exec(&cluster, &pod, &container, &request.command, sink).await
    }

    /// Runs a command in the pod of a rank, with this process's input and output.
    pub async fn attach(&self, handle: &JobHandle, request: &ExecRequest) -> Result<i32> {
        let (cluster, pod, container) = self.running(handle, request.rank, "exec").await?;
        kubernetes::attach(&cluster, &pod, &container, request).await
    }

    /// Connects to a port of localhost in the pod of a rank.
    pub async fn open_port(
        &self,
        handle: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        let (cluster, pod, _) = self.running(handle, rank, "ports").await?;
        kubernetes::open_port(&cluster, &pod, port).await
    }

    /// Returns the pod and the container of a rank, if they run.
    async fn running(
        &self,
        handle: &JobHandle,
        rank: Option<u32>,
        feature: &str,
    ) -> Result<(Cluster, String, String)> {
        if !self.has_kubeconfig() {
            return Err(Error::unsupported("runai", feature).hint(format!(
                "Run:ai's API cannot reach into a pod: set `kubeconfig` or `context` in `[target.{}]` to the \
                 cluster of the project, and weftrun uses Kubernetes",
                self.target.name
            )));
        }
        let handle = self.resolve(handle).await?;
        let workload = self.typed(&handle).await?;
        let phase = self.summary(&handle, &workload).phase;
        refusals::ended(&handle, phase)?;
        let places = Places::of(&workload);
        let node = places.node_of(rank).map_err(|error| error.with("handle", &handle))?;
        let cluster = self.cluster().await?;
        let listed = watch::pods(self, &handle).await?;
        let names = listed.iter().filter_map(|pod| text(pod, "name"));
        for name in names.filter(|name| places.node_number(name) == Some(node)) {
            let pod = match cluster.get(&Resource::PODS, name).await {
                Ok(object) => Pod::of_json(&object),
                // This pod belongs to an earlier attempt.
                Err(error) if is_not_found(&error) => continue,
                Err(error) => return Err(error),
            };
            let running = |container: &&kubernetes::ContainerState| {
                !container.init && container.state == State::Running
            };
            if let Some(container) = pod.containers.iter().find(running).filter(|_| !pod.deleting) {
                return Ok((cluster, pod.name.clone(), container.name.clone()));
            }
        }
        Err(kubernetes::does_not_run(&handle, node))
    }
}

/// Maps the ranks of a workload to its pods.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    nodes: u32,
    /// Number of ranks on each node.
    ranks: u32,
    /// Whether the master is the first node.
    master: bool,
    distributed: bool,
}

impl Places {
    fn of(workload: &Value) -> Self {
        let spec = workload.get("spec").unwrap_or(&Value::Null);
        let number = |key: &str| spec.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let mpi = text(spec, "distributedFramework") == Some("MPI");
        let same = workload.get("masterSpecSameAsWorker").and_then(Value::as_bool) == Some(true);
        let master = !mpi && (same || workload.get("masterSpec").is_some_and(Value::is_object));
        let distributed = spec.get("distributedFramework").is_some();
        let workers = number("numWorkers").unwrap_or(1);
        let slots = number("slotsPerWorker").filter(|_| mpi);
        Self {
            nodes: if distributed { workers.saturating_add(u32::from(master)) } else { 1 },
            ranks: slots.or_else(|| ranks_of_command(spec)).unwrap_or(1).max(1),
            master,
            distributed,
        }
    }

    /// Returns the number of the node that runs a rank; the first node if none is given.
    fn node_of(&self, rank: Option<u32>) -> Result<u32> {
        kubernetes::node_of(rank, self.nodes, self.ranks)
    }

    /// Returns the node number of a pod; none for a launcher.
    fn node_number(&self, pod: &str) -> Option<u32> {
        match status::role(pod) {
            _ if !self.distributed => Some(0),
            ("launcher", _) => None,
            ("master", _) => Some(0),
            (_, number) => number?.checked_add(u32::from(self.master)),
        }
    }
}

/// Returns the number of ranks that the command of a pod starts. A long command is stored in an environment variable.
fn ranks_of_command(spec: &Value) -> Option<u32> {
    let variables = spec.get("environmentVariables").and_then(Value::as_array).into_iter().flatten();
    let carried = variables.filter(|variable| text(variable, "name") == Some(CARRIER));
    let carried = carried.filter_map(|variable| text(variable, "value"));
    ["command", "args"].into_iter().filter_map(|key| text(spec, key)).chain(carried).find_map(|line| {
        let words = shlex::split(line)?;
        ranks_of(words.iter().map(String::as_str))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use weftrun_core::ErrorKind;

    use super::*;

    #[test]
    fn a_rank_is_in_the_pod_that_its_number_says() {
        let torch = Places::of(&json!({
            "masterSpecSameAsWorker": true,
            "spec": {"distributedFramework": "PyTorch", "numWorkers": 2, "command": "torchrun",
                     "args": "--nnodes=3 --nproc-per-node=8 'train it.py'"},
        }));
        assert_eq!([0, 7, 8, 23].map(|rank| torch.node_of(Some(rank)).unwrap()), [0, 0, 1, 2]);
        assert_eq!(
            ["llm-master-0", "llm-worker-0", "llm-worker-1"].map(|pod| torch.node_number(pod)),
            [Some(0), Some(1), Some(2)]
        );
        let beyond = torch.node_of(Some(24)).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::NotFound);
        assert!(beyond.to_string().contains("0 to 23"), "{beyond}");
        let mpi = Places::of(&json!({
            "masterSpec": {"image": "x"},
            "spec": {"distributedFramework": "MPI", "numWorkers": 2, "slotsPerWorker": 4},
        }));
        assert_eq!([3, 4].map(|rank| mpi.node_of(Some(rank)).unwrap()), [0, 1]);
        assert_eq!(["llm-launcher-x7k2p", "llm-worker-1"].map(|pod| mpi.node_number(pod)), [None, Some(1)]);
        let long = Places::of(&json!({"spec": {
            "command": "/bin/sh", "args": "-c 'eval \"exec $WEFTRUN_ARGV\"'",
            "environmentVariables": [{"name": CARRIER, "value": "torchrun --nproc_per_node 2 train.py"}],
        }}));
        assert_eq!((long.nodes, long.ranks, long.node_number("single-0-0")), (1, 2, Some(0)));
    }
}
