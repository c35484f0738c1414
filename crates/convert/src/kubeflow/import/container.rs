//! A container: image, environment, resources, volumes, command.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value as Json;

use super::{Reading, rest};
use crate::kubeflow::object::scalar;
use weftrun_core::Finding;
use weftrun_core::spec::{EnvVar, Role, SecretRef, Volume, VolumeSource};
use weftrun_core::text::Quantity;

const GPUS: &str = "nvidia.com/gpu";
pub(super) const SHM: &str = "/dev/shm";

/// A container's place, and the pod around it; a TrainJob's trainer has none.
pub(super) struct Container {
    pub at: String,
    pub pod: String,
}

impl Container {
    /// Moves what a role can hold out of the container, and returns the command line.
    pub fn read(&self, job: &mut Reading, role: &mut Role, resources: &str) -> Vec<String> {
        let at = |key: &str| format!("{}/{key}", self.at);
        job.rest.drop_all(&[&at("name")]);
        role.image = job.rest.text(&at("image"));
        let policy = job.rest.take(&at("imagePullPolicy"));
        job.set("image-pull-policy", policy);
        workdir(job, &at("workingDir"));
        env(job, role, &at("env"));
        let limited = job.rest.peek(&at(&format!("{resources}/limits/memory"))).is_some();
        asked(job, role, &at(resources));
        if !self.pod.is_empty() {
            self.volumes(job, role, &at("volumeMounts"));
        }
        // A job file's memory is the limit too, and /dev/shm counts against it: a request alone does neither.
        let bytes = |text: &String| Quantity::parse(text).map(Quantity::whole);
        let shm = role.shm.as_ref().and_then(bytes);
        let is_less = |memory: &mut String| bytes(memory) < shm;
        if let Some(memory) = role.memory.take_if(|memory| !limited && is_less(memory)) {
            let message = format!("the request of {memory} of memory is no limit, and /dev/shm is larger");
            let fix = "set `memory` to what the job may use at most";
            job.lost(message, &at(&format!("{resources}/requests/memory")), fix);
        }
        let mut argv = job.rest.words(&at("command"));
        let of_image = argv.is_empty();
        argv.extend(job.rest.words(&at("args")));
        // The image's entrypoint may start its arguments (`exec "$@"`), but never an option.
        if let Some(first) = argv.first().filter(|first| of_image && first.starts_with('-')) {
            let message = format!(
                "`command` begins with `{first}`: the image's own command, which gets it, is not known here"
            );
            let fix = "write the image's command before it";
            job.findings.push(Finding::warning("W-IMPORT-COMMAND", message).fix(fix).at(at("args")));
        }
        argv
    }

