//! Builds a plan from the decisions of the rules.

use super::{Change, FabricPlan, JobView, Op, PodList};
use crate::Finding;
use crate::fabric::view::RoleView;
use crate::fabric::{Decision, Profile, SkipReason, Skipped};
use crate::request::rules::{FabricRule, RuleSwitches};
use crate::request::{Fabric, Origin, RuleSetting};

/// Collects the decisions of the rules, and sorts them by role and change.
pub(crate) struct PlanBuilder<'a> {
    pub(crate) settings: &'a RuleSwitches,
    pub(crate) profile: &'a Profile,
    entries: Vec<Entry>,
    skip: Option<Skipped>,
    skipped: Vec<Skipped>,
    findings: Vec<Finding>,
    applied: Vec<&'static str>,
}

/// A change that is made, or that the user's own value stands for.
struct Entry {
    role: usize,
    op: Op,
    kept: bool,
    /// Whether the cluster would differ without it.
    has_effect: bool,
}

/// The role that a rule handles, and its place in the job.
#[derive(Clone, Copy)]
pub(crate) struct RoleRef<'a> {
    pub(crate) index: usize,
    pub(crate) view: &'a RoleView,
}

impl std::ops::Deref for RoleRef<'_> {
    type Target = RoleView;

    fn deref(&self) -> &RoleView {
        self.view
    }
}

/// Returns the profile's key of a rule's value: `env.NAME`, or the rule's own table and key.
fn profile_key(rule: &str, change: &Change) -> String {
    match (rule, change) {
        ("profile.env", Change::Env { name, .. }) => format!("env.{name}"),
        (_, Change::Annotation { key, .. }) if rule == "pod.annotations" => format!("pod.annotations.{key}"),
        (_, Change::Member { list: PodList::ResourceClaims | PodList::InitContainers, name, .. }) => {
            format!("pod.add.{name}")
        }
        (rule, _) => rule.replacen("ib.", "infiniband.", usize::from(rule.starts_with("ib."))),
    }
}

impl<'a> PlanBuilder<'a> {
    pub(crate) fn new(settings: &'a RuleSwitches, profile: &'a Profile, findings: Vec<Finding>) -> Self {
        Self {
            settings,
            profile,
            entries: Vec::new(),
            skip: None,
            skipped: Vec::new(),
            findings,
            applied: Vec::new(),
        }
    }

    /// Returns whether a rule applies where it fits.
    pub(crate) fn active(&self, rule: &str) -> bool {
        self.settings.active(rule)
    }

    /// Makes a change.
    pub(crate) fn op(
        &mut self,
        role: RoleRef,
        rule: &'static str,
        change: Change,
        why: impl Into<String>,
        origin: Origin,
    ) {
        let profile = self.profile;
        let own =
            !profile.sources.is_empty() && matches!(&origin, Origin::Profile(name) if *name == profile.name);
        let of_profile = if own { profile.source_of(&profile_key(rule, &change)) } else { None };
        let source = of_profile.or_else(|| FabricRule::get(rule).map(|rule| rule.source)).map(str::to_owned);
        let op = Op { source, ..Op::new(rule, &role.name, change, why, origin) };
        self.entries.push(Entry { role: role.index, op, kept: false, has_effect: true });
        self.applied.push(rule);
    }

    /// Writes out what the cluster would add itself. It is not changed alone: a job that needs nothing else stays as it is.
    pub(crate) fn write_out(&mut self, role: RoleRef, rule: &'static str, change: Change, why: &str) {
        self.op(role, rule, change, why, Origin::Job);
        self.entries.iter_mut().next_back().into_iter().for_each(|entry| entry.has_effect = false);
    }

    /// Records that the user's own value stays.
    pub(crate) fn kept(&mut self, role: RoleRef, rule: &'static str, change: Change, why: impl Into<String>) {
        let op = Op::new(rule, &role.name, change, why, Origin::Job);
        self.entries.push(Entry { role: role.index, op, kept: true, has_effect: false });
        self.applied.push(rule);
    }

    /// Makes a change, or records why the job needs none.
    pub(crate) fn ensure(
        &mut self,
        role: RoleRef,
        rule: &'static str,
        change: Change,
        there: Option<&str>,
        why: impl Into<String>,
        origin: Origin,
    ) {
        match there {
            Some(there) => self.kept(role, rule, change, there),
            None => self.op(role, rule, change, why, origin),
        }
    }

