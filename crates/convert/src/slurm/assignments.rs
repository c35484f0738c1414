//! Variables that a line of a script sets, in the shell or for one command.

use std::ops::Range;

use weftrun_core::shell::{is_variable, words};

/// Commands whose words `NAME=value` are assignments in the shell itself.
const DECLARE: [&str; 5] = ["export", "declare", "typeset", "readonly", "local"];

/// A variable that a line sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) name: String,
    pub(super) value: String,
    /// The bytes of `NAME=value`.
    pub(super) place: Range<usize>,
    /// The command for which alone it is set; none if it is set for those that follow too.
    pub(super) command: Option<String>,
}

/// Returns the variables that a line sets: `NAME=value`, also before a command, each of `export A=1 B=2`,
/// `-x NAME=value` of mpirun and `--export=ALL,NAME=value` of srun. The line may be continued by backslashes.
pub(super) fn assignments(line: &str) -> Vec<Assignment> {
    let mut found: Vec<Assignment> = Vec::new();
    let mut position = Position::Command;
    let (mut previous, mut command) = ("", "");
    // Where the assignments of this command begin: they may turn out to be in the shell itself.
    let mut own = 0;
    for place in words(line) {
        let word = line.get(place.clone()).unwrap_or_default();
        let set = is_variable(word.split('=').next().unwrap_or_default()) && word.contains('=');
        match position {
            _ if matches!(word, ";" | "&" | "|") => (position, own) = (Position::Command, found.len()),
            Position::Command | Position::Declared | Position::Env if set => {
                found.extend(pair(word, place.start));
            }
            Position::Command if DECLARE.contains(&word) => position = Position::Declared,
            Position::Command if word == "env" => position = Position::Env,
            // Words of the shell's own grammar come before a command.
            Position::Command if matches!(word, "then" | "do" | "else" | "{" | "(" | "!" | "time") => {}
            Position::Env if word.starts_with('-') => {}
            Position::Command | Position::Env => {
                command = word;
                found.iter_mut().skip(own).for_each(|one| one.command = Some(command.to_owned()));
                position = Position::Words;
            }
            Position::Words => {
                let before = found.len();
                if previous == "-x" && set {
                    found.extend(pair(word, place.start));
                } else if let Some(list) = word.strip_prefix("--export=") {
                    found.extend(exported(list, place.start + "--export=".len()));
                }
                found.iter_mut().skip(before).for_each(|one| one.command = Some(command.to_owned()));
            }
            Position::Declared => {}
        }
        previous = word;
    }
    found
}

#[derive(Clone, Copy)]
enum Position {
    /// The next word is a command or an assignment before it.
    Command,
    /// Words of `export` and its like.
    Declared,
    /// Words of `env`.
    Env,
    /// Words of another command.
    Words,
}

fn pair(word: &str, start: usize) -> Option<Assignment> {
    let (name, value) = word.split_once('=')?;
    let value = value.replace(['"', '\''], "");
    Some(Assignment { name: name.to_owned(), value, place: start..start + word.len(), command: None })
}

/// Splits the list of srun's `--export`.
fn exported(list: &str, start: usize) -> impl Iterator<Item = Assignment> {
    let mut next = start;
    list.split(',').filter_map(move |item| {
        let bare = item.trim_start_matches(['"', '\'']);
        let at = next + item.len() - bare.len();
        next += item.len() + 1;
        let bare = bare.trim_end_matches(['"', '\'']);
        is_variable(bare.split('=').next()?).then(|| pair(bare, at)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_of_an_assignment_is_read() {
        for (line, expected) in [
            ("export A=1 B=2 C", "A=1 B=2"),
            ("A=1", "A=1"),
            ("  A=1 B='x y' srun ./a C=3", "A=1 B=x y"),
            ("export A=\"x # y\" # B=2", "A=x # y"),
            ("export A=$(date +%s) B=`id -u`", "A=$(date +%s) B=`id -u`"),
            ("mpirun -np 8 -x A=1 -x B -x C=3 ./a -x=2", "A=1 C=3"),
            ("srun --export=ALL,A=1,B=2 --export-file=x ./a", "A=1 B=2"),
            ("srun \\\n  --export=A=1 \\\n ./a", "A=1"),
            ("cd x && export A=1; B=2 ./b", "A=1 B=2"),
            ("if true; then export A=1; fi", "A=1"),
            ("env A=1 ./a", "A=1"),
            ("python train.py lr=0.1 A=1", ""),
            ("# A=1", ""),
            ("1A=2", ""),
            ("", ""),
        ] {
            let found: Vec<String> =
                assignments(line).into_iter().map(|one| format!("{}={}", one.name, one.value)).collect();
            assert_eq!(found.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn a_variable_of_one_command_is_not_the_scripts() {
        let of_script = |line: &str| {
            let found = assignments(line).into_iter().filter(|one| one.command.is_none());
            found.map(|one| one.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of_script("A=1 B=2 srun --export=ALL,C=3 ./a; D=4"), "D");
        assert_eq!(of_script("export A=1 B=2; C=3 D=4"), "A B C D");
        assert_eq!(of_script("A=1; mpirun -x B=2 ./a"), "A");
        assert_eq!(of_script("env A=1 ./a"), "");
        let of = |line: &str| assignments(line).pop().and_then(|one| one.command);
        assert_eq!(of("env -i A=1 srun ./a").as_deref(), Some("srun"));
        assert_eq!(of("mpirun -x A=1 ./a").as_deref(), Some("mpirun"));
    }

    proptest! {
        #[test]
        fn ranges_lie_in_the_line(line in "[ A-Z=;&|#'\"()\\\\\\n`$,x-]{0,60}") {
            for one in assignments(&line) {
                prop_assert!(line.get(one.place).is_some_and(|text| text.starts_with(&one.name)));
            }
        }
    }
}
