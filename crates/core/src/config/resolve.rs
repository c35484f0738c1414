//! Puts the layers together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::keys::{CONFIG, TARGET, is_default};
use super::{Layer, Setting, Settings, Source};
use crate::backend::TargetConfig;
use crate::catalogue::{Catalogue, InstanceOverride};
use crate::env_names;
use crate::request::Origin;
use crate::span::{self, SpanTree, Value as Node};
use crate::spec::file::shape::Shape;
use crate::spec::file::{Check, Source as Text, join};
use crate::{Error, ErrorKind, Finding, Result};

/// The input of the configuration. `Debug` hides the environment.
#[derive(Clone, Default)]
pub struct Input {
    /// The existing texts.
    pub sources: Vec<Source>,
    /// The process's environment; only `WEFTRUN_*` is read.
    pub env: BTreeMap<String, String>,
    /// Whether the project's file is trusted; otherwise it is ignored, and not even parsed.
    pub trusted: bool,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sources, env: _, trusted } = self;
        f.debug_struct("Input").field("sources", sources).field("trusted", trusted).finish_non_exhaustive()
    }
}

/// The configuration, resolved.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ResolvedConfig {
    /// Every value that was set.
    pub settings: Settings,
    /// What was left out, and why.
    pub findings: Vec<Finding>,
}

/// Environment variables that set a value of the configuration.
const ENV: [(&str, &[&str]); 12] = [
    (env_names::BACKEND, &["default_target"]),
    (env_names::TARGET, &["default_target"]),
    (env_names::NAMESPACE, &["namespace"]),
    (env_names::PROJECT, &["project"]),
    (env_names::PROFILE, &["default_profile"]),
    (env_names::OUTPUT, &["output"]),
    (env_names::COLOR, &["color"]),
    (env_names::FABRIC, &["job", "fabric", "kind"]),
    (env_names::QUEUE, &["job", "queue"]),
    (env_names::PRIORITY, &["job", "priority"]),
    (env_names::INSTANCE_TYPE, &["job", "instance_type"]),
    (env_names::IMAGE, &["job", "image"]),
];

/// Puts the layers together.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] with a finding for each mistake in any of the files.
pub fn resolve(input: &Input) -> Result<ResolvedConfig> {
    let mut config = ResolvedConfig::default();
    let mut errors = Vec::new();
    let mut locked: Vec<(Vec<String>, String)> = Vec::new();
    let mut sources: Vec<&Source> = input.sources.iter().collect();
    sources.sort_by_key(|source| source.layer);
    for source in sources {
        if source.layer == Layer::Project && !input.trusted {
            config.findings.push(ignored(
                &source.file,
                "it is not trusted",
                "read it, then run `weftrun config trust`",
            ));
            continue;
        }
        let leaves = read(source).unwrap_or_else(|found| {
            errors.extend(found);
            Vec::new()
        });
        for (path, setting) in leaves {
            if let [first] = path.as_slice()
                && first == "lock"
            {
                match source.layer {
                    Layer::System => locked.extend(locks(&setting.value, &source.file)),
                    _ => errors.push(place(
                        Finding::error("CONFIG-LOCK", "`lock` is allowed in the system's config file only"),
                        &path,
                        &setting,
                    )),
                }
                continue;
            }
            match lock_of(&path, &locked).filter(|_| source.layer != Layer::System) {
                Some(file) => {
                    let message =
                        format!("`{}` is locked by {file}, and stays as it is there", path_text(&path));
                    let finding = Finding::warning("CONFIG-LOCKED", message);
                    config.findings.push(place(finding, &path, &setting));
                }
                None => config.settings.set(path, setting),
            }
        }
    }
    from_env(&mut config, &input.env, &locked);
    errors.extend(config.problems());
    if errors.is_empty() {
        return Ok(config);
    }
    Err(Error::from_findings(ErrorKind::InvalidConfig, "the configuration has mistakes", errors))
}