    fn volumes(&self, job: &mut Reading, role: &mut Role, mounts: &str) {
        // Index of each name in the pod and in the job: many mounts of many volumes are read in linear
        // time.
        let volumes = job.rest.before().pointer(&format!("{}/volumes", self.pod)).and_then(Json::as_array);
        let mut places: HashMap<String, usize> = HashMap::new();
        for (index, volume) in volumes.into_iter().flatten().enumerate() {
            if let Some(name) = volume["name"].as_str() {
                places.entry(name.to_owned()).or_insert(index);
            }
        }
        let known = job.spec.volumes.iter().enumerate();
        let mut names: HashMap<String, usize> = known.map(|(at, known)| (known.name.clone(), at)).collect();
        let mut paths: HashSet<String> = job.spec.volumes.iter().map(|known| known.mount.clone()).collect();
        for index in 0..job.rest.len(mounts) {
            let at = format!("{mounts}/{index}");
            let Some(mount) = job.rest.peek(&at).cloned() else { continue };
            let (Some(name), Some(path)) = (mount["name"].as_str(), mount["mountPath"].as_str()) else {
                continue;
            };
            let Some((place, source)) = places.get(name).and_then(|index| self.source(job, *index)) else {
                continue;
            };
            let claim = format!("{place}/persistentVolumeClaim/readOnly");
            let by_claim = job.rest.before().pointer(&claim) == Some(&Json::Bool(true));
            let read_only = mount["readOnly"].as_bool().unwrap_or(false) || by_claim;
            let found = Volume { name: name.to_owned(), mount: path.to_owned(), source, read_only };
            let taken = match (&found.source, path.trim_end_matches('/')) {
                (VolumeSource::Memory { size: Some(size) }, SHM) => {
                    role.shm = Some(size.clone());
                    true
                }
                _ if names.get(name).and_then(|at| job.spec.volumes.get(*at)) == Some(&found) => true,
                // In a job file a volume has one path and one source.
                _ if names.contains_key(name) || paths.contains(path) => false,
                _ => {
                    names.insert(name.to_owned(), job.spec.volumes.len());
                    paths.insert(path.to_owned());
                    job.spec.volumes.push(found);
                    true
                }
            };
            if taken {
                for key in ["name", "mountPath", "readOnly"] {
                    job.rest.take(&format!("{at}/{key}"));
                }
                let kind = format!("{place}/hostPath/type");
                match job.rest.peek(&kind).and_then(Json::as_str) {
                    // A job file has one type for all paths, `Directory` by default.
                    Some(of_path) if !matches!(of_path, "" | "Directory") => {
                        job.rest.drop_all(&[&format!("{place}/name"), &format!("{place}/hostPath/path")]);
                    }
                    _ => drop(job.rest.take(&place)),
                }
            }
        }
    }

    /// Returns the source of a pod's volume, and its place.
    fn source(&self, job: &Reading, index: usize) -> Option<(String, VolumeSource)> {
        let place = format!("{}/volumes/{index}", self.pod);
        let volume = job.rest.before().pointer(&place)?;
        let source = if let Some(path) = volume["hostPath"]["path"].as_str() {
            VolumeSource::HostPath(path.to_owned())
        } else if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            VolumeSource::Claim(claim.to_owned())
        } else if volume["emptyDir"]["medium"] == "Memory" {
            let size = &volume["emptyDir"]["sizeLimit"];
            VolumeSource::Memory { size: (!size.is_null()).then(|| scalar(size)) }
        } else {
            return None;
        };
        Some((place, source))
    }
}

fn workdir(job: &mut Reading, at: &str) {
    let Some(folder) = job.rest.peek(at).and_then(|value| value.as_str()).map(str::to_owned) else {
        return;
    };
    if job.spec.workdir.as_ref().is_none_or(|known| *known == folder) {
        job.rest.take(at);
        job.spec.workdir = Some(folder);
    }
}

fn env(job: &mut Reading, role: &mut Role, list: &str) {
    // Index of each name: a list of many variables is read in linear time.
    let mut places: HashMap<String, usize> =
        role.env.iter().enumerate().map(|(at, var)| (var.name.clone(), at)).collect();
    let mut secrets: HashSet<String> = job.spec.secrets.iter().map(|known| known.env.clone()).collect();
    for index in 0..job.rest.len(list) {
        let at = format!("{list}/{index}");
        let Some(var) = job.rest.peek(&at).cloned() else { continue };
        let Some(name) = var["name"].as_str().map(str::to_owned) else { continue };
        let secret = &var["valueFrom"]["secretKeyRef"];
        if let (Some(secret), Some(key)) = (secret["name"].as_str(), secret["key"].as_str()) {
            let found = SecretRef { env: name, secret: secret.to_owned(), key: key.to_owned() };
            if secrets.insert(found.env.clone()) {
                job.spec.secrets.push(found);
            }
            job.rest.take(&at);
        } else if var["valueFrom"].is_null() {
            let value = if var["value"].is_null() { String::new() } else { scalar(&var["value"]) };
            // Only variables before it are defined; but an earlier one may be left in the object (`valueFrom`).
            let knows = |name: &&&str| places.contains_key(**name) || is_environment(name);
            if let Some(other) = references(&value).iter().find(knows) {
                job.findings.push(literally(&format!("the value of {name}"), other).at(&at));
            }
            // Of two with one name the later applies.
            let var = EnvVar { name: name.clone(), value: unescape(&value) };
            if let Some(known) = places.get(&name).and_then(|at| role.env.get_mut(*at)) {
                *known = var;
            } else {
                places.insert(name, role.env.len());
                role.env.push(var);
            }
            job.rest.take(&at);
        }
    }
}

