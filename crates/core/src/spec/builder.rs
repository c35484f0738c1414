//! Builds a job spec in Rust.

use std::time::Duration;

use super::{Code, EnvVar, JobSpec, Launch, Parameter, RestartPolicy, RetryPolicy, Role, SecretRef, Volume};
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
        Self { spec: JobSpec { name: name.into(), ..JobSpec::default() } }
    }

    setters! {
        /// Sets the container image.
        image(image: impl Into<String>) |builder| builder.spec.image = Some(image.into());
        /// Sets who starts the processes.
        launch(launch: Launch) |builder| builder.spec.launch = launch;
        /// Adds a role.
        role(role: Role) |builder| builder.spec.roles.push(role);
        /// Adds code to the job.
        code(code: Code) |builder| builder.spec.code = Some(code);
        /// Adds an environment variable for every role.
        env(name: impl Into<String>, value: impl Into<String>)
            |builder| builder.spec.env.push(EnvVar { name: name.into(), value: value.into() });
        /// Adds an environment variable whose value is in the cluster's secret store.
        secret(env: impl Into<String>, secret: impl Into<String>, key: impl Into<String>)
            |builder| builder.spec.secrets.push(SecretRef { env: env.into(), secret: secret.into(), key: key.into() });
        /// Adds a volume.
        volume(volume: Volume) |builder| builder.spec.volumes.push(volume);
        /// Sets the fabric.
        fabric(fabric: Fabric) |builder| builder.spec.fabric.kind = fabric;
        /// Switches one fabric rule (`efa.hugepages`) on or off.
        rule(id: impl Into<String>, setting: RuleSetting)
            |builder| builder.spec.fabric.rules.insert(id.into(), setting);
        /// Sets the site profile.
        profile(name: impl Into<String>) |builder| builder.spec.profile = Some(name.into());
        /// Sets the queue, partition or node pool.
        queue(name: impl Into<String>) |builder| builder.spec.queue = Some(name.into());
        /// Sets all of the fabric request at once: GID index, networks, stack, strictness.
        fabric_request(request: FabricRequest) |builder| builder.spec.fabric = request;
        /// Sets the working directory.
        workdir(folder: impl Into<String>) |builder| builder.spec.workdir = Some(folder.into());
        /// Sets the priority class, or the QOS on Slurm.
        priority(name: impl Into<String>) |builder| builder.spec.priority = Some(name.into());
        /// Adds an annotation of every pod.
        annotation(key: impl Into<String>, value: impl Into<String>)
            |builder| builder.spec.annotations.insert(key.into(), value.into());
        /// Sets a key of one backend's settings.
        backend(backend: &str, key: &str, value: impl Into<serde_json::Value>)
            |builder| builder.spec.set_backend(backend, key, value);
        /// Sets what happens when a rank fails.
        restart(policy: RestartPolicy) |builder| builder.spec.restart = policy;
        /// Sets how often it is submitted again after a failure of its nodes.
        retry(policy: RetryPolicy) |builder| builder.spec.retry = Some(policy);
        /// Adds a node that the job does not run on.
        avoid(node: impl Into<String>) |builder| builder.spec.avoid.push(node.into());
        /// Sets how long the job may run.
        time_limit(limit: Duration) |builder| builder.spec.time_limit = Some(limit);
        /// Starts it after another job has succeeded: a handle, with `afterany:` before it after its end.
        after(job: impl Into<String>) |builder| builder.spec.after.push(job.into());
        /// Makes it a job of many tasks with these numbers (`0-19`, `0-19%4`).
        array(numbers: impl Into<String>) |builder| builder.spec.array = Some(numbers.into());
        /// Adds a parameter of a sweep, with its values.
        sweep(name: impl Into<String>, values: impl IntoIterator<Item = String>) |builder| builder.spec.sweep.push(
            Parameter { name: name.into(), values: values.into_iter().collect() });
        /// Limits how many tasks run at once.
        parallel(most: u32) |builder| builder.spec.parallel = Some(most);
        /// Adds a label.
        label(key: impl Into<String>, value: impl Into<String>)
            |builder| builder.spec.labels.insert(key.into(), value.into());
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
