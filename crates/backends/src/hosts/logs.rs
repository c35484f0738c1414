//! The logs of a job: files on its hosts, each read from a known offset.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weftrun_core::Result;
use weftrun_core::job::JobHandle;
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};
use weftrun_core::spec::Launch;

use super::BACKEND;
use super::allocation::Allocation;
use super::client::{Client, Silent};
use super::look::{HostLook, Looks};
use super::status::Job;
use crate::refusals;
use crate::remote::follow::{self, JobFiles, LogFile, Poll};
use crate::remote::piece::{self, Piece};
use crate::remote::quote;
use crate::stream::Feed;

/// Largest number of bytes of one file in one poll.
const CHUNK: u64 = 1 << 20;
/// Largest number of bytes of all files of one host in one poll: its files have equal parts of it.
const MOST_A_POLL: u64 = 8 << 20;
/// Largest number of files of one host.
const MOST_FILES: usize = 4096;

/// Feeds the logs of a job.
pub async fn read(
    client: Arc<Client>,
    handle: JobHandle,
    options: LogOptions,
    feed: Feed<LogBatch>,
) -> Result<()> {
    refusals::log_times(&options, BACKEND)?;
    let job = client.job(&handle).await?;
    refusals::missing_rank(&options, job.place.world())?;
    let attempt = follow::first_attempt(&options, handle.name(), job.attempt())?;
    let reader = Reader {
        client,
        place: job.place,
        options,
        attempt,
        files: BTreeMap::new(),
        silent: BTreeSet::new(),
        tailed: BTreeSet::new(),
        last_poll: false,
        job: None,
    };
    follow::follow(reader, attempt, feed).await
}

/// The part of a job that a file belongs to, by its name.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    /// Name of the source behind the host's.
    suffix: String,
    rank: Option<u32>,
    /// The ranks whose output it holds.
    ranks: Range<u32>,
}

struct Reader {
    client: Arc<Client>,
    place: Allocation,
    options: LogOptions,
    attempt: u32,
    /// By host and file name.
    files: BTreeMap<(usize, String), LogFile>,
    /// Hosts that did not answer the last poll.
    silent: BTreeSet<usize>,
    /// Hosts whose files were begun at their last lines: a file that appears later is read whole.
    tailed: BTreeSet<usize>,
    /// Whether all hosts are read once more, since the end is known: they are not read at one moment, and one may write after its
    /// poll, and the job end before another's.
    last_poll: bool,
    /// The job in the last poll.
    job: Option<Job>,
}

#[async_trait]
impl JobFiles for Reader {
    fn options(&mut self) -> &mut LogOptions {
        &mut self.options
    }

    fn enter(&mut self, attempt: u32) {
        self.attempt = attempt;
        self.files.clear();
        self.last_poll = false;
    }

    async fn poll(mut self) -> Result<(Self, Poll)> {
        let nonce = format!("{:016x}", fastrand::u64(..));
        let programs: Vec<(String, String)> = (0..self.place.hosts.len())
            .filter_map(|at| Some((at, self.place.hosts.get(at)?.host.clone())))
            .map(|(at, host)| Ok((host, self.program(at, &nonce)?)))
            .collect::<Result<_>>()?;
        let answers = self.client.each(programs, Silent::Skip).await;
        let mut looks: Looks = BTreeMap::new();
        let (mut batches, mut more) = (Vec::new(), false);
        for (at, (host, answer)) in answers.into_iter().enumerate() {
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) if error.is_retryable() => {
                    self.silent.insert(at);
                    looks.insert(host, Err((&error).into()));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let resumed = self.silent.remove(&at);
            self.tailed.insert(at);
            let head = memchr::memmem::find(&answer.stdout, nonce.as_bytes()).unwrap_or(answer.stdout.len());
            let head = String::from_utf8_lossy(answer.stdout.get(..head).unwrap_or_default()).into_owned();
            looks.insert(host, Ok(HostLook::read(&head)));
            for piece in Piece::all(&answer.stdout, nonce.as_bytes()) {
                let cut = piece.offset + (piece.bytes.len() as u64) < piece.size && !piece.bytes.is_empty();
                if let Some(file) = self.file_of(at, &piece) {
                    let taken = file.offset == piece.offset;
                    file.take(piece, resumed, &mut batches);
                    more |= cut && taken;
                }
            }
        }
        let is_silent = self.silent.len() == self.place.hosts.len();
        if is_silent
            && !self.options.follow
            && let Some(error) = super::client::silent(&looks)
        {
            return Err(error);
        }
        self.job = Job::gather(&looks).remove(&self.place.submission);
        if let Some(job) = self.job.as_ref().filter(|_| self.options.follow && !more) {
            self.client.carry_out(job).await;
        }
        let attempt = self.job.as_ref().map(|job| (job.attempt(), job.phase().0.is_terminal()));
        if attempt.is_some_and(|(newest, is_over)| is_over || newest > self.attempt) && looks.len() > 1 {
            more |= !std::mem::replace(&mut self.last_poll, !more);
        }
        Ok((self, Poll { batches, more, attempt, is_silent }))
    }

