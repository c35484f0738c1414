//! The hosts of a target, and the programs that run on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio::time::Instant;
use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::allocation::{Allocation, Seat};
use super::config::{HostsTarget, JobSettings};
use super::look::{HostLook, Looks, NoAnswer};
use super::status::{Job, Jobs, Order};
use super::unreachable::Unreachable;
use super::{BACKEND, error};
use crate::refusals;
use crate::remote::error::clean;
use crate::remote::ssh::{Options, Ssh};
use crate::remote::transport::Transport;
use crate::remote::{Answer, quote};

/// The functions of a host, which every program begins with.
pub const LIBRARY: &str = include_str!("node.sh");
/// Largest number of hosts that are asked at once.
const AT_ONCE: usize = 64;

/// The hosts of a target.
#[derive(Debug)]
pub struct Client {
    /// The target's name, for handles.
    pub target: String,
    pub settings: HostsTarget,
    hosts: Vec<(String, Arc<Machine>)>,
}

/// One host.
#[derive(Debug)]
struct Machine {
    transport: Transport,
    unreachable: Unreachable,
    /// Whether it is asked in the background whether it answers again.
    is_asked: AtomicBool,
}

/// How a host is asked that did not answer a moment ago. What changes something, or is about one job, asks it; what is about all hosts,
/// or looks again and again, does not wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// As every other host.
    Ask,
    /// In the background; the answer now is that it does not answer.
    Skip,
}

impl Machine {
    /// Runs a program that may run twice.
    async fn read(&self, program: &str) -> Result<Answer> {
        let began = Instant::now();
        let answer = self.transport.read(program).await;
        match &answer {
            Ok(_) => self.unreachable.forget(),
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout) => {
                self.unreachable.remember(began.elapsed(), &error.to_string());
            }
            Err(_) => {}
        }
        answer
    }

    /// Runs a program, or returns why the host did not answer a moment ago.
    async fn read_or_skip(self: &Arc<Self>, program: &str) -> Result<Answer> {
        let Some(reason) = self.unreachable.reason() else { return self.read(program).await };
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            let machine = Arc::clone(self);
            tokio::spawn(async move {
                let _ = machine.read(":\n").await;
                machine.is_asked.store(false, Ordering::Relaxed);
            });
        }
        Err(self.transport.with_check(Error::new(ErrorKind::Unreachable, reason).retryable()))
    }
}

impl Client {
    /// Makes a client; nothing is run yet.
    pub fn new(target: &TargetConfig) -> Result<Self> {
        let settings = HostsTarget::of(target)?;
        let options = Options {
            config: settings.ssh_config.clone(),
            user: settings.user.clone(),
            jump: settings.jump.clone(),
            args: settings.ssh_args.clone(),
            share: settings.ssh_share.unwrap_or(true),
            connect: settings.connect_seconds(),
            // A dead connection is noticed after two of these times at most.
            keepalives: 1,
        };
        let preamble = preamble(settings.folder())?;
        let transport = |name: &String| Transport {
            ssh: Some(Ssh::new(name, &options)),
            env: target.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            preamble: preamble.clone(),
            timeout: settings.command_timeout(),
            late: "the host is busy or the link is slow; `command-seconds` of the target is the time allowed",
        };
        let host = |name: &String| {
            let machine = Machine {
                transport: transport(name),
                unreachable: Unreachable::of(name, &options),
                is_asked: AtomicBool::new(false),
            };
            (name.clone(), Arc::new(machine))
        };
        let hosts = settings.hosts().iter().map(|(name, _)| host(name)).collect();
        Ok(Self { target: target.name.clone(), hosts, settings })
    }

