//! Restarts: finds processes that later ones replaced. A log may hold several attempts of a job; the last
//! one counts.

use std::collections::{BTreeSet, HashMap, HashSet};

use typed_index_collections::TiVec;

use super::ids::{CommId, ProcessId, SourceIndex};
use super::observed::Observed;
use super::process::Process;
use crate::SourceId;

/// A slot that one process can hold at a time: a GPU of a host, in a source.
type Slot = (SourceIndex, Box<str>, u64);

/// The holders of each slot. Where no slot had two holders there was no restart, and a query is free.
#[derive(Clone, Debug, Default)]
pub(super) struct Restarts {
    holders: HashMap<Slot, BTreeSet<ProcessId>>,
    shared: HashSet<Slot>,
    /// The latest attempt of each place, and its uid.
    latest: HashMap<(String, String, String, u32), (u32, String)>,
    retried: bool,
}

impl Restarts {
    /// Records the attempt of a new source.
    pub fn source(&mut self, id: &SourceId) {
        use std::collections::hash_map::Entry;
        match self.latest.entry(place(id)) {
            Entry::Vacant(free) => {
                free.insert((id.attempt, id.uid.clone()));
            }
            Entry::Occupied(mut known) => {
                self.retried |= known.get().0 != id.attempt || is_recreated(id, known.get());
                if id.attempt > known.get().0 || is_recreated(id, known.get()) {
                    known.insert((id.attempt, id.uid.clone()));
                }
            }
        }
    }

    /// Returns whether a source is of an earlier attempt.
    pub(super) fn is_earlier(&self, id: &SourceId) -> bool {
        let latest = self.latest.get(&place(id));
        latest.is_some_and(|latest| id.attempt < latest.0 || is_recreated(id, latest))
    }

    /// Moves a process from one slot to another.
    fn hold(&mut self, at: ProcessId, process: &Process, from: Option<u64>, to: u64) {
        let slot = |number| (process.source, process.host.clone(), number);
        if let Some(from) = from {
            let slot = slot(from);
            if let Some(holders) = self.holders.get_mut(&slot) {
                holders.remove(&at);
                if holders.len() < 2 {
                    self.shared.remove(&slot);
                }
            }
        }
        let slot = slot(to);
        let holders = self.holders.entry(slot.clone()).or_default();
        holders.insert(at);
        if holders.len() > 1 {
            self.shared.insert(slot);
        }
    }
}

/// Processes of later attempts that did not come up.
#[derive(Clone, Debug, Default)]
pub(super) struct Retries {
    pub hidden: HashSet<ProcessId>,
    /// The latest of them, by the process whose place it took.
    pub latest: HashMap<ProcessId, ProcessId>,
}

fn place(id: &SourceId) -> (String, String, String, u32) {
    (id.name.clone(), id.container.clone(), id.role.clone(), id.replica)
}

/// Returns whether a source is another pod of the same name. Operators delete a pod that failed and make it again, and the
/// restarts of its containers count from 0 then: the one that is seen later is the later one.
fn is_recreated(id: &SourceId, known: &(u32, String)) -> bool {
    !id.container.is_empty() && id.uid != known.1
}

impl Observed {
    /// Finds the slot of a process again after its device or its bus id became known.
    pub(super) fn hold(&mut self, at: ProcessId) {
        let process = &mut self.processes[at];
        if process.pid.is_none() {
            return;
        }
        let bus = process.locals.iter().find_map(|local| local.bus_id);
        let device = || process.device.and_then(|device| u64::try_from(device).ok());
        let Some(slot) = bus.or_else(|| device().map(|device| device | 1 << 63)) else { return };
        if process.slot == Some(slot) {
            return;
        }
        let before = process.slot.replace(slot);
        self.restarts.hold(at, process, before, slot);
    }

