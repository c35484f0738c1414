//! The flags that set keys of a job file, as clap arguments. They are generated from the keys.

use std::marker::PhantomData;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use weftrun::core::fabric::Gid;
use weftrun::core::spec::file::{Group, Word};
use weftrun::core::spec::{JobFlag, Overrides, job_flags};

/// The subset of the flags that a verb has.
pub trait Selection: Clone + Default {
    /// Returns whether the verb has this flag.
    fn has(flag: JobFlag) -> bool;

    /// Returns whether the flag may be repeated. A flag of which only the last value would be used may not.
    fn repeats(flag: JobFlag) -> bool {
        flag.is_list()
    }
}

/// All flags, for verbs with a job.
#[derive(Clone, Debug, Default)]
pub struct All;

/// The flags about the fabric, for verbs with documents.
#[derive(Clone, Debug, Default)]
pub struct Fabric;

/// The flags of a new job file.
#[derive(Clone, Debug, Default)]
pub struct Basics;

impl Selection for All {
    fn has(flag: JobFlag) -> bool {
        flag.group() != Group::Global
    }
}

impl Selection for Fabric {
    fn has(flag: JobFlag) -> bool {
        flag.group() == Group::Fabric
    }

    fn repeats(flag: JobFlag) -> bool {
        flag.is_repeated()
    }
}

impl Selection for Basics {
    fn has(flag: JobFlag) -> bool {
        let basics =
            ["--name", "--image", "--nodes", "--gpus-per-node", "--instance-type", "--launch", "--fabric"];
        basics.contains(&flag.name())
    }
}

/// The given flags of a selection.
#[derive(Clone, Debug, Default)]
pub struct KeyFlags<S> {
    pub given: Overrides,
    selection: PhantomData<S>,
}

pub type AllFlags = KeyFlags<All>;
pub type FabricFlags = KeyFlags<Fabric>;
/// The flags of `init`.
pub type BasicFlags = KeyFlags<Basics>;

/// The command at the end of the line is a separate argument of the verb.
fn flags<S: Selection>() -> impl Iterator<Item = JobFlag> {
    job_flags().filter(|flag| flag.name() != "--" && S::has(*flag))
}

impl<S: Selection> KeyFlags<S> {
    /// Returns the flag of a name without dashes, if the verb has it.
    pub fn named(name: &str) -> Option<JobFlag> {
        flags::<S>().find(|flag| id(*flag) == name)
    }
}

fn id(flag: JobFlag) -> &'static str {
    flag.name().trim_start_matches('-')
}

fn arg<S: Selection>(flag: JobFlag) -> Arg {
    let heading = if flag.group() == Group::Fabric { "Fabric" } else { "Job" };
    let arg = Arg::new(id(flag)).long(id(flag)).short(flag.short()).help(flag.help()).help_heading(heading);
    let arg = match flag.value_name() {
        "" => return arg.action(ArgAction::SetTrue),
        // `-1` is a wrong number, not a flag.
        name => arg.value_name(name).allow_negative_numbers(true),
    };
    let arg = arg.action(if S::repeats(flag) { ArgAction::Append } else { ArgAction::Set });
    match flag.words() {
        Some(words) => arg.value_parser(possible(words)),
        None if flag.name() == "--gid" => arg.value_parser(gid),
        None => arg,
    }
}

/// Returns the parser of `--fabric`, for a verb whose flag does not set a key.
pub fn fabric() -> impl TypedValueParser<Value = weftrun::core::fabric::Fabric> {
    let words = job_flags().filter(|flag| flag.name() == "--fabric").find_map(JobFlag::words);
    possible(words.unwrap_or_default()).try_map(|word| serde_json::from_value(word.into()))
}

fn possible(words: &'static [Word]) -> PossibleValuesParser {
    let value = |word: &'static Word| PossibleValue::new(word.word).help(word.doc).aliases(word.alias);
    PossibleValuesParser::new(words.iter().map(value))
}

fn gid(text: &str) -> Result<String, String> {
    let wrong = |_| format!("`{text}` is neither `auto`, `compute` nor a number");
    text.parse::<Gid>().map(|_| text.to_owned()).map_err(wrong)
}

impl<S: Selection> Args for KeyFlags<S> {
    fn augment_args(command: Command) -> Command {
        let command = command.args(flags::<S>().map(arg::<S>));
        let ids: Vec<&str> = flags::<S>().map(id).collect();
        if !ids.contains(&"git") {
            return command;
        }
        command
            .mut_arg("git", |git| git.conflicts_with("script"))
            .mut_arg("git-ref", |git_ref| git_ref.requires("git"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Selection> FromArgMatches for KeyFlags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in flags::<S>() {
            if flag.value_name().is_empty() {
                if matches.get_flag(id(flag)) {
                    self.given.set(flag.name(), "true");
                }
            } else {
                let values = matches.get_many::<String>(id(flag)).into_iter().flatten();
                values.for_each(|value| self.given.set(flag.name(), value));
            }
        }
        Ok(())
    }
}