/// Reads limits before requests; where they differ, both are left in the object.
fn asked(job: &mut Reading, role: &mut Role, at: &str) {
    let mut asked: BTreeMap<String, String> = BTreeMap::new();
    for side in ["limits", "requests"] {
        let names: Vec<(String, String)> = job
            .rest
            .peek(&format!("{at}/{side}"))
            .and_then(|map| map.as_object())
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null() && !value.is_object())
            .map(|(name, value)| (name.clone(), scalar(value)))
            .collect();
        for (name, amount) in names {
            let known = asked.entry(name.clone()).or_insert_with(|| amount.clone());
            if same(known, &amount) {
                job.rest.take(&format!("{at}/{side}/{}", rest::step(&name)));
            }
        }
    }
    role.cpus = asked.remove("cpu");
    role.memory = asked.remove("memory");
    if let Some(gpus) = asked.remove(GPUS) {
        match Quantity::parse(&gpus).map(Quantity::whole).and_then(|count| u32::try_from(count).ok()) {
            Some(count) => role.gpus_per_node = count,
            None => {
                asked.insert(GPUS.to_owned(), gpus);
            }
        }
    }
    role.resources = asked;
}

/// Returns the names of the `$(NAME)` in a text. Kubernetes substitutes those that are defined, and leaves others, as a
/// shell's `$(hostname)`.
pub(super) fn references(text: &str) -> Vec<&str> {
    pieces(text).into_iter().filter_map(|(piece, name)| name.then_some(piece)).collect()
}

/// Returns a text as the program gets it, where no variable is substituted: `$$` is a dollar.
pub(crate) fn unescape(text: &str) -> String {
    let of_piece = |(piece, name)| if name { format!("$({piece})") } else { String::from(piece) };
    pieces(text).into_iter().map(of_piece).collect()
}

/// Cuts a text as Kubernetes reads it: into the names of `$(NAME)`, and the text between them, without the first dollar of
/// each `$$` (k8s.io/kubernetes third_party/forked/golang/expansion, read 2026-11-21).
fn pieces(text: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    let mut rest = text;
    // Of a text with many beginnings and no end, each would be searched to its end.
    let last_end = text.rfind(')').map_or(0, |end| end + 1);
    while let Some(at) = rest.find('$') {
        let (before, after) = (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).unwrap_or_default());
        found.push((before, false));
        let closes = text.len() - after.len() < last_end;
        let name = after.strip_prefix('(').filter(|_| closes).and_then(|name| name.split_once(')'));
        if let Some((name, behind)) = name {
            found.push((name, true));
            rest = behind;
        } else {
            found.push(("$", false));
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    }
    found.push((rest, false));
    found
}

/// Returns whether a name is written like an environment variable, as those are that an operator or the cluster sets
/// (`RANK`, `LWS_GROUP_SIZE`, `KUBERNETES_SERVICE_HOST`), and no command of a shell.
pub(super) fn is_environment(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_';
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.bytes().all(plain)
}

/// Reports that a variable in a text is not substituted.
pub(super) fn literally(what: &str, name: &str) -> Finding {
    let message = format!("{what} refers to $({name}), which a job file takes literally");
    Finding::warning("W-IMPORT-LOST", message)
        .fix(format!("write it out, or let a shell put ${name} in: `[\"sh\", \"-c\", \"…\"]`"))
}

fn same(left: &str, right: &str) -> bool {
    left == right || Quantity::parse(left).is_some_and(|amount| Quantity::parse(right) == Some(amount))
}
