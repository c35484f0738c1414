//! Options of `sbatch` and `srun` as typed values, from `#SBATCH` lines or the words of a command.

use std::collections::BTreeSet;

/// Which program the words are for: a few letters differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `sbatch` and `#SBATCH` lines.
    Sbatch,
    /// `srun`.
    Srun,
}

/// How an option takes its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// `--name=value` or `--name value`.
    Value,
    /// `--name` or `--name=value`.
    Optional,
    /// `--name`.
    Nothing,
}

use Takes::{Nothing, Optional, Value};

/// Returns the long names of all options.
#[cfg(test)]
pub(super) fn long_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, ..)| *name)
}

/// Long name, letter and value of the options of sbatch(1) and srun(1), 22.05 to 25.05, and of pyxis and enroot's.
const OPTIONS: &[(&str, char, Takes)] = &[
    ("account", 'A', Value),
    ("acctg-freq", '\0', Value),
    ("array", 'a', Value),
    ("batch", '\0', Value),
    ("bb", '\0', Value),
    ("bbf", '\0', Value),
    ("begin", 'b', Value),
    ("chdir", 'D', Value),
    ("cluster-constraint", '\0', Value),
    ("clusters", 'M', Value),
    ("comment", '\0', Value),
    ("constraint", 'C', Value),
    ("container", '\0', Value),
    ("container-entrypoint", '\0', Nothing),
    ("container-env", '\0', Value),
    ("container-id", '\0', Value),
    ("container-image", '\0', Value),
    ("container-mount-home", '\0', Nothing),
    ("container-mounts", '\0', Value),
    ("container-name", '\0', Value),
    ("container-remap-root", '\0', Nothing),
    ("container-save", '\0', Value),
    ("container-workdir", '\0', Value),
    ("container-writable", '\0', Nothing),
    ("contiguous", '\0', Nothing),
    ("core-spec", 'S', Value),
    ("cores-per-socket", '\0', Value),
    ("cpu-bind", '\0', Value),
    ("cpu-freq", '\0', Value),
    ("cpus-per-gpu", '\0', Value),
    ("cpus-per-task", 'c', Value),
    ("deadline", '\0', Value),
    ("delay-boot", '\0', Value),
    ("dependency", 'd', Value),
    ("distribution", 'm', Value),
    ("epilog", '\0', Value),
    ("error", 'e', Value),
    ("exact", '\0', Nothing),
    ("exclude", 'x', Value),
    ("exclusive", '\0', Optional),
    ("export", '\0', Value),
    ("export-file", '\0', Value),
    ("extra", '\0', Value),
    ("extra-node-info", 'B', Value),
    ("get-user-env", '\0', Optional),
    ("gid", '\0', Value),
    ("gpu-bind", '\0', Value),
    ("gpu-freq", '\0', Value),
    ("gpus", 'G', Value),
    ("gpus-per-node", '\0', Value),
    ("gpus-per-socket", '\0', Value),
    ("gpus-per-task", '\0', Value),
    ("gres", '\0', Value),
    ("gres-flags", '\0', Value),
    ("het-group", '\0', Value),
    ("hint", '\0', Value),
    ("hold", 'H', Nothing),
    ("ignore-pbs", '\0', Nothing),
    ("immediate", 'I', Optional),
    ("input", 'i', Value),
    ("job-name", 'J', Value),
    ("jobid", '\0', Value),
    ("kill-on-bad-exit", 'K', Optional),
    ("kill-on-invalid-dep", '\0', Value),
    ("label", 'l', Nothing),
    ("licenses", 'L', Value),
    ("mail-type", '\0', Value),
    ("mail-user", '\0', Value),
    ("mcs-label", '\0', Value),
    ("mem", '\0', Value),
    ("mem-bind", '\0', Value),
    ("mem-per-cpu", '\0', Value),
    ("mem-per-gpu", '\0', Value),
    ("mincpus", '\0', Value),
    ("mpi", '\0', Value),
    ("multi-prog", '\0', Nothing),
    ("network", '\0', Value),
    ("nice", '\0', Optional),
    ("no-container-mount-home", '\0', Nothing),
    ("no-kill", 'k', Optional),
    ("no-requeue", '\0', Nothing),
    ("nodefile", 'F', Value),
    ("nodelist", 'w', Value),
    ("nodes", 'N', Value),
    ("ntasks", 'n', Value),
    ("ntasks-per-core", '\0', Value),
    ("ntasks-per-gpu", '\0', Value),
    ("ntasks-per-node", '\0', Value),
    ("ntasks-per-socket", '\0', Value),
    ("oom-kill-step", '\0', Optional),
    ("open-mode", '\0', Value),
    ("output", 'o', Value),
    ("overcommit", 'O', Nothing),
    ("overlap", '\0', Nothing),
    ("oversubscribe", 's', Nothing),
    ("parsable", '\0', Nothing),
    ("partition", 'p', Value),
    ("power", '\0', Value),
    ("prefer", '\0', Value),
    ("preserve-env", 'E', Nothing),
    ("priority", '\0', Value),
    ("profile", '\0', Value),
    ("prolog", '\0', Value),
    ("propagate", '\0', Optional),
    ("pty", '\0', Optional),
    ("qos", 'q', Value),
    ("quiet", 'Q', Nothing),
    ("reboot", '\0', Nothing),
    ("relative", 'r', Value),
    ("requeue", '\0', Nothing),
    ("reservation", '\0', Value),
    ("resv-ports", '\0', Optional),
    ("segment", '\0', Value),
    ("signal", '\0', Value),
    ("slurmd-debug", '\0', Value),
    ("sockets-per-node", '\0', Value),
    ("spread-job", '\0', Nothing),
    ("stepmgr", '\0', Nothing),
    ("switches", '\0', Value),
    ("task-epilog", '\0', Value),
    ("task-prolog", '\0', Value),
    ("test-only", '\0', Nothing),
    ("thread-spec", '\0', Value),
    ("threads", 'T', Value),
    ("threads-per-core", '\0', Value),
    ("time", 't', Value),
    ("time-min", '\0', Value),
    ("tmp", '\0', Value),
    ("tres-bind", '\0', Value),
    ("tres-per-task", '\0', Value),
    ("uid", '\0', Value),
    ("unbuffered", 'u', Nothing),
    ("use-min-nodes", '\0', Nothing),
    ("verbose", 'v', Nothing),
    ("wait", 'W', Nothing),
    ("wait-all-nodes", '\0', Value),
    ("wckey", '\0', Value),
    ("wrap", '\0', Value),
    ("x11", '\0', Optional),
];

