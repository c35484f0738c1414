//! Options of `sbatch` and `srun` as typed values, from `#SBATCH` lines or the words of a command.

use std::collections::BTreeSet;

/// Options that say how sbatch submits, each with what weftrun has instead.
pub const OF_SUBMISSION: [(&str, &str); 6] = [
    ("clusters", "set `cluster` of the target"),
    ("wait", "`weftrun submit --follow` waits"),
    ("test-only", "`weftrun submit --dry-run=server` checks the job on the cluster"),
    ("wrap", "set `command` in the job file"),
    ("parsable", "`weftrun submit -o json` prints the handle"),
    ("quiet", "`weftrun submit -q` prints less"),
];

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
pub(crate) enum Takes {
    /// `--name=value` or `--name value`.
    Value,
    /// `--name` or `--name=value`.
    Optional,
    /// `--name`.
    Nothing,
}

use Takes::{Nothing, Optional, Value};

/// The options of sbatch(1) and srun(1), 22.05 to 25.05, and of pyxis and enroot's, by how they take a value: long names,
/// with the letter of the short form behind a slash.
const OPTIONS: [(Takes, &str); 3] = [
    (
        Value,
        "account/A acctg-freq array/a batch bb bbf begin/b chdir/D cluster-constraint clusters/M comment \
         constraint/C container container-env container-id container-image container-mounts container-name \
         container-save container-workdir core-spec/S cores-per-socket cpu-bind cpu-freq cpus-per-gpu \
         cpus-per-task/c deadline delay-boot dependency/d distribution/m epilog error/e exclude/x export \
         export-file extra extra-node-info/B gid gpu-bind gpu-freq gpus/G gpus-per-node gpus-per-socket \
         gpus-per-task gres gres-flags het-group hint input/i job-name/J jobid kill-on-invalid-dep licenses/L \
         mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi network nodefile/F \
         nodelist/w nodes/N ntasks/n ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket \
         open-mode output/o partition/p power prefer priority profile prolog qos/q relative/r reservation \
         segment signal slurmd-debug sockets-per-node switches task-epilog task-prolog thread-spec threads/T \
         threads-per-core time/t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap",
    ),
    (
        Optional,
        "exclusive get-user-env immediate/I kill-on-bad-exit/K nice no-kill/k oom-kill-step propagate pty \
         resv-ports x11",
    ),
    (
        Nothing,
        "container-entrypoint container-mount-home container-remap-root container-writable contiguous exact \
         hold/H ignore-pbs label/l multi-prog no-container-mount-home no-requeue overcommit/O overlap \
         oversubscribe/s parsable preserve-env/E quiet/Q reboot requeue spread-job stepmgr test-only \
         unbuffered/u use-min-nodes verbose/v wait/W",
    ),
];

/// Options whose values add up where they are repeated: `opt->mail_type |= …` (Slurm 24.11, src/common/slurm_opt.c), and the
/// lists of pyxis (args.c).
const ADD_UP: [&str; 3] = ["mail-type", "container-mounts", "container-env"];

/// Returns the long names of all options of `sbatch` and `srun`.
pub fn option_names() -> impl Iterator<Item = &'static str> {
    options().map(|(name, ..)| name)
}

/// Returns the long name, the letter and the value of each option.
fn options() -> impl Iterator<Item = (&'static str, Option<char>, Takes)> {
    OPTIONS.into_iter().flat_map(|(takes, names)| {
        names.split_whitespace().map(move |name| {
            let (long, letter) = name.split_once('/').unwrap_or((name, ""));
            (long, letter.chars().next(), takes)
        })
    })
}

/// An option by its long name, with its value where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Long name without dashes.
    pub name: String,
    /// Value.
    pub value: Option<String>,
}

impl Directive {
    /// Writes `--name=value`.
    pub fn written(&self) -> String {
        let value = self.value.as_ref().map(|value| format!("={value}"));
        format!("--{}{}", self.name, value.unwrap_or_default())
    }
}

/// The options of a job, or of one component of a heterogeneous job. The last of repeated options applies,
/// as in Slurm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives(Vec<Directive>);

