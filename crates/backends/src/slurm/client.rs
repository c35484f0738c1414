//! Slurm's commands, as questions with answers.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use tokio::sync::Mutex;
use weftrun_core::Result;
use weftrun_core::backend::TargetConfig;

use super::config::Settings;
use super::ids::JobId;
use super::records::{self, Job, Shown};
use super::transport::{Answer, Transport};
use super::{discover, error, quote};

/// The commands of one cluster.
#[derive(Debug)]
pub struct Client {
    /// The target's name, for handles.
    pub target: String,
    /// Its settings.
    pub settings: Settings,
    transport: Transport,
    snapshot: Mutex<Option<(Instant, Arc<Vec<Job>>)>>,
    foreign: std::sync::Mutex<BTreeSet<JobId>>,
    described: Mutex<Option<(Instant, Arc<String>)>>,
}

impl Client {
    /// Makes a client; nothing is run yet.
    pub fn new(target: &TargetConfig) -> Result<Self> {
        let settings = Settings::of(target)?;
        Ok(Self {
            target: target.name.clone(),
            transport: Transport::new(target, &settings)?,
            settings,
            snapshot: Mutex::new(None),
            foreign: std::sync::Mutex::default(),
            described: Mutex::new(None),
        })
    }

    /// Where the commands run, for messages.
    pub fn host(&self) -> &str {
        self.transport.host()
    }

    /// Runs a program that changes nothing; again after a lost connection.
    pub async fn read(&self, program: &str) -> Result<Answer> {
        self.transport.read(program).await
    }

    /// Runs a program once.
    pub async fn run(&self, program: &str) -> Result<Answer> {
        self.transport.run(program).await
    }

    /// `-M CLUSTER`, where the target names one.
    pub fn cluster(&self) -> Result<String> {
        self.settings
            .cluster
            .as_ref()
            .map_or(Ok(String::new()), |name| Ok(format!(" -M {}", quote::word(name)?)))
    }

    /// The `squeue` command for a selection such as `--me` or `-j 1,1`.
    fn squeue(&self, selection: &str) -> Result<String> {
        let cluster = self.cluster()?;
        Ok(format!(
            "SLURM_TIME_FORMAT=%s squeue{cluster} -h -t all {selection} -o '{}'",
            records::queue_format()
        ))
    }

    /// Jobs that slurmctld still knows.
    pub async fn queue(&self, selection: &str) -> Result<Vec<Job>> {
        let answer = self.read(&self.squeue(selection)?).await?;
        if answer.code != 0 {
            return Err(error::of_command("squeue", &answer.stderr, answer.code));
        }
        Ok(records::queue(&answer.text()))
    }

    /// Says that a job is watched that may belong to somebody else.
    pub fn also_watch(&self, id: &JobId) {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).insert(JobId::whole(id.number));
    }

    /// The user's own jobs and those also watched, at most one poll interval old: everybody who watches shares one
    /// `squeue`.
    pub async fn snapshot(&self) -> Result<Arc<Vec<Job>>> {
        let mut kept = self.snapshot.lock().await;
        if let Some((_, jobs)) = kept.as_ref().filter(|(at, _)| at.elapsed() < self.settings.poll()) {
            return Ok(Arc::clone(jobs));
        }
        let others: Vec<String> = {
            let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
            // Each id twice: squeue calls a single unknown id an error, but not two (seen on all releases).
            foreign.iter().flat_map(|id| [id.to_string(), id.to_string()]).collect()
        };
        let mut program = self.squeue("--me")?;
        if !others.is_empty() {
            program = format!("{program} && {}", self.squeue(&format!("-j {}", others.join(",")))?);
        }
        let answer = self.read(&program).await?;
        if answer.code != 0 {
            return Err(error::of_command("squeue", &answer.stderr, answer.code));
        }
        let mut jobs = records::queue(&answer.text());
        let mut seen = BTreeSet::new();
        jobs.retain(|job| seen.insert(job.printed.clone()));
        let jobs = Arc::new(jobs);
        *kept = Some((Instant::now(), Arc::clone(&jobs)));
        Ok(jobs)
    }

    /// What the cluster says of itself, as [`discover::ask`] asks it; not asked again for a minute.
    pub async fn described(&self) -> Result<Arc<String>> {
        let mut kept = self.described.lock().await;
        if let Some((_, text)) = kept.as_ref().filter(|(at, _)| at.elapsed() < discover::FRESH) {
            return Ok(Arc::clone(text));
        }
        let text = Arc::new(discover::ask(self).await?);
        *kept = Some((Instant::now(), Arc::clone(&text)));
        Ok(text)
    }

    /// Makes the next [`Client::snapshot`] a new one: something was changed.
    pub async fn forget_snapshot(&self) {
        *self.snapshot.lock().await = None;
    }

    /// All lives of jobs in accounting; none where the cluster has no accounting.
    pub async fn accounting(&self, selection: &str) -> Result<Option<Vec<Job>>> {
        let cluster = self.cluster()?;
        let program = format!(
            "SLURM_TIME_FORMAT=%s sacct{cluster} -X -D -P -n --delimiter='{}' {selection} --format={}",
            records::FIELD,
            records::accounting_format()
        );
        let answer = self.read(&program).await?;
        if answer.code == 0 {
            return Ok(Some(records::accounting(&answer.text())));
        }
        let said = format!("{}{}", answer.text(), answer.stderr);
        let none =
            ["accounting storage is disabled", "not running a supported accounting_storage", "not found"];
        if none.iter().any(|part| said.contains(part)) {
            return Ok(None);
        }
        Err(error::of_command("sacct", &said, answer.code))
    }

    /// What `scontrol` tells of a job; empty if it is gone.
    pub async fn shown(&self, id: &JobId) -> Result<Vec<Shown>> {
        let cluster = self.cluster()?;
        let answer = self.read(&format!("SLURM_TIME_FORMAT=%s scontrol{cluster} show job -d {id}")).await?;
        match answer.code {
            0 => Ok(records::shown(&answer.text())),
            _ if answer.stderr.contains("Invalid job id") => Ok(Vec::new()),
            code => Err(error::of_command("scontrol", &answer.stderr, code)),
        }
    }

    /// Runs one command of Slurm that changes something.
    pub async fn command(&self, name: &'static str, argv: &[String]) -> Result<Answer> {
        let cluster = self.cluster()?;
        let answer = self.run(&format!("{name}{cluster} {}", quote::words(argv)?)).await?;
        if answer.code == 0 { Ok(answer) } else { Err(error::of_command(name, &answer.stderr, answer.code)) }
    }

    /// The shell text that sets `dir` to the folder of logs, from the home directory.
    pub fn enter_log_dir(&self) -> Result<String> {
        Ok(format!("cd -- \"$HOME\" || exit 91\ndir={}\n", quote::word(&self.settings.log_dir)?))
    }
}
