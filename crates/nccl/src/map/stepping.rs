//! Which ranks train. Often one rank prints the steps of all: the step of a rank is that of its communicator, since no rank
//! trains on without the others.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::ids::{CommId, ProcessId, SourceIndex};
use super::observed::Source;
use super::process::Phase;
use super::snapshot::Snapshot;

/// Most ranks of a communicator that are listed: a hostile line may name any number of them.
const MOST: u32 = 65_536;

/// The ranks and communicators that train.
#[derive(Clone, Debug, Default)]
pub(super) struct Stepping {
    /// Ranks of the job.
    pub ranks: BTreeSet<u32>,
    /// Communicators without a parent, one of whose members printed a step.
    pub comms: HashSet<CommId>,
}

impl Source {
    /// Returns who printed training steps, and in which line the last of them. The rank is none where no line names one.
    fn steppers(&self) -> impl Iterator<Item = (Option<u32>, u64)> {
        let rates = self.throughput.step_series().map(|series| (series.rank, series.last().line));
        let all = rates.chain(self.steps.iter().map(|(rank, line)| (*rank, *line)));
        all.map(|(rank, line)| (rank.or(self.id.rank), line))
    }
}

impl Snapshot<'_> {
    /// Returns who trains in the last attempt of the job.
    pub(super) fn stepping(&self) -> &Stepping {
        self.stepping.get_or_init(|| self.find_stepping())
    }

    fn find_stepping(&self) -> Stepping {
        let mut found = Stepping::default();
        if self.seen.sources.iter().all(|source| source.steppers().next().is_none()) {
            return found;
        }
        let mut writers: HashMap<SourceIndex, Vec<ProcessId>> = HashMap::new();
        let mut of_rank: HashMap<u32, ProcessId> = HashMap::new();
        for (at, process) in self.alive().filter(|(_, process)| !process.is_nobody()) {
            writers.entry(process.source).or_default().push(at);
            of_rank.extend(self.held(at).map(|(_, rank)| (u32::from(rank), at)));
        }
        // Steps of a source without a process are of a rank whose NCCL lines are elsewhere, if they are anywhere.
        let mut anybodys = false;
        for (at, source) in self.seen.sources.iter_enumerated() {
            if self.is_earlier_attempt(&source.id) {
                continue;
            }
            let own = writers.get(&at).map_or(&[][..], Vec::as_slice);
            let begun = self.begun(at, own);
            for (rank, _) in source.steppers().filter(|(_, line)| *line >= begun) {
                found.ranks.extend(rank);
                match rank.map(|rank| of_rank.get(&rank)) {
                    Some(Some(process)) => self.add_comms(&[*process], &mut found),
                    Some(None) | None if own.is_empty() => anybodys = true,
                    // One of them printed it, and trains with the others.
                    Some(None) => {}
                    None => self.add_comms(own, &mut found),
                }
            }
        }
        if let (true, Some(world)) = (anybodys, self.world) {
            found.comms.insert(world);
        }
        let world =
            self.world.filter(|world| found.comms.contains(world)).and_then(|at| self.seen.comms.get(at));
        if let Some(world) = world {
            let is_up = |rank: &u32| {
                of_rank.get(rank).is_none_or(|at| self.seen.processes[*at].reached() >= Phase::Ready)
            };
            found.ranks.extend((0..world.nranks.min(MOST)).filter(is_up));
        }
        found
    }

    /// Returns the first line of the last attempt in a source; 0 if the source has one attempt.
    fn begun(&self, source: SourceIndex, own: &[ProcessId]) -> u64 {
        let hidden = &self.retries.hidden;
        let past = self.past.iter().any(|past| self.seen.processes[*past].source == source);
        let retried = own.iter().any(|at| hidden.contains(at));
        let last = own.iter().filter(|at| !retried || hidden.contains(at));
        let first = last.map(|at| self.seen.processes[*at].first_line).min();
        first.filter(|_| past || retried).unwrap_or(0)
    }

    /// Adds the communicators in which processes are up, and whose members began together.
    fn add_comms(&self, processes: &[ProcessId], found: &mut Stepping) {
        for process in processes {
            let locals = self.seen.processes[*process].locals.iter();
            let up = locals.filter(|local| local.complete && self.seen.comms[local.comm].is_root());
            found.comms.extend(up.map(|local| local.comm));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::map::{Phase, TransportMap};
    use crate::source::SourceId;

    /// Returns the lines of a process that makes a communicator of all ranks.
    fn made(rank: u32, pid: u32, comm: &str) -> String {
        let nccl = format!("h{}:{pid}:{pid} [{}] NCCL INFO", rank / 2, rank % 2);
        let init = format!(
            "{nccl} ncclCommInitRankConfig comm 0x{pid} rank {rank} nranks 4 cudaDev {0} nvmlDev {0} busId {0}0 commId {comm}",
            rank % 2
        );
        format!("{init} - Init START\n{init} - Init COMPLETE\n{nccl} Connected all rings\n")
    }

    fn phases(map: &mut TransportMap) -> Vec<Phase> {
        map.end_all();
        map.snapshot().ranks().iter().map(|rank| rank.phase).collect()
    }

    fn read(logs: &[(&str, String)]) -> TransportMap {
        let mut map = TransportMap::new();
        for (name, text) in logs {
            map.read(&Arc::new(SourceId::new(*name)), text.as_bytes());
        }
        map
    }

    #[test]
    fn all_ranks_of_a_communicator_train_when_one_prints_it() {
        let nodes: Vec<String> =
            [0, 2].map(|rank| made(rank, 10 + rank, "0xa") + &made(rank + 1, 11 + rank, "0xa")).into();
        // The launcher names the local rank only.
        let steps = "[default0]:step 20\timages/sec: 80565.4 +/- 0.0\n";
        let mut map = read(&[("node0.log", format!("{}{steps}", nodes[0])), ("node1.log", nodes[1].clone())]);
        assert_eq!(phases(&mut map), [Phase::Stepping; 4]);
        assert_eq!(map.snapshot().stepping_ranks().len(), 4);
        // A program's own file holds its steps, NCCL_DEBUG_FILE the lines of NCCL.
        let mut map =
            read(&[("out.log", steps.to_owned()), ("a", nodes[0].clone()), ("b", nodes[1].clone())]);
        assert_eq!(phases(&mut map), [Phase::Stepping; 4]);
        let mut map = read(&[("a", nodes[0].clone()), ("b", nodes[1].clone())]);
        assert_eq!(phases(&mut map), [Phase::Rings; 4]);
        map.read(&Arc::new(SourceId::new("b")), b"[rank3]: step 5 loss 2.1\n");
        assert_eq!(phases(&mut map), [Phase::Stepping; 4], "a step without a rate");
    }

    #[test]
    fn steps_of_an_earlier_attempt_are_none_of_the_last() {
        let attempt =
            |first: u32, comm: &str| (0..4).map(|rank| made(rank, first + rank, comm)).collect::<String>();
        let steps = "[rank0]: step 20 images/sec: 80.4\n";
        let log = format!("{}{steps}{}", attempt(10, "0xa"), attempt(20, "0xb"));
        assert_eq!(phases(&mut read(&[("job.log", log.clone())])), [Phase::Rings; 4]);
        assert_eq!(phases(&mut read(&[("job.log", log + steps)])), [Phase::Stepping; 4]);
    }

    #[test]
    fn a_process_that_begins_again_is_no_other_rank() {
        let log: String = (0..4).map(|rank| made(rank, 10 + rank, "0xa")).collect();
        let begun = "h0:20:20 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n";
        let mut map = read(&[("job.log", format!("{log}[rank0]: step 20 images/sec: 80.4\n{begun}"))]);
        assert_eq!(phases(&mut map)[0], Phase::Bootstrap);
        let pids: Vec<Option<u64>> = map.snapshot().ranks().iter().map(|rank| rank.pid).collect();
        assert_eq!(pids, [20, 11, 12, 13].map(Some));
    }

    #[test]
    fn a_pod_that_is_made_again_replaces_the_one_of_its_name() {
        let pod = |uid: &str, node: u32| {
            let mut source = SourceId::new(format!("worker-{node}"));
            (source.uid, source.container, source.replica) =
                (format!("{uid}-{node}/main"), "main".to_owned(), node);
            Arc::new(source)
        };
        let mut map = TransportMap::new();
        for (attempt, uid) in ["a", "b", "c"].iter().enumerate() {
            let first = 10 * u32::try_from(attempt).unwrap_or(0);
            for node in 0..2 {
                let text: String = (2 * node..2 * node + 2)
                    .map(|rank| made(rank, first + rank + 1, &format!("0x{uid}")))
                    .collect();
                map.read(&pod(uid, node), text.as_bytes());
            }
        }
        let ranks: Vec<Option<u32>> = map.snapshot().ranks().iter().map(|rank| rank.rank).collect();
        assert_eq!(ranks, [Some(0), Some(1), Some(2), Some(3)]);
        assert!(map.is_earlier_attempt(&pod("a", 0)) && !map.is_earlier_attempt(&pod("c", 0)));
    }

    #[test]
    fn a_warning_that_nccl_survives_fails_no_rank() {
        let warning = "h0:1:1 [0] net.cc:1 NCCL WARN NET/Plugin: Failed to find ncclNetPlugin symbol\n";
        let other = "h0:1:1 [0] transport/net_ib.cc:1 NCCL WARN NET/IB: Got completion from peer with status=12 opcode=0 len=0 vendor err 129\n";
        let begun = "h0:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n";
        for warning in [warning, other] {
            let mut map = read(&[("a", format!("{begun}{warning}{}", made(0, 1, "0xa")))]);
            assert_eq!(phases(&mut map), [Phase::Rings], "{warning}");
        }
        let mut map = read(&[("a", format!("{begun}{}{other}", made(0, 1, "0xa")))]);
        assert_eq!(phases(&mut map), [Phase::Failed]);
    }
}