    fn ends(&mut self) -> Vec<LogBatch> {
        let job = self.job.as_ref();
        let end = |((at, _), file): (&(usize, String), &LogFile)| {
            file.marked(Mark::Ended { exit_code: job.and_then(|job| job.code_of(*at, file.source.rank)) })
        };
        let mut batches: Vec<LogBatch> = self.files.iter().map(end).collect();
        for (at, host) in job.iter().flat_map(|job| job.full()) {
            let reason = format!("the disk of {host} was full: what its ranks wrote may be missing");
            batches.push(self.gap(at, reason));
        }
        for (at, seat) in self.place.hosts.iter().enumerate() {
            let reason = if self.silent.contains(&at) {
                format!("host {} does not answer: what its ranks wrote since is missing", seat.host)
            } else {
                let ended = job.is_some_and(|job| job.ended_well(at));
                let whole = owner_of("node.log", at, &self.place);
                let wanted = whole.is_some_and(|owner| self.wants(&owner, at));
                if !ended || !wanted || self.files.keys().any(|(of, _)| *of == at) {
                    continue;
                }
                format!("the logs on host {} are gone: they were removed", seat.host)
            };
            batches.push(self.gap(at, reason));
        }
        batches
    }

    fn pause(&self, quiet: Duration) -> Duration {
        self.client.pause(quiet)
    }
}

impl Reader {
    /// Returns the program that prints the state of the job on a host, and the new bytes of its files.
    fn program(&self, at: usize, nonce: &str) -> Result<String> {
        let mut known = String::new();
        for ((_, name), file) in self.files.iter().filter(|((of, _), _)| *of == at) {
            known.push_str(&format!("*/{}) o={};;\n", quote::word(name)?, file.offset));
        }
        for cursor in self.options.from.iter().filter(|cursor| cursor.attempt == self.attempt) {
            let name = cursor.uid.rsplit('/').next().unwrap_or_default();
            let file = file_of(name, at);
            if let Some(file) = file.filter(|file| !self.files.contains_key(&(at, file.clone()))) {
                known.push_str(&format!("*/{}) o={};;\n", quote::word(&file)?, cursor.offset));
            }
        }
        let unread = self.options.tail.filter(|_| self.options.from.is_empty() && !self.tailed.contains(&at));
        let first = match unread {
            // The size is read first: a line that is written meanwhile is behind the tail.
            Some(lines) => format!(
                "*) s=$(stat -L -c %s -- \"$f\") && o=$((s - $(head -c \"$s\" -- \"$f\" | tail -n {} | wc -c)));;\n",
                lines.min(i32::MAX.unsigned_abs().into())
            ),
            None => String::new(),
        };
        let files: String = self.wanted_files(at).iter().map(|name| format!(" \"$d\"/{name}")).collect();
        Ok(format!(
            "weftrun_look {id}\n{reader}d=$weftrun_root/jobs/{id}/logs/{attempt}\nset --{files}\n\
             most=$(({MOST_A_POLL} / ($# + 1))); [ $most -le {CHUNK} ] || most={CHUNK}\nfiles=0\n\
             for f in \"$@\"; do\n[ -f \"$f\" ] || continue\nfiles=$((files + 1)); [ $files -le {MOST_FILES} ] || break\no=0\ncase $f in\n{known}{first}esac\n\
             weftrun_read \"$f\" $o 0\ndone\n:\n",
            id = self.place.submission,
            reader = piece::reader(nonce, "$most"),
            attempt = self.attempt,
        ))
    }

    /// Returns the names of the files on a host that are to be read, as patterns of the shell.
    fn wanted_files(&self, at: usize) -> Vec<String> {
        let mut names = ["node.log", "launcher.log", "prepare.log"].map(str::to_owned).to_vec();
        names.extend(
            self.options.ranks.iter().collect::<BTreeSet<_>>().iter().map(|rank| format!("rank{rank}.log")),
        );
        names.retain(|name| owner_of(name, at, &self.place).is_some_and(|owner| self.wants(&owner, at)));
        if self.options.ranks.is_empty() && !names.is_empty() {
            names.push("rank*.log".to_owned());
        }
        names
    }

