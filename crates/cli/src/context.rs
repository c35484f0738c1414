//! What every command has: the output, the client, the runtime.

use std::cell::OnceCell;

use clap::ValueEnum;
use weftrun::core::backend::TargetConfig;
use weftrun::core::job::JobHandle;
use weftrun::{Client, Config, Error, ErrorKind, Job, Registry, Result};

use crate::args::{ColorWhen, Format, Global};
use crate::diagnostics;
use crate::output::Output;

/// What every command has. The configuration is read once, the client made once, when a command asks for them;
/// `--version` and `--help` read no file.
#[derive(Debug)]
pub struct Context {
    registry: Registry,
    config: OnceCell<Config>,
    client: OnceCell<Client>,
    /// The flags every verb understands.
    pub global: Global,
    /// Where data and talk go.
    pub out: Output,
}

impl Context {
    /// Makes the context of one run.
    pub fn new(registry: Registry, global: &Global) -> Self {
        let mut context = Self {
            registry,
            config: OnceCell::new(),
            client: OnceCell::new(),
            global: global.clone(),
            out: Output::new(Format::Table, ColorWhen::Auto, global.quiet, global.verbose),
        };
        let format = global.output.or_else(|| context.configured("output")).unwrap_or_default();
        let color = global.color.or_else(|| context.configured("color")).unwrap_or_default();
        context.out = Output::new(format, color, global.quiet, global.verbose);
        context
    }

    /// What the configuration says of a flag that was not given. A configuration with mistakes says nothing here; the
    /// command that needs it reports them.
    fn configured<T: ValueEnum>(&self, key: &str) -> Option<T> {
        let config = self.config().ok()?;
        T::from_str(config.resolved.settings.get(&[key])?.value.as_str()?, false).ok()
    }

    /// The backends that are linked in.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The client, of the registry and the configuration. What was left out of the configuration is said once.
    pub fn client(&self) -> Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let config = self.config()?.clone();
        self.out.findings(config.findings());
        let client = Client::builder().registry(self.registry.clone()).config(config).build()?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    /// The configuration.
    pub fn config(&self) -> Result<&Config> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let mut config = Config::load_with(self.global.config.as_deref()).inspect_err(|error| {
            // So that its mistakes can be shown on their lines.
            for span in error.findings().iter().filter_map(|finding| finding.span.as_ref()) {
                if let Ok(bytes) = std::fs::read(&span.file) {
                    diagnostics::remember(&span.file, &bytes);
                }
            }
        })?;
        // This program understands `supervise`, whatever it is called.
        config.binary = std::env::current_exe().ok().or(config.binary);
        Ok(self.config.get_or_init(|| config))
    }

    /// The target of `-b`, else the configured default, else `local`; with `-n`, `-p` and `--profile` put in.
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
        Ok(target)
    }

    /// Binds a handle the user typed: a whole one, or a bare name on the target of `-b`.
    pub async fn job(&self, client: &Client, text: &str) -> Result<Job> {
        if text.contains("://") {
            return client.attach(&text.parse()?).await;
        }
        let target = self.target(client)?;
        let backend = client.connect(&target).await?;
        let mut matches = backend.list(&weftrun::core::job::JobFilter::all()).await?;
        matches.retain(|job| job.name == text || job.handle.name() == text);
        let newest = matches.into_iter().max_by_key(|job| job.created);
        let handle: JobHandle = newest.map(|job| job.handle).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no job `{text}`"))
                .with("target", &target.name)
                .hint("`weftrun list` prints the handles; `-b` chooses another target")
        })?;
        client.attach(&handle).await
    }

    /// Runs a future to its end on a runtime of its own.
    pub fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Error::new(ErrorKind::Io, "cannot start the async runtime").source(error))?;
        let result = runtime.block_on(future);
        runtime.shutdown_background();
        result
    }
}
