//! Slurm's commands as typed queries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use weftrun_core::backend::TargetConfig;
use weftrun_core::{Error, Finding, Result};

use super::cluster::Cluster;
use super::config::SlurmTarget;
use super::ids::JobId;
use super::records::{self, Job, Shown};
use super::rest::Rest;
use super::{discover, error, preamble, quote};
use crate::cache::Cache;
use crate::remote::Answer;
use crate::remote::ssh::{Options, Ssh};
use crate::remote::transport::Transport;

/// The rows of one job, and the further details of each.
type JobDetails = Vec<(Job, Shown)>;

/// How slurmctld is reached.
#[allow(clippy::large_enum_variant, reason = "a target has one")]
#[derive(Debug)]
pub enum Access {
    /// By Slurm's commands.
    Commands,
    /// By slurmrestd.
    Rest(Rest),
}

impl Access {
    /// Returns whether slurmrestd is used.
    pub fn is_rest(&self) -> bool {
        matches!(self, Self::Rest(_))
    }
}

/// One cluster.
#[derive(Debug)]
pub struct Client {
    /// The target's name, for handles.
    pub target: String,
    pub settings: SlurmTarget,
    /// How slurmctld is reached.
    #[allow(clippy::large_enum_variant, reason = "a target has one")]
    pub access: Access,
    /// The folder in which `submit` is called.
    pub folder: Option<String>,
    /// Where Slurm's commands run.
    pub transport: Transport,
    snapshot: Mutex<Option<(Instant, Arc<Vec<Job>>)>>,
    /// Jobs that were fetched one by one over slurmrestd, whose list contains the jobs of all users.
    single: Mutex<BTreeMap<u64, (Instant, JobDetails)>>,
    foreign: std::sync::Mutex<BTreeSet<JobId>>,
    described: Mutex<Option<(Instant, Arc<Cluster>)>>,
    cache: Cache,
    /// When slurmdbd last failed to answer, and the error text.
    no_database: std::sync::Mutex<Option<(Instant, String)>>,
    /// Failures that a result was returned without.
    notes: std::sync::Mutex<Vec<Finding>>,
}

/// Returns how the host of Slurm's commands is reached.
fn transport(target: &TargetConfig, settings: &SlurmTarget) -> Result<Transport> {
    let options = Options {
        config: settings.ssh_config.clone(),
        user: None,
        jump: None,
        args: settings.ssh_args.clone(),
        share: settings.ssh_share.unwrap_or(true),
        connect: 10,
        keepalives: 3,
    };
    Ok(Transport {
        ssh: settings.ssh.as_deref().map(|host| Ssh::new(host, &options)),
        env: target.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        preamble: preamble::preamble(settings)?,
        timeout: settings.command_timeout(),
        late: "slurmctld may be down or busy; `command-seconds` of the target is the time allowed",
    })
}

/// Returns the cache of the cluster's facts: one file of a target, for the host and the folder that were queried last.
fn cache(target: &TargetConfig, settings: &SlurmTarget, folder: Option<&str>) -> Cache {
    let SlurmTarget { ssh, ssh_config, ssh_args, bin_dir, cluster, .. } = settings;
    let of = format!("{ssh:?} {ssh_config:?} {ssh_args:?} {bin_dir:?} {cluster:?} {folder:?}");
    Cache::new(target.state_dir.join("cluster.json"), &of)
}

impl Client {
    /// Makes a client; nothing is run yet.
    pub fn new(target: &TargetConfig) -> Result<Self> {
        let settings = SlurmTarget::of(target)?;
        let folder = folder(target);
        Ok(Self {
            cache: cache(target, &settings, folder.as_deref()),
            target: target.name.clone(),
            transport: transport(target, &settings)?,
            access: match &settings.rest {
                Some(base) => Access::Rest(Rest::new(target, &settings, base)?),
                None => Access::Commands,
            },
            folder,
            settings,
            snapshot: Mutex::new(None),
            single: Mutex::default(),
            foreign: std::sync::Mutex::default(),
            described: Mutex::new(None),
            no_database: std::sync::Mutex::default(),
            notes: std::sync::Mutex::default(),
        })
    }

