//! Submits over slurmrestd. It parses no `#SBATCH` lines, so each becomes a field; a line without a
//! corresponding field is refused, since the job would be a different one without it.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use weftrun_convert::{Directive, Directives, slurm_duration};
use weftrun_core::backend::Rendered;
use weftrun_core::job::JobHandle;
use weftrun_core::text::nodelist;
use weftrun_core::{Error, ErrorKind, Result};

use super::{PARSERS, Rest, Sent, json as read};
use crate::slurm::client::Client;
use crate::slurm::ids::JobId;
use crate::slurm::render::{OF_COMPONENT, Script};
use crate::slurm::submit::{POLICY, Sending, Way, handle, make_log_dir, script_of, search};
use crate::submit_once::{Created, prepared, submit_once};

/// The PATH of a job before its script sets anything; sbatch would pass the caller's.
const PATH: &str = "/opt/slurm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Submits a rendered job once: a job that carries its marker is that job. Nothing is sent a second time
/// before the queue was searched, and nothing at all after an answer that leaves open whether slurmctld has
/// the job.
pub async fn submit(client: &Client, rest: &Rest, rendered: &Rendered) -> Result<JobHandle> {
    let script = script_of(rendered)?;
    let components = &prepared::<Script>(rendered)?.components;
    let version = rest.version().await?;
    let body = description(version, script, components)?;
    if let Some(found) = search(client, &rendered.submission).await?.job {
        return Ok(found);
    }
    make_log_dir(client).await?;
    let path = format!("/slurm/v0.0.{version}/job/submit");
    let way = Posting { rest, path, body, renewed: AtomicBool::new(false) };
    submit_once(&Sending::new(client, rendered, way), POLICY).await
}

/// A submission by a request to slurmrestd.
struct Posting<'a> {
    rest: &'a Rest,
    path: String,
    body: Value,
    /// Whether another token was fetched.
    renewed: AtomicBool,
}

#[async_trait]
impl Way for Posting<'_> {
    async fn create(&self, client: &Client, _: &Rendered) -> Result<Created<JobHandle>> {
        let failed = match self.rest.post_once(&self.path, &self.body).await {
            Ok(answer) => {
                return match taken(client, self.rest, &answer).await {
                    Err(unclear) if unclear.kind() == ErrorKind::Protocol => Ok(Created::Unknown(unclear)),
                    taken => taken.map(Created::Made),
                };
            }
            Err(failed) => failed,
        };
        match failed.sent {
            Sent::No => Ok(Created::Unsent(failed.error)),
            Sent::Unknown => Ok(Created::Unknown(failed.error)),
            // Refused before it was read; repeated once, with another token.
            Sent::Unauthorized
                if self.rest.tokens.renews() && !self.renewed.swap(true, Ordering::Relaxed) =>
            {
                self.rest.tokens.forget().await;
                Ok(Created::Unsent(failed.error))
            }
            Sent::Unauthorized | Sent::Refused => Err(failed.error),
        }
    }
}

/// Returns the job of an answer. A field that was not understood causes only a warning, and the job runs
/// without it: such a job is cancelled at once.
async fn taken(client: &Client, rest: &Rest, answer: &Value) -> Result<JobHandle> {
    client.forget_snapshot().await;
    let number = answer.get("job_id").or_else(|| answer.pointer("/result/job_id")).and_then(read::number);
    let Some(id) = number.filter(|number| *number > 0).map(JobId::whole) else {
        return Err(Error::new(
            ErrorKind::Protocol,
            "the answer of slurmrestd to the submission holds no job id",
        ));
    };
    let ignored: Vec<String> = read::list(&answer["warnings"])
        .iter()
        .map(|warning| crate::slurm::error::clean(&read::text(&warning["description"])))
        // That a job is held, as requested, is reported as a warning too.
        .filter(|text| !text.is_empty() && !text.contains("held state"))
        .collect();
    if ignored.is_empty() {
        return Ok(handle(client, &id));
    }
    rest.cancel(&id, None).await?;
    Err(Error::new(
        ErrorKind::Refused,
        "slurmrestd did not understand a part of the job, which was cancelled",
    )
    .with("it said", ignored.join("; "))
    .with("job", id))
}

/// Returns the body of a submission: the script, and its `#SBATCH` lines as fields.
fn description(version: u32, script: &str, components: &[Directives]) -> Result<Value> {
    let mut jobs: Vec<Value> = Vec::new();
    for (index, own) in components.iter().enumerate() {
        let first = components.first().filter(|_| index > 0).into_iter().flat_map(Directives::iter);
        let carried = first.filter(|option| !OF_COMPONENT.contains(&option.name.as_str()));
        let mut job = Fields { version, fields: Map::new() };
        for Directive { name, value } in carried.chain(own.iter()) {
            job.set(name, value.as_deref().unwrap_or_default())?;
        }
        jobs.push(job.finish(components.len() > 1));
    }
    if jobs.len() > 1 {
        return Ok(json!({ "script": script, "jobs": jobs }));
    }
    Ok(json!({ "script": script, "job": jobs.pop() }))
}

