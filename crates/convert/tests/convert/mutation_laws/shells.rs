//! Rewritten scripts, run by real shells: every `mpirun` of the image is replaced by the one of the mounted
//! stack, with the forwarded variables before its arguments, and nothing else of the script changes.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use weftrun_core::shell;
use weftrun_core::shell::Mpirun;

use crate::child;

/// Common scripts, and scripts that need a real grammar. `mpirun` prints its arguments.
const SCRIPTS: &[&str] = &[
    "mpirun -np 2 app",
    "set -e; true && mpirun a || mpirun b",
    "if mpirun a; then mpirun b; elif false; then :; else mpirun c; fi",
    "i=0\nwhile [ $i -lt 2 ]; do mpirun \"$i\"; i=$((i + 1)); done",
    "until mpirun up; do sleep 1; done; mpirun go",
    "for h in a b; do mpirun $h; done > /dev/null",
    "case x in mpirun) mpirun no;; x|y) mpirun yes ;; *) mpirun no;; esac",
    "case mpirun in (mpirun) mpirun yes\nesac",
    "f() { mpirun \"$1\"; }; f one; f two",
    "g ()\n{\n  mpirun in-function\n}\ng",
    "( mpirun sub ) ; { mpirun group; }",
    "mpirun a | cat; echo x | mpirun b",
    "OUT=$(mpirun caught); echo \"got $OUT\"",
    "OUT=`mpirun old`; echo $OUT",
    "A=1 B=\"2 3\" mpirun env",
    "timeout -k 5 60 mpirun slow",
    "env -u X Y=1 nice -n 1 mpirun wrapped",
    "bash -c 'mpirun inner; mpirun \"two words\"'",
    "sh -c \"mpirun inner && mpirun $HOME\"",
    "mpirun \\\n  -np 2 \\\n  app",
    "mpirun\\\n  a",
    "mpirun a \\\n  # no comment, since the line goes on\ntrue",
    "cat <<EOF\nmpirun in a document $(echo x)\nEOF\nmpirun behind",
    "cat <<'EOF' | sed s/x/y/ ; mpirun same-line\nmpirun $(x\nEOF\nmpirun behind",
    "cat <<-EOF\n\tmpirun no\n\tEOF\nmpirun yes",
    "cat <<A; mpirun between; cat <<B\nmpirun 1\nA\nmpirun 2\nB\nmpirun yes",
    "cat <<E\\OF\nmpirun `x\nEOF\nmpirun yes",
    "cat <<EOF\na \\\nEOF\nEOF\nmpirun yes",
    "X=$(cat <<EOF\n) mpirun no\nEOF\n); echo \"$X\"; mpirun yes",
    "X=$(cat <<'EOF'\nit's $(\nEOF\n)\nmpirun yes # mpirun\n",
    "# mpirun in a comment's line\nmpirun a # mpirun b\necho a#b; mpirun c",
    "echo \"mpirun $(echo mpirun x) mpirun\"; mpirun a",
    "echo 'mpirun; mpirun'; mpirun \"it's; mpirun\"",
    "echo ${X:-\"mpirun; } mpirun\"}; mpirun a",
    "echo \"${X:-it}\" ${X:+mpirun} ${#X}; mpirun a",
    "echo $((1 << 2)) $(( (3) )); mpirun a",
    "( (mpirun nested) ); mpirun a",
    "mpirun a > /dev/null 2>&1; mpirun b 2>/dev/null",
    ">/dev/null mpirun quiet; </dev/null mpirun a",
    "! mpirun not; mpirun b",
    "command mpirun a; exec mpirun last",
    "echo ü; mpirun ä",
    "\\mpirun left; 'mpirun' left; echo mpirun left",
    "mpirun a & wait; mpirun b",
    "if true; then { mpirun a; } fi; if (true) then mpirun b; fi",
    "eval true; . /dev/null; mpirun a",
];

