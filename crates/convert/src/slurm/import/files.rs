//! Files that a script reads from the folder where it is submitted, or beside itself.

use std::sync::LazyLock;

use super::Import;
use super::body::base;
use crate::slurm::{Directives, Program};
use regex::Regex;
use weftrun_core::Finding;
use weftrun_core::shell::{ScriptCommand, commands, is_variable, without_comment};

impl Import {
    /// Warns of files that stand beside the script or where it is submitted.
    pub(super) fn files_beside(&mut self, body: &str) {
        // A usage text has `$0` as the name of the script.
        static OWN_PLACE: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"BASH_SOURCE|\b(?:dirname|realpath|readlink)\b[^;|&]*\$(?:0\b|\{0\b)|\$\{0%").ok()
        });
        let lines = body.lines().map(without_comment);
        let has = |text: &str| lines.clone().any(|line| line.contains(text));
        let by_slurm = has("scontrol") && has("Command=");
        let own_place = OWN_PLACE.as_ref().is_some_and(|own| lines.clone().any(|line| own.is_match(line)));
        if own_place || by_slurm {
            let message = "the script looks for files beside itself (`$0`, BASH_SOURCE, `Command=` of scontrol); the job's copy stands elsewhere";
            let fix = "write the folder out";
            self.findings.push(Finding::warning("W-IMPORT-FILES", message).fix(fix));
        }
        self.relative_file(first_read(body).as_deref());
    }

    /// Warns of files that `setup` or the command of the ranks reads from the folder where the job is submitted. In a
    /// container the ranks see its own files.
    pub(super) fn files_of_launch(&mut self, setup: &str, command: &[String]) {
        let stays = of_submission(setup).0.len() == setup.len();
        let of_command = || read_by(command, 0, 0).filter(|_| stays && self.spec.image.is_none());
        let file = first_read(setup).or_else(of_command);
        self.relative_file(file.as_deref());
    }

    pub(super) fn relative_file(&mut self, file: Option<&str>) {
        const CODE: &str = "W-IMPORT-FILES";
        let is_told = self.findings.iter().any(|finding| finding.code == CODE);
        if let Some(file) = file.filter(|_| self.spec.workdir.is_none() && !is_told) {
            let message = format!("`{file}` is looked up relative to the folder where the job is submitted");
            let fix = "submit the job from the script's folder, or set `workdir`";
            self.findings.push(Finding::warning(CODE, message).fix(fix));
        }
    }
}

/// Returns the first file that the script reads from the folder where the job is submitted: by a command, or by one that
/// stands in a variable.
fn first_read(body: &str) -> Option<String> {
    let (part, commands) = of_submission(body);
    let by_command = commands.iter().find_map(|command| read_by(&command.words, command.program, 0));
    // What stands in a variable may be for a container.
    let contained = commands.iter().any(|command| command.words.iter().any(|word| is_image_option(word)));
    let by_variable = || part.lines().map(without_comment).find_map(read_by_variable);
    by_command.or_else(|| by_variable().filter(|file| !contained || file.ends_with(".sqsh")))
}

fn is_image_option(word: &str) -> bool {
    word == "--container-image" || word.starts_with("--container-image=")
}

/// Returns the part of a script that runs in the folder where the job is submitted, and its commands: up to the first `cd` to
/// a folder that is not below it.
fn of_submission(body: &str) -> (&str, Vec<ScriptCommand>) {
    const HERE: [&str; 4] = ["$SLURM_SUBMIT_DIR", "${SLURM_SUBMIT_DIR}", "$PWD", "${PWD}"];
    let leaves = |command: &ScriptCommand| {
        let folder = command.words.get(command.program + 1).map_or("~", String::as_str);
        matches!(base(command, command.program), "cd" | "pushd")
            && folder.starts_with(['/', '~', '$', '`'])
            && !HERE.contains(&folder)
    };
    let mut commands = commands(body).unwrap_or_default();
    let end = commands.iter().position(leaves);
    let part = end.and_then(|end| body.get(..commands.get(end)?.start)).unwrap_or(body);
    commands.truncate(end.unwrap_or(commands.len()));
    (part, commands)
}

/// Commands whose words are no files that they read.
const READ_NOTHING: &str = "echo printf mkdir rm rmdir touch tee chmod cd pushd ls test [ [[ export declare local readonly unset \
    trap basename dirname module ml git conda mamba pip pip3 wandb scancel squeue sbatch";

