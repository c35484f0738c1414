//! The table of tools, and how the arguments of a tool become a command line.
//!
//! A tool is a verb with a part of its flags: those that read standard input, write a file, run a program in a job, follow
//! without an end or override a check are not offered. Names, texts and types are those of the command line's definition.

use clap::{Arg, ArgAction};
use serde_json::{Map, Value, json};
use weftrun::{Error, ErrorKind, Result};

/// A tool: a verb, and which of its arguments are offered.
#[derive(Debug)]
pub struct Tool {
    /// The verb.
    pub name: &'static str,
    /// Names of arguments: a flag without its dashes, or what a positional argument is called in the definition.
    pub args: &'static [&'static str],
    /// Arguments without which the verb would read standard input or do something else.
    required: &'static [&'static str],
    /// Flags that are always given.
    fixed: &'static [&'static str],
    /// How what it does is shown before it is done; none for a tool that only reads.
    pub preview: Option<Preview>,
    /// Time limit of a call, in seconds.
    pub limit: u64,
}

/// What is shown before a tool changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preview {
    /// The plan, and the document that would be sent.
    Document,
    /// The plan of the job whose nodes would be probed.
    Probe,
    /// The present state of the jobs.
    Jobs,
    /// The decision of a dry run.
    Retry,
}

/// Where the tool acts, for all.
const WHERE: &[&str] = &["backend", "namespace", "project", "profile"];
/// The arguments that all job tools have.
const JOB: &[&str] = &[
    "file",
    "command",
    "name",
    "image",
    "launch",
    "nodes",
    "gpus-per-node",
    "ranks-per-node",
    "instance-type",
    "cpus",
    "memory",
    "queue",
    "time-limit",
    "env",
    "fabric",
    "fabric-rule",
    "no-fabric-rule",
    "strict",
];