impl Directives {
    /// Reads the options at the start of words; returns them and how many words they take.
    pub fn read(program: Program, words: &[String]) -> (Self, usize) {
        let (mut options, mut at) = (Self::default(), 0);
        // `-ul` is `-u -l`: what stands behind a letter that takes no value.
        let mut letters: Option<String> = None;
        while let Some(word) = letters.as_ref().or_else(|| words.get(at)) {
            if word == "--" {
                at += 1;
                break;
            }
            let Some((name, mut value, takes)) = option(program, word) else { break };
            let is_short = !word.starts_with("--");
            letters = value.take_if(|_| is_short && takes == Some(Nothing)).map(|more| format!("-{more}"));
            if letters.is_some() {
                options.push(name, None);
                continue;
            }
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
        self.read_words(Program::Sbatch, &shlex::split(line).unwrap_or_default());
    }

    /// Adds the options among words. A word that is no option is passed over, as sbatch does.
    pub(crate) fn read_words(&mut self, program: Program, words: &[String]) {
        let mut rest = words;
        while !rest.is_empty() {
            let (more, used) = Self::read(program, rest);
            self.0.extend(more.0);
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

    /// Returns whether the job has its nodes alone: `--exclusive`, but not `--exclusive=user`.
    pub fn takes_whole_nodes(&self) -> bool {
        self.has("exclusive") && self.value("exclusive").is_none()
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

    /// Removes an option.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|option| option.name != name);
    }

    /// Returns the options in order.
    pub fn iter(&self) -> impl Iterator<Item = &Directive> {
        self.0.iter()
    }

    /// Keeps one of each option, in the original order: the last, with the values of all where they add up.
    #[must_use]
    pub fn last_of_each(self) -> Self {
        let all = |name: &str| {
            let values: Vec<&str> =
                self.0.iter().filter(|one| one.name == name).filter_map(|one| one.value.as_deref()).collect();
            values.join(",")
        };
        let mut seen = BTreeSet::new();
        let last = self.0.iter().rev().filter(|option| seen.insert(option.name.as_str()));
        let one = |option: &Directive| {
            let adds_up = ADD_UP.contains(&option.name.as_str());
            let value = if adds_up { Some(all(&option.name)) } else { option.value.clone() };
            Directive { name: option.name.clone(), value }
        };
        let mut kept: Vec<Directive> = last.map(one).collect();
        kept.reverse();
        Self(kept)
    }

    /// Returns the number of nodes, by default 1.
    pub fn nodes(&self) -> u32 {
        self.named_nodes().unwrap_or(1).max(1)
    }

    /// Returns the number of nodes that the options name: outright, or by tasks or GPUs of all nodes and of each.
    pub fn named_nodes(&self) -> Option<u32> {
        let gres = || {
            let list = self.value("gres")?;
            list.split(',').any(is_gpu).then(|| gpus(list.split(',').filter(|one| is_gpu(one))))
        };
        let each_gpu = || self.number("gpus-per-node").or_else(gres).filter(|each| *each > 0);
        let each = self.number("ntasks-per-node").filter(|each| *each > 0);
        let tasks = self.number("ntasks");
        let by_tasks = || Some(tasks?.div_ceil(each?));
        let by_gpus = || Some(self.number("gpus")?.div_ceil(each_gpu()?));
        // One task for each GPU, as ranks are, or as many as an option says: other numbers say nothing about nodes.
        let of_gpu = self.number("ntasks-per-gpu").filter(|each| *each > 0).unwrap_or(1);
        let each_tasks = || each_gpu().map(|each| each.saturating_mul(of_gpu));
        let by_ranks =
            || tasks.zip(each_tasks()).filter(|(all, each)| all % each == 0).map(|(all, each)| all / each);
        let by_one = || tasks.filter(|all| *all == 1);
        self.number("nodes").or_else(by_tasks).or_else(by_gpus).or_else(by_ranks).or_else(by_one)
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
    pub fn gpu_type(&self) -> Option<&str> {
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
pub fn is_gpu(item: &str) -> bool {
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
    let known = options().find(|(_, known, _)| *known == Some(letter));
    let value = (!rest.is_empty()).then(|| rest.trim_start_matches('=').to_owned());
    let takes = known.map(|(name, _, takes)| takes_of(program, name, takes));
    Some((known.map_or_else(|| letter.to_string(), |(name, ..)| name.to_owned()), value, takes))
}

/// Returns the option of a long name, which may be abbreviated where that is unambiguous, as getopt_long(3)
/// allows.
fn long_option(program: Program, name: &str) -> Option<(&'static str, Takes)> {
    let mut longer = options().filter(|(known, ..)| name.len() > 2 && known.starts_with(name));
    let only = || longer.next().filter(|_| longer.next().is_none());
    let (name, _, takes) = options().find(|(known, ..)| *known == name).or_else(only)?;
    Some((name, takes_of(program, name, takes)))
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
        // Letters that take no value stand together (getopt(3)); the last of them may take one.
        for (line, names) in
            [("-ul", "unbuffered label"), ("-lun4", "label unbuffered ntasks"), ("-K1", "kill-on-bad-exit")]
        {
            let (options, used) = Directives::read(Program::Srun, &[line.to_owned(), "python".to_owned()]);
            let got: Vec<&str> = options.iter().map(|option| &*option.name).collect();
            assert_eq!((got.join(" ").as_str(), used), (names, 1), "{line}");
        }
    }

    /// docs.mila.quebec shares one GPU among tasks with `--ntasks-per-gpu`.
    #[test]
    fn nodes_follow_from_tasks_and_the_gpus_of_each_node() {
        for (line, nodes) in [
            ("--ntasks=2 --ntasks-per-gpu=2 --gres=gpu:l40s:1", 1),
            ("--ntasks=4 --ntasks-per-gpu=2 --gres=gpu:1", 2),
            ("--ntasks=16 --gpus-per-node=8", 2),
        ] {
            assert_eq!(read(line).named_nodes(), Some(nodes), "{line}");
        }
    }

    #[test]
    fn the_last_of_an_option_counts_and_some_add_up() {
        let options = read("-N 2 --mail-type=begin -t 1:00 --mail-type end -N 4").last_of_each();
        let written: Vec<String> = options.iter().map(Directive::written).collect();
        assert_eq!(written, ["--time=1:00", "--mail-type=begin,end", "--nodes=4"]);
        let mounts = read("--container-mounts=/a:/a --container-mounts=/b").last_of_each();
        assert_eq!(mounts.value("container-mounts"), Some("/a:/a,/b"));
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