/// Returns the file in the current folder that a command reads; the word at `program` is its name.
fn read_by(words: &[String], program: usize, depth: usize) -> Option<String> {
    const MAX_DEPTH: usize = 4;
    let (name, arguments) = words.get(program..)?.split_first()?;
    let program = name.rsplit('/').next().unwrap_or(name);
    if depth > MAX_DEPTH || READ_NOTHING.split_whitespace().any(|known| known == program) {
        return None;
    }
    if is_in_folder(name) {
        return Some(name.clone());
    }
    if program == "srun" {
        let used = Directives::read(Program::Srun, arguments).1;
        let (options, rest) = arguments.split_at(used.min(arguments.len()));
        let contained = options.iter().any(|word| is_image_option(word));
        return read_among(options, false).or_else(|| read_by(rest, 0, depth + 1).filter(|_| !contained));
    }
    if is_elsewhere(program, arguments) {
        return None;
    }
    if let Some(text) = arguments.iter().find(|word| word.contains(char::is_whitespace)) {
        let inner = of_submission(text).1;
        let found = inner.iter().find_map(|one| read_by(&one.words, one.program, depth + 1));
        return found.or_else(|| read_among(arguments, true));
    }
    sourced(words).map(str::to_owned).or_else(|| read_among(arguments, true))
}

/// Returns whether a command runs its program in a container with files of its own, on another host or in another folder.
fn is_elsewhere(program: &str, arguments: &[String]) -> bool {
    const OTHER_FILES: [&str; 7] = ["docker", "podman", "podman-hpc", "enroot", "kubectl", "ssh", "rsync"];
    const FOLDERS: [&str; 6] =
        ["--directory", "--chdir", "--wdir", "--pwd", "--workdir", "--container-workdir"];
    OTHER_FILES.contains(&program)
        || arguments.iter().any(|word| FOLDERS.contains(&word.split('=').next().unwrap_or_default()))
}

/// Returns the first word that names a file to read; with `programs` also a program without an ending.
fn read_among(words: &[String], programs: bool) -> Option<String> {
    let mut before = "";
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((before, word));
        let is_program = programs && !before.starts_with('-') && is_in_folder(word);
        if !is_output(name) && (is_program || has_known_ending(value)) {
            return Some(value.to_owned());
        }
        before = word;
    }
    None
}

/// Returns the file to read in the value of a variable: a path, or a command.
fn read_by_variable(line: &str) -> Option<String> {
    let line = line.trim();
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    if !is_variable(name) || is_output(name) {
        return None;
    }
    let value = value.trim_start_matches(['"', '\'', '(']);
    let words: Vec<String> =
        value.split_whitespace().map(|word| word.trim_end_matches(['"', '\'', ')']).to_owned()).collect();
    read_among(&words, false)
}

/// Returns whether the name of an option or a variable says that its file is written.
fn is_output(name: &str) -> bool {
    const WRITTEN: [&str; 10] =
        ["out", "log", "save", "result", "report", "summary", "dest", "target", "exclude", "include"];
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    name == "o" || WRITTEN.iter().any(|part| name.contains(part))
}

/// Returns whether a word is the path of a program in the current folder or below it.
fn is_in_folder(word: &str) -> bool {
    (word.starts_with("./") || word.starts_with("../")) && is_plain(word) && !word.ends_with(['/', '.'])
}

fn has_known_ending(word: &str) -> bool {
    const ENDINGS: [&str; 8] = [".sh", ".py", ".yaml", ".yml", ".json", ".toml", ".sqsh", ".sif"];
    word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.')
        && is_plain(word)
        && ENDINGS.iter().any(|ending| word.strip_suffix(ending).is_some_and(|name| !name.is_empty()))
}

fn is_plain(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c))
}

/// Returns the relative path that a command reads into the shell; a name without a folder is looked up in PATH.
fn sourced(words: &[String]) -> Option<&str> {
    let file = words.get(1).filter(|_| matches!(words.first().map(String::as_str), Some("source" | ".")))?;
    let in_folder = file.contains('/') && file.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
    in_folder.then_some(file)
}

#[cfg(test)]
mod tests {
    use crate::slurm::import_sbatch;

