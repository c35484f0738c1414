//! A job of many tasks as an array, and the jobs that it starts after.

use weftrun_core::job::JobHandle;
use weftrun_core::spec::{JobSpec, Piece, TASK_VARIABLE, TASKS_VARIABLE, split_dependency};
use weftrun_core::{Error, ErrorKind, Result};

use super::RenderInput;
use crate::slurm::BACKEND;
use crate::slurm::config::JobSettings;
use crate::slurm::quote;

/// Sets the options of sbatch that the job's tasks and dependencies are.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for an array that is set twice, and a dependency that is no job of Slurm.
pub fn apply(spec: &JobSpec, own: &mut JobSettings) -> Result<()> {
    if let Some(tasks) = spec.tasks() {
        if own.array.is_some() {
            let message = "`backend.slurm.array` and the job's own `array` or `sweep` both number the tasks";
            return Err(Error::new(ErrorKind::InvalidSpec, message).hint("remove `backend.slurm.array`"));
        }
        own.array = Some(tasks.to_array());
    }
    if spec.after.is_empty() {
        return Ok(());
    }
    let mut all: Vec<String> = own.dependency.take().into_iter().collect();
    for text in &spec.after {
        let (condition, job) = split_dependency(text);
        all.push(format!("{condition}:{}", id_of(job)?));
    }
    own.dependency = Some(all.join(","));
    Ok(())
}

/// Refuses a dependency on a job of another target, whose number may be another job here.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn refuse_other_target(spec: &JobSpec, target: &str) -> Result<()> {
    for text in &spec.after {
        let (_, job) = split_dependency(text);
        let Ok(handle) = job.parse::<JobHandle>() else { continue };
        if handle.backend() != BACKEND || handle.target() != target {
            return Err(wrong(format!("`{job}` is not a job of target `{target}`")));
        }
    }
    Ok(())
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Usage, message)
        .hint("give a handle such as `slurm://TARGET/123`, or a Slurm job id")
}

/// Returns the Slurm job id of a handle, or of a plain id.
fn id_of(text: &str) -> Result<String> {
    let handle = text.contains("://").then(|| text.parse::<JobHandle>()).transpose()?;
    let id = handle.as_ref().map_or(text, JobHandle::name);
    let is_id =
        id.starts_with(|c: char| c.is_ascii_digit()) && id.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if is_id {
        Ok(id.to_owned())
    } else {
        Err(wrong(format!("`{text}` is neither a handle nor a Slurm job id")))
    }
}

/// Returns the names of the variables of a task.
pub fn variables(spec: &JobSpec) -> Vec<String> {
    if spec.tasks().is_none() {
        return Vec::new();
    }
    let own = [TASK_VARIABLE, TASKS_VARIABLE].map(str::to_owned);
    own.into_iter().chain(spec.sweep.iter().map(weftrun_core::spec::Parameter::variable)).collect()
}

/// Writes the number and the values of the task that runs.
pub fn environment(spec: &JobSpec) -> Result<String> {
    let Some(tasks) = spec.tasks() else { return Ok(String::new()) };
    let mut text = format!(
        "# The number of this task, and its values.\nexport {TASK_VARIABLE}=\"$SLURM_ARRAY_TASK_ID\" {TASKS_VARIABLE}={}\n",
        tasks.count()
    );
    let mut each = 1;
    let mut parameters = Vec::new();
    // The last one changes first.
    for parameter in spec.sweep.iter().rev() {
        let count = parameter.values.len();
        let name = parameter.variable();
        let mut case = format!("case $((SLURM_ARRAY_TASK_ID / {each} % {count})) in\n");
        for (at, value) in parameter.values.iter().enumerate() {
            case.push_str(&format!("{at}) {name}={} ;;\n", quote::value(value)?));
        }
        case.push_str(&format!("esac\nexport {name}\n"));
        parameters.push(case);
        each *= count.max(1);
    }
    text.extend(parameters.into_iter().rev());
    Ok(text)
}

/// Quotes a word of the job's command for the script's shell, which has the values of its placeholders.
pub fn word(draft: &RenderInput<'_>, text: &str) -> Result<String> {
    let pieces = draft.job.spec.pieces(text);
    if pieces.iter().all(|piece| matches!(piece, Piece::Text(_))) {
        return quote::word(text);
    }
    let quoted = |piece: Piece<'_>| match piece {
        Piece::Text(text) => quote::word(text),
        Piece::Variable(name) => Ok(format!("\"${name}\"")),
    };
    pieces.into_iter().map(quoted).collect()
}

/// Quotes the words of the job's command.
pub fn words(draft: &RenderInput<'_>, argv: &[String]) -> Result<String> {
    Ok(argv.iter().map(|text| word(draft, text)).collect::<Result<Vec<_>>>()?.join(" "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use weftrun_core::spec::{Parameter, Role};

    use super::*;

    fn sweep() -> JobSpec {
        let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let mut job = JobSpec::builder("lr").role(Role::worker().command(["true"])).build().expect("good");
        job.sweep = vec![
            Parameter { name: "lr".to_owned(), values: values(&["1e-3", "it's $HOME", "a b=~"]) },
            Parameter { name: "seed".to_owned(), values: values(&["1", "2"]) },
        ];
        job
    }

    /// The script and the other backends give a task the same values.
    #[test]
    fn the_shell_gives_each_task_its_values() {
        let job = sweep();
        let text = environment(&job).expect("is written");
        let mut seen = BTreeSet::new();
        for task in 0..6 {
            let program = format!(
                "set -eu\n{text}printf '%s|%s|%s|%s' \"$WEFTRUN_TASK\" \"$WEFTRUN_TASKS\" \"$WEFTRUN_SWEEP_LR\" \"$WEFTRUN_SWEEP_SEED\""
            );
            let output = Command::new("bash")
                .args(["-c", &program])
                .env("SLURM_ARRAY_TASK_ID", task.to_string())
                .output()
                .expect("bash");
            let printed = String::from_utf8(output.stdout).expect("text");
            let values: Vec<&str> = job.task_values(task).into_iter().map(|(_, value)| value).collect();
            assert_eq!(printed, format!("{task}|6|{}", values.join("|")));
            seen.insert(printed);
        }
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn dependencies_are_ids_of_the_same_target() {
        let mut job = sweep();
        let applied = |job: &JobSpec| {
            let mut own = JobSettings { dependency: Some("singleton".to_owned()), ..JobSettings::default() };
            apply(job, &mut own).map(|()| own)
        };
        job.after = ["slurm://pc/12", "34_5", "afterany:slurm://pc/56"].map(str::to_owned).to_vec();
        let own = applied(&job).expect("good");
        assert_eq!(own.dependency.as_deref(), Some("singleton,afterok:12,afterok:34_5,afterany:56"));
        assert_eq!(own.array.as_deref(), Some("0-5"));
        assert!(refuse_other_target(&job, "pc").is_ok() && refuse_other_target(&job, "other").is_err());
        for text in ["train", "kubeflow://pc/ns/12x", "slurm://pc/12;rm", "afterok:x", "1 2", ""] {
            job.after = vec![text.to_owned()];
            assert_eq!(applied(&job).map(drop).expect_err(text).kind(), ErrorKind::Usage, "{text}");
        }
    }
}