/// Returns the values of one file, or its mistakes.
fn read(source: &Source) -> std::result::Result<Vec<(Vec<String>, Setting)>, Vec<Finding>> {
    let text = Text { file: &source.file, text: &source.text };
    let (document, syntax) = span::toml(&source.text);
    let mut findings: Vec<Finding> = syntax
        .iter()
        .take(100)
        .map(|error| Finding {
            span: text.place(&error.span),
            ..Finding::error("CONFIG-SYNTAX", &*error.message)
        })
        .collect();
    if findings.is_empty() {
        let mut check = Check::new(text, "the configuration");
        check.table(&document.root, &CONFIG, "");
        findings = check.into_parts().0;
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    let mut leaves = Vec::new();
    collect(&document.root, &mut Vec::new(), source, text, &mut leaves);
    let wrong = |path: &[String]| matches!(path, [job, key, ..] if job == "job" && !is_default(key));
    let own: Vec<Finding> = leaves
        .iter()
        .filter(|(path, _)| wrong(path))
        .map(|(path, setting)| {
            let message = format!("`{}` cannot be a default for all jobs", path.join("."));
            place(Finding::error("CONFIG-JOB", message).fix("say it in the job file"), path, setting)
        })
        .collect();
    if own.is_empty() { Ok(leaves) } else { Err(own) }
}

fn collect(
    node: &SpanTree<'_>,
    path: &mut Vec<String>,
    source: &Source,
    text: Text<'_>,
    leaves: &mut Vec<(Vec<String>, Setting)>,
) {
    if let Node::Map(entries) = &node.value {
        for entry in entries {
            path.push(entry.key.to_string());
            collect(&entry.value, path, source, text, leaves);
            path.pop();
        }
        return;
    }
    // `fabric = "efa"` is short for its kind, and must not hide the rest of the table in another layer.
    let mut path = path.clone();
    if path == ["job", "fabric"] {
        path.push("kind".to_owned());
    }
    let setting =
        Setting { value: node.to_json(), origin: source.layer.origin(), span: text.place(&node.span) };
    leaves.push((path, setting));
}

fn locks(value: &Value, file: &str) -> Vec<(Vec<String>, String)> {
    let texts: Vec<&str> = match value {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    texts.iter().map(|text| (text.split('.').map(str::to_owned).collect(), file.to_owned())).collect()
}

/// Returns a finding for a project's file that is ignored, with the reason and the fix.
pub fn ignored(file: &str, why: &str, fix: &str) -> Finding {
    Finding::warning("CONFIG-UNTRUSTED", format!("{file} is ignored: {why}")).fix(fix)
}

fn lock_of<'l>(path: &[String], locked: &'l [(Vec<String>, String)]) -> Option<&'l str> {
    let meets = |lock: &[String]| path.starts_with(lock) || lock.starts_with(path);
    locked.iter().find(|(lock, _)| meets(lock)).map(|(_, file)| file.as_str())
}

fn place(finding: Finding, path: &[String], setting: &Setting) -> Finding {
    let mut finding = finding.at(path_text(path));
    finding.span.clone_from(&setting.span);
    finding
}

/// Returns a path as it is written: `job.labels."example.com/team"`.
pub fn path_text(path: &[String]) -> String {
    path.iter().fold(String::new(), |path, key| join(&path, key))
}

fn from_env(config: &mut ResolvedConfig, env: &BTreeMap<String, String>, locked: &[(Vec<String>, String)]) {
    for (name, path) in ENV {
        let Some(text) = env.get(name).filter(|text| !text.is_empty()) else { continue };
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        if let Some(file) = lock_of(&path, locked) {
            let message = format!("{name} is left out: `{}` is locked by {file}", path_text(&path));
            config.findings.push(Finding::warning("CONFIG-LOCKED", message).at(name));
            continue;
        }
        let origin = Origin::Env(name.to_owned());
        config.settings.set(path, Setting { value: text.as_str().into(), origin, span: None });
    }
}

impl ResolvedConfig {
    fn text(&self, path: &[&str]) -> Option<String> {
        self.settings.get(path)?.value.as_str().map(str::to_owned)
    }

    /// Returns the target used when none is named.
    pub fn default_target(&self) -> Option<String> {
        self.text(&["default_target"])
    }

    /// Returns the profile of targets and jobs that name none.
    pub fn default_profile(&self) -> Option<String> {
        self.text(&["default_profile"])
    }

    /// Returns the targets by name. The caller sets where they keep state.
    pub fn targets(&self) -> BTreeMap<String, TargetConfig> {
        self.names("target").into_iter().map(|name| (name.clone(), self.target(&name))).collect()
    }

    fn target(&self, name: &str) -> TargetConfig {
        let own = |key: &str| self.text(&["target", name, key]);
        let mut settings = self.settings.table(&["target", name]);
        settings.retain(|key, _| !TARGET.contains(&key.as_str()));
        let mut target = TargetConfig::new(name, own("backend").unwrap_or_default(), PathBuf::new());
        (target.namespace, target.project, target.profile) =
            (own("namespace"), own("project"), own("profile"));
        self.complete(&mut target);
        target.settings = settings;
        target
    }