    #[test]
    fn files_are_looked_up_where_the_script_is() {
        let file = |body: &str| {
            let script = format!("#!/bin/bash\n#SBATCH -N 2\n{body}\n");
            let (_, said) = import_sbatch(&script, false).unwrap();
            let found = said.into_iter().find(|one| one.code == "W-IMPORT-FILES")?;
            found.message.split('`').nth(1).map(str::to_owned)
        };
        for (body, wanted) in [
            ("srun a\nsrun ./b.sh", Some("./b.sh")),
            ("cd /fsx/me || exit 1\nsrun a\nsrun ./b.sh", None),
            ("cd \"$HOME/me\"\nsrun a\nsrun ./b.sh", None),
            ("cd sub\nsrun a\nsrun ./b.sh", Some("./b.sh")),
            ("srun ./b.sh\ncd /fsx/me\nsrun a", Some("./b.sh")),
            ("echo \"start ./b.sh\"\nsrun a\nsrun b", None),
            ("if true; then echo ./b.sh; fi\nsrun a\nsrun b", None),
            ("echo a; ./b.sh\nsrun a\nsrun b", Some("./b.sh")),
            ("srun --container-image=./x.sqsh a\nsrun b", Some("./x.sqsh")),
            ("srun --container-image=/fsx/x.sqsh a\nsrun b", None),
            ("srun --container-image=./x.sqsh a", Some("./x.sqsh")),
            ("srun --container-image=x/y a", None),
            ("IMAGE=\"./x.sqsh\"\nsrun a\nsrun b", Some("./x.sqsh")),
            ("source venv/bin/activate\nsrun a\nsrun b", Some("venv/bin/activate")),
            ("source venv/bin/activate\nsrun --label python3 a", Some("venv/bin/activate")),
            (". /fsx/venv/bin/activate\nsrun a\nsrun b", None),
            ("source activate env\nsrun a\nsrun b", None),
            ("srun bash -c \"cd sub && python train.py --out x.json $A\"", Some("train.py")),
            ("srun a\nsrun -o log.json --mem=0 python -u train.py", Some("train.py")),
            ("LAUNCH=\"python train.py --lr $LR\"\nsrun $LAUNCH\nsrun b", Some("train.py")),
            ("srun a\npython /x/t.py --config conf/a.yaml --deepspeed=ds.json\nsrun b", Some("conf/a.yaml")),
            ("mpirun -np 2 ./train --lr 1\nsrun b\nsrun a", Some("./train")),
            ("srun bash -c \"cd /workspace && ./b.sh $A\"", None),
            ("srun bash -c \"python -m x --config-path=./config $A\"", None),
            // Words that are written, made, or no paths.
            ("srun a\nmkdir -p ./logs ./out.json\nsrun /x/b > ./b.json", None),
            ("RESULT=res.json\nsrun /x/b --output_file out.json\nsrun --output=a.json b", None),
            ("cat > conf.yaml <<E\npath: ./a.json\nE\nsrun /x/a\nsrun b", None),
            ("srun /x/a --url https://a.b/c.json --name v1.0.py-x --dir ./data\nsrun b", None),
            ("cd $PROJECT\nsrun ./b.sh\nsrun a", None),
            ("cd $SLURM_SUBMIT_DIR\nsrun ./b.sh\nsrun a", Some("./b.sh")),
            // One launch, which becomes the job's command.
            ("srun python train.py", Some("train.py")),
            ("srun torchrun --nnodes=2 --nproc_per_node=8 train.py", Some("train.py")),
            ("python prepare.py\nsrun python /fsx/train.py", Some("prepare.py")),
            ("cd /fsx/me\nsrun python train.py", None),
            ("srun python -m train", None),
            // Files of a container, and of a folder that an option names.
            ("srun --container-image=x/y python train.py", None),
            ("srun --container-image=x/y python train.py\nsrun --container-image x/y bash eval.sh", None),
            ("S=\"train.sh\"\nsrun --container-image=x/y bash $S\nsrun --container-image=x/y b", None),
            ("docker run --rm x/y python train.py\nsrun b\nsrun a", None),
            ("srun uv run python train.py", Some("train.py")),
            ("srun a\nuv run --directory=$D python train.py\nsrun b", None),
            ("srun bash -c \"uv run --directory=$D python train.py\"", None),
            ("srun singularity exec x.sif python /a.py", Some("x.sif")),
        ] {
            assert_eq!(file(body).as_deref(), wanted, "{body}");
        }
    }
}
