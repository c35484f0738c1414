//! The hosts of a target, and the programs that run on them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::config::{JobSettings, Settings};
use super::status::{HostLook, Job, Order};
use super::{BACKEND, error};
use crate::remote::Answer;
use crate::remote::quote;
use crate::remote::ssh::Options;
use crate::remote::transport::{Access, Transport};

/// The functions of a host, which every program begins with.
pub const LIBRARY: &str = include_str!("node.sh");
/// Largest number of hosts that are asked at once.
const AT_ONCE: usize = 64;

/// The hosts of a target.
#[derive(Debug)]
pub struct Client {
    /// The target's name, for handles.
    pub target: String,
    /// Its settings.
    pub settings: Settings,
    hosts: Vec<(String, Transport)>,
}

/// What the hosts said, by name.
pub type Looks = BTreeMap<String, std::result::Result<HostLook, String>>;
/// The jobs among what the hosts said.
pub type Jobs = BTreeMap<SubmissionId, Job>;

impl Client {
    /// Makes a client; nothing is run yet.
    pub fn new(target: &TargetConfig) -> Result<Self> {
        let settings = Settings::of(target)?;
        let options = Options {
            config: settings.ssh_config.clone(),
            user: settings.user.clone(),
            jump: settings.jump.clone(),
            args: settings.ssh_args.clone(),
            share: settings.ssh_share,
        };
        let preamble = preamble(&settings.folder)?;
        let transport = |name: &String| {
            Transport::new(Access {
                ssh: Some((name.clone(), options.clone())),
                env: target.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
                preamble: preamble.clone(),
                timeout: settings.command_timeout(),
                late: "the host is busy or the link is slow; `command-seconds` of the target is the time allowed",
            })
        };
        let hosts = settings.hosts().iter().map(|(name, _)| (name.clone(), transport(name))).collect();
        Ok(Self { target: target.name.clone(), hosts, settings })
    }