    /// Records that a rule does not apply, and why.
    pub(crate) fn skip_rule(&mut self, rule: &str, reason: SkipReason, why: impl Into<String>) {
        let skipped = Skipped::rule(rule, reason, why);
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// Records that a whole fabric does not apply, and why.
    pub(crate) fn skip_fabric(&mut self, fabric: Fabric, reason: SkipReason, why: impl Into<String>) {
        self.skip = Some(Skipped::fabric(fabric, reason, why));
    }

    /// Returns why the fabric does not apply, if it does not.
    pub(crate) fn skipped_fabric(&self) -> Option<&Skipped> {
        self.skip.as_ref()
    }

    /// Reports a finding, once.
    pub(crate) fn report(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Reports a warning about a role.
    pub(crate) fn warn(
        &mut self,
        role: RoleRef,
        code: &str,
        said: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.report(Finding::warning(code, said).at(&role.name).fix(fix));
    }

    /// Reports an error about a role, which stops the plan.
    pub(crate) fn refuse(
        &mut self,
        role: RoleRef,
        code: &str,
        said: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.report(Finding::error(code, said).at(&role.name).fix(fix));
    }

    /// Returns the value of a variable for the ranks: weftrun's, or the worker's own.
    pub(crate) fn value_for_ranks(&self, job: &JobView, name: &str) -> Option<String> {
        let ours = self.changes().find_map(|(_, change)| match change {
            Change::Env { name: set, value } if set == name => Some(value.clone()),
            _ => None,
        });
        ours.or_else(|| job.workers().find_map(|role| role.container.env(name)?.value.clone()))
    }

    /// Returns the changes so far, each with its role.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&str, &Change)> {
        let made = self.entries.iter().filter(|entry| !entry.kept);
        made.map(|entry| (entry.op.role.as_str(), &entry.op.change))
    }

    /// Returns the command of a role's container after the changes so far, and how many of its words are
    /// `command`.
    pub(crate) fn command_of(&self, role: RoleRef) -> (Vec<String>, usize) {
        let changed = self.changes().filter_map(|(name, change)| match change {
            Change::Command { after, command_words, .. } if name == role.name => {
                Some((after.clone(), *command_words))
            }
            _ => None,
        });
        let own = || (role.container.argv().map(ToOwned::to_owned).collect(), role.container.command.len());
        changed.last().unwrap_or_else(own)
    }

    /// Returns whether a finding of a code was reported.
    pub(crate) fn has_reported(&self, code: &str) -> bool {
        self.findings.iter().any(|finding| finding.code == code)
    }

    /// Finishes the plan: sorted, with an error for each rule that must apply and did not, and without ops
    /// if there is an error.
    pub(crate) fn finish(mut self, fabric: Fabric) -> FabricPlan {
        self.report_unmet();
        for (rule, base) in self.settings.switched_off(fabric) {
            match base {
                None => self.skip_rule(rule, SkipReason::Off, "switched off by the user"),
                Some(base) => {
                    let why = format!("depends on `{base}`, which is switched off");
                    self.skip_rule(rule, SkipReason::DependsOn, why);
                }
            }
        }
        let failed = self.findings.iter().any(Finding::is_error);
        if !self.entries.iter().any(|entry| entry.has_effect) {
            self.entries.iter_mut().for_each(|entry| entry.kept = true);
        }
        self.entries.sort_by_key(|entry| (entry.role, entry.op.change.phase()));
        let (mut ops, mut decisions) = (Vec::new(), Vec::new());
        for entry in self.entries {
            decisions.push(Decision::of(&entry.op));
            ops.extend(Some(entry.op).filter(|_| !entry.kept && !failed));
        }
        let skipped = self.skip.into_iter().chain(self.skipped).collect();
        FabricPlan { fabric, decisions, skipped, findings: self.findings, ops, ..FabricPlan::default() }
    }

    fn report_unmet(&mut self) {
        let settings = self.settings;
        let unmet: Vec<&str> = settings
            .demanded()
            .filter(|id| settings.of(id) == RuleSetting::On)
            .filter(|id| FabricRule::get(id).is_some() && !self.applied.iter().any(|applied| applied == id))
            .collect();
        for id in unmet {
            let skipped = self.skipped.iter().find(|skipped| skipped.rule == id).or(self.skip.as_ref());
            let why = skipped.map_or("nothing in this job calls for it", |skipped| &skipped.why);
            let instead = match (skipped, FabricRule::fabric_of(id)) {
                (Some(_), _) => ", or remove the cause",
                (None, Fabric::Auto) => "",
                (None, _) => ", or choose a fabric that uses it",
            };
            self.report(
                Finding::error("E-RULE-UNMET", format!("rule `{id}` is on but cannot be met: {why}"))
                    .fix(format!("set `{id}` to auto{instead}")),
            );
        }
    }
}
