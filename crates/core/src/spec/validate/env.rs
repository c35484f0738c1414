//! Environment and secrets.

use std::collections::BTreeMap;

use super::names::is_subdomain;
use super::{Findings, shown};
use crate::env_names;
use crate::mask;
use crate::shell;
use crate::spec::file::join;
use crate::spec::{EnvVar, JobSpec};

pub(super) fn check(job: &JobSpec, out: &mut Findings) {
    let mut names = BTreeMap::new();
    let words = || job.roles.iter().flat_map(|role| role.command.iter().map(String::as_str));
    list("env", &job.env, &mut names, out);
    job.env.iter().for_each(|var| literal("env", var, words(), out));
    for secret in &job.secrets {
        let path = join("secrets", &secret.env);
        name(&secret.env, &path, out);
        if let Some(other) = names.insert(secret.env.clone(), "secrets") {
            let message = format!("`{}` is in `{other}` and in `secrets`", shown(&secret.env));
            out.error("SPEC-DUPLICATE", &path, message).fix("remove one of them");
        }
        if !is_subdomain(&secret.secret) || secret.key.is_empty() {
            out.error("SPEC-SECRET", &path, "a secret is named by its name and a key in it")
                .fix("write `VARIABLE = \"secret/key\"`, the secret's name in lower case");
        }
    }
    for role in &job.roles {
        // A role's own value replaces the job's, so the two lists are checked separately.
        let path = join(&join("roles", &role.name), "env");
        list(&path, &role.env, &mut BTreeMap::new(), out);
        role.env.iter().for_each(|var| literal(&path, var, words(), out));
    }
}

fn list(path: &str, vars: &[EnvVar], names: &mut BTreeMap<String, &'static str>, out: &mut Findings) {
    for var in vars {
        let path = join(path, &var.name);
        name(&var.name, &path, out);
        if names.insert(var.name.clone(), "env").is_some() {
            out.error("SPEC-DUPLICATE", &path, format!("`{}` is set twice", shown(&var.name)));
        }
        if var.value.contains('\0') {
            let message = format!("the value of `{}` holds a NUL character", shown(&var.name));
            out.error("SPEC-ENV", &path, message);
        }
        if env_names::is_set_by_launcher(&var.name) {
            let message =
                format!("`{}` is set by whatever starts the ranks, and differs between them", var.name);
            out.warning("SPEC-ENV", &path, message).fix("leave it out");
        } else if !var.value.is_empty() && (var.looks_secret() || mask::holds_secret(&var.value)) {
            let message = format!(
                "`{}` looks like a secret: everyone who can read the file or the job sees it",
                var.name
            );
            out.warning("SPEC-SECRET", &path, message).fix(format!(
                "set `secrets.{} = \"name/key\"`: a secret of the cluster, or the file ~/.config/weftrun/secrets/name/key on Slurm and plain hosts",
                var.name
            ));
        }
    }
}

/// Warns of a `$NAME` in a value: all backends pass the value on as it is.
fn literal<'w>(path: &str, var: &EnvVar, words: impl Iterator<Item = &'w str>, out: &mut Findings) {
    let Some(found) = shell::taken_literally(&var.name, &var.value) else { return };
    if !shell::is_evaluated(words, &var.name) {
        let message = format!(
            "`{}` holds `{}`, which no backend expands: the program gets the value as it is written",
            shown(&var.name),
            shown(found)
        );
        let fix = "write the value out, or set the variable in the command's shell";
        out.warning("W-ENV-DOLLAR", &join(path, &var.name), message).fix(fix);
    }
}

fn name(name: &str, path: &str, out: &mut Findings) {
    if !shell::is_variable(name) {
        out.error("SPEC-ENV", path, format!("`{}` cannot be a variable's name", shown(name)))
            .fix("use letters, digits and `_`, no digit first");
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::JobFile;

    #[test]
    fn a_variable_in_a_value_is_told_where_nothing_expands_it() {
        for (env, command, told) in [
            ("DATA = \"$HOME/data\"", "[\"python\", \"a.py\"]", true),
            ("DATA = \"/fsx/data\"", "[\"python\", \"a.py\"]", false),
            ("ARGS = \"--lr $LR\"", "[\"bash\", \"-c\", \"eval a.py $ARGS\"]", false),
            ("ARGS = \"--lr $LR\"", "[\"bash\", \"-c\", \"a.py $ARGS\"]", true),
        ] {
            let text = format!("name = \"a\"\nimage = \"i\"\ncommand = {command}\n[env]\n{env}\n");
            let file = JobFile::parse("a.toml", text.as_bytes()).unwrap();
            let found = file.findings.iter().any(|one| one.code == "W-ENV-DOLLAR");
            assert_eq!(found, told, "{text}: {:?}", file.findings);
        }
    }
}
