//! The collectives of the open job as the bandwidth screen lists them.

use std::cmp::Ordering;

use weftrun::core::fabric::PROFILER_RULE;
use weftrun::core::nccl::bandwidth::{CollectiveSpeed, CommunicatorSpeed, Order, RankWait};
use weftrun::diagnose::Measured;

use super::open::Open;
use super::sorting::CollectiveColumn;

/// A row of the list: a collective of a communicator.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveRow<'a> {
    pub communicator: &'a CommunicatorSpeed,
    pub speed: &'a CollectiveSpeed,
}

impl<'a> CollectiveRow<'a> {
    pub fn is_late(&self) -> bool {
        self.speed.arrival.order == Order::Late
    }

    /// Returns whether a rank of the communicator is late.
    pub fn has_late(&self, rank: &RankWait) -> bool {
        self.speed.arrival.late.iter().any(|late| late.rank == rank.rank)
    }

    /// Returns the waiting of each rank, that of late ranks first.
    pub fn waits(&self) -> Vec<&'a RankWait> {
        let mut waits: Vec<&RankWait> = self.speed.arrival.waits.iter().collect();
        waits.sort_by_key(|rank| (!self.has_late(rank), rank.job_rank()));
        waits
    }
}

impl Open {
    /// Returns what was measured of the collectives, if the job measures them.
    pub fn measured(&self) -> Option<&Measured> {
        self.transport_view.measured.as_ref()
    }

    /// Returns all collectives as they are sorted; those that are equal by that, by their time.
    pub fn collectives(&self) -> Vec<CollectiveRow<'_>> {
        let all = self.measured().into_iter().flat_map(|measured| measured.speeds.collectives());
        let mut rows: Vec<CollectiveRow<'_>> =
            all.map(|(communicator, speed)| CollectiveRow { communicator, speed }).collect();
        let share = |row: &CollectiveRow<'_>| row.speed.time_share.unwrap_or(0.0);
        rows.sort_by(|one, other| {
            let order = self.collectives_sorted.order(self.compare_collectives(one, other));
            order.then(share(other).total_cmp(&share(one)))
        });
        rows
    }

    fn compare_collectives(&self, one: &CollectiveRow<'_>, other: &CollectiveRow<'_>) -> Ordering {
        let share = |row: &CollectiveRow<'_>| row.speed.time_share.unwrap_or(0.0);
        let size = |row: &CollectiveRow<'_>| row.speed.main_size().map(|size| size.most_bytes);
        let speed = |row: &CollectiveRow<'_>| {
            row.speed.main_size().and_then(|size| size.busbw_gbps).unwrap_or(f64::INFINITY)
        };
        let expected = |row: &CollectiveRow<'_>| {
            let expected = self.measured()?.expected(&row.communicator.id, row.speed.collective)?;
            Some(expected.low)
        };
        match self.collectives_sorted.column {
            CollectiveColumn::Trouble => other.is_late().cmp(&one.is_late()),
            CollectiveColumn::Collective => {
                one.speed.collective.as_str().cmp(other.speed.collective.as_str())
            }
            CollectiveColumn::Ranks => other.communicator.ranks.cmp(&one.communicator.ranks),
            CollectiveColumn::Size => size(other).cmp(&size(one)),
            CollectiveColumn::BusBandwidth => speed(one).total_cmp(&speed(other)),
            CollectiveColumn::Expected => {
                expected(other).unwrap_or(0.0).total_cmp(&expected(one).unwrap_or(0.0))
            }
            CollectiveColumn::Time => share(other).total_cmp(&share(one)),
            CollectiveColumn::Communicator => one.communicator.id.cmp(&other.communicator.id),
        }
    }

    /// Returns the collective under the cursor.
    pub fn chosen_collective(&self) -> Option<CollectiveRow<'_>> {
        let rows = self.collectives();
        rows.get(self.collective_at(&rows)).copied()
    }

    /// Returns the row under the cursor, which stays on its collective when the order changes.
    pub fn collective_at(&self, rows: &[CollectiveRow<'_>]) -> usize {
        let chosen = self.collective.as_ref();
        let is_chosen = |row: &CollectiveRow<'_>| {
            chosen.is_some_and(|(comm, kind)| row.speed.collective == *kind && row.communicator.id == *comm)
        };
        rows.iter().position(is_chosen).unwrap_or(0)
    }

    /// Moves the cursor to a row.
    pub fn choose_collective(&mut self, at: usize) {
        let rows = self.collectives();
        let chosen = rows.get(at.min(rows.len().saturating_sub(1)));
        self.collective = chosen.map(|row| (row.communicator.id.clone(), row.speed.collective));
        self.first_wait = 0;
    }

    /// Returns whether the job was sent with the library that measures; none if it was submitted elsewhere.
    pub fn measures(&self) -> Option<bool> {
        let plan = self.plan.as_ref()?;
        Some(plan.decisions.iter().any(|decision| decision.rule == PROFILER_RULE))
    }
}
