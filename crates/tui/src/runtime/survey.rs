//! What the logs prove, as a picture for the screens.

use std::collections::BTreeMap;

use jiff::Timestamp;
use weftrun::core::diagnose::cause::why;
use weftrun::core::diagnose::diagnose;
use weftrun::core::fabric::FabricPlan;
use weftrun::core::log::LogBatch;
use weftrun::core::nccl::{self, FabricSeen, GdrSeen, PairView, Phase, TransportMap};

use super::times::Times;
use crate::model::picture::{Communicator, Kind, Link, Picture, Rank, Step};
use crate::safe;

/// Reads NCCL's lines.
#[derive(Debug, Default)]
pub struct Survey {
    map: TransportMap,
    times: Times,
}

impl Survey {
    /// Takes a batch in. Where the cluster does not say when its lines were written, `came` stands for it: none where it
    /// says nothing of that either.
    pub fn observe(&mut self, batch: &LogBatch, came: Option<Timestamp>) {
        let times = &mut self.times;
        batch.read_into_timed(&mut self.map, |map, time, events| {
            if let Some(time) = time.or(came) {
                times.note(map, &batch.source, time, &events);
            }
        });
    }

    /// What was proved so far, for a job that asks for some ranks (0 where that is not known) and whose lines were heard
    /// of some.
    pub fn picture(&self, plan: Option<&FabricPlan>, asked: u32, heard: &BTreeMap<u32, String>) -> Picture {
        let world = self.map.world();
        let mut found = diagnose(plan, &self.map);
        // The cause first: what else is wrong often follows from it.
        found.findings.splice(0..0, why(&self.map, None).finding());
        let mut picture = Picture {
            verdict: found.verdict.fabric.label().to_owned(),
            ok: found.ok,
            gdr: gdr_word(found.verdict.gdr).to_owned(),
            versions: self.map.versions().map(str::to_owned).collect(),
            ranks: self.map.ranks(&world).into_iter().map(|view| self.rank(view)).collect(),
            findings: found.findings,
            ..Picture::default()
        };
        let mut comms = self.map.communicators(&world);
        comms.sort_by_key(|comm| (!comm.world, std::cmp::Reverse(comm.nranks)));
        picture.communicators = comms
            .into_iter()
            .map(|comm| Communicator { id: comm.id, nranks: comm.nranks, world: comm.world })
            .collect();
        picture.await_ranks(asked, heard);
        picture.group();
        picture.rank_links = self.links(&world, &picture.communicators, found.verdict.fabric);
        picture.fold_links();
        self.throughput(&mut picture);
        safe::picture(picture)
    }

    fn rank(&self, view: nccl::RankView) -> Rank {
        let step = step(view.phase);
        Rank {
            reached: self.times.reached(&view, step),
            rank: view.rank,
            host: view.host.into(),
            pid: view.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
            device: view.cuda_device.map(i64::from),
            node: Some(view.node),
            announced: view.announced.map(Into::into),
            step,
        }
    }

    /// The pairs of each communicator, by global rank; where those are not proved, by the communicator's own numbers.
    fn links(
        &self,
        world: &nccl::World,
        communicators: &[Communicator],
        fabric: FabricSeen,
    ) -> Vec<BTreeMap<(u32, u32), Link>> {
        let numbers: BTreeMap<&str, usize> =
            communicators.iter().enumerate().map(|(at, c)| (c.id.as_str(), at)).collect();
        let mut links = vec![BTreeMap::new(); communicators.len().max(1)];
        let efa = self
            .map
            .plugins()
            .iter()
            .any(|plugin| plugin.providers.iter().any(|name| name.starts_with("efa")));
        for pair in self.map.pairs(world) {
            let at = pair.comm.as_deref().and_then(|id| numbers.get(id)).copied().unwrap_or(0);
            let (from, to) = (pair.global_from.unwrap_or(pair.from), pair.global_to.unwrap_or(pair.to));
            let link = Link {
                kind: kind(&pair, fabric, efa),
                transports: vec![pair.transport.to_string()],
                channels: pair.channels.count(),
                pairs: 1,
                gdr: pair.gdr,
            };
            links[at].entry((from, to)).and_modify(|known: &mut Link| known.join(&link)).or_insert(link);
        }
        links
    }

    /// The series with the most values speaks for the job.
    fn throughput(&self, picture: &mut Picture) {
        let series = self.map.throughput().map(|(_, series)| series).max_by_key(|series| series.count);
        if let Some(series) = series {
            picture.throughput = series.samples.iter().map(|sample| sample.value).collect();
            picture.throughput.push(series.last.value);
            picture.unit = format!("{} ({})", series.unit, series.metric);
        }
    }
}

/// The step a phase is.
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

fn gdr_word(gdr: GdrSeen) -> &'static str {
    match gdr {
        GdrSeen::All => "all",
        GdrSeen::Some => "some",
        GdrSeen::None => "none",
        GdrSeen::Unknown => "unknown",
    }
}

/// The sign of a pair. Libfabric is EFA and verbs are InfiniBand only where the logs prove it.
fn kind(pair: &PairView, fabric: FabricSeen, efa: bool) -> Kind {
    match pair.kind {
        nccl::Kind::P2p | nccl::Kind::Own => Kind::P2p,
        nccl::Kind::Shm => Kind::Shm,
        nccl::Kind::Collnet | nccl::Kind::Nvls => Kind::Offload,
        nccl::Kind::Net => match pair.network().unwrap_or_default() {
            name if name.starts_with("Socket") => Kind::Socket,
            name if name.contains("ibfabric") => match fabric {
                FabricSeen::Efa => Kind::Efa,
                FabricSeen::Mixed if efa => Kind::Efa,
                _ => Kind::Libfabric,
            },
            name if name.starts_with("IB") => match fabric {
                FabricSeen::Roce => Kind::Roce,
                FabricSeen::InfiniBand => Kind::InfiniBand,
                _ => Kind::Verbs,
            },
            _ => Kind::Unknown,
        },
        _ => Kind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weftrun::core::log::{Cursor, SourceId};

    use super::*;

    #[test]
    fn the_first_finding_of_a_failed_job_is_its_cause() {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/failures/sigkill");
        let mut survey = Survey::default();
        for name in ["node0.log", "node1.log"] {
            let bytes = std::fs::read(folder.join(name)).expect("a recording");
            survey.observe(&LogBatch::new(Arc::new(SourceId::new(name)), bytes, Cursor::default()), None);
        }
        let picture = survey.picture(None, 4, &BTreeMap::new());
        let first = picture.findings.first().expect("a finding");
        assert_eq!((first.code.as_str(), first.ranks.as_slice()), ("WHY-CAUSE", &[3][..]));
        assert!(
            first.message.contains("rank 3 on node1") && first.message.contains("SIGKILL"),
            "{}",
            first.message
        );
    }
}
