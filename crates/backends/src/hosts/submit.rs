//! Submits exactly once over several hosts, and finds a submission again.
//!
//! The job is prepared on each of its hosts: a folder that appears by a rename, and a claim of the host that only one job can
//! make and that must still hold when the job is started. Then it is started, on the first host first: from that moment it is there. Each step does the same however often it
//! runs, so that after a lost answer the steps are simply taken again on the same hosts. A submission that is cut off before
//! the start leaves prepared folders, which free their hosts after ten minutes; one that is cut off after it is completed by
//! the next look ([`Job::orders`](super::status::Job::orders)).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};
use weftrun_core::backend::Rendered;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::text::counted;
use weftrun_core::{Error, ErrorKind, Result};

use super::allocation::{Allocation, Seat};
use super::client::{Client, LIBRARY, Silent};
use super::look::Looks;
use super::render::PreparedJob;
use super::status::{Job, Jobs};
use super::{capacity, error};
use crate::refusals;
use crate::remote::code_store::{self, Upload};
use crate::remote::{Answer, quote, script};
use crate::submit_once::{Created, Policy, SearchResult, Submission, prepared, submit_once};

/// Every step may be taken again: a request is sent again without a search.
const POLICY: Policy = Policy {
    absence: Duration::ZERO,
    requests: 3,
    sends: 4,
    blind: true,
    patience: Duration::from_secs(30),
    pause: Duration::from_millis(300),
};
/// How often other hosts are chosen when another job was faster.
const CHOICES: u32 = 3;
/// Time between two looks for free hosts.
const WAIT: Duration = Duration::from_secs(5);

pub async fn submit(client: &Client, rendered: &Rendered) -> Result<JobHandle> {
    let draft: &PreparedJob = prepared(rendered)?;
    let text = &rendered.documents.first().map(|document| document.text.clone()).unwrap_or_default();
    let sending = Sending { client, rendered, draft, text, place: Mutex::new(None) };
    submit_once(&sending, POLICY).await
}

pub async fn find(client: &Client, id: &SubmissionId) -> Result<Option<JobHandle>> {
    Ok(client.submitted(id).await?.map(|job| job.handle(&client.target)))
}

struct Sending<'a> {
    client: &'a Client,
    rendered: &'a Rendered,
    draft: &'a PreparedJob,
    text: &'a str,
    /// The hosts that were chosen: a second try uses the same.
    place: Mutex<Option<Allocation>>,
}

#[async_trait]
impl Submission for Sending<'_> {
    type Made = JobHandle;

    async fn create(&self) -> Result<Created<JobHandle>> {
        match self.attempt().await {
            Ok(job) => Ok(Created::Made(job)),
            Err(error) if error.is_retryable() && self.chosen().is_some() => Ok(Created::Unsent(error)),
            Err(error) => Err(error),
        }
    }

    async fn search(&self) -> Result<SearchResult<JobHandle>> {
        let found = find(self.client, &self.rendered.submission).await?;
        Ok(found.map_or(SearchResult::Absent, SearchResult::Ours))
    }
}