    /// Returns the names of the hosts, in the target's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|(name, _)| name.as_str())
    }

    fn machine(&self, host: &str) -> Result<&Arc<Machine>> {
        self.hosts.iter().find(|(name, _)| name == host).map(|(_, machine)| machine).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfig,
                format!("`{host}` is not a host of target `{}`", self.target),
            )
            .hint("a job stays on its hosts: put the name back into `hosts` of the target")
        })
    }

    /// Returns the way to a host.
    pub fn transport(&self, host: &str) -> Result<&Transport> {
        Ok(&self.machine(host)?.transport)
    }

    /// Runs a program on a host; the connection is tried again once.
    pub async fn read(&self, host: &str, program: &str) -> Result<Answer> {
        self.machine(host)?.read(program).await
    }

    /// Runs programs on several hosts at once, and returns the answers in the same order. A host that does not
    /// answer delays no other.
    pub async fn each(
        &self,
        programs: Vec<(String, String)>,
        silent: Silent,
    ) -> Vec<(String, Result<Answer>)> {
        let exchanges: Vec<_> = programs
            .into_iter()
            .enumerate()
            .map(|(at, (host, program))| {
                async move { (at, self.exchange(host, program, silent).await) }.boxed()
            })
            .collect();
        let mut answers: Vec<_> = stream::iter(exchanges).buffer_unordered(AT_ONCE).collect().await;
        answers.sort_by_key(|(at, _)| *at);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn exchange(&self, host: String, program: String, silent: Silent) -> (String, Result<Answer>) {
        let answer = match (self.machine(&host), silent) {
            (Err(error), _) => Err(error),
            (Ok(machine), Silent::Ask) => machine.read(&program).await,
            (Ok(machine), Silent::Skip) => machine.read_or_skip(&program).await,
        };
        (host, answer)
    }

    /// Asks hosts for their jobs, or for one job; all hosts if none is named.
    pub async fn look(&self, hosts: &[String], job: Option<&SubmissionId>, silent: Silent) -> Looks {
        let program = format!("weftrun_look {}\n", job.map_or("", SubmissionId::as_str));
        self.ask_until(hosts, &program, silent, |_, _| false).await
    }

    /// Asks all hosts for their jobs and for what a submission must know of them.
    pub async fn inventory(&self, own: &JobSettings, silent: Silent) -> Result<Looks> {
        let interface = quote::word(own.interface.as_deref().unwrap_or_default())?;
        let program = format!("weftrun_survey {interface}\nweftrun_look\n");
        Ok(self.ask_until(&[], &program, silent, |_, _| false).await)
    }

    /// Queries hosts until `enough` accepts their answers.
    async fn ask_until(
        &self,
        hosts: &[String],
        program: &str,
        silent: Silent,
        mut enough: impl FnMut(&str, &Looks) -> bool,
    ) -> Looks {
        let named = |name: &&str| hosts.is_empty() || hosts.iter().any(|host| host == name);
        let exchange = |name: &str| self.exchange(name.to_owned(), program.to_owned(), silent).boxed();
        let exchanges: Vec<_> = self.names().filter(named).map(exchange).collect();
        let mut answers = stream::iter(exchanges).buffer_unordered(AT_ONCE);
        let mut looks = Looks::new();
        while let Some((host, answer)) = answers.next().await {
            let look = match answer {
                Ok(answer) if answer.code == 0 => look_of(&host, &answer.text()),
                Ok(answer) => Err((&error::failed(&host, "its jobs could not be read", &answer)).into()),
                Err(error) => Err((&error).into()),
            };
            looks.insert(host.clone(), look);
            if enough(&host, &looks) {
                break;
            }
        }
        looks
    }

    /// Asks all hosts for jobs, until those on which they run have answered: a host that is down delays no other job.
    async fn seek(&self, wanted: &[Wanted<'_>], job: Option<&SubmissionId>) -> Looks {
        let program = format!("weftrun_look {}\n", job.map_or("", SubmissionId::as_str));
        let here: BTreeSet<&str> = self.names().collect();
        let down = self.hosts.iter().filter(|(_, machine)| machine.unreachable.reason().is_some());
        let down: BTreeSet<&str> = down.map(|(name, _)| name.as_str()).collect();
        let mut known: BTreeMap<SubmissionId, Allocation> = BTreeMap::new();
        let found = |host: &str, looks: &Looks| {
            for (place, ..) in looks.get(host).into_iter().flatten().flat_map(|look| look.jobs.values()) {
                if wanted.iter().any(|wanted| wanted.may_be(place)) {
                    known.entry(place.submission.clone()).or_insert_with(|| place.clone());
                }
            }
            let has_answered =
                |seat: &Seat| looks.contains_key(&seat.host) || !here.contains(seat.host.as_str());
            let whole = known.values().filter(|place| place.hosts.iter().all(has_answered));
            let whole: Vec<Job> = whole.map(|place| Job::of(place, looks)).collect();
            // What only a host that is down could add is not waited for.
            let is_last = here.iter().all(|host| looks.contains_key(*host) || down.contains(host));
            wanted.iter().all(|wanted| whole.iter().any(|job| wanted.is(job, is_last)))
        };
        self.ask_until(&[], &program, Silent::Ask, found).await
    }

    /// Returns the job of a handle: the newest of its name, or the one with its uid.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Unreachable`] if a host that may have it does not answer.
    pub async fn job(&self, handle: &JobHandle) -> Result<Job> {
        let looks = self.look_for(std::slice::from_ref(handle)).await?;
        self.pick(handle, &looks, &Job::gather(&looks))
    }

    /// Queries hosts until the jobs of handles are known.
    pub async fn look_for(&self, handles: &[JobHandle]) -> Result<Looks> {
        handles.iter().try_for_each(|handle| refusals::other_target(handle, BACKEND, &self.target))?;
        let wanted: Vec<Wanted<'_>> = handles.iter().map(Wanted::Handle).collect();
        Ok(self.seek(&wanted, None).await)
    }

    /// Returns the job of a submission, if it was started.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] if a host that may have it does not answer.
    pub async fn submitted(&self, id: &SubmissionId) -> Result<Option<Job>> {
        let looks = self.seek(&[Wanted::Submission(id)], Some(id)).await;
        match (Job::gather(&looks).remove(id).filter(Job::is_committed), silent(&looks)) {
            (None, Some(error)) => Err(error),
            (job, _) => Ok(job),
        }
    }

    /// Returns the job of a handle among what the hosts answered.
    ///
    /// # Errors
    /// As [`Client::job`].
    pub fn pick(&self, handle: &JobHandle, looks: &Looks, jobs: &Jobs) -> Result<Job> {
        let meant = jobs.values().filter(|job| job.is_committed() && is_meant(&job.place, handle));
        let found = meant.max_by_key(|job| job.place.created).cloned();
        found.ok_or_else(|| match silent(looks) {
            Some(error) => error,
            None => refusals::no_job(handle),
        })
    }

    /// Asks again for a job that is known.
    pub async fn again(&self, job: &Job) -> Result<Option<Job>> {
        let hosts: Vec<String> = job.place.hosts.iter().map(|seat| seat.host.clone()).collect();
        let looks = self.look(&hosts, Some(&job.place.submission), Silent::Ask).await;
        let now = Job::gather(&looks).remove(&job.place.submission);
        match (now, silent(&looks)) {
            (None, Some(error)) => Err(error),
            (now, _) => Ok(now),
        }
    }

    /// Does what a job needs to continue or to come to its end. What fails is done by the next look.
    pub async fn carry_out(&self, job: &Job) {
        self.send(programs(job, job.orders())).await;
    }

    /// Keeps how jobs ended on their hosts, where it is known and not kept yet. What fails is done by the next look.
    pub async fn conclude(&self, jobs: impl IntoIterator<Item = &Job>) {
        let of = |job: &Job| programs(job, job.conclusions());
        self.send(jobs.into_iter().flat_map(of).collect()).await;
    }

    async fn send(&self, programs: Vec<(String, String)>) {
        for (host, answer) in self.each(programs, Silent::Ask).await {
            match answer {
                Ok(answer) => tracing::debug!(host, code = answer.code, said = answer.stderr, "carried out"),
                Err(error) => tracing::debug!(host, %error, "not carried out"),
            }
        }
    }

    /// Returns the pause between two looks after `quiet` without news.
    pub fn pause(&self, quiet: Duration) -> Duration {
        (quiet / 8).clamp(Duration::from_millis(200).min(self.settings.poll()), self.settings.poll())
    }
}

/// Returns whether a handle may mean a job: by its name, and by its uid if it has one.
fn is_meant(place: &Allocation, handle: &JobHandle) -> bool {
    place.name == handle.name() && handle.uid().is_none_or(|uid| place.submission.as_str().starts_with(uid))
}

/// A job to find.
enum Wanted<'a> {
    Handle(&'a JobHandle),
    Submission(&'a SubmissionId),
}

impl Wanted<'_> {
    fn may_be(&self, place: &Allocation) -> bool {
        match self {
            Self::Handle(handle) => is_meant(place, handle),
            Self::Submission(id) => place.submission == **id,
        }
    }

    /// Whether no other job can be meant, whatever other hosts say. Of several jobs of one name it is the newest; while one of them runs,
    /// there is no newer one, and when all hosts have answered (`is_last`).
    fn is(&self, job: &Job, is_last: bool) -> bool {
        let is_the_only = match self {
            Self::Handle(handle) => is_last || handle.uid().is_some() || !job.phase().0.is_terminal(),
            Self::Submission(_) => true,
        };
        self.may_be(&job.place) && job.is_committed() && is_the_only
    }
}

/// Returns what a host says of itself. Output without the line that `weftrun_look` begins with is not its output, and
/// proves of no job that it is not there.
fn look_of(host: &str, text: &str) -> Result<HostLook, NoAnswer> {
    if text.lines().any(|line| line.starts_with("up ")) {
        return Ok(HostLook::read(text));
    }
    let begins: String = clean(text).chars().take(80).collect();
    let error = Error::new(ErrorKind::Protocol, "unexpected output of the shell there");
    Err((&error.with("host", host).with("it begins with", begins)).into())
}

/// Returns the error of the first host that did not answer.
pub fn silent(looks: &Looks) -> Option<Error> {
    looks.iter().find_map(|(host, look)| Some(look.as_ref().err()?.error(host)))
}

/// Returns the programs that carry out the orders of a job, with their hosts.
fn programs(job: &Job, orders: Vec<(usize, Order)>) -> Vec<(String, String)> {
    let id = &job.place.submission;
    let one = |(at, order): (usize, Order)| {
        let seat = job.place.hosts.get(at)?;
        let program = match order {
            Order::Go(attempt) => Ok(format!("weftrun_go {id} {attempt}\n")),
            Order::Ask(text) => ask(id, &text, Some(job.attempt())),
            Order::Conclude(text) => {
                quote::word(&line(&text)).map(|text| format!("weftrun_conclude {id} {text}\n"))
            }
        };
        Some((seat.host.clone(), program.ok()?))
    };
    orders.into_iter().filter_map(one).collect()
}

/// Returns a text as one short line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}

/// Returns the program that tells a supervisor something: in one attempt only, or in whichever runs.
pub fn ask(id: &SubmissionId, text: &str, attempt: Option<u32>) -> Result<String> {
    let attempt = attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
    // Two that ask for the same at once write two files, also where one is forked from the other.
    let name = crate::random::bits()?;
    Ok(format!("weftrun_ask {id} {} {name:032x} {attempt}\n", quote::word(&line(text))?))
}

/// Returns the beginning of every program: the folder on the host, and the functions.
fn preamble(folder: &str) -> Result<String> {
    let base = if folder.starts_with('/') { "" } else { "\"$HOME\"/" };
    Ok(format!("weftrun_root={base}{}/hosts/$(uname -n)\n{LIBRARY}", quote::word(folder)?))
}
