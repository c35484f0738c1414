//! Builds a job spec in Rust.

use std::time::Duration;

use super::{Code, EnvVar, JobSpec, Launch, RestartPolicy, Role, SecretRef, Volume};
use crate::Result;
use crate::catalogue::Catalogue;
use crate::request::{Fabric, FabricRequest, RuleSetting};

/// Builds a [`JobSpec`]; [`JobSpecBuilder::build`] reports every mistake at once.
///
/// ```
/// use weftrun_core::spec::{JobSpec, Launch, Role};
/// let builder = JobSpec::builder("llama-8b").launch(Launch::Torchrun).workdir("/work").priority("high");
/// let job = builder.role(Role::worker().nodes(2).gpus_per_node(8).command(["train.py"])).build()?;
/// assert_eq!(job.world_size(), 16);
///
/// let error = JobSpec::builder("Not a name").build().unwrap_err();
/// assert!(error.findings().len() > 1);
/// # Ok::<(), weftrun_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct JobSpecBuilder {
    spec: JobSpec,
}

impl JobSpecBuilder {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { spec: JobSpec { name: name.into(), ..JobSpec::empty() } }
    }

    /// Sets the container image.
    #[must_use]
    pub fn image(mut self, image: impl Into<String>) -> Self {
        self.spec.image = Some(image.into());
        self
    }

    /// Sets who starts the processes.
    #[must_use]
    pub fn launch(mut self, launch: Launch) -> Self {
        self.spec.launch = launch;
        self
    }

    /// Adds a role.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.spec.roles.push(role);
        self
    }

    /// Adds code to the job.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.spec.code = Some(code);
        self
    }

    /// Adds an environment variable for every role.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.spec.env.push(EnvVar { name: name.into(), value: value.into() });
        self
    }

    /// Adds an environment variable whose value is in the cluster's secret store.
    #[must_use]
    pub fn secret(
        mut self,
        env: impl Into<String>,
        secret: impl Into<String>,
        key: impl Into<String>,
    ) -> Self {
        self.spec.secrets.push(SecretRef { env: env.into(), secret: secret.into(), key: key.into() });
        self
    }

    /// Adds a volume.
    #[must_use]
    pub fn volume(mut self, volume: Volume) -> Self {
        self.spec.volumes.push(volume);
        self
    }

    /// Sets the fabric.
    #[must_use]
    pub fn fabric(mut self, fabric: Fabric) -> Self {
        self.spec.fabric.kind = fabric;
        self
    }

    /// Switches one fabric rule (`efa.hugepages`) on or off.
    #[must_use]
    pub fn rule(mut self, id: impl Into<String>, setting: RuleSetting) -> Self {
        self.spec.fabric.rules.insert(id.into(), setting);
        self
    }

    /// Sets the site profile.
    #[must_use]
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.spec.profile = Some(name.into());
        self
    }

    /// Sets the queue, partition or node pool.
    #[must_use]
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.spec.queue = Some(name.into());
        self
    }

    /// Sets all of the fabric request at once: GID index, networks, stack, strictness.
    #[must_use]
    pub fn fabric_request(mut self, request: FabricRequest) -> Self {
        self.spec.fabric = request;
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn workdir(mut self, folder: impl Into<String>) -> Self {
        self.spec.workdir = Some(folder.into());
        self
    }

    /// Sets the priority class, or the QOS on Slurm.
    #[must_use]
    pub fn priority(mut self, name: impl Into<String>) -> Self {
        self.spec.priority = Some(name.into());
        self
    }

    /// Adds an annotation of every pod.
    #[must_use]
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.spec.annotations.insert(key.into(), value.into());
        self
    }

    /// Sets a key of one backend's settings.
    #[must_use]
    pub fn backend(mut self, backend: &str, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.spec.set_backend(backend, key, value);
        self
    }

    /// Sets what happens when a rank fails.
    #[must_use]
    pub fn restart(mut self, policy: RestartPolicy) -> Self {
        self.spec.restart = policy;
        self
    }

    /// Sets how long the job may run.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.spec.time_limit = Some(limit);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.spec.labels.insert(key.into(), value.into());
        self
    }

    /// Ends the builder.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`](crate::ErrorKind::InvalidSpec) with a finding for each mistake.
    pub fn build(self) -> Result<JobSpec> {
        self.spec.refuse_invalid(&Catalogue::builtin())?;
        Ok(self.spec)
    }
}