    /// Fills in namespace, project and profile of a target that names none.
    pub fn complete(&self, target: &mut TargetConfig) {
        target.namespace = target.namespace.take().or_else(|| self.text(&["namespace"]));
        target.project = target.project.take().or_else(|| self.text(&["project"]));
        target.profile = target.profile.take().or_else(|| self.default_profile());
    }

    fn names(&self, table: &str) -> Vec<String> {
        let mut names: Vec<String> =
            self.settings.below(&[table]).filter_map(|(path, _)| path.first().cloned()).collect();
        names.dedup();
        names
    }

    /// Returns the user's profiles by name, unchanged.
    pub fn profiles(&self) -> BTreeMap<String, toml::Table> {
        let table = |name: &String| {
            let mut table = self.settings.table(&["profile", name]);
            table.remove("job");
            serde_json::from_value(Value::Object(table)).ok()
        };
        self.names("profile").into_iter().filter_map(|name| Some((name.clone(), table(&name)?))).collect()
    }

    /// Returns the catalogue with the user's rows.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] naming each row that is wrong.
    pub fn catalogue(&self) -> Result<Catalogue> {
        let mut rows = BTreeMap::new();
        for name in self.names("instances") {
            let table = Value::Object(self.settings.table(&["instances", &name]));
            let row: InstanceOverride = serde_json::from_value(table).map_err(|error| {
                Error::new(ErrorKind::InvalidConfig, format!("`instances.{name}`: {error}"))
            })?;
            rows.insert(name, row);
        }
        if rows.is_empty() { Ok(Catalogue::builtin()) } else { Catalogue::builtin().with(&rows) }
    }

    /// Returns the settings of the terminal UI, such as keys and theme.
    pub fn tui(&self) -> Value {
        Value::Object(self.settings.table(&["tui"]))
    }

    /// Returns the defaults of a job with a profile: path in a job file, value, origin; the profile's own
    /// come between the files and the environment.
    pub fn job_defaults(&self, profile: Option<&str>) -> Vec<(Vec<String>, Value, Origin)> {
        let mut settings = Settings::default();
        let (env, files): (Vec<_>, Vec<_>) =
            self.settings.below(&["job"]).partition(|(_, setting)| matches!(setting.origin, Origin::Env(_)));
        let own = profile.map(|name| ["profile", name, "job"]);
        let of_profile = own.iter().flat_map(|above| {
            let name = above[1].to_owned();
            self.settings.below(above).map(move |(path, setting)| {
                (path, Setting { origin: Origin::Profile(name.clone()), ..setting.clone() })
            })
        });
        let files = files.into_iter().map(|(path, setting)| (path, setting.clone()));
        let env = env.into_iter().map(|(path, setting)| (path, setting.clone()));
        for (path, setting) in files.chain(of_profile).chain(env) {
            settings.set(path.to_vec(), setting);
        }
        settings.iter().map(|(path, s)| (path.to_vec(), s.value.clone(), s.origin.clone())).collect()
    }

    /// Returns the mistakes of the whole configuration.
    fn problems(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for name in ["output", "color"] {
            let Some(setting) = self.settings.get(&[name]) else { continue };
            let Some(Shape::Word(words)) = CONFIG.key(name).map(|key| &key.shape) else { continue };
            if !words.iter().any(|word| setting.value == word.word) {
                let known: Vec<&str> = words.iter().map(|word| word.word).collect();
                let message = format!("`{name}` is {}, and none of {}", setting.value, known.join(", "));
                findings.push(place(Finding::error("CONFIG-WORD", message), &[name.to_owned()], setting));
            }
        }
        for name in self.names("target") {
            if self.text(&["target", &name, "backend"]).is_none_or(|backend| backend.is_empty()) {
                let message = format!("target `{name}` names no `backend`");
                findings.push(
                    Finding::error("CONFIG-TARGET", message)
                        .at(format!("target.{name}"))
                        .fix("`weftrun backends` lists those there are"),
                );
            }
        }
        if let Err(error) = self.catalogue() {
            match error.findings() {
                [] => findings.push(Finding::error("CONFIG-INSTANCE", error.message())),
                several => findings.extend(several.iter().cloned()),
            }
        }
        findings
    }
}
