//! Where a job runs: the file `place` in its folder on each host, one `key value` a line, read by the supervisor too.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weftrun_core::fabric::Fabric;
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::Launch;

/// Largest number of hosts that a file may name.
const MOST_HOSTS: usize = 4096;
/// Most labels that are kept.
pub const MOST_LABELS: usize = 64;
/// Largest number of ranks on a host.
pub const MOST_RANKS: u32 = 65_536;

/// A job's hosts and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub submission: SubmissionId,
    /// The job's name.
    pub name: String,
    /// The fabric it was planned for.
    pub fabric: Option<Fabric>,
    /// Who starts the ranks.
    pub launch: Launch,
    /// When it was submitted, by the submitting machine's clock.
    pub created: i64,
    /// How often it starts again after a failure.
    pub restarts: u32,
    /// Seconds between TERM and KILL.
    pub grace: u32,
    /// Its time limit in seconds, 0 for none.
    pub limit: u64,
    /// The port on the first host where the ranks meet.
    pub port: u16,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its hosts, in the order of the ranks.
    pub hosts: Vec<Seat>,
}

/// One host of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its name in the target.
    pub host: String,
    /// Its address for the other hosts.
    pub address: String,
    /// The port of its sshd.
    pub ssh_port: u16,
    /// The user there.
    pub user: String,
    pub ranks: u32,
    pub role: String,
    /// Its number in the role.
    pub replica: u32,
}

impl Allocation {
    /// Returns the text for the host of a number.
    pub fn text(&self, node: usize) -> String {
        let mut text = String::new();
        let launch = self.launch.as_str();
        let fabric = self.fabric.map_or("none", Fabric::as_str);
        let _ = write!(
            text,
            "submission {}\nname {}\nfabric {fabric}\nlaunch {launch}\ncreated {}\nrestarts {}\ngrace {}\nlimit {}\nport {}\nnode {node}\n",
            self.submission, self.name, self.created, self.restarts, self.grace, self.limit, self.port
        );
        for (key, value) in &self.labels {
            let _ = writeln!(text, "label {key}={value}");
        }
        for seat in &self.hosts {
            let Seat { host, address, ssh_port, user, ranks, role, replica } = seat;
            let _ = writeln!(text, "host {host} {address} {ssh_port} {user} {ranks} {role} {replica}");
        }
        text
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> u32 {
        self.hosts.iter().fold(0, |sum, seat| sum.saturating_add(seat.ranks))
    }

    /// Returns the first rank of each host.
    pub fn first_ranks(&self) -> Vec<u32> {
        let mut next = 0_u32;
        let first = |seat: &Seat| {
            let first = next;
            next = next.saturating_add(seat.ranks);
            first
        };
        self.hosts.iter().map(first).collect()
    }

    /// Returns the number of the host that runs a rank.
    pub fn node_of(&self, rank: u32) -> Option<usize> {
        self.first_ranks()
            .iter()
            .zip(&self.hosts)
            .position(|(first, seat)| rank >= *first && rank - first < seat.ranks)
    }
}

/// A place while its lines come; whole once every line was there.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    values: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    hosts: Vec<Seat>,
}

impl Lines {
    /// Takes a line; an unknown one is ignored.
    pub fn take(&mut self, key: &str, value: &str) {
        match key {
            "submission" | "name" | "fabric" | "launch" | "created" | "restarts" | "grace" | "limit"
            | "port" | "node" => drop(self.values.insert(key.to_owned(), value.to_owned())),
            "label" if self.labels.len() < MOST_LABELS => {
                let pair = crate::remote::error::clean(value);
                self.labels
                    .extend(pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())));
            }
            "host" if self.hosts.len() < MOST_HOSTS => self.hosts.extend(seat(value)),
            _ => {}
        }
    }

    /// Returns the place and the number of the host in it.
    pub fn whole(self) -> Option<(Allocation, usize)> {
        let text = |key: &str| self.values.get(key).map_or("", String::as_str);
        let number = |key: &str| text(key).parse::<u64>().unwrap_or(0);
        let small = |key: &str| u32::try_from(number(key)).unwrap_or(u32::MAX);
        let node = text("node").parse().ok().filter(|node| *node < self.hosts.len())?;
        let place = Allocation {
            submission: SubmissionId::parse(text("submission"))?,
            name: crate::remote::error::clean(text("name")),
            fabric: serde_json::from_value(text("fabric").into()).ok(),
            launch: Launch::ALL
                .into_iter()
                .find(|known| known.as_str() == text("launch"))
                .unwrap_or_default(),
            created: text("created").parse().unwrap_or(0),
            restarts: small("restarts"),
            grace: small("grace"),
            limit: number("limit"),
            port: text("port").parse().unwrap_or(0),
            labels: self.labels.clone(),
            hosts: self.hosts.clone(),
        };
        Some((place, node))
    }
}

fn seat(line: &str) -> Option<Seat> {
    let clean = crate::remote::error::clean(line);
    let words: Vec<String> = clean.split(' ').take(7).map(str::to_owned).collect();
    let [host, address, ssh_port, user, ranks, role, replica] = words.try_into().ok()?;
    let (ssh_port, replica) = (ssh_port.parse().ok()?, replica.parse().ok()?);
    let ranks = ranks.parse().ok().filter(|ranks| *ranks <= MOST_RANKS)?;
    Some(Seat { host, address, ssh_port, user, ranks, role, replica })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A job of four ranks on two hosts.
    pub fn place(launch: Launch, restarts: u32) -> Allocation {
        let seat = |host: &str, address: &str, replica| Seat {
            host: host.to_owned(),
            address: address.to_owned(),
            ssh_port: 22,
            user: "me".to_owned(),
            ranks: 2,
            role: "worker".to_owned(),
            replica,
        };
        Allocation {
            submission: SubmissionId::from_random(7),
            name: "resnet".to_owned(),
            fabric: Some(Fabric::Roce),
            launch,
            created: 1_700_000_000,
            restarts,
            grace: 10,
            limit: 0,
            port: 23_456,
            labels: [("team".to_owned(), "nlp".to_owned())].into(),
            hosts: vec![seat("a", "10.0.0.1", 0), seat("b", "10.0.0.2", 1)],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for launch in Launch::ALL {
            let place = place(launch, 2);
            let mut lines = Lines::default();
            for (key, value) in place.text(1).lines().filter_map(|line| line.split_once(' ')) {
                lines.take(key, value);
            }
            assert_eq!(lines.whole(), Some((place, 1)));
        }
        assert_eq!(place(Launch::Mpi, 0).node_of(3), Some(1));
        assert_eq!(place(Launch::Mpi, 0).node_of(4), None);
    }

    #[test]
    fn a_hostile_line_is_no_host() {
        for line in
            ["", "a", "a b c d e f g", "a 10.0.0.1 22 me 99999999 worker 0", "a 10.0.0.1 70000 me 2 worker 0"]
        {
            assert_eq!(seat(line), None, "{line}");
        }
        let mut lines = Lines::default();
        lines.take("node", "5");
        assert_eq!(lines.whole(), None);
    }
}