/// The fields of one job, in the form of one version.
struct Fields {
    version: u32,
    fields: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.fields.insert(key.to_owned(), value.into());
    }

    /// Sets a number that may also be unset or infinite.
    fn put_number(&mut self, key: &str, number: u64) {
        let value = if self.parsers() { json!({ "set": true, "number": number }) } else { json!(number) };
        self.put(key, value);
    }

    fn parsers(&self) -> bool {
        self.version >= PARSERS
    }

    /// Sets one option of sbatch.
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "job-name" => self.put("name", value),
            "constraint" => self.put("constraints", value),
            "comment" | "account" | "qos" | "partition" | "reservation" | "dependency" | "array"
            | "nodes" => {
                self.put(name, value);
            }
            "output" => self.put("standard_output", value),
            "exclude" if self.parsers() => self.put("excluded_nodes", nodelist::expand(value)),
            "chdir" => self.put("current_working_directory", value),
            // A list of flags; one word in earlier versions.
            "open-mode" if self.parsers() => self.put("open_mode", json!([value.to_uppercase()])),
            "open-mode" => self.put("open_mode", value),
            "requeue" | "no-requeue" => self.put("requeue", name == "requeue"),
            "hold" => self.put("hold", true),
            "exclusive" if self.parsers() => self.put("shared", json!(["none"])),
            "exclusive" => self.put("exclusive", "exclusive"),
            "kill-on-invalid-dep" if self.parsers() => {
                self.put("flags", json!(["KILL_INVALID_DEPENDENCY"]));
            }
            "kill-on-invalid-dep" => self.put("kill_on_invalid_dependency", true),
            // `gres` is ignored there, and the job would run without GPUs.
            "gpus-per-node" if self.parsers() => self.put("tres_per_node", format!("gres/gpu:{value}")),
            "gpus-per-node" => self.put("gpus_per_node", value),
            "gpus" if self.parsers() => self.put("tres_per_job", format!("gres/gpu:{value}")),
            "gpus" => self.put("gpus", value),
            "gpus-per-task" if self.parsers() => self.put("tres_per_task", format!("gres/gpu:{value}")),
            "gpus-per-task" => self.put("gpus_per_task", value),
            "gres" if !value.contains(',') && value.starts_with("gpu:") => {
                self.set("gpus-per-node", value.trim_start_matches("gpu:"))?;
            }
            "ntasks" => self.put("tasks", whole(name, value)?),
            "ntasks-per-node" => self.put("tasks_per_node", whole(name, value)?),
            "cpus-per-task" => self.put("cpus_per_task", whole(name, value)?),
            "nice" => self.put("nice", whole(name, value)?),
            "switches" if self.parsers() => self.put_number("required_switches", whole(name, value)?),
            "mem" => self.put_number("memory_per_node", whole(name, value.trim_end_matches('M'))?),
            "time" => {
                let limit = slurm_duration(value).ok_or_else(|| no_field(name, value))?;
                self.put_number("time_limit", limit.as_secs().div_ceil(60));
            }
            "signal" if self.parsers() => self.set_signal(value),
            "signal" => self.put("signal", value),
            // The job's environment already has nothing else.
            "export" if value == "NONE" => {}
            _ => return Err(no_field(name, value)),
        }
        Ok(())
    }

    /// Sets `[B:]NAME[@SECONDS]`.
    fn set_signal(&mut self, value: &str) {
        let (signal, seconds) = value.split_once('@').unwrap_or((value, "60"));
        if let Some(to_script) = signal.strip_prefix("B:") {
            self.put("kill_warning_flags", json!(["BATCH_JOB"]));
            self.put("kill_warning_signal", to_script);
        } else {
            self.put("kill_warning_signal", signal);
        }
        self.put_number("kill_warning_delay", seconds.parse().unwrap_or(60));
    }

    /// Adds what sbatch sets by itself: the number of tasks, the environment, the folder.
    fn finish(mut self, is_component: bool) -> Value {
        let number = |value: Option<&Value>| value.and_then(read::number);
        let nodes = number(self.fields.get("nodes"));
        let tasks = number(self.fields.get("tasks_per_node"));
        // The second one makes the script let only one job of this submission run, even if this machine sees
        // no files.
        let mut variables = vec![("PATH", PATH.to_owned()), ("WEFTRUN_ONCE", "1".to_owned())];
        if let (Some(nodes), Some(tasks)) = (nodes, tasks) {
            if !self.fields.contains_key("tasks") {
                self.put("tasks", nodes.saturating_mul(tasks));
            }
            // srun reads it; sbatch sets it. All components have the first one's environment.
            variables.extend((!is_component).then(|| ("SLURM_NTASKS_PER_NODE", tasks.to_string())));
        }
        if let Some(cpus) = number(self.fields.get("cpus_per_task")).filter(|_| !is_component) {
            variables.push(("SLURM_CPUS_PER_TASK", cpus.to_string()));
        }
        let environment = if self.parsers() {
            variables.iter().map(|(name, value)| json!(format!("{name}={value}"))).collect()
        } else {
            Value::Object(
                variables.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect(),
            )
        };
        self.put("environment", environment);
        let output = self.fields.get("standard_output").and_then(Value::as_str).unwrap_or("/");
        let folder = output.rsplit_once('/').map_or("/", |(folder, _)| folder).to_owned();
        if !self.fields.contains_key("current_working_directory") {
            self.put("current_working_directory", if folder.is_empty() { "/".to_owned() } else { folder });
        }
        Value::Object(self.fields)
    }
}