impl Sending<'_> {
    fn chosen(&self) -> Option<Allocation> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn choose(&self, place: Option<Allocation>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }

    fn id(&self) -> &SubmissionId {
        &self.rendered.submission
    }

    async fn attempt(&self) -> Result<JobHandle> {
        let wait = self.draft.own.wait().map_err(|what| Error::new(ErrorKind::InvalidSpec, what))?;
        // What could never run is refused at once.
        let candidates = capacity::candidates(self.client, self.draft)?;
        let (began, mut tries) = (Instant::now(), 0);
        let mut told = String::new();
        loop {
            let looks = self.client.inventory(&self.draft.own, Silent::Ask).await?;
            let jobs = Job::gather(&looks);
            for job in jobs.values().filter(|job| job.is_committed()) {
                self.client.carry_out(job).await;
            }
            if let Some(job) = jobs.get(self.id()) {
                self.choose(Some(job.place.clone()));
            }
            let place = match self.chosen() {
                Some(place) => place,
                None => {
                    if let Some(other) = Job::with_name_of(self.rendered, &jobs) {
                        return Err(refusals::taken_name(
                            &other.handle(&self.client.target),
                            &other.place.labels,
                        ));
                    }
                    match self.pick(&candidates, &looks) {
                        Ok(hosts) => self.place_of(&hosts, &looks).await?,
                        // Another submission has hosts and may not get all that it needs.
                        Err(error) if error.is_retryable() && tries < CHOICES => {
                            tries += 1;
                            tracing::debug!(%error, "chooses again");
                            pause().await;
                            continue;
                        }
                        Err(error) if began.elapsed() >= wait => return Err(error),
                        Err(error) => {
                            let text = error.to_string();
                            if text != told {
                                tracing::warn!("waiting for free hosts: {text}");
                                told = text;
                            }
                            sleep(WAIT.min(wait)).await;
                            continue;
                        }
                    }
                }
            };
            self.send_code(&place).await?;
            let started = match self.prepare(&place, &looks).await? {
                None => {
                    self.choose(Some(place.clone()));
                    self.start(&place).await?
                }
                Some(busy) => Err(busy),
            };
            match started {
                Ok(job) => return Ok(job),
                // Another job was faster.
                Err(busy) => {
                    self.choose(None);
                    tries += 1;
                    if tries >= CHOICES && began.elapsed() >= wait {
                        return Err(busy);
                    }
                    pause().await;
                }
            }
        }
    }

    /// Chooses the hosts: those that the job names, or the first that are free.
    fn pick(&self, candidates: &[String], looks: &Looks) -> Result<Vec<String>> {
        let wanted = self.draft.nodes.len();
        let jobs = Job::gather(looks);
        let (mut chosen, mut not, mut machines) = (Vec::new(), Vec::new(), BTreeSet::new());
        let taken = candidates.iter().any(|host| self.submission_of(host, looks, &jobs).is_some());
        for host in candidates {
            let Some(ranks) = self.draft.nodes.get(chosen.len()).map(|(ranks, ..)| *ranks) else { break };
            match self.why_not(host, ranks, looks, &jobs, &mut machines) {
                None => chosen.push(host.clone()),
                Some(why) => not.push(why),
            }
        }
        if chosen.len() == wanted {
            return Ok(chosen);
        }
        let free = match chosen.len() {
            0 => "none is free".to_owned(),
            1 => "1 is free".to_owned(),
            n => format!("{n} are free"),
        };
        let hosts = counted(wanted, "host");
        let error =
            Error::new(ErrorKind::Refused, format!("the job needs {hosts}, and {free}: {}", not.join("; ")));
        let error = error
            .hint("`--wait-for-hosts 1h` waits until enough hosts are free")
            .hint("`weftrun list` shows the jobs that run");
        Err(if taken { error.retryable() } else { error })
    }

    /// Returns the other submission that has a host and has not started its job.
    fn submission_of<'l>(&self, host: &str, looks: &'l Looks, jobs: &Jobs) -> Option<&'l str> {
        let busy = looks.get(host)?.as_ref().ok()?.busy.as_deref()?;
        let id = SubmissionId::parse(busy)?;
        let started = jobs.get(&id).is_some_and(Job::is_committed);
        (id != *self.id() && !started).then_some(busy)
    }

    fn why_not(
        &self,
        host: &str,
        ranks: u32,
        looks: &Looks,
        jobs: &Jobs,
        machines: &mut BTreeSet<String>,
    ) -> Option<String> {
        let look = match looks.get(host) {
            Some(Ok(look)) => look,
            Some(Err(why)) => return Some(format!("{host} does not answer ({why})")),
            None => return Some(format!("{host} was not asked")),
        };
        if let Some(slots) = capacity::slots(self.client, host).filter(|slots| *slots < ranks) {
            return Some(format!("{host} has {slots} slots, and the job needs {ranks}"));
        }
        if let Some(other) = self.submission_of(host, looks, jobs) {
            return Some(format!(
                "{host} is being taken by submission {other}; if that was cut off, the host is free after ten minutes"
            ));
        }
        let is_other = |job: &&Job| job.place.submission != *self.id() && job.is_active();
        if let Some(job) = Job::on(look, jobs).filter(is_other) {
            return Some(format!("{host} runs `{}` ({})", job.place.name, job.handle(&self.client.target)));
        }
        if look.address.is_empty() {
            return Some(match &self.draft.own.interface {
                Some(interface) => format!("{host} has no IPv4 address on {interface}"),
                None => format!("the address of {host} is not known: set `interface` of the target"),
            });
        }
        (!machines.insert(look.machine.clone()))
            .then(|| format!("{host} is the same machine as another host of the target"))
    }

    async fn place_of(&self, hosts: &[String], looks: &Looks) -> Result<Allocation> {
        let seats = hosts.iter().zip(&self.draft.nodes).filter_map(|(host, (ranks, role, replica))| {
            let look = looks.get(host)?.as_ref().ok()?;
            Some(Seat {
                host: host.clone(),
                address: look.address.clone(),
                ssh_port: look.ssh_port,
                user: look.user.clone(),
                ranks: *ranks,
                role: role.clone(),
                replica: *replica,
            })
        });
        let hosts_of: Vec<Seat> = seats.collect();
        // The submission chooses the port, so that two jobs of one first host seldom begin the search at the same one.
        let from = self
            .id()
            .as_str()
            .bytes()
            .fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let from = 20_000 + from % 20_000;
        let first = hosts.first().map_or("", String::as_str);
        let answer = self.client.read(first, &format!("weftrun_free_port {from}\n")).await?;
        let port = answer.text().lines().find_map(|line| line.strip_prefix("port ")?.parse().ok());
        let port = port.ok_or_else(|| error::failed(first, "no free port was found", &answer))?;
        Ok(Allocation {
            submission: self.id().clone(),
            name: self.rendered.name.clone(),
            fabric: Some(self.draft.fabric),
            launch: self.draft.launch,
            created: crate::clock::now().as_second(),
            restarts: self.draft.restarts,
            grace: self.client.settings.grace(),
            limit: self.draft.limit,
            port,
            labels: self.draft.labels.clone(),
            hosts: hosts_of,
        })
    }

    /// Returns the upload of the job's folder; none if it has none.
    fn upload(&self) -> Result<Option<Upload<'_>>> {
        self.draft.code.as_ref().map(|content| Upload::new(content, "", "$weftrun_root/code")).transpose()
    }

    /// Sends the archive of the job's folder to the hosts that do not have it.
    async fn send_code(&self, place: &Allocation) -> Result<()> {
        /// Hosts that a piece is sent to at once: each has its own copy in memory.
        const AT_ONCE: usize = 16;
        let Some(upload) = self.upload()? else { return Ok(()) };
        let looks = place.hosts.iter().map(|seat| (seat.host.clone(), upload.look())).collect();
        let mut lacking = Vec::new();
        for (host, answer) in self.client.each(looks, Silent::Ask).await {
            if !Upload::is_there(&host, &answer?)? {
                lacking.push(host);
            }
        }
        for hosts in lacking.chunks(AT_ONCE) {
            for program in upload.programs() {
                let program = program?;
                let programs = hosts.iter().map(|host| (host.clone(), program.clone())).collect();
                for (host, answer) in self.client.each(programs, Silent::Ask).await {
                    code_store::sent(&host, &answer?)?;
                }
            }
        }
        Ok(())
    }

    /// Prepares the job on every host, the first one before the others: two jobs that want the same hosts meet there.
    /// Returns why, if another job has one of them.
    async fn prepare(&self, place: &Allocation, looks: &Looks) -> Result<Option<Error>> {
        let programs: Vec<(String, String)> = (0..place.hosts.len())
            .filter_map(|at| Some((at, place.hosts.get(at)?.host.clone())))
            .map(|(at, host)| Ok((host, self.program(place, at, looks)?)))
            .collect::<Result<_>>()?;
        let (first, others) = programs.split_at(1.min(programs.len()));
        let mut failed = None;
        for part in [first, others] {
            for (host, answer) in self.client.each(part.to_vec(), Silent::Ask).await {
                let outcome = match answer {
                    Ok(answer) if answer.code == 0 => continue,
                    Ok(answer) if answer.code == error::BUSY => Ok(taken(&host, &answer)),
                    Ok(answer) => Err(error::failed(&host, "the job could not be put there", &answer)),
                    Err(error) => Err(error),
                };
                failed.get_or_insert(outcome);
            }
            if let Some(failed) = failed {
                self.withdraw(place).await;
                return failed.map(Some);
            }
        }
        if self.draft.makes_keys() {
            self.make_keys(place).await?;
        }
        Ok(None)
    }

    /// Takes back what was prepared and not started.
    async fn withdraw(&self, place: &Allocation) {
        let id = self.id();
        let program = format!("[ -d \"$weftrun_root/jobs/{id}/go-0\" ] || weftrun_remove {id}\n");
        let programs: Vec<_> = place.hosts.iter().map(|seat| (seat.host.clone(), program.clone())).collect();
        for (_, answer) in self.client.each(programs, Silent::Ask).await {
            if let Err(error) = answer {
                tracing::debug!(%error, "a prepared job was not withdrawn; it frees its host after ten minutes");
            }
        }
    }

    fn program(&self, place: &Allocation, at: usize, looks: &Looks) -> Result<String> {
        let script = |own: &str| format!("{LIBRARY}\n{own}");
        let mut files = vec![
            ("place", place.text(at)),
            ("job", self.text.to_owned()),
            ("supervise", script(include_str!("supervise.sh"))),
        ];
        if place.launch == weftrun_core::spec::Launch::Mpi {
            let hosts =
                place.hosts.iter().map(|seat| format!("{} slots={}\n", seat.address, seat.ranks)).collect();
            let known =
                place.hosts.iter().filter_map(|seat| Some((seat, looks.get(&seat.host)?.as_ref().ok()?)));
            let known = known.map(|(seat, look)| look.known_hosts(&seat.address, seat.ssh_port));
            files.push(("rank", script(include_str!("rank.sh"))));
            files.push(("rsh", format!("#!/bin/sh\n{}", include_str!("rsh.sh"))));
            files.push(("hosts", hosts));
            files.push(("known_hosts", known.collect()));
        }
        let mut program = String::from("weftrun_write() {\n");
        for (name, text) in &files {
            program.push_str(&quote::feed(&format!("cat > \"$1\"/{name}"), text)?);
            // A full disk, or a transport that dropped bytes.
            program.push_str(&format!("[ \"$(wc -c < \"$1\"/{name})\" -eq {} ] || return 1\n", text.len()));
        }
        if let Some(upload) = self.upload()? {
            program.push_str(&upload.link(&format!("\"$1\"/{}", script::ARCHIVE), "return 1"));
        }
        program.push_str(&format!(
            "[ ! -f \"$1\"/rsh ] || chmod 700 \"$1\"/rsh\n}}\nweftrun_clean {}\nweftrun_prepare_job {}\n",
            self.client.settings.keep_days(),
            self.id()
        ));
        Ok(program)
    }

    /// Makes a key on the first host that the others accept while the job is there.
    async fn make_keys(&self, place: &Allocation) -> Result<()> {
        let Some((first, others)) = place.hosts.split_first() else { return Ok(()) };
        let id = self.id();
        let program = format!(
            "cd \"$weftrun_root/jobs/{id}\" || exit 93\n\
             [ -f key ] || ssh-keygen -q -t ed25519 -N '' -C weftrun-{id} -f key > /dev/null || exit 91\ncat key.pub\n"
        );
        let answer = self.client.read(&first.host, &program).await?;
        let public = answer.text().trim().to_owned();
        if answer.code != 0 || !public.starts_with("ssh-ed25519 ") || public.contains(['\n', '"', '\'']) {
            return Err(error::failed(&first.host, "no key could be made", &answer));
        }
        let line = quote::word(&format!("restrict,from=\"{}\" {public}", first.address))?;
        let program = format!("weftrun_allow_key {id} {line}\n");
        let programs: Vec<_> = others.iter().map(|seat| (seat.host.clone(), program.clone())).collect();
        for (host, answer) in self.client.each(programs, Silent::Ask).await {
            let answer = answer?;
            if answer.code != 0 {
                return Err(error::failed(&host, "the job's key could not be added", &answer));
            }
        }
        Ok(())
    }

    /// Starts the prepared job, the first host before the others. Returns why, if another job has the first one by now.
    async fn start(&self, place: &Allocation) -> Result<std::result::Result<JobHandle, Error>> {
        let Some((first, others)) = place.hosts.split_first() else {
            return Err(Error::new(ErrorKind::InvalidSpec, "the job has no hosts"));
        };
        let program = format!("weftrun_go {} 0\n", self.id());
        let answer = self.client.read(&first.host, &program).await?;
        // The submission took so long that its claim has expired.
        if matches!(answer.code, error::BUSY | error::NO_JOB) {
            self.withdraw(place).await;
            return Ok(Err(taken(&first.host, &answer)));
        }
        if answer.code != 0 {
            return Err(error::failed(&first.host, "the job could not be started", &answer));
        }
        // From here on the job is there; what does not arrive now is done by the next look.
        let programs: Vec<_> = others.iter().map(|seat| (seat.host.clone(), program.clone())).collect();
        for (host, answer) in self.client.each(programs, Silent::Ask).await {
            match answer {
                Ok(answer) if answer.code == 0 => {}
                Ok(answer) => {
                    tracing::warn!(host, code = answer.code, said = answer.stderr, "not started yet");
                }
                Err(error) => tracing::warn!(host, %error, "not started yet"),
            }
        }
        let job = Job { place: place.clone(), seen: Vec::new() };
        Ok(Ok(job.handle(&self.client.target)))
    }
}

/// Waits before hosts are chosen again, so that submissions that met do not meet again.
async fn pause() {
    sleep(Duration::from_millis(fastrand::u64(300..1200))).await;
}

/// Returns the refusal of a host that another job has.
fn taken(host: &str, answer: &Answer) -> Error {
    let owner = crate::remote::error::clean(answer.text().trim().trim_start_matches("busy "));
    let by = if owner.is_empty() { "another job".to_owned() } else { format!("submission {owner}") };
    Error::new(ErrorKind::Refused, format!("host {host} was taken by {by} while this job was submitted"))
}
