//! What the logs prove, as a transport_view for the screens.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use weftrun::core::fabric::FabricPlan;
use weftrun::core::job::JobDetail;
use weftrun::core::log::LogBatch;
use weftrun::core::nccl::{self, Kind, PairView, Phase, Snapshot, TransportMap};
use weftrun::diagnose::Sources;

use super::milestones::Times;
use crate::model::transport_view::{Communicator, Link, LinkMap, Path, Rank, Step, TransportView};
use crate::safe;

/// Reads NCCL's lines.
#[derive(Debug, Default)]
pub struct ViewBuilder {
    map: TransportMap,
    times: Times,
}

impl ViewBuilder {
    /// Adds a batch. If the cluster reports no times for its lines, `came` is used instead; none if that is
    /// unknown too.
    pub fn observe(&mut self, batch: &LogBatch, came: Option<Timestamp>) {
        let times = &mut self.times;
        batch.read_into_timed(&mut self.map, |map, time, events| {
            times.note(map, &batch.source, time.or(came), &events);
        });
    }

    /// Ends all sources: their last lines count even without a newline.
    pub fn end(&mut self) {
        self.map.end_all();
    }

    /// Returns what NCCL's lines say.
    pub fn map(&self) -> &TransportMap {
        &self.map
    }

    /// Returns what is proved so far, for a job with a number of ranks (0 if unknown) of which some have
    /// output. `ended` is what the cluster reports of the job once it has ended.
    pub fn transport_view(
        &self,
        plan: Option<&FabricPlan>,
        asked: u32,
        heard: &BTreeMap<u32, String>,
        ended: Option<&JobDetail>,
    ) -> TransportView {
        let map = self.map.snapshot();
        let sources = Sources::of_logs(&self.map).plan(plan).job(ended);
        let mut found = if ended.is_some() { sources } else { sources.running() }.diagnose();
        let (judge, why) = (found.judge(), std::mem::take(&mut found.why));
        // The cause first: what else is wrong often follows from it.
        found.findings.splice(0..0, why.finding());
        let mut transport_view = TransportView {
            measured: found.measured.take().map(|measured| *measured),
            verdict: found.verdict.fabric.label().to_owned(),
            ok: found.ok,
            gdr: found.verdict.gdr.as_str().to_owned(),
            ranks: self.ranks(map.ranks()),
            findings: found.findings,
            judge,
            expected: found.expected.map(|expected| (expected.low, expected.high)),
            ..TransportView::default()
        };
        let mut comms = map.communicators();
        comms.sort_by_key(|comm| (!comm.world, std::cmp::Reverse(comm.nranks)));
        let nodes: Vec<BTreeSet<u32>> = comms.iter().map(|comm| map.nodes_of(comm)).collect();
        transport_view.communicators = comms
            .into_iter()
            .map(|comm| Communicator {
                id: comm.id,
                nranks: comm.nranks,
                world: comm.world,
                members: comm.global_ranks,
                complete: comm.complete,
                nodes: comm.nnodes,
            })
            .collect();
        transport_view.await_ranks(asked, heard);
        transport_view.step(map.stepping_ranks());
        transport_view.fail(&why);
        (transport_view.maps, transport_view.loose_links) = maps(&map, &transport_view.communicators);
        for (links, nodes) in transport_view.maps.iter_mut().skip(1).zip(nodes) {
            links.set_nodes(nodes);
        }
        transport_view.group();
        transport_view.place_links();
        throughput(&map, &mut transport_view);
        safe::transport_view(transport_view)
    }

    fn ranks(&self, views: Vec<nccl::RankView>) -> Vec<Rank> {
        let mut of_source: HashMap<String, usize> = HashMap::new();
        for view in &views {
            *of_source.entry(view.source.clone()).or_default() += 1;
        }
        let alone = |view: &nccl::RankView| of_source.get(&view.source) == Some(&1);
        views
            .into_iter()
            .map(|view| (alone(&view), view))
            .map(|(alone, view)| self.rank(view, alone))
            .collect()
    }