/// An option by its long name, with its value where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Long name without dashes.
    pub name: String,
    /// Value.
    pub value: Option<String>,
}

/// The options of a job, or of one component of a heterogeneous job. The last of repeated options applies,
/// as in Slurm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives(Vec<Directive>);

impl Directives {
    /// Reads the options at the start of words; returns them and how many words they take.
    pub fn read(program: Program, words: &[String]) -> (Self, usize) {
        let (mut options, mut at) = (Self::default(), 0);
        while let Some(word) = words.get(at) {
            if word == "--" {
                at += 1;
                break;
            }
            let Some((name, mut value, takes)) = option(program, word) else { break };
            at += 1;
            // An unknown option's value is the next word, if that is no option itself.
            let next = words.get(at).filter(|next| match takes {
                Some(Value) => true,
                Some(_) => false,
                None => !next.starts_with('-'),
            });
            if value.is_none()
                && let Some(next) = next
            {
                value = Some(next.clone());
                at += 1;
            }
            options.push(name, value);
        }
        (options, at)
    }

    /// Reads the rest of an `#SBATCH` line as sbatch does: quotes and backslashes as in a shell, a `#` ends
    /// it.
    pub fn read_line(&mut self, line: &str) {
        let words = shlex::split(line).unwrap_or_default();
        let mut rest = words.as_slice();
        while !rest.is_empty() {
            let (more, used) = Self::read(Program::Sbatch, rest);
            self.0.extend(more.0);
            // sbatch ignores a word that is no option.
            rest = rest.get(used.max(1)..).unwrap_or_default();
        }
    }

    /// Adds an option at the end.
    pub fn push(&mut self, name: impl Into<String>, value: Option<String>) {
        self.0.push(Directive { name: name.into(), value });
    }

    /// Adds an option with a value at the end.
    pub fn add(&mut self, name: &str, value: impl Into<String>) {
        self.push(name, Some(value.into()));
    }