fn whole(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| no_field(name, value))
}

fn no_field(name: &str, value: &str) -> Error {
    let option = if value.is_empty() { format!("--{name}") } else { format!("--{name}={value}") };
    Error::new(ErrorKind::Unsupported, format!("`{option}` is not supported by slurmrestd"))
        .hint("leave it out, or use a target with `ssh` instead of `rest`: sbatch takes every option")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "#!/bin/bash\n#SBATCH --job-name=\"a b\"\n#SBATCH --comment=weftrun:0a1b2c3d000000000000000000000000:efa\n\
        #SBATCH --time=0-00:10:30\n#SBATCH --output=/fsx/logs/a-%j.log\n#SBATCH --open-mode=append\n#SBATCH --requeue\n\
        #SBATCH --signal=USR1@300\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n\
        #SBATCH --mem=0\n#SBATCH --exclusive\n\nset -e\n#SBATCH --nodes=9\n";

    fn description(version: u32, script: &str) -> Result<Value> {
        let mut components = vec![Directives::default()];
        for line in script.lines().take_while(|line| line.starts_with('#')) {
            match line.strip_prefix("#SBATCH ") {
                Some("hetjob") => components.push(Directives::default()),
                Some(options) => components.last_mut().expect("one").read_line(options),
                None => {}
            }
        }
        super::description(version, script, &components)
    }

    #[test]
    fn lines_become_the_fields_of_each_version() {
        let of = |version| description(version, SCRIPT).expect("it has fields");
        insta::assert_json_snapshot!("v0.0.38", of(38)["job"]);
        insta::assert_json_snapshot!("v0.0.45", of(45)["job"]);
        assert_eq!(of(40), of(45));
    }

    #[test]
    fn components_have_the_first_ones_name_and_their_own_nodes() {
        let script = format!(
            "{}#SBATCH hetjob\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n\nset -e\n",
            SCRIPT.split("\n\n").next().unwrap_or_default().to_owned() + "\n"
        );
        let body = description(45, &script).expect("it has fields");
        let second = &body["jobs"][1];
        assert_eq!(
            (&second["name"], &second["nodes"], &second["tasks"]),
            (&json!("a b"), &json!("1"), &json!(4))
        );
        assert_eq!(second.get("tres_per_node"), None);
    }

    #[test]
    fn nodes_that_are_left_out_are_a_list() {
        let script = "#!/bin/sh\n#SBATCH --exclude=n[1-2],gpu-17\n";
        let body = description(45, script);
        assert_eq!(body.expect("it has fields")["job"]["excluded_nodes"], json!(["n1", "n2", "gpu-17"]));
    }

    /// What an imported script that is carried as it is requests by its own lines.
    #[test]
    fn requests_of_all_nodes_have_fields() {
        let script = "#!/bin/sh\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:a100:4\n#SBATCH --ntasks=6\n#SBATCH --ntasks-per-node=4\n";
        let job = |version| description(version, script).expect("it has fields")["job"].clone();
        assert_eq!((&job(45)["tres_per_node"], &job(45)["tasks"]), (&json!("gres/gpu:a100:4"), &json!(6)));
        assert_eq!(job(38)["gpus_per_node"], json!("a100:4"));
        let all = description(45, "#!/bin/sh\n#SBATCH --gpus=8\n").expect("it has a field");
        assert_eq!(all["job"]["tres_per_job"], json!("gres/gpu:8"));
    }

    #[test]
    fn what_has_no_field_is_refused() {
        for line in ["--begin=now+1hour", "--gres=tmp:1", "--nodelist=n1"] {
            let refused = description(45, &format!("#!/bin/sh\n#SBATCH {line}\n")).expect_err("refused");
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{line}");
            assert!(refused.message().contains(line), "{refused}");
        }
    }
}