    /// Returns the host of the commands, or the address of slurmrestd, for messages.
    pub fn host(&self) -> &str {
        match &self.access {
            Access::Commands => self.transport.host(),
            Access::Rest(rest) => rest.base(),
        }
    }

    /// Returns `-M CLUSTER`, where the target names a cluster.
    pub fn cluster(&self) -> Result<String> {
        self.settings
            .cluster
            .as_ref()
            .map_or(Ok(String::new()), |name| Ok(format!(" -M {}", quote::word(name)?)))
    }

    /// Returns the `squeue` command for a selection such as `--me` or `-j 1,1`.
    fn squeue(&self, selection: &str) -> Result<String> {
        let cluster = self.cluster()?;
        Ok(format!(
            "SLURM_TIME_FORMAT=%s squeue{cluster} -h -t all {selection} -o '{}'",
            records::queue_format()
        ))
    }

    /// Returns the rows of one job that slurmctld still has.
    pub async fn rows(&self, id: &JobId) -> Result<Vec<Job>> {
        if let Access::Rest(rest) = &self.access {
            return Ok(self.single(rest, id).await?.into_iter().map(|(row, _)| row).collect());
        }
        let snapshot = self.snapshot().await?;
        let mut rows: Vec<Job> = snapshot.iter().filter(|job| job.belongs_to(id)).cloned().collect();
        if rows.is_empty() {
            // Twice: squeue reports a single unknown id as an error, but not two (seen on all releases).
            rows = self.queued(&self.squeue(&format!("-j {id},{id}"))?).await?;
            rows.retain(|job| job.belongs_to(id));
            if !rows.is_empty() {
                // It may be another user's.
                lock(&self.foreign).insert(JobId::whole(id.number));
            }
        }
        Ok(rows)
    }

    /// Returns one job over slurmrestd, at most one poll interval old.
    async fn single(&self, rest: &Rest, id: &JobId) -> Result<JobDetails> {
        let mut kept = self.single.lock().await;
        let of_id =
            |rows: &[(Job, Shown)]| rows.iter().filter(|(row, _)| row.belongs_to(id)).cloned().collect();
        if let Some((_, rows)) = kept.get(&id.number).filter(|(at, _)| at.elapsed() < self.settings.poll()) {
            return Ok(of_id(rows));
        }
        let rows = rest.job(&JobId::whole(id.number)).await?;
        let found = of_id(&rows);
        kept.retain(|_, (at, _)| at.elapsed() < self.settings.poll());
        kept.insert(id.number, (Instant::now(), rows));
        Ok(found)
    }

    /// Returns the user's own jobs and the added ones, at most one poll interval old: all watchers share one
    /// `squeue`.
    pub async fn snapshot(&self) -> Result<Arc<Vec<Job>>> {
        let mut kept = self.snapshot.lock().await;
        if let Some((_, jobs)) = kept.as_ref().filter(|(at, _)| at.elapsed() < self.settings.poll()) {
            return Ok(Arc::clone(jobs));
        }
        let jobs = Arc::new(match &self.access {
            Access::Rest(rest) => {
                let (mut jobs, user) = (rest.jobs().await?, rest.user().await?);
                jobs.retain(|job| job.user == user);
                jobs
            }
            Access::Commands => {
                // Each id twice: squeue reports a single unknown id as an error, but not two (seen on all
                // releases).
                let others: Vec<String> =
                    lock(&self.foreign).iter().flat_map(|id| [id.to_string(), id.to_string()]).collect();
                let mut program = self.squeue("--me")?;
                if !others.is_empty() {
                    program = format!("{program} && {}", self.squeue(&format!("-j {}", others.join(",")))?);
                }
                let mut jobs = self.queued(&program).await?;
                let mut seen = BTreeSet::new();
                jobs.retain(|job| seen.insert(job.printed.clone()));
                jobs
            }
        });
        *kept = Some((Instant::now(), Arc::clone(&jobs)));
        Ok(jobs)
    }

