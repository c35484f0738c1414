//! The shared context of every command: the output, the client, the runtime.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::io::{BufRead, Read};

use clap::ValueEnum;
use tokio::runtime::Runtime;
use weftrun::core::backend::TargetConfig;
use weftrun::core::job::{Action, JobFilter, JobHandle, JobSummary, age};
use weftrun::core::log::clean_text;
use weftrun::{Client, Config, Error, ErrorKind, Finding, Job, Registry, Result};

use crate::diagnostics;
use crate::global::{ColorWhen, Format, Global};
use crate::output::Output;

/// Codes of findings about ignored files and variables: they are printed even with `-q`.
const IGNORED: [&str; 2] = ["CONFIG-RELATIVE", "CONFIG-UNTRUSTED"];

/// The shared context of every command. The configuration is read once and the client created once, when a
/// command first needs them; `--version` and `--help` read no file.
#[derive(Debug)]
pub struct Context {
    registry: Registry,
    config: OnceCell<Config>,
    client: OnceCell<Client>,
    /// One for the whole run: a connection is closed together with the runtime it was opened on.
    runtime: OnceCell<Runtime>,
    /// The flags of every verb.
    pub global: Global,
    /// The destination of results and messages.
    pub out: Output,
    /// Findings of the job file that are printed as a part of the plan.
    noted: RefCell<Vec<Finding>>,
    /// The warnings already printed, each of which is printed once.
    warned: RefCell<BTreeSet<String>>,
}

impl Drop for Context {
    /// Does not wait for running tasks, such as a helper program that hangs.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Context {
    /// Creates the context of one run.
    pub fn new(registry: Registry, global: &Global) -> Self {
        let mut context = Self {
            registry,
            config: OnceCell::new(),
            client: OnceCell::new(),
            runtime: OnceCell::new(),
            global: global.clone(),
            out: Output::new(Format::Table, ColorWhen::Auto, global.quiet, global.verbose),
            noted: RefCell::default(),
            warned: RefCell::default(),
        };
        let format = global.output.or_else(|| context.configured("output")).unwrap_or_default();
        let color = global.color.or_else(|| context.configured("color")).unwrap_or_default();
        context.out = Output::new(format, color, global.quiet, global.verbose);
        context
    }

    /// Returns the configured value of a flag that was not given. An invalid configuration is ignored here;
    /// the command that needs it reports its errors.
    fn configured<T: ValueEnum>(&self, key: &str) -> Option<T> {
        let config = self.config().ok()?;
        T::from_str(config.resolved.settings.get(&[key])?.value.as_str()?, false).ok()
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the client of the registry and the configuration. Ignored parts of the configuration are
    /// reported once.
    pub fn client(&self) -> Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let config = self.config()?.clone();
        self.warn_of_config();
        let client = Client::builder().registry(self.registry.clone()).config(config).build()?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    /// Reports the ignored parts of the configuration, once.
    pub fn warn_of_config(&self) {
        let Ok(config) = self.config() else { return };
        let (files, others): (Vec<&Finding>, Vec<&Finding>) =
            config.findings().iter().partition(|finding| IGNORED.contains(&finding.code.as_str()));
        for finding in files {
            self.warn(&match &finding.fix {
                Some(fix) => format!("{}; {}", finding.message, fix.text),
                None => finding.message.clone(),
            });
        }
        if !others.is_empty() && self.warned.borrow_mut().insert("the configuration".to_owned()) {
            self.out.findings(&others.into_iter().cloned().collect::<Vec<_>>());
        }
    }

    /// Keeps the findings of a job file: they belong to its plan too.
    pub fn note(&self, findings: &[Finding]) {
        self.noted.borrow_mut().extend_from_slice(findings);
    }

    /// Returns the findings that were kept for a plan.
    pub fn noted(&self) -> Vec<Finding> {
        self.noted.borrow().clone()
    }

    /// Prints a warning on stderr once, in every output format and even with `-q`.
    pub fn warn(&self, text: &str) {
        if self.warned.borrow_mut().insert(text.to_owned()) {
            let style = crate::output::style::WARNING;
            self.out.stderr(&format!("{style}warning{style:#}: {}", clean_text(text)));
        }
    }

    /// Warns that requests to a target are not encrypted, at every use of it.
    pub fn warn_if_insecure(&self, target: &TargetConfig) {
        if let Some(why) = weftrun::insecurity(target) {
            self.warn(&format!("{why}: who is in between can read and change what is sent, tokens included"));
        }
    }

    /// Returns where the configuration is, read or not: it can be wrong.
    pub fn located_config(&self) -> Result<Config> {
        Config::locate(self.global.config.as_deref())
    }

    pub fn config(&self) -> Result<&Config> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let mut config = Config::load_with(self.global.config.as_deref()).inspect_err(|error| {
            // So that its errors can be shown with their lines.
            for span in error.findings().iter().filter_map(|finding| finding.span.as_ref()) {
                if let Ok(bytes) = weftrun::files::read(span.file.as_ref(), 1 << 20) {
                    diagnostics::remember(&span.file, &bytes);
                }
            }
        })?;
        // This program supports `supervise` under any name.
        config.binary = std::env::current_exe().ok().or(config.binary);
        Ok(self.config.get_or_init(|| config))
    }

