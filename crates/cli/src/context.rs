//! What every command has: the output, the client, the runtime.

use weftrun::core::backend::TargetConfig;
use weftrun::core::job::JobHandle;
use weftrun::{Client, Config, Error, ErrorKind, Job, Registry, Result};

use crate::args::Global;
use crate::output::Output;

/// What every command has. The client is made when a command asks for it, so that `--version` and `completions`
/// read no file.
#[derive(Debug)]
pub struct Context {
    registry: Registry,
    /// The flags every verb understands.
    pub global: Global,
    /// Where data and talk go.
    pub out: Output,
}

impl Context {
    /// Makes the context of one run.
    pub fn new(registry: Registry, global: &Global) -> Self {
        let out = Output::new(global.output, global.color, global.quiet, global.verbose);
        Self { registry, global: global.clone(), out }
    }

    /// The backends that are linked in.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Reads the configuration and makes the client.
    pub fn client(&self) -> Result<Client> {
        let config = self.config()?;
        self.out.findings(config.findings());
        Client::builder().registry(self.registry.clone()).config(config).build()
    }

    /// Reads the configuration.
    pub fn config(&self) -> Result<Config> {
        Config::load_with(self.global.config.as_deref())
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