    /// Returns the processes replaced by later ones: the same GPU of the same host in the same source, all
    /// lines earlier; or an earlier attempt of the same source.
    pub(super) fn past(&self) -> HashSet<ProcessId> {
        let mut past = HashSet::new();
        if self.restarts.retried {
            let earlier: TiVec<SourceIndex, bool> =
                self.sources.iter().map(|source| self.restarts.is_earlier(&source.id)).collect();
            past.extend(
                self.processes
                    .iter_enumerated()
                    .filter(|(_, process)| earlier[process.source])
                    .map(|(at, _)| at),
            );
        }
        for slot in &self.restarts.shared {
            let holders = self.restarts.holders.get(slot).into_iter().flatten().copied();
            let holders = holders.filter(|at| !past.contains(at)).collect();
            self.replaced(holders, &mut past);
        }
        self.with_company(past)
    }

    /// Adds the holders of one slot that had ended when the last one that came up began.
    fn replaced(&self, mut holders: Vec<ProcessId>, past: &mut HashSet<ProcessId>) {
        holders.sort_by_key(|at| self.processes[*at].first_line);
        let Some(last) = holders.iter().rfind(|at| self.processes[**at].came_up()) else { return };
        let later = &self.processes[*last];
        let comms: HashSet<CommId> = later.locals.iter().map(|local| local.comm).collect();
        past.extend(holders.iter().copied().filter(|at| {
            let earlier = &self.processes[*at];
            let together = earlier.locals.iter().any(|local| comms.contains(&local.comm));
            earlier.last_line < later.first_line && !together
        }));
    }

    /// Returns the processes of later attempts that did not come up. The map of the attempt that came up last is shown, and
    /// its ranks are as far as their latest attempts.
    pub(super) fn retries(&self, past: &HashSet<ProcessId>) -> Retries {
        let mut retries = Retries::default();
        for slot in &self.restarts.shared {
            let holders = self.restarts.holders.get(slot).into_iter().flatten().copied();
            let mut holders: Vec<ProcessId> = holders.filter(|at| !past.contains(at)).collect();
            holders.sort_by_key(|at| self.processes[*at].first_line);
            let Some(last) = holders.iter().copied().rfind(|at| self.processes[*at].came_up()) else {
                continue;
            };
            let end = self.processes[last].last_line;
            for later in holders.into_iter().filter(|at| self.processes[*at].first_line > end) {
                retries.hidden.insert(later);
                retries.latest.insert(last, later);
            }
        }
        self.add_beginners(past, &mut retries);
        retries
    }

    /// Adds the processes that have not begun a communicator, whose bus id is not known yet: each takes the place of the process
    /// with its device that had come up and ended before.
    fn add_beginners(&self, past: &HashSet<ProcessId>, retries: &mut Retries) {
        let is_beginner = |process: &Process| {
            process.pid.is_some() && process.device.is_some() && process.locals.is_empty()
        };
        let alive = || self.processes.iter_enumerated().filter(|(at, _)| !past.contains(at));
        if !alive().any(|(_, process)| is_beginner(process)) {
            return;
        }
        let place = |process: &Process| (process.source, process.host.clone(), process.device);
        let mut known = HashMap::new();
        for (at, process) in alive().filter(|(_, process)| process.came_up()) {
            known.insert(place(process), at);
        }
        for (later, process) in alive().filter(|(_, process)| is_beginner(process)) {
            let before = known.get(&place(process)).copied();
            if let Some(before) = before.filter(|at| self.processes[*at].last_line < process.first_line) {
                retries.hidden.insert(later);
                retries.latest.insert(before, later);
            }
        }
    }

    /// Adds the other members of ended communicators, since a restart ends a whole communicator: a process
    /// that shared one with a replaced process and joined no new one is past too.
    fn with_company(&self, mut past: HashSet<ProcessId>) -> HashSet<ProcessId> {
        if past.is_empty() {
            return past;
        }
        let ended: HashSet<CommId> = self
            .comms
            .iter_enumerated()
            .filter(|(_, comm)| {
                comm.is_root() && comm.members.values().any(|(process, _)| past.contains(process))
            })
            .map(|(at, _)| at)
            .collect();
        for (at, process) in self.processes.iter_enumerated() {
            let mut roots = process.locals.iter().filter(|local| self.comms[local.comm].is_root()).peekable();
            if roots.peek().is_some() && roots.all(|local| ended.contains(&local.comm)) {
                past.insert(at);
            }
        }
        past
    }
}
