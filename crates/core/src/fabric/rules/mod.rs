//! One file per fabric; each rule is a pure function with an id to opt out by (table in `request/rules.rs`).

pub(crate) mod detect;
pub(crate) mod diagnostics;
pub(crate) mod efa;
pub mod efa_role;
pub(crate) mod gid;
pub(crate) mod infiniband;
pub(crate) mod launch;
mod networks;
pub(crate) mod opt_out;
mod placement;
pub(crate) mod pod;
pub(crate) mod preflight;
pub(crate) mod profiler;
pub(crate) mod queue;
pub(crate) mod ras;
pub mod rdma_present;
pub(crate) mod recorder;
pub(crate) mod roce;
pub(crate) mod set;
pub(crate) mod strict;
pub(crate) mod tcp;
pub(crate) mod webhook;

use super::Profile;
use super::node::Node;
use crate::Finding;
use crate::catalogue::Catalogue;
use crate::fabric::builder::{PlanBuilder, RoleRef};
use crate::fabric::view::{JobKind, JobView, RoleView, Workload};
use crate::fabric::{ClusterFacts, SkipReason};
use crate::request::{Fabric, FabricRequest, Origin};
use crate::shell::Mpirun;
use crate::text::Quantity;

/// The input of all rules.
pub(crate) struct Context<'a> {
    pub(crate) job: &'a JobView,
    pub(crate) profile: &'a Profile,
    pub(crate) options: &'a FabricRequest,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) facts: &'a ClusterFacts,
    /// The fabric that was chosen.
    pub(crate) fabric: Fabric,
}

/// The wanted `mpirun` of the launcher; the rules add to it.
#[derive(Default)]
pub(crate) struct Launch {
    /// The folder, the names, and for each name the rule it comes from.
    pub(crate) mpirun: Mpirun,
    pub(crate) rules: Vec<&'static str>,
    /// Whether the ranks load the profile's stack, and not one of the image or the node.
    pub(crate) from_stack: bool,
}

impl Launch {
    /// Forwards a variable.
    pub(crate) fn forward(&mut self, rule: &'static str, name: &str) {
        if !self.mpirun.forward.iter().any(|known| known == name) {
            self.mpirun.forward.push(name.to_owned());
            self.rules.push(rule);
        }
    }
}

impl<'a> Context<'a> {
    /// Returns the roles in order.
    pub(crate) fn roles(&self) -> impl Iterator<Item = RoleRef<'a>> + use<'a> {
        self.job.roles.iter().enumerate().map(|(index, view)| RoleRef { index, view })
    }

    /// Returns the worker roles in order.
    pub(crate) fn workers(&self) -> impl Iterator<Item = RoleRef<'a>> + use<'a> {
        self.roles().filter(|role| role.worker)
    }

    /// Returns the origin of what the profile sets.
    pub(crate) fn of_profile(&self) -> Origin {
        Origin::Profile(self.profile.name.clone())
    }

    /// Returns the known properties of a role's nodes.
    pub(crate) fn node(&self, role: &RoleView) -> Node {
        Node::of(role, self.job.queue.as_deref(), self.profile, self.options, self.catalogue, self.facts)
    }

