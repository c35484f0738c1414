//! The tasks of an array or a sweep.

use std::collections::BTreeSet;

use super::{Findings, shown};
use crate::spec::file::join;
use crate::spec::tasks::{TASK, is_name};
use crate::spec::{EnvVar, JobSpec, MAX_TASKS, Tasks};

const CODE: &str = "SPEC-TASKS";

/// Refuses variables of the job that each task sets itself.
fn check_environment(job: &JobSpec, out: &mut Findings) {
    let own: BTreeSet<String> = job.task_variables(0).into_iter().map(|(name, _)| name).collect();
    if job.tasks().is_none() {
        return;
    }
    let plain = |env: &[EnvVar]| env.iter().map(|var| var.name.clone()).collect::<Vec<_>>();
    let of_job = plain(&job.env).into_iter().map(|name| ("env".to_owned(), name));
    let secrets = job.secrets.iter().map(|secret| ("secrets".to_owned(), secret.env.clone()));
    let of_roles = job
        .roles
        .iter()
        .flat_map(|role| plain(&role.env).into_iter().map(|name| (format!("roles.{}.env", role.name), name)));
    for (table, name) in of_job.chain(secrets).chain(of_roles).filter(|(_, name)| own.contains(name)) {
        let message = format!("each task has its own `{name}`, and the job sets it, too");
        out.error(CODE, &join(&table, &name), message).fix("choose another name, or leave it out");
    }
}

/// Returns a value that a list has twice.
fn stands_twice(values: &[String]) -> Option<&str> {
    let mut seen = BTreeSet::new();
    values.iter().find(|value| !seen.insert(*value)).map(String::as_str)
}

pub(super) fn check(job: &JobSpec, out: &mut Findings) {
    if let Some(array) = &job.array {
        if Tasks::parse(array).is_none() {
            out.error(CODE, "array", format!("`{}` is not a list of tasks", shown(array)))
                .fix("write `0-31`, `1,3,5-7`, `0-100:10`, or `0-31%4` for at most four at a time");
        }
        let most = Tasks::parse(array).and_then(|tasks| tasks.parallel);
        if let (Some(most), Some(parallel)) = (most, job.parallel)
            && most != parallel
        {
            let message = format!(
                "`{}` runs at most {most} tasks at a time, and `parallel` says {parallel}",
                shown(array)
            );
            out.error(CODE, "parallel", message).fix("leave `parallel` out, or the `%` of the array");
        }
        if !job.sweep.is_empty() {
            out.error(CODE, "sweep", "a job has the numbers of `array` or the values of `sweep`")
                .fix("remove one of them; a sweep numbers its tasks from 0");
        }
    }
    for parameter in &job.sweep {
        let path = join("sweep", &parameter.name);
        if !is_name(&parameter.name) {
            let message = format!("`{}` cannot be the name of a parameter", shown(&parameter.name));
            out.error(CODE, &path, message).fix("use lower-case letters, digits and `_`, a letter first");
        }
        if parameter.name == TASK {
            let message =
                "`task` cannot be the name of a parameter: `{task}` in the command is the number of the task";
            out.error(CODE, &path, message).fix("choose another name, such as `task_name`");
        }
        if let Some(value) = stands_twice(&parameter.values) {
            let message = format!("the value `{}` stands twice: a task runs for each", shown(value));
            out.warning(CODE, &path, message).fix("remove one of them, unless that is what you want");
        }
        if parameter.values.is_empty() {
            out.error(CODE, &path, "the parameter has no values").fix("list its values: `lr = [1e-3, 1e-4]`");
        }
    }
    let count = job.combinations();
    if count.is_none_or(|count| count > MAX_TASKS) {
        let count = count.map_or_else(|| "too many".to_owned(), |count| count.to_string());
        let message = format!("the sweep has {count} combinations, and at most {MAX_TASKS} are submitted");
        out.error(CODE, "sweep", message).fix("leave out values, or split the sweep into several jobs");
    }
    check_environment(job, out);
    let Some(tasks) = job.tasks() else {
        if job.parallel.is_some() && job.array.is_none() && job.sweep.is_empty() {
            out.error(CODE, "parallel", "`parallel` is for the tasks of an `array` or a `sweep`")
                .fix("set one of them, or leave `parallel` out");
        }
        return;
    };
    if job.retry.is_some() {
        let message =
            "`retry` submits a whole job again, and this one has tasks: those that succeeded would run twice";
        out.error(CODE, "retry", message).fix(
            "leave `retry` out and submit the tasks that failed again by their numbers (`weftrun describe` prints them); \
             `restart` restarts one task, where the backend can",
        );
    }
    if tasks.parallel == Some(0) {
        out.error(CODE, "parallel", "with `parallel = 0` no task would start").fix("set it to 1 or more");
    }
    for name in job.unknown_placeholders() {
        let known: Vec<&str> = job.sweep.iter().map(|parameter| parameter.name.as_str()).collect();
        let message = format!("`{{{name}}}` in the command is no parameter of the sweep, and stays as it is");
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        out.warning(CODE, "command", message).fix(format!("known are `task` and the parameters: {known}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Role;

    /// `0-3%2` and `parallel` may not contradict each other; that either says it, or both the same, is right.
    #[test]
    fn the_bound_of_an_array_is_said_once() {
        for (array, parallel, refused) in [
            ("0-3%2", Some(3), true),
            ("0-3%2", Some(2), false),
            ("0-3%2", None, false),
            ("0-3", Some(3), false),
        ] {
            let mut job = JobSpec::builder("a").role(Role::worker().command(["true"])).build().expect("good");
            (job.array, job.parallel) = (Some(array.to_owned()), parallel);
            let found = job.validate().into_iter().any(|finding| finding.is_error());
            assert_eq!(found, refused, "{array} {parallel:?}");
        }
    }
}