    /// Replaces an option's value, or adds the option at the end.
    pub fn replace(&mut self, name: &str, value: Option<String>) {
        match self.0.iter_mut().find(|option| option.name == name) {
            Some(option) => option.value = value,
            None => self.push(name, value),
        }
    }

    /// Returns whether the option is given.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|option| option.name == name)
    }

    /// Returns the value of an option; none where it is absent or has none.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|option| option.name == name)?.value.as_deref()
    }

    /// Returns a whole number; of a range (`4-8`) the first, of a list (`gpu:a100:8`) the last part.
    pub fn number(&self, name: &str) -> Option<u32> {
        count(self.value(name)?)
    }

    /// Removes an option and returns its last value.
    pub fn take(&mut self, name: &str) -> Option<Option<String>> {
        let last = self.0.iter().rev().find(|option| option.name == name)?.value.clone();
        self.remove(name);
        Some(last)
    }

    /// Removes an option and returns its value, if it has one.
    pub fn take_value(&mut self, name: &str) -> Option<String> {
        self.take(name).flatten()
    }

    /// Gives an option another name.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        self.0
            .iter_mut()
            .filter(|option| option.name == from)
            .for_each(|option| to.clone_into(&mut option.name));
    }

    /// Removes an option.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|option| option.name != name);
    }

    /// Returns the options in order.
    pub fn iter(&self) -> impl Iterator<Item = &Directive> {
        self.0.iter()
    }

    /// Keeps only the last of each option, in the original order.
    #[must_use]
    pub fn last_of_each(self) -> Self {
        let mut seen = BTreeSet::new();
        let mut kept: Vec<Directive> =
            self.0.into_iter().rev().filter(|option| seen.insert(option.name.clone())).collect();
        kept.reverse();
        Self(kept)
    }

    /// Returns the number of nodes, by default 1.
    pub fn nodes(&self) -> u32 {
        let tasks = || {
            let each = self.number("ntasks-per-node").filter(|each| *each > 0)?;
            Some(self.number("ntasks")?.div_ceil(each))
        };
        self.number("nodes").or_else(tasks).unwrap_or(1).max(1)
    }

    /// Returns the tasks on each node, where an option sets it.
    pub fn tasks_per_node(&self) -> Option<u32> {
        // Beside `--ntasks`, `--ntasks-per-node` is only the most of a node (sbatch(1), 22.05 and later).
        let spread = self.number("ntasks").map(|all| all.div_ceil(self.nodes()));
        spread.or_else(|| self.number("ntasks-per-node"))
    }

    /// Returns the GPUs of each node, from any option that requests them.
    pub fn gpus_per_node(&self) -> Option<u32> {
        let gres = || {
            let list = self.value("gres")?;
            list.split(',').any(is_gpu).then(|| gpus(list.split(',').filter(|one| is_gpu(one))))
        };
        let of = |name: &str| Some(gpus(self.value(name)?.split(',')));
        let by_task = || Some(of("gpus-per-task")?.saturating_mul(self.tasks_per_node().unwrap_or(1)));
        let all = || of("gpus").map(|all| all / self.nodes());
        of("gpus-per-node").or_else(gres).or_else(all).or_else(by_task)
    }

    /// Returns the type of the GPUs, where an option names one: `a100` of `--gres=gpu:a100:8` and
    /// `--gpus=a100`.
    pub(super) fn gpu_type(&self) -> Option<&str> {
        let of_gres = self.value("gres").into_iter().flat_map(|list| list.split(','));
        let of_gres = of_gres.filter_map(|item| item.strip_prefix("gpu:"));
        let plain = ["gpus-per-node", "gpus", "gpus-per-task"].into_iter();
        let plain = plain.filter_map(|name| self.value(name)).flat_map(|list| list.split(','));
        plain.chain(of_gres).find_map(|item| {
            let first = item.split([':', '(']).next()?;
            (count(first).is_none() && !first.is_empty()).then_some(first)
        })
    }
}

/// Returns whether an item of `--gres` requests GPUs.
pub(super) fn is_gpu(item: &str) -> bool {
    item == "gpu" || item.starts_with("gpu:")
}

/// Returns the sum of `gpu:a100:4`, `a100:2`, `gpu`, `8`; a type without a number is one GPU.
fn gpus<'t>(items: impl Iterator<Item = &'t str>) -> u32 {
    items.map(|item| count(item).unwrap_or(1)).fold(0, u32::saturating_add)
}