    /// Returns the rows that a `squeue` prints.
    async fn queued(&self, squeue: &str) -> Result<Vec<Job>> {
        let answer = self.transport.read(squeue).await?;
        match answer.code {
            0 => records::queue(&answer.text()),
            code => Err(error::of_command("squeue", &answer.stderr, code)),
        }
    }

    /// Returns the cluster facts that [`discover::ask`] queries. They are cached for one minute in the
    /// process and for ten minutes on disk. `anew` skips the cache on disk, for a job that cached facts would
    /// refuse; facts that this process has just read remain valid.
    pub async fn described(&self, anew: bool) -> Result<Arc<Cluster>> {
        let mut kept = self.described.lock().await;
        let fresh = if anew { discover::JUST_NOW } else { discover::FRESH };
        if let Some((_, known)) = kept.as_ref().filter(|(at, _)| at.elapsed() < fresh) {
            return Ok(Arc::clone(known));
        }
        let cluster = Arc::new(match &self.access {
            Access::Rest(rest) => rest.described().await?,
            Access::Commands => {
                if let Some((text, age)) = self.cache.read::<String>().filter(|_| !anew) {
                    tracing::debug!(seconds = age.as_secs(), "the facts of the cluster are kept ones");
                    // It counts as old in this process: before a job is refused, the cluster is queried
                    // again.
                    return Ok(Arc::new(Cluster::read(&text)));
                }
                let text = discover::ask(self).await?;
                self.cache.write(&text).await;
                Cluster::read(&text)
            }
        });
        *kept = Some((Instant::now(), Arc::clone(&cluster)));
        Ok(cluster)
    }

    /// Makes the next [`Client::snapshot`] query the cluster, since something was changed.
    pub async fn forget_snapshot(&self) {
        *self.snapshot.lock().await = None;
        self.single.lock().await.clear();
    }

    /// Returns the runs of a job in accounting, or of all the user's jobs of the last `days` days; none where the cluster has no
    /// accounting. slurmdbd is not queried if it did not answer a moment ago.
    pub async fn accounted(&self, id: Option<&JobId>, days: u32) -> Result<Option<Vec<Job>>> {
        let known = lock(&self.no_database).clone();
        if let Some((_, said)) = known.filter(|(at, _)| at.elapsed() < DATABASE_PAUSE) {
            return Err(error::no_database(&said));
        }
        let answer = match (&self.access, id) {
            (Access::Rest(rest), _) => rest.accounting(id, days).await,
            (Access::Commands, Some(id)) => self.accounting(&format!("-j {id}")).await,
            (Access::Commands, None) => self.accounting(&format!("-S now-{days}days")).await,
        };
        answer.inspect_err(|error| {
            if let Some(said) = error::said_without_database(error) {
                *lock(&self.no_database) = Some((Instant::now(), said.to_owned()));
            }
        })
    }

    /// Returns what accounting has, and the error where slurmdbd is down.
    ///
    /// # Errors
    /// Every other failure, as [`Client::accounted`].
    pub async fn accounted_if_up(&self, id: Option<&JobId>, days: u32) -> Result<(Vec<Job>, Option<Error>)> {
        match self.accounted(id, days).await {
            Ok(rows) => Ok((rows.unwrap_or_default(), None)),
            Err(error) if error::is_down_database(&error) => Ok((Vec::new(), Some(error))),
            Err(error) => Err(error),
        }
    }