    /// Returns the target of `-b`, else the configured default, else `local`; with `-n`, `-p` and `--profile`
    /// applied.
    pub fn target(&self, client: &Client) -> Result<TargetConfig> {
        let default = || client.config().default_target.clone().unwrap_or_else(|| "local".to_owned());
        let name = self.global.backend.clone().unwrap_or_else(default);
        let mut target = client.target(&name)?;
        let flags = [
            (&self.global.namespace, &mut target.namespace),
            (&self.global.project, &mut target.project),
            (&self.global.profile, &mut target.profile),
        ];
        for (flag, value) in flags {
            if flag.is_some() {
                value.clone_from(flag);
            }
        }
        self.warn_if_insecure(&target);
        Ok(target)
    }

    /// Binds a handle that the user typed: a complete one, or a bare name on the target of `-b`, which means the
    /// newest job of that name.
    pub async fn job(&self, client: &Client, text: &str) -> Result<Job> {
        let newest = |jobs: Vec<JobSummary>| {
            let count = jobs.len();
            let newest = jobs.into_iter().max_by_key(|job| job.created);
            if let Some(job) = newest.as_ref().filter(|_| count > 1) {
                self.out.say(format!("{count} jobs are named `{text}`; this is the newest, {}", job.handle));
            }
            Ok(newest)
        };
        self.job_among(client, text, newest).await
    }

    /// Binds a handle like [`Context::job`] for an action: a name must mean one job. Jobs that have ended are left
    /// aside where the action concerns only others.
    pub async fn job_for(&self, client: &Client, text: &str, action: Action) -> Result<Job> {
        let only = |mut jobs: Vec<JobSummary>| {
            if action != Action::Delete && jobs.iter().any(|job| !job.phase.is_terminal()) {
                jobs.retain(|job| !job.phase.is_terminal());
            }
            if jobs.len() < 2 {
                return Ok(jobs.pop());
            }
            let message = format!("{} jobs are named `{text}`", jobs.len());
            let error = Error::new(ErrorKind::Usage, message).hint("name one by its handle");
            let line = |job: &JobSummary| {
                let since = job.created.map(|then| format!(", {} old", age(weftrun::clock::now(), then)));
                format!("{} ({}{})", job.handle, job.phase, since.unwrap_or_default())
            };
            Err(jobs.iter().take(20).fold(error, |error, job| error.with("job", line(job))))
        };
        self.job_among(client, text, only).await
    }

    async fn job_among(
        &self,
        client: &Client,
        text: &str,
        choose: impl FnOnce(Vec<JobSummary>) -> Result<Option<JobSummary>>,
    ) -> Result<Job> {
        if text.contains("://") {
            let handle: JobHandle = text.parse()?;
            if let Ok(target) = client.target(handle.target()) {
                self.warn_if_insecure(&target);
            }
            return client.attach(&handle).await;
        }
        let target = self.target(client)?;
        let backend = client.connect(&target).await?;
        let is_named = |job: &JobSummary| job.name == text || job.handle.name() == text;
        let mut matches = backend.list(&JobFilter::all()).await?;
        matches.retain(is_named);
        if matches.is_empty() {
            // A task of a set is not listed by itself.
            matches = backend.list(&JobFilter::all().tasks(true)).await?;
            matches.retain(is_named);
        }
        let handle = choose(matches)?.map(|job| job.handle).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no job `{text}`"))
                .with("target", &target.name)
                .hint("`weftrun list` prints the handles; `-b` chooses another target")
        })?;
        client.attach(&handle).await
    }

    /// Asks on stderr, and returns the answer; empty if there is none.
    pub fn ask(&self, question: &str) -> String {
        self.out.stderr(question);
        let mut answer = String::new();
        let _ = std::io::stdin().lock().take(64).read_line(&mut answer);
        answer.trim().to_owned()
    }

    /// Runs a future to its end on a runtime of its own.
    pub fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        if self.runtime.get().is_none() {
            weftrun::files::spare_descriptors()?;
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(
                    |error| Error::new(ErrorKind::Io, "cannot start the async runtime").with_source(error),
                )?;
            let _ = self.runtime.set(runtime);
        }
        let runtime = self.runtime.get().ok_or_else(|| Error::new(ErrorKind::Io, "no async runtime"))?;
        let result = runtime.block_on(future);
        for note in self.client.get().into_iter().flat_map(Client::take_notes) {
            let fix = note.fix.map_or_else(String::new, |fix| format!("; {}", fix.text));
            self.warn(&format!("{}{fix}", note.message));
        }
        result
    }
}
