//! Samples the counters of network interfaces twice beside the ranks of a running job.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use weftrun_core::backend::ExecRequest;
use weftrun_core::nccl::TransportMap;
use weftrun_core::{Error, ErrorKind, Result};
use weftrun_diagnose::counters::{Counters, Interface};
use weftrun_verify::{Probes, probe_command};

use super::{AT_ONCE, LIMIT};
use crate::Job;
use crate::health::places;
use crate::runtime::on_runtime;

/// Most nodes that are sampled, and most bytes that a node prints.
const NODES: usize = 64;
const MOST: usize = 1 << 20;

impl Job {
    /// Samples the counters of the RDMA interfaces of its nodes, those that `logs` name, twice: the traffic between is evidence of
    /// the fabric in use that does not come from NCCL's log. Only files below `/sys` are read. At most 64 nodes are sampled.
    ///
    /// # Errors
    /// As [`Job::exec`], if no node can be sampled.
    pub async fn counters(&self, logs: &TransportMap, between: Duration) -> Result<Counters> {
        on_runtime(self.sample_twice(logs, between)).await
    }

    async fn sample_twice(&self, logs: &TransportMap, between: Duration) -> Result<Counters> {
        let mut ranks: Vec<Option<u32>> = places(logs).into_iter().take(NODES).map(Some).collect();
        if ranks.is_empty() {
            ranks.push(None);
        }
        let mut probes = Probes::default();
        probes.read(&self.sample(&ranks).await?);
        let first = Instant::now();
        tokio::time::sleep(between).await;
        let second = self.sample(&ranks).await?;
        let seconds = first.elapsed().as_secs_f64();
        // The same report is read as the one after an interval.
        probes.read(String::from_utf8_lossy(&second).replace("weftrun-probe ", "weftrun-after ").as_bytes());
        let interfaces = probes.traffic().into_iter().map(|one| Interface {
            host: one.host,
            interface: one.interface,
            link: one.kind,
            active: one.active,
            sent: one.sent as f64 / seconds,
            received: one.received as f64 / seconds,
            errors: one.errors.into_iter().collect(),
        });
        let interfaces = interfaces.collect();
        Ok(Counters { seconds, nodes: probes.hosts().map(str::to_owned).collect(), interfaces })
    }

    /// Returns what the nodes of some ranks print. A node that does not answer is left out, unless none does.
    async fn sample(&self, ranks: &[Option<u32>]) -> Result<Vec<u8>> {
        let probe = |rank: Option<u32>| async move {
            let mut request = ExecRequest::new(probe_command());
            request.rank = rank;
            match tokio::time::timeout(LIMIT, self.collect(&request, MOST)).await {
                Ok(done) => Ok(done?.out),
                Err(_) => Err(Error::new(ErrorKind::Unreachable, "the counters were not read in time")),
            }
        };
        let all: Vec<Result<Vec<u8>>> = futures_util::stream::iter(ranks.iter().map(|rank| probe(*rank)))
            .buffered(AT_ONCE)
            .collect()
            .await;
        let mut bytes = Vec::new();
        let mut failed = None;
        for one in all {
            match one {
                Ok(more) => bytes.extend(more),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if bytes.is_empty() => Err(error),
            _ => Ok(bytes),
        }
    }
}