    /// Returns the file of a piece; none if it is not read.
    fn file_of(&mut self, at: usize, piece: &Piece) -> Option<&mut LogFile> {
        let name = piece.path.rsplit('/').next().unwrap_or_default().to_owned();
        let owner = owner_of(&name, at, &self.place)?;
        let key = (at, name);
        if !self.files.contains_key(&key) {
            // Most jobs prepare nothing that prints.
            let is_unused = owner.ranks.is_empty() && piece.size == 0;
            let is_full = self.files.keys().filter(|(of, _)| *of == at).count() >= MOST_FILES;
            if is_unused || is_full || !self.wants(&owner, at) {
                return None;
            }
            let file = LogFile::new(self.source(&owner, at, &key.1), piece.offset);
            self.files.insert(key.clone(), file);
        }
        self.files.get_mut(&key)
    }

    fn wants(&self, owner: &Owner, at: usize) -> bool {
        let role = self.place.hosts.get(at).map_or("", |seat| seat.role.as_str());
        self.options.wants(role, Some(owner.ranks.clone()))
    }

    fn source(&self, owner: &Owner, at: usize, file: &str) -> SourceId {
        let seat = self.place.hosts.get(at);
        let host = seat.map_or("", |seat| seat.host.as_str());
        let mut source = SourceId::new(format!("{host}{}", owner.suffix));
        source.uid = format!("{}/{}", self.place.submission, uid_of(file, at));
        source.attempt = self.attempt;
        source.role = seat.map(|seat| seat.role.clone()).unwrap_or_default();
        source.replica = seat.map_or(0, |seat| seat.replica);
        source.rank = owner.rank;
        source
    }

    /// Returns the mark of missing logs of a host.
    fn gap(&self, at: usize, reason: String) -> LogBatch {
        let owner = Owner { suffix: String::new(), rank: None, ranks: 0..0 };
        let source = Arc::new(self.source(&owner, at, "node.log"));
        LogBatch::marked(source, Mark::Gap { reason }, Cursor::default())
    }
}

/// Returns the last part of a source's uid: ranks have one host, the other files of a name are on several.
fn uid_of(file: &str, at: usize) -> String {
    let name = file.strip_suffix(".log").unwrap_or(file);
    if name.starts_with("rank") { name.to_owned() } else { format!("{name}@{at}") }
}

/// Returns the file of such a part, if it can be on this host.
fn file_of(uid: &str, at: usize) -> Option<String> {
    match uid.rsplit_once('@') {
        Some((name, of)) => (of.parse() == Ok(at)).then(|| format!("{name}.log")),
        None => Some(format!("{uid}.log")),
    }
}

fn owner_of(file: &str, at: usize, place: &Allocation) -> Option<Owner> {
    let name = file.strip_suffix(".log")?;
    let first = *place.first_ranks().get(at)?;
    let seat = place.hosts.get(at)?;
    let here = first..first.saturating_add(seat.ranks);
    let owner = |suffix: &str, rank, ranks| Some(Owner { suffix: suffix.to_owned(), rank, ranks });
    match name.strip_prefix("rank").and_then(|rank| rank.parse::<u32>().ok()) {
        // torchrun's own lines carry the rank, also where the host has only one.
        Some(rank) if rank < place.world() && (place.launch == Launch::Mpi || here.contains(&rank)) => {
            owner(&format!("/rank{rank}"), Some(rank), rank..rank + 1)
        }
        Some(_) => None,
        None => match name {
            "node" => owner("", None, here),
            // mpirun's own lines, and all ranks' where the command calls mpirun itself.
            "launcher" => {
                owner("/launcher", None, if place.launch == Launch::Mpi { 0..place.world() } else { here })
            }
            "prepare" => owner("/prepare", None, 0..0),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocation::tests::place;
    use super::*;

    #[test]
    fn a_file_belongs_to_its_ranks() {
        let place = place(Launch::PerRank, 0);
        let owner = owner_of("rank3.log", 1, &place).unwrap();
        assert_eq!((owner.suffix.as_str(), owner.rank, owner.ranks), ("/rank3", Some(3), 3..4));
        assert_eq!(owner_of("node.log", 1, &place).unwrap().ranks, 2..4);
        for name in ["rank9.log", "x.log", "rank1", "../rank1.log"] {
            assert_eq!(owner_of(name, 0, &place), None, "{name}");
        }
    }

    #[test]
    fn a_cursor_names_its_file_again() {
        for (file, at) in [("rank3.log", 1), ("node.log", 0), ("launcher.log", 0)] {
            assert_eq!(file_of(&uid_of(file, at), at).as_deref(), Some(file));
        }
        assert_eq!(file_of(&uid_of("node.log", 1), 0), None, "the other host has one of its own");
    }
}