const fn read(name: &'static str, args: &'static [&'static str], required: &'static [&'static str]) -> Tool {
    Tool { name, args, required, fixed: &["-o", "json"], preview: None, limit: 60 }
}

const fn write(name: &'static str, args: &'static [&'static str], preview: Preview) -> Tool {
    Tool { name, args, required: &[], fixed: &["-o", "json"], preview: Some(preview), limit: 300 }
}

/// All tools.
pub const TOOLS: &[Tool] = &[
    read("plan", JOB, &[]),
    read("lint", &["files", "instance-type", "fabric"], &["files"]),
    read("render", JOB, &[]),
    read("list", &["all", "foreign", "mine", "phase", "label", "limit", "all-tasks", "all-targets"], &[]),
    read("describe", &["handle"], &["handle"]),
    Tool {
        fixed: &["--color=never"],
        ..read(
            "logs",
            &["handle", "rank", "role", "task", "grep", "tail", "since", "previous", "init", "timestamps"],
            &["handle"],
        )
    },
    read("transport", &["inputs", "fabric", "strict", "flight-recorder"], &["inputs"]),
    read("why", &["inputs"], &["inputs"]),
    Tool { limit: 180, ..read("health", &["inputs", "observe", "timeout"], &["inputs"]) },
    read("bandwidth", &["inputs", "instance-type"], &["inputs"]),
    read("verify", &["from", "collective", "instance-type"], &["from"]),
    Tool { limit: 900, ..write("probe", JOB, Preview::Probe) },
    read("nodes", &["node", "bad", "offline"], &[]),
    read("explain", &["code"], &[]),
    write("submit", JOB, Preview::Document),
    Tool { required: &["handles"], ..write("cancel", &["handles"], Preview::Jobs) },
    Tool {
        required: &["handles"],
        fixed: &["-o", "json", "--yes"],
        ..write("delete", &["handles"], Preview::Jobs)
    },
    Tool { required: &["handle"], ..write("retry", &["handle"], Preview::Retry) },
];

/// Arguments of the server itself: which part of an answer, and the confirmation.
const AT: &str = "at";
const SKIP: &str = "skip";
pub const TOKEN: &str = "token";

/// Which part of an answer is asked for, and the confirmation of a preview.
#[derive(Debug, Default)]
pub struct Own {
    pub at: Option<String>,
    pub skip: usize,
    pub token: Option<String>,
}

impl Own {
    /// Reads the server's own arguments.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for one of another type.
    pub fn read(args: &Map<String, Value>) -> Result<Self> {
        let text = |name: &str| match args.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Error::new(ErrorKind::Usage, format!("`{name}` is not a string"))),
        };
        let skip = match args.get(SKIP) {
            None | Some(Value::Null) => 0,
            Some(value) => value
                .as_u64()
                .and_then(|skip| usize::try_from(skip).ok())
                .ok_or_else(|| Error::new(ErrorKind::Usage, "`skip` is not a whole number"))?,
        };
        Ok(Self { at: text(AT)?, skip, token: text(TOKEN)? })
    }
}

impl Tool {
    /// Returns whether the tool is there with these rights. A probe is shown always, and done only with the right to write.
    pub fn is_offered(&self, allow_write: bool) -> bool {
        allow_write || matches!(self.preview, None | Some(Preview::Probe))
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.args.iter().chain(WHERE).copied()
    }

    /// Returns the description: the text of `--help`, and how a change is confirmed.
    pub fn text(&self, root: &clap::Command) -> String {
        let about = root.find_subcommand(self.name).and_then(clap::Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        // The verb can run the benchmark, too.
        let about = if self.name == "verify" {
            "Judge what nccl-tests printed by the limits of its machine".to_owned()
        } else {
            about
        };
        match self.preview {
            None => format!("{about}. Reads only."),
            Some(_) => format!(
                "{about}. Two steps: the first call changes nothing and returns a preview with a token; a second call with the \
                 same arguments and `token` does it. Call it only if the user asked for it."
            ),
        }
    }

    /// Returns the JSON schema of the arguments.
    pub fn schema(&self, root: &clap::Command) -> Map<String, Value> {
        let mut properties = Map::new();
        for (name, arg) in self.names().filter_map(|name| Some((name, find(root, self.name, name)?))) {
            properties.insert(name.to_owned(), property(arg));
        }
        let about_skip = match self.name {
            "logs" => "Leave out this many of the last lines, to read those before them",
            _ => "Leave out this many of the first items of the part that `at` names",
        };
        properties
            .insert(SKIP.to_owned(), json!({ "type": "integer", "minimum": 0, "description": about_skip }));
        if self.name != "logs" {
            let about = "Return only this part of the answer: a JSON pointer such as /findings/0";
            properties.insert(AT.to_owned(), json!({ "type": "string", "description": about }));
        }
        if self.preview.is_some() {
            let about = "The token of the preview: does what it showed";
            properties.insert(TOKEN.to_owned(), json!({ "type": "string", "description": about }));
        }
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        schema.insert("required".to_owned(), self.required.into());
        schema.insert("additionalProperties".to_owned(), false.into());
        schema
    }

    /// Returns the words behind `weftrun`. No value can become a flag.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an argument that is unknown, missing, or of another type.
    pub fn argv(&self, root: &clap::Command, given: &Map<String, Value>) -> Result<Vec<String>> {
        let usage = |what: String| Error::new(ErrorKind::Usage, what);
        let own =
            [SKIP].into_iter().chain((self.name != "logs").then_some(AT)).chain(self.preview.map(|_| TOKEN));
        let known: Vec<&str> = self.names().chain(own).collect();
        if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(usage(format!("the tool `{}` has no argument `{name}`", self.name))
                .hint(format!("its arguments are {}", known.join(", "))));
        }
        if let Some(name) = self.required.iter().find(|name| given.get(**name).is_none_or(is_empty)) {
            return Err(usage(format!("the tool `{}` needs `{name}`", self.name)));
        }
        let mut flags: Vec<String> =
            [self.name].iter().chain(self.fixed).map(|word| (*word).to_owned()).collect();
        let (mut positionals, mut last) = (Vec::new(), Vec::new());
        for name in self.names() {
            let (Some(value), Some(arg)) = (given.get(name), find(root, self.name, name)) else { continue };
            if is_switch(arg) {
                match value {
                    Value::Bool(true) => flags.push(format!("--{name}")),
                    Value::Bool(false) | Value::Null => {}
                    _ => return Err(usage(format!("`{name}` is true or false"))),
                }
                continue;
            }
            for word in words(name, value, is_list(arg))? {
                if arg.is_last_set() {
                    last.push(word);
                } else if !arg.is_positional() {
                    flags.push(format!("--{name}={word}"));
                } else if word.starts_with('-') || word.is_empty() {
                    return Err(usage(format!("`{name}` is empty or begins with `-`"))
                        .hint("standard input cannot be read here; write ./NAME for a file whose name begins with `-`"));
                } else {
                    positionals.push(word);
                }
            }
        }
        flags.extend(positionals);
        if !last.is_empty() {
            flags.push("--".to_owned());
            flags.extend(last);
        }
        Ok(flags)
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns the words of a value: a number is written as it was.
fn words(name: &str, value: &Value, list: bool) -> Result<Vec<String>> {
    let wrong = || {
        Error::new(
            ErrorKind::Usage,
            format!("`{name}` is {}", if list { "a list of strings" } else { "a string" }),
        )
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) if text.contains('\0') => {
            Err(Error::new(ErrorKind::Usage, format!("`{name}` contains a NUL character")))
        }
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Number(number) => Ok(vec![number.to_string()]),
        Value::Array(items) if list => {
            let each = items.iter().map(|item| match item {
                Value::Array(_) | Value::Null => Err(wrong()),
                _ => words(name, item, false),
            });
            Ok(each.collect::<Result<Vec<_>>>()?.concat())
        }
        _ => Err(wrong()),
    }
}

/// Returns the definition of an argument of a verb, or of all verbs.
fn find<'a>(root: &'a clap::Command, verb: &str, name: &str) -> Option<&'a Arg> {
    let is_it = |arg: &&Arg| arg.get_long().unwrap_or(arg.get_id().as_str()) == name;
    root.find_subcommand(verb)?.get_arguments().find(is_it).or_else(|| root.get_arguments().find(is_it))
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn property(arg: &Arg) -> Value {
    let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // Standard input is the protocol's.
    let about = [", `-` for stdin", "; `-` reads stdin", "; stdin if none is given or for `-`"]
        .iter()
        .fold(about, |about, of_stdin| about.replace(of_stdin, ""));
    let mut one = match arg.get_possible_values() {
        _ if is_switch(arg) => json!({ "type": "boolean" }),
        values if values.is_empty() => json!({ "type": ["string", "integer"] }),
        values => {
            json!({ "type": "string", "enum": values.iter().map(clap::builder::PossibleValue::get_name).collect::<Vec<_>>() })
        }
    };
    if is_list(arg) {
        one = json!({ "type": "array", "items": one });
    }
    one["description"] = about.into();
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> &'static Tool {
        TOOLS.iter().find(|tool| tool.name == name).unwrap()
    }

    fn argv(name: &str, args: &Value) -> Result<Vec<String>> {
        tool(name).argv(&crate::command(), args.as_object().unwrap())
    }

    #[test]
    fn every_argument_of_the_table_is_one_of_its_verb_with_a_text() {
        let root = crate::command();
        for tool in TOOLS {
            assert!(tool.text(&root).len() > 20, "{}", tool.name);
            for name in tool.names() {
                let arg =
                    find(&root, tool.name, name).unwrap_or_else(|| panic!("{} has no {name}", tool.name));
                assert!(arg.get_help().is_some(), "{} {name}", tool.name);
            }
            assert!(tool.required.iter().all(|name| tool.args.contains(name)), "{}", tool.name);
        }
    }

    #[test]
    fn arguments_become_a_command_line_that_the_program_parses() {
        let words = argv(
            "plan",
            &json!({ "nodes": 2, "env": ["A=1", "B=-x"], "command": ["--x", "-"], "strict": true }),
        )
        .unwrap();
        assert_eq!(words[..3], ["plan", "-o", "json"]);
        assert_eq!(words[words.len() - 3..], ["--", "--x", "-"]);
        assert!(
            words.contains(&"--env=B=-x".to_owned()) && words.contains(&"--strict".to_owned()),
            "{words:?}"
        );
        let line = ["weftrun".to_owned()].into_iter().chain(words);
        crate::command().try_get_matches_from(line).unwrap();
    }

    #[test]
    fn what_is_not_offered_is_refused() {
        for (name, args) in [
            ("plan", json!({ "allow-outside": true })),
            ("why", json!({ "inputs": ["-"] })),
            ("why", json!({ "inputs": ["--stacks"] })),
            ("why", json!({})),
            ("verify", json!({ "from": [] })),
            ("verify", json!({ "from": [null] })),
            ("describe", json!({ "handle": { "a": 1 } })),
            ("logs", json!({ "handle": "a\0b" })),
            ("lint", json!({ "files": "a", "fix": true })),
        ] {
            assert!(argv(name, &args).is_err(), "{name} {args}");
        }
    }
}
