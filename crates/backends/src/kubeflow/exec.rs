//! Runs a command in the container of a rank, and connects to a port in its pod.

use serde_json::Value;
use weftrun_core::Result;
use weftrun_core::backend::{ExecRequest, ExecSink, PortConnection};
use weftrun_core::job::JobHandle;

use super::client::{Client, Named, pod_of};
use super::kinds::Kind;
use super::status::Job;
use crate::kubernetes::{Pod, Resource, State, attach, does_not_run, exec, node_of, open_port, ranks_of};
use crate::refusals;

impl Client {
    /// Runs a command in the pod of a rank.
    pub async fn exec(
        &self,
        handle: &JobHandle,
        request: &ExecRequest,
        sink: &mut ExecSink<'_>,
    ) -> Result<i32> {
        let (named, pod, container) = self.running(handle, request.rank).await?;
        exec(&named.cluster, &pod, &container, &request.command, sink).await
    }

    /// Runs a command in the pod of a rank, with this process's input and output.
    pub async fn attach(&self, handle: &JobHandle, request: &ExecRequest) -> Result<i32> {
        let (named, pod, container) = self.running(handle, request.rank).await?;
        attach(&named.cluster, &pod, &container, request).await
    }

    /// Connects to a port of localhost in the pod of a rank.
    pub async fn open_port(
        &self,
        handle: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        let (named, pod, _) = self.running(handle, rank).await?;
        open_port(&named.cluster, &pod, port).await
    }

    /// Returns the pod and the container of a rank, if they run.
    async fn running(&self, handle: &JobHandle, rank: Option<u32>) -> Result<(Named, String, String)> {
        let named = self.named(handle).await?;
        let job = self.job(&named).await?;
        let selector = named.kind.selector(&named.name);
        let read = |object| Pod::of_json(&object);
        let mut pods = named.cluster.list_as(&Resource::PODS, &selector, "", read).await?;
        pods.retain(|pod| pod_of(pod, &job));
        let all: Vec<&Pod> = pods.iter().collect();
        let (phase, _) = job.phase(&all);
        refusals::ended(handle, phase)?;
        let node = job.node_of(rank).map_err(|error| error.with("handle", handle))?;
        let pod = all.into_iter().find(|pod| !pod.deleting && job.node_number(pod) == Some(node));
        let main = pod.and_then(|pod| Some((pod, job.kind.place(pod).main?)));
        let running = main.filter(|(pod, main)| {
            pod.container(main).is_some_and(|container| container.state == State::Running)
        });
        let Some((pod, container)) = running else {
            return Err(does_not_run(handle, node));
        };
        Ok((named, pod.name.clone(), container))
    }
}

impl Job {
    /// Returns the number of the node that runs a rank; the first node if none is given.
    fn node_of(&self, rank: Option<u32>) -> Result<u32> {
        node_of(rank, self.nodes(), self.ranks_of_a_node())
    }

    /// Returns the node number of a pod; none for a launcher.
    fn node_number(&self, pod: &Pod) -> Option<u32> {
        let place = self.kind.place(pod);
        let master = self.object.pointer("/spec/pytorchReplicaSpecs/Master").is_some();
        match place.role.as_str() {
            "launcher" => None,
            "worker" => place.replica.checked_add(u32::from(master)),
            _ => Some(place.replica),
        }
    }

    /// Returns the number of ranks per node.
    fn ranks_of_a_node(&self) -> u32 {
        let at = |pointer: &str| {
            let value = self.object.pointer(pointer)?;
            value.as_u64().or_else(|| value.as_str()?.parse().ok())
        };
        let said = match self.kind {
            Kind::PyTorchJob => at("/spec/nprocPerNode"),
            Kind::MpiJobV1 | Kind::MpiJobV2 => at("/spec/slotsPerWorker"),
            Kind::TrainJob => at("/spec/trainer/numProcPerNode").or_else(|| self.ranks_of_command()),
        };
        said.and_then(|ranks| u32::try_from(ranks).ok()).unwrap_or(1).max(1)
    }

    /// Returns the number of ranks that a TrainJob's command starts, as rendered by weftrun.
    fn ranks_of_command(&self) -> Option<u64> {
        let words = self.object.pointer("/spec/trainer/command")?.as_array()?;
        ranks_of(words.iter().filter_map(Value::as_str)).map(u64::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use weftrun_core::ErrorKind;

    use super::*;

    #[test]
    fn a_rank_is_on_the_node_that_its_number_says() {
        let job = |kind, spec| Job { kind, object: json!({"spec": spec}) };
        let torch = job(
            Kind::PyTorchJob,
            json!({"nprocPerNode": "8", "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}}),
        );
        assert_eq!([0, 7, 8, 23].map(|rank| torch.node_of(Some(rank)).unwrap()), [0, 0, 1, 2]);
        let error = torch.node_of(Some(24)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("0 to 23"), "{error}");
        let mpi = job(
            Kind::MpiJobV2,
            json!({"slotsPerWorker": 4, "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}}}),
        );
        assert_eq!([3, 4].map(|rank| mpi.node_of(Some(rank)).unwrap()), [0, 1]);
        for words in [
            json!(["torchrun", "--nproc-per-node=4", "x.py"]),
            json!(["/bin/sh", "-c", "…", "weftrun-ranks", "4", "0", "2"]),
        ] {
            let train = job(Kind::TrainJob, json!({"trainer": {"numNodes": 2, "command": words}}));
            assert_eq!(train.node_of(Some(5)).unwrap(), 1);
        }
    }
}
