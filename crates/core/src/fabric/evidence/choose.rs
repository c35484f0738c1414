//! Chooses a job's profile where none was named.

use super::{Signs, Site, Weighed, weigh};
use crate::Result;
use crate::catalogue::Catalogue;
use crate::fabric::decide::{HOW_TO_SAY, looked_for};
use crate::fabric::rules::rdma_present;
use crate::fabric::view::JobView;
use crate::fabric::{ClusterFacts, FabricPlan, Profile, Profiles, SkipReason, Skipped, decide};
use crate::request::{Fabric, FabricRequest};
use crate::spec::JobSpec;

/// The form in which jobs are given to their cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Existing Kubernetes objects.
    Manifest,
    /// sbatch scripts, and jobs on hosts without a container platform.
    Script,
    /// Kubernetes objects that a backend makes; they mount a folder of the node only on request.
    Made,
}

impl Site {
    /// Returns the name of the profile for jobs of a form.
    pub fn profile(&self, form: Form) -> Option<&'static str> {
        match form {
            Form::Manifest => self.manifests,
            Form::Script => self.scripts,
            Form::Made => self.manifests.map(|name| if name == "dgxc" { "eks-image" } else { name }),
        }
    }
}

impl Profiles {
    /// Returns the profiles that evidence can choose, read once for many jobs.
    ///
    /// # Errors
    /// Those of [`Profiles::get`], for a profile that the user replaced.
    pub fn of_sites(&self) -> Result<Vec<Profile>> {
        let mut names: Vec<&str> =
            super::SITES.iter().flat_map(|site| [site.manifests, site.scripts]).flatten().collect();
        names.extend(["roce", "infiniband", "parallelcluster"]);
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.get(name)).collect()
    }
}

/// Weighs the signs of a document and the cluster, and picks the profile for it.
pub fn choose<'p>(
    mut signs: Signs,
    facts: &ClusterFacts,
    form: Form,
    asked: Fabric,
    profiles: &'p [Profile],
) -> (Weighed, Option<&'p Profile>) {
    let named = |name: &str| profiles.iter().find(|profile| profile.name == name);
    signs.facts(facts);
    let weighed = weigh(&signs.all);
    let by_kind = match (asked, form) {
        (Fabric::Efa, Form::Script) => Some("parallelcluster"),
        (Fabric::Efa, Form::Manifest | Form::Made) => Some("eks-image"),
        (Fabric::Roce, _) => Some("roce"),
        (Fabric::InfiniBand, _) => Some("infiniband"),
        (Fabric::Auto | Fabric::Tcp | Fabric::Off, _) => None,
    };
    let shown = weighed.site.filter(|site| match asked {
        Fabric::Auto => weighed.is_enough(),
        asked => site.fabric == asked,
    });
    let name = match shown.and_then(|site| site.profile(form)).or(by_kind) {
        Some("eks-image") if form == Form::Made && facts.efa_webhook == Some(true) => Some("dgxc"),
        name => name,
    };
    (weighed, name.and_then(named))
}

/// Decides for an existing job, by the profile that evidence chose. A job whose workers already have what
/// the shown RDMA fabric needs stays unchanged.
pub fn decide_existing(
    job: &JobView,
    profile: &Profile,
    options: &FabricRequest,
    catalogue: &Catalogue,
    facts: &ClusterFacts,
    weighed: Weighed,
) -> FabricPlan {
    let rdma = matches!(profile.fabric, Fabric::Roce | Fabric::InfiniBand) && options.kind == Fabric::Auto;
    let plan = match rdma_present::of_all(job, &profile.accelerator).filter(|_| rdma) {
        Some(what) => {
            let why = format!("{what}, so the job reaches {} as it is", profile.fabric);
            FabricPlan {
                skipped: vec![Skipped::fabric(profile.fabric, SkipReason::AlreadyThere, why)],
                ..FabricPlan::unchanged(profile.fabric)
            }
        }
        None => decide(job, profile, options, catalogue, facts),
    };
    plan.with_evidence(weighed)
}

impl FabricPlan {
    /// Decides for a job file without a named profile: evidence in the job and on the cluster chooses it.
    ///
    /// # Errors
    /// Those of [`Profiles::get`].
    pub fn by_evidence(
        spec: &JobSpec,
        catalogue: &Catalogue,
        facts: &ClusterFacts,
        profiles: &Profiles,
        form: Form,
    ) -> Result<(Self, Profile)> {
        let mut signs = Signs::default();
        signs.job(spec);
        signs.all.extend(instance_sign(spec.fabric.instance_type.as_deref()));
        let profiles = profiles.of_sites()?;
        let (weighed, chosen) = choose(signs, facts, form, spec.fabric.kind, &profiles);
        let profile = chosen.cloned().unwrap_or_default();
        let plan = Self::new(spec, catalogue, facts, &profile).with_evidence(weighed);
        Ok((plan, profile))
    }

    /// Records the evidence for the choice of the profile, and why there is none.
    #[must_use]
    pub fn with_evidence(mut self, weighed: Weighed) -> Self {
        if let Some(skipped) =
            self.skipped.iter_mut().find(|skipped| skipped.reason == SkipReason::FabricUnknown)
        {
            *skipped = why_none(&weighed);
        }
        self.evidence = weighed.evidence;
        self
    }
}

/// Returns the sign of an instance type that an option names.
pub fn instance_sign(name: Option<&str>) -> Option<super::Sign> {
    name.map(|name| super::Sign { kind: super::SignKind::Instance, text: name.to_owned(), online: false })
}

/// Returns why no rule applies to a job without a named profile.
fn why_none(weighed: &Weighed) -> Skipped {
    match (weighed.site.zip(weighed.score()), weighed.tied.as_slice()) {
        (Some((site, score)), _) => {
            let shown = weighed.evidence.iter().filter(|one| one.fabric == site.name).take(3);
            let shown: Vec<String> = shown.map(ToString::to_string).collect();
            let (shown, verb) = match shown.as_slice() {
                [before @ .., last] if !before.is_empty() => {
                    (format!("{} and {last}", before.join(", ")), ("show", "are"))
                }
                _ => (shown.concat(), ("shows", "is")),
            };
            let name = site.name;
            if !score.is_enough() {
                let why = format!(
                    "{shown} {} not enough evidence of {name} ({score}), so nothing is changed; {HOW_TO_SAY}",
                    verb.1
                );
                return Skipped::fabric(Fabric::Auto, SkipReason::FabricUnknown, why);
            }
            let how = match site.to_be_named() {
                Some(profile) => {
                    format!("--profile {profile} applies its profile, which never ran on the real cloud")
                }
                None => HOW_TO_SAY.to_owned(),
            };
            let why = format!(
                "{shown} {} {name}; weftrun has no rules for it here, so nothing is changed; {how}",
                verb.0
            );
            Skipped::fabric(site.fabric, SkipReason::OtherFabric, why)
        }
        (None, []) => Skipped::fabric(Fabric::Auto, SkipReason::FabricUnknown, looked_for()),
        (None, tied) => {
            let names: Vec<&str> = tied.iter().map(|site| site.name).collect();
            let why = format!(
                "the evidence shows {} alike, so none of them is applied; {HOW_TO_SAY}",
                names.join(" and ")
            );
            Skipped::fabric(Fabric::Auto, SkipReason::FabricUnknown, why)
        }
    }
}