    /// Returns the instance type of a role, if one is named: by the role, an option or the profile.
    pub(crate) fn named_type(&self, role: RoleRef<'a>) -> Option<&'a str> {
        let types = &role.view.instance_types;
        let of_role = types.first().filter(|_| types.len() == 1);
        let named = of_role.or(self.options.instance_type.as_ref()).or(self.profile.instance_type.as_ref());
        named.map(String::as_str)
    }

    /// Returns the number of accelerators that a pod of a role requests.
    pub(crate) fn accelerators(&self, role: &RoleView) -> u64 {
        match role.accelerators(&self.profile.accelerator) {
            0 => self.profile.pod.claimed(&self.profile.accelerator, &role.container.claims),
            asked => asked,
        }
    }

    /// Returns whether no worker is known to have accelerators, and skips a rule that is for NCCL then. The number may be
    /// given by whole nodes, a runtime or a launcher's default.
    pub(crate) fn skips_without_gpus(&self, plan: &mut PlanBuilder, rule: &'static str) -> bool {
        let none = self.workers().all(|role| self.accelerators(&role) == 0);
        if none {
            let why = "no worker names a number of GPUs, so it is not known whether NCCL runs";
            plan.skip_rule(rule, SkipReason::NoGpu, why);
        }
        none
    }

    /// Returns whether this is a job file, whose backend makes the objects.
    pub(crate) fn is_job_file(&self) -> bool {
        self.job.kind == JobKind::JobFile
    }

    /// Returns a worker whose number of pods or of accelerators is no number yet.
    fn placeholder(&self) -> Option<(&'a str, &'a str)> {
        self.workers().find_map(|role| {
            let asked = role.view.container.asks(&self.profile.accelerator);
            let amount = asked.filter(|text| Quantity::parse(text).is_none());
            Some((role.view.name.as_str(), role.view.replicas_text.as_deref().or(amount)?))
        })
    }

    /// Returns whether the job has more than one worker pod, and accelerators, which all fabrics need.
    pub(crate) fn is_distributed_with_gpus(&self, plan: &mut PlanBuilder) -> bool {
        let Some((reason, why)) = self.why_no_fabric() else { return true };
        plan.skip_fabric(self.fabric, reason, why);
        false
    }

    fn why_no_fabric(&self) -> Option<(SkipReason, String)> {
        if let Some((role, text)) = self.placeholder() {
            let why = format!(
                "{role} has `{text}` where a number is required; fill the template in first (envsubst)"
            );
            return Some((SkipReason::Template, why));
        }
        let (pods, kind) = (self.job.worker_pods(), self.job.kind);
        if pods < 2 && self.workers().any(|role| role.replicas_unknown) {
            let why = if kind == JobKind::Sbatch {
                "the number of nodes is not known, since no line of the script names it; give `--nodes` in an `#SBATCH` line"
            } else {
                "the number of pods is not known: no `replicas` beside the pod template names it"
            };
            return Some((SkipReason::NodesUnknown, why.to_owned()));
        }
        if pods < 2 {
            let why = match kind {
                // `sbatch` may be given more on its command line.
                JobKind::Sbatch => {
                    "no line of the script requests more than one node, and inside one nothing uses the fabric".to_owned()
                }
                JobKind::Workload(Workload::Pod) => {
                    "this is one pod; whether pods of other objects belong to its job is not known".to_owned()
                }
                JobKind::Workload(Workload::Unknown) => {
                    let why = "`replicas` names one pod, and how many this kind makes of it is not known";
                    return Some((SkipReason::NodesUnknown, why.to_owned()));
                }
                _ => format!("{pods} worker has ranks, so nothing passes between nodes"),
            };
            return Some((SkipReason::NotDistributed, why));
        }
        if self.workers().any(|role| self.accelerators(&role) > 0) {
            return None;
        }
        Some(match self.workers().find(|role| !role.container.claims.is_empty()) {
            Some(role) => {
                let claims = role.container.claims.join(", ");
                let why = format!(
                    "{} gets its devices by resource claims ({claims}), which no rule counts or adds to",
                    role.name
                );
                (SkipReason::ResourceClaims, why)
            }
            None => (SkipReason::NoGpu, self.no_gpu()),
        })
    }

    /// Returns why a job has no accelerators, in the words of its backend.
    fn no_gpu(&self) -> String {
        match self.job.kind {
            JobKind::Sbatch => {
                "the script requests no GPUs (`--gpus-per-node`), and no launcher gives their number (`--nproc-per-node 8`)"
                    .to_owned()
            }
            JobKind::JobFile => "no role requests GPUs (`gpus_per_node`)".to_owned(),
            _ => format!("no worker requests {}", self.profile.accelerator),
        }
    }

    /// Returns whether a worker's request goes to a worker; reports it if not.
    pub(crate) fn devices_reach_workers(&self, plan: &mut PlanBuilder) -> bool {
        if self.job.devices_go_to_launcher {
            plan.report(
                Finding::error(
                    "E-TRAINJOB-MPI-LAUNCHER",
                    "this runtime has a separate launcher, and what the TrainJob requests per node would go to it, not to \
                     the nodes",
                )
                .at("trainer")
                .fix(
                    "pass the runtime with --runtime, so that a TrainingRuntime with the devices on `node` is made; or \
                     set runLauncherAsNode",
                ),
            );
        }
        !self.job.devices_go_to_launcher
    }
}