/// Reads `8`, `a100:8`, `gpu:a100:8(S:0-1)`, `4-8`.
fn count(text: &str) -> Option<u32> {
    let text = text.split('(').next()?;
    text.rsplit(':').next()?.split(['-', ',']).next()?.trim().parse().ok()
}

/// Returns the option of a word: its long name, its value, and how it takes one if the option is known.
fn option(program: Program, word: &str) -> Option<(String, Option<String>, Option<Takes>)> {
    let split = |text: &str| match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (text.to_owned(), None),
    };
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = split(long);
        let known = long_option(program, &name);
        return Some((known.map_or(name, |(name, _)| name.to_owned()), value, known.map(|(_, takes)| takes)));
    }
    let short = word.strip_prefix('-').filter(|short| !short.is_empty())?;
    let letter = short.chars().next()?;
    let rest = short.get(letter.len_utf8()..)?;
    let known = OPTIONS.iter().find(|(_, known, _)| *known == letter);
    let value = (!rest.is_empty()).then(|| rest.trim_start_matches('=').to_owned());
    let takes = known.map(|(name, _, takes)| takes_of(program, name, *takes));
    Some((known.map_or_else(|| letter.to_string(), |(name, ..)| (*name).to_owned()), value, takes))
}

/// Returns the option of a long name, which may be abbreviated where that is unambiguous, as getopt_long(3)
/// allows.
fn long_option(program: Program, name: &str) -> Option<(&'static str, Takes)> {
    let found = |(name, _, takes): &(&'static str, char, Takes)| (*name, takes_of(program, name, *takes));
    if let Some(exact) = OPTIONS.iter().find(|(known, ..)| *known == name) {
        return Some(found(exact));
    }
    let mut longer = OPTIONS.iter().filter(|(known, ..)| name.len() > 2 && known.starts_with(name));
    let only = longer.next().filter(|_| longer.next().is_none())?;
    Some(found(only))
}

/// Returns how an option takes its value: `srun --wait` has one, `sbatch --wait` has none.
fn takes_of(program: Program, name: &str, takes: Takes) -> Takes {
    if program == Program::Srun && name == "wait" { Value } else { takes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Directives {
        let mut options = Directives::default();
        options.read_line(line);
        options
    }

    #[test]
    fn letters_long_names_and_short_forms_are_one_option() {
        for line in ["-N 4", "-N4", "--nodes=4", "--nodes 4", "--nodes 4-8", "-N=4", "-N 2 -N 4"] {
            assert_eq!(read(line).nodes(), 4, "{line}");
        }
        let options = read("--exclusive -J \"a b\" --nice # -N 9");
        assert!(options.has("exclusive") && options.has("nice") && !options.has("nodes"), "{options:?}");
        assert_eq!(options.value("job-name"), Some("a b"));
    }

    #[test]
    fn gpus_of_a_node_however_they_are_asked() {
        for (line, gpus) in [
            ("--gpus-per-node=8", 8),
            ("--gpus-per-node=h100:4", 4),
            ("--gres=gpu:a100:8(S:0-1)", 8),
            ("--gres=tmp:1,gpu:2", 2),
            ("--gres=gpu", 1),
            ("-N2 -G 16", 8),
            ("--gpus-per-task=1 --ntasks-per-node=4", 4),
        ] {
            assert_eq!(read(line).gpus_per_node(), Some(gpus), "{line}");
        }
        assert_eq!(read("--gres=tmp:1").gpus_per_node(), None);
    }

    #[test]
    fn the_program_begins_behind_the_options() {
        let words = |line: &str| shlex::split(line).unwrap();
        for (line, program) in [
            ("-l -K1 -n 8 --export ALL ./a -n 3", "./a"),
            ("--wait 60 --exclusive ./a", "./a"),
            ("--unknown=x -- -odd", "-odd"),
            ("-u --mpi=pmix python -u", "python"),
        ] {
            let words = words(line);
            let (_, used) = Directives::read(Program::Srun, &words);
            assert_eq!(words[used], program, "{line}");
        }
        assert_eq!(Directives::read(Program::Sbatch, &words("--wait x")).1, 1);
    }
}
