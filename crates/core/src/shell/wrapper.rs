//! Finds the command behind wrappers (`timeout 60 mpirun …`), and the string of a shell.

/// A program that runs another: which of its options take a value, and how many of its own words come
/// first.
struct Wrapper {
    name: &'static str,
    valued: &'static str,
    positional: usize,
    assignments: bool,
}

const fn plain(name: &'static str, valued: &'static str) -> Wrapper {
    Wrapper { name, valued, positional: 0, assignments: false }
}

/// From the manual pages of GNU coreutils 9, util-linux 2.40, numactl 2.0, sudo 1.9, bash 5.2 and time 1.9.
const WRAPPERS: [Wrapper; 11] = [
    Wrapper { positional: 1, ..plain("timeout", "-k --kill-after -s --signal") },
    Wrapper { assignments: true, ..plain("env", "-u --unset -C --chdir") },
    plain("exec", "-a"),
    plain("nohup", ""),
    plain("nice", "-n --adjustment"),
    plain("numactl", "-i --interleave -p --preferred -C --physcpubind -N --cpunodebind -m --membind"),
    plain("stdbuf", "-i --input -o --output -e --error"),
    Wrapper {
        assignments: true,
        ..plain("sudo", "-u --user -g --group -h --host -C -D --chdir -p --prompt")
    },
    plain("time", "-f --format -o --output"),
    plain("command", ""),
    plain("setsid", ""),
];

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// Returns whether a word is the name of a shell.
pub(super) fn is_shell(word: &str) -> bool {
    SHELLS.contains(&base(word))
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

pub(super) fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| super::is_variable(name))
}

/// Returns the index of the word that is run, after all wrappers.
pub(super) fn command_word<S: AsRef<str>>(words: &[S], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        let word = words.get(at)?.as_ref();
        let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == base(word)) else {
            return Some(at);
        };
        at = behind(wrapper, words, at + 1)?;
    }
}

fn behind<S: AsRef<str>>(wrapper: &Wrapper, words: &[S], mut at: usize) -> Option<usize> {
    let mut positional = wrapper.positional;
    loop {
        let word = words.get(at)?.as_ref();
        if word == "--" {
            at += 1;
            break;
        }
        if wrapper.name == "env" && (word.starts_with("-S") || word.starts_with("--split-string")) {
            return None;
        }
        if word.len() > 1 && word.starts_with('-') {
            at += if wrapper.valued.split(' ').any(|option| option == word) { 2 } else { 1 };
        } else if wrapper.assignments && is_assignment(word) {
            at += 1;
        } else if positional > 0 {
            positional -= 1;
            at += 1;
        } else {
            return Some(at);
        }
    }
    (at + positional < words.len()).then_some(at + positional)
}

/// Returns the index of the string that a shell runs (`bash -lc "…"`), if the word at an index is such a
/// shell.
pub(super) fn shell_string<S: AsRef<str>>(words: &[S], at: usize) -> Option<usize> {
    if !is_shell(words.get(at)?.as_ref()) {
        return None;
    }
    let mut index = at + 1;
    let mut command = false;
    loop {
        let word = words.get(index)?.as_ref();
        if !(word.starts_with(['-', '+']) && word.len() > 1) || word == "--" {
            let index = if word == "--" { index + 1 } else { index };
            return (command && index < words.len()).then_some(index);
        }
        let short = !word.starts_with("--");
        command |= short && word.starts_with('-') && word[1..].contains('c');
        // `-o pipefail`, `-O extglob`, `--rcfile FILE`: the last letter of a group of options takes the
        // next word.
        let valued = (short && word.ends_with(['o', 'O'])) || matches!(word, "--rcfile" | "--init-file");
        index += if valued { 2 } else { 1 };
    }
}

/// Returns the script file that the command at an index runs, if it runs one.
pub(super) fn script_file<S: AsRef<str>>(words: &[S], at: usize) -> Option<&str> {
    let word = words.get(at)?.as_ref();
    if is_shell(word) || matches!(word, "source" | ".") {
        return words[at + 1..].iter().map(AsRef::as_ref).find(|word| !word.starts_with('-'));
    }
    [".sh", ".bash", ".zsh", ".ksh"].iter().any(|end| word.ends_with(end)).then_some(word)
}