    fn rank(&self, view: nccl::RankView, alone: bool) -> Rank {
        // The map counts training steps as its last phase, whether or not lines show the phases before it.
        let stepping = [view.phase, view.reached].contains(&Phase::Stepping);
        let bring_up = if stepping { self.times.last(&view).max(Step::Ready) } else { step(view.reached) };
        Rank {
            bring_up,
            last_step: self.times.last_step(&view, alone, stepping),
            reached: self.times.reached(&view, stepping),
            rank: view.rank,
            host: view.host.into(),
            pid: view.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
            device: view.cuda_device.map(i64::from),
            node: Some(view.node),
            announced: view.announced.map(Into::into),
            stepping,
            failed: view.phase == Phase::Failed,
        }
    }
}

/// Returns the pairs of all communicators together and, if there are several, those of each; and those of an unknown one.
fn maps(map: &Snapshot<'_>, communicators: &[Communicator]) -> (Vec<LinkMap>, LinkMap) {
    let numbers: BTreeMap<&str, usize> =
        communicators.iter().enumerate().map(|(at, c)| (c.id.as_str(), at + 1)).collect();
    let pairs = map.pairs();
    let several = communicators.len() > 1 || pairs.iter().any(|pair| pair.comm.is_none());
    let count = if several { communicators.len() + 1 } else { 1 };
    let mut maps = vec![LinkMap::default(); count];
    let mut loose = LinkMap::default();
    for pair in pairs {
        let own = pair.comm.as_deref().and_then(|id| numbers.get(id)).copied().filter(|at| *at < count);
        let link = Link {
            path: path(&pair),
            transports: vec![pair.transport.to_string()],
            channels: pair.channels.count(),
            pairs: 1,
            gdr: pair.gdr,
            devices: (pair.devices.send.iter().collect(), pair.devices.receive.iter().collect()),
            printed: Some((pair.from, pair.to)),
        };
        if let (None, Some((from, to))) = (&pair.comm, pair.global_from.zip(pair.global_to)) {
            loose.add(from, to, &link);
            maps.iter_mut().skip(1).for_each(|map| map.add_possible(from, to));
        }
        for at in [Some(0), own].into_iter().flatten() {
            match pair.global_from.zip(pair.global_to) {
                Some((from, to)) => maps[at].add(from, to, &link),
                None => maps[at].add_unplaced(map.nodes_of_pair(&pair), &link),
            }
        }
    }
    // Connections that were cut or dropped may be any.
    let (torn, dropped, _) = map.torn_and_dropped();
    let lost = u32::try_from(torn + dropped).unwrap_or(u32::MAX);
    maps.iter_mut().for_each(|map| map.unplaced = map.unplaced.saturating_add(lost));
    (maps, loose)
}

/// Shows the series with the most values.
fn throughput(map: &Snapshot<'_>, transport_view: &mut TransportView) {
    let series = map.throughput().map(|(_, series)| series).max_by_key(|series| series.count);
    if let Some(series) = series {
        transport_view.throughput = series.samples.iter().map(|sample| sample.value).collect();
        transport_view.throughput.push(series.last().value);
        transport_view.unit = format!("{} ({})", series.unit, series.metric);
        transport_view.is_bus_bandwidth = series.is_bus_bandwidth();
    }
}

pub(super) fn step(phase: Phase) -> Step {
    match phase {
        Phase::Bootstrap => Step::Bootstrap,
        Phase::Init => Step::Init,
        Phase::Ready => Step::Ready,
        Phase::Rings => Step::Rings,
        Phase::Trees => Step::Trees,
        Phase::Stepping => Step::Stepping,
        Phase::Failed => Step::Failed,
    }
}