    /// Returns the names of the hosts, in the target's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the transport of a host.
    pub fn transport(&self, host: &str) -> Result<&Transport> {
        self.hosts.iter().find(|(name, _)| name == host).map(|(_, transport)| transport).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfig,
                format!("`{host}` is not a host of target `{}`", self.target),
            )
            .hint("a job stays on its hosts: put the name back into `hosts` of the target")
        })
    }

    /// Runs a program on a host; the connection is tried again once.
    pub async fn read(&self, host: &str, program: &str) -> Result<Answer> {
        self.transport(host)?.read(program).await
    }

    /// Runs programs on several hosts at once, and returns the answers in the same order.
    pub async fn each(&self, programs: &[(String, String)]) -> Vec<Result<Answer>> {
        let mut exchanges: Vec<BoxFuture<'_, Result<Answer>>> = Vec::new();
        for (host, program) in programs {
            exchanges.push(self.read(host, program).boxed());
        }
        stream::iter(exchanges).buffered(AT_ONCE).collect().await
    }

    /// Asks hosts for their jobs, or for one job; all hosts if none is named.
    pub async fn look(&self, hosts: &[String], job: Option<&SubmissionId>) -> Looks {
        let program = format!("weftrun_look {}\n", job.map_or("", SubmissionId::as_str));
        self.ask_all(hosts, &program).await
    }

    /// Asks all hosts for their jobs and for what a submission must know of them.
    pub async fn survey(&self, own: &JobSettings) -> Result<Looks> {
        let interface = quote::word(own.interface.as_deref().unwrap_or_default())?;
        Ok(self.ask_all(&[], &format!("weftrun_survey {interface}\nweftrun_look\n")).await)
    }

    async fn ask_all(&self, hosts: &[String], program: &str) -> Looks {
        let named = |name: &&str| hosts.is_empty() || hosts.iter().any(|host| host == name);
        let programs: Vec<(String, String)> =
            self.names().filter(named).map(|name| (name.to_owned(), program.to_owned())).collect();
        let answers = self.each(&programs).await;
        let look = |((host, _), answer): ((String, String), Result<Answer>)| {
            let look = match answer {
                Ok(answer) if answer.code == 0 => Ok(HostLook::read(&answer.text())),
                Ok(answer) => Err(error::failed(&host, "its jobs could not be read", &answer).to_string()),
                Err(error) => Err(error.to_string()),
            };
            (host, look)
        };
        programs.into_iter().zip(answers).map(look).collect()
    }

    /// Returns the job of a handle: the newest of its name, or the one with its uid.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Unreachable`] if a host that may have it does not answer.
    pub async fn job(&self, handle: &JobHandle) -> Result<Job> {
        self.own(handle)?;
        let looks = self.look(&[], None).await;
        self.pick(handle, &looks, &Job::gather(&looks))
    }

    /// Checks that a handle is of this target.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`].
    pub fn own(&self, handle: &JobHandle) -> Result<()> {
        if handle.backend() == BACKEND && handle.target() == self.target {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Usage, format!("`{handle}` is no job of this target"))
            .with("target", format!("{BACKEND}://{}", self.target)))
    }

    /// Returns the job of a handle among what the hosts said.
    ///
    /// # Errors
    /// As [`Client::job`].
    pub fn pick(&self, handle: &JobHandle, looks: &Looks, jobs: &Jobs) -> Result<Job> {
        let fits = |job: &&Job| {
            job.is_committed()
                && job.place.name == handle.name()
                && handle.uid().is_none_or(|uid| job.place.submission.as_str().starts_with(uid))
        };
        let found = jobs.values().filter(fits).max_by_key(|job| job.place.created).cloned();
        found.ok_or_else(|| match silent(looks) {
            Some(error) => error,
            None => error::no_job(&self.target, handle),
        })
    }

    /// Asks again for a job that is known.
    pub async fn again(&self, job: &Job) -> Result<Option<Job>> {
        let hosts: Vec<String> = job.place.hosts.iter().map(|seat| seat.host.clone()).collect();
        let looks = self.look(&hosts, Some(&job.place.submission)).await;
        let now = Job::gather(&looks).remove(&job.place.submission);
        match (now, silent(&looks)) {
            (None, Some(error)) => Err(error),
            (now, _) => Ok(now),
        }
    }

    /// Does what a job needs to go on or to come to its end. What fails is done by the next look.
    pub async fn carry_out(&self, job: &Job) {
        let mut programs = Vec::new();
        for (at, order) in job.orders() {
            let Some(seat) = job.place.hosts.get(at) else { continue };
            let id = &job.place.submission;
            let program = match order {
                Order::Go(attempt) => Ok(format!("weftrun_go {id} {attempt}\n")),
                Order::Ask(text) => ask(id, &text, Some(job.attempt())),
                Order::Conclude(text) => {
                    quote::word(&line(&text)).map(|text| format!("weftrun_conclude {id} {text}\n"))
                }
            };
            if let Ok(program) = program {
                programs.push((seat.host.clone(), program));
            }
        }
        for (answer, (host, _)) in self.each(&programs).await.into_iter().zip(&programs) {
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

/// Returns the error of the first host that did not answer.
pub fn silent(looks: &Looks) -> Option<Error> {
    let (host, why) = looks.iter().find_map(|(host, look)| Some((host, look.as_ref().err()?)))?;
    Some(
        Error::new(
            ErrorKind::Unreachable,
            format!("host {host} does not answer, and may have the job: {why}"),
        )
        .hint(format!("check `ssh {host} true` from this machine"))
        .retryable(),
    )
}

/// Returns a text as one short line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}

/// Returns the program that tells a supervisor something: in one attempt only, or in whichever runs.
pub fn ask(id: &SubmissionId, text: &str, attempt: Option<u32>) -> Result<String> {
    let attempt = attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
    Ok(format!("weftrun_ask {id} {} {:016x} {attempt}\n", quote::word(&line(text))?, fastrand::u64(..)))
}

/// Returns the beginning of every program: the folder on the host, and the functions.
fn preamble(folder: &str) -> Result<String> {
    let folder = folder.trim_end_matches('/');
    let base = if folder.starts_with('/') { "" } else { "\"$HOME\"/" };
    Ok(format!("weftrun_root={base}{}/hosts/$(uname -n)\n{LIBRARY}", quote::word(folder)?))
}