    /// Keeps a failure without which a result was returned, for
    /// [`Backend::take_notes`](weftrun_core::backend::Backend::take_notes).
    pub fn note(&self, failed: Option<Error>) {
        let Some(error) = failed else { return };
        let note = Finding::warning("SLURM-NO-ACCOUNTING", error.message());
        let note = error.hints().iter().take(1).fold(note, |note, hint| note.fix(hint.clone()));
        let mut notes = lock(&self.notes);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub fn take_notes(&self) -> Vec<Finding> {
        std::mem::take(&mut lock(&self.notes))
    }

    async fn accounting(&self, selection: &str) -> Result<Option<Vec<Job>>> {
        let text = self.accounting_text(&format!("-X -D {selection}"), &records::accounting_format()).await?;
        text.map(|text| records::accounting(&text)).transpose()
    }

    /// Returns what `sacct` prints of these columns; none without accounting.
    pub async fn accounting_text(&self, selection: &str, columns: &str) -> Result<Option<String>> {
        let cluster = self.cluster()?;
        // sacct waits 45 s for a slurmdbd that accepts connections and does not answer (seen on 22.05).
        let program = format!(
            "{}SLURM_TIME_FORMAT=%s $limit sacct{cluster} -P -n --delimiter='{}' {selection} --format={columns}",
            quote::limit(DATABASE_LIMIT),
            records::FIELD,
        );
        let answer = self.transport.read(&program).await?;
        if answer.code == 0 {
            return Ok(Some(answer.text()));
        }
        let said = format!("{}{}", answer.text(), answer.stderr);
        let none =
            ["accounting storage is disabled", "not running a supported accounting_storage", "not found"];
        if none.iter().any(|part| said.contains(part)) {
            return Ok(None);
        }
        if error::is_no_database(&said) || matches!(answer.code, 124 | 137) {
            return Err(error::no_database(&said));
        }
        Err(error::of_command("sacct", &said, answer.code))
    }

    /// Returns the output of `scontrol show job`; empty if the job is gone.
    pub async fn shown(&self, id: &JobId) -> Result<Vec<Shown>> {
        if let Access::Rest(rest) = &self.access {
            return Ok(self.single(rest, id).await?.into_iter().map(|(_, shown)| shown).collect());
        }
        let cluster = self.cluster()?;
        let answer =
            self.transport.read(&format!("SLURM_TIME_FORMAT=%s scontrol{cluster} show job -d {id}")).await?;
        match answer.code {
            0 => records::shown(&answer.text()),
            _ if answer.stderr.contains("Invalid job id") => Ok(Vec::new()),
            code => Err(error::of_command("scontrol", &answer.stderr, code)),
        }
    }

    /// Runs one Slurm command that changes something.
    pub async fn command(&self, name: &'static str, argv: &[String]) -> Result<Answer> {
        let answer = self.answer(name, argv).await?;
        if answer.code == 0 { Ok(answer) } else { Err(error::of_command(name, &answer.stderr, answer.code)) }
    }

    /// Runs a command of Slurm; an exit code other than 0 is an answer, not an error.
    pub async fn answer(&self, name: &'static str, argv: &[String]) -> Result<Answer> {
        let cluster = self.cluster()?;
        self.transport.run(&format!("{name}{cluster} {}", quote::words(argv)?)).await
    }

    /// Returns whether the files of jobs can be read.
    pub fn has_files(&self) -> bool {
        self.settings.reached_log_dir().is_some()
    }

    /// Returns shell code that sets `dir` to the log folder, starting at the home directory.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where only slurmrestd is available: it serves no files.
    pub fn enter_log_dir(&self) -> Result<String> {
        let dir = self.settings.reached_log_dir().ok_or_else(|| {
            Error::unsupported(super::BACKEND, "logs")
                .with("log-dir", self.settings.log_dir())
                .hint("slurmrestd gives no files: set `path-map` in the target where the folder is mounted here, or `ssh`")
        })?;
        let root = if dir.starts_with('/') { "" } else { "\"${PWD%/}\"/" };
        Ok(format!("cd -- \"${{HOME:-/}}\" || exit 91\ndir={root}{}\n", quote::word(&dir)?))
    }
}

fn lock<T>(shared: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time limit of a query to accounting, in seconds.
pub const DATABASE_LIMIT: u64 = 30;
/// How long no query is sent to a slurmdbd that did not answer.
const DATABASE_PAUSE: Duration = Duration::from_secs(30);

/// Returns the caller's working directory under the name that its shell uses. A name that now refers to
/// another folder is rejected; a name that does not exist on this machine may exist on the cluster.
fn folder(target: &TargetConfig) -> Option<String> {
    let named = target.env.get("PWD").filter(|folder| folder.starts_with('/'))?;
    let here = std::env::current_dir().ok()?;
    match std::fs::canonicalize(named) {
        Ok(real) if real != here => here.to_str().map(str::to_owned),
        _ => Some(named.clone()),
    }
    .filter(|folder| !folder.contains(char::is_control))
}