fn path(pair: &PairView) -> Path {
    match pair.kind {
        Kind::P2p | Kind::Own => Path::P2p,
        Kind::Shm => Path::Shm,
        Kind::Collnet | Kind::Nvls => Path::Offload,
        _ => pair.network.map_or_else(Path::default, Path::Network),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weftrun::core::log::{Cursor, SourceId};

    use super::*;

    /// Returns the view of a job of four ranks, of which one log has these lines.
    fn view_of(text: &str) -> TransportView {
        let mut builder = ViewBuilder::default();
        let source = Arc::new(SourceId::new("worker-0"));
        builder.observe(&LogBatch::new(source, text.as_bytes().to_vec(), Cursor::default()), None);
        let heard = (0..4).map(|rank| (rank, "h0".to_owned())).collect();
        builder.transport_view(None, 4, &heard, None)
    }

    #[test]
    fn training_steps_prove_no_step_of_the_bring_up() {
        let text = "[rank0]: step 1 tokens/s 100\n[rank0]: step 2 tokens/s 101\n";
        assert_eq!(view_of(text).counts, [4, 0, 0, 0, 0, 0, 4], "a single rank prints the steps of all");
        let nccl = "h0:100:1 [0] NCCL INFO";
        let init = format!(
            "{nccl} ncclCommInitRankConfig comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 60 commId 0xabc"
        );
        let ready = format!("{init} - Init START\n{init} - Init COMPLETE\n");
        assert_eq!(
            view_of(&format!("{ready}{text}")).counts,
            [4, 4, 4, 4, 0, 0, 4],
            "it is made by all four"
        );
        let trees = format!("{nccl} Connected all rings\n{nccl} Connected all trees\n");
        assert_eq!(view_of(&format!("{ready}{trees}{text}")).counts, [4, 4, 4, 4, 4, 4, 4]);
    }

    /// Tensor groups on one node each, and a pipeline group across both; no communicator joins all ranks, and none is numbered.
    #[test]
    fn a_parallel_group_keeps_its_nodes_where_no_rank_of_the_job_is_proved() {
        let mut builder = ViewBuilder::default();
        let line =
            |at: u32, text: String| format!("h{}:{}:1 [{}] NCCL INFO {text}\n", at / 2, 100 + at, at % 2);
        let group = |at: u32, rank: u32, id: &str| {
            let init = format!(
                "ncclCommInitRankConfig comm 0x{id}{at} rank {rank} nranks 2 cudaDev {0} nvmlDev {0} busId {0}0 commId 0x{id}",
                at % 2
            );
            line(at, format!("{init} - Init START")) + &line(at, format!("{init} - Init COMPLETE"))
        };
        for at in 0..4 {
            let (tensor, rank) = (["a0", "a1"][at as usize / 2], at % 2);
            let mut text = group(at, rank, tensor);
            let ends = format!("{rank}[{rank}] -> {0}[{0}]", 1 - rank);
            text += &line(at, format!("Channel 00/0 : {ends} via P2P/CUMEM"));
            text += &line(at, "Connected all rings".to_owned());
            if rank == 0 {
                text += &group(at, at / 2, "b0");
                let side = if at == 0 { "send" } else { "receive" };
                text += &line(at, format!("Channel 00/0 : 0[0] -> 1[0] [{side}] via NET/Socket/0"));
                text += &line(at, "Connected all rings".to_owned());
            }
            let source = Arc::new(SourceId::new(format!("worker-{at}")));
            builder.observe(&LogBatch::new(source, text.into_bytes(), Cursor::default()), None);
        }
        let view = builder.transport_view(None, 4, &BTreeMap::new(), None);
        assert!(view.ranks.len() == 4 && view.ranks.iter().all(|rank| rank.rank.is_none()));
        let mut shown: Vec<_> = view
            .maps
            .iter()
            .skip(1)
            .map(|map| (map.rows(false).to_vec(), map.node_links.keys().copied().collect::<Vec<_>>()))
            .collect();
        shown.sort();
        let wanted = [(vec![0], vec![(0, 0)]), (vec![0, 1], vec![(0, 1)]), (vec![1], vec![(1, 1)])];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn the_first_finding_of_a_failed_job_is_its_cause() {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/failures/sigkill");
        let mut builder = ViewBuilder::default();
        for name in ["node0.log", "node1.log"] {
            let bytes = std::fs::read(folder.join(name)).expect("a recording");
            builder.observe(&LogBatch::new(Arc::new(SourceId::new(name)), bytes, Cursor::default()), None);
        }
        let view = builder.transport_view(None, 4, &BTreeMap::new(), None);
        let first = view.findings.first().expect("a finding");
        assert_eq!((first.code.as_str(), first.ranks.as_slice()), ("WHY-CAUSE", &[3][..]));
        assert!(
            first.message.contains("rank 3 on node1") && first.message.contains("SIGKILL"),
            "{}",
            first.message
        );
    }
}