/// Scripts for bash only.
const BASH: &[&str] = &[
    "time mpirun a; time -p mpirun b",
    "[[ mpirun == mpirun && a =~ ^(a|mpirun)$ ]] && mpirun a",
    "[[ $X == *(x) || ( -n a ) ]] || true; mpirun b",
    "for ((i = 0; i < 2; i++)); do mpirun $i; done",
    "((1 + (2 << 3))) && mpirun a",
    "a=(mpirun \"x y\" $(echo mpirun)); mpirun \"${a[@]}\"; a+=(z); a[0]=b mpirun c",
    "diff <(mpirun a) <(mpirun a) && mpirun b",
    "cat <<<mpirun; cat <<< \"$(echo mpirun)\"; mpirun b",
    "function f { mpirun a; }; f; function g() ( mpirun b ); g",
    "mpirun a &> /dev/null; mpirun b |& cat",
    "echo $'mpirun\\n' $\"mpirun\"; mpirun a",
    "exec {fd}>/dev/null; mpirun a >&$fd; echo x{1..3}; mpirun b",
    "mpirun a > >(cat); wait",
    "select x in a; do mpirun $x; break; done </dev/null; mpirun b",
];

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("weftrun-shells-{}", std::process::id()));
        for name in ["image", "mounted"] {
            let folder = root.join(name);
            fs::create_dir_all(&folder).unwrap();
            // One write, so that concurrent output does not mix.
            let program = "#!/bin/sh\nline=\"$(basename \"$(dirname \"$0\")\"): $*\"\necho \"$line\" >> \"$MPIRUN_LOG\"\necho \"ran $#\"\n";
            fs::write(folder.join("mpirun"), program).unwrap();
            fs::set_permissions(folder.join("mpirun"), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(root)
    }

    /// Returns the output of a script, and the programs it ran.
    fn run(&self, shell: &str, script: &str) -> (String, Vec<String>) {
        let log = self.0.join("log");
        let _ = fs::remove_file(&log);
        let path = format!("{}:{}", self.0.join("image").display(), child::path());
        let done = child::command(shell)
            .args(["-c", script])
            .env("PATH", path)
            .env("MPIRUN_LOG", &log)
            .output()
            .unwrap();
        let mut ran: Vec<String> =
            fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect();
        ran.sort();
        (String::from_utf8_lossy(&done.stdout).into_owned(), ran)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_rewritten_script_runs_the_mounted_mpirun_wherever_it_ran_the_images() {
    let folder = Folder::new();
    let bin = folder.0.join("mounted").display().to_string();
    let rule = Mpirun { bin: Some(bin), forward: vec!["HOME".into()], ..Mpirun::default() };
    for (shell, scripts) in [("/bin/dash", SCRIPTS), ("/bin/bash", SCRIPTS), ("/bin/bash", BASH)] {
        if !Path::new(shell).exists() {
            // Not `println!`: what a passing test prints is not shown.
            let _ = writeln!(std::io::stderr(), "skipped: {shell} is not installed");
            continue;
        }
        for script in scripts {
            let command = ["sh", "-c", script].map(str::to_owned);
            let new = shell::rewrite(&command, &[], &rule);
            let (printed, ran) = folder.run(shell, script);
            let (printed_now, ran_now) = folder.run(shell, &new.command[2]);
            let left = script.contains("left");
            let expected: Vec<String> = if left {
                ran.clone()
            } else {
                ran.iter().map(|line| line.replacen("image: ", "mounted: -x HOME ", 1)).collect()
            };
            assert!(!ran.is_empty(), "{shell} runs no mpirun in {script:?}");
            assert_eq!(ran_now, expected, "{shell}: {script:?} became {:?} {:?}", new.command[2], new.notes);
            // `ran N` counts the forwarded words too.
            let counts = |text: &str| {
                text.lines().filter(|line| !line.contains("ran ")).map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(counts(&printed_now), counts(&printed), "{shell}: {script:?}");
        }
    }
}
