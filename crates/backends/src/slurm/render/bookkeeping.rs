//! The end of the script: runs a submission only once, and writes its attempts and exit code beside the log.
//!
//! It costs only a few small files while the job holds its nodes: of the log only the last [`TAIL`] bytes are
//! read, and only after a failure.

use weftrun_core::Result;
use weftrun_core::spec::{Launch, RestartPolicy};

use super::{RenderInput, launch, script};

/// Exit code of a job whose submission was claimed by another job.
const IS_A_COPY: i32 = 75;

/// Bytes at the end of the log in which srun's messages about a failure are searched for.
const TAIL: u32 = 16 << 20;

/// How often a job is requeued after failed launches, if only `requeue` is set.
const LAUNCHES: u32 = 3;

/// Claims the submission: if Slurm has two copies (the answer was lost, and it was sent again), only one
/// runs. The first job to start creates a link that contains its id, in the folder that the submission has
/// from before it was sent; creating a link succeeds once, also on NFS. The same job passes again after a
/// requeue, and all tasks of an array are one job. A script that is submitted by hand has no such folder, and
/// runs as often as it is submitted.
const CLAIM: &str = r#"[ -z "${WEFTRUN_ONCE:-}" ] || mkdir -p -- "$weftrun_once" || :
unset WEFTRUN_ONCE
if [ -d "$weftrun_once" ] && [ ! -L "$weftrun_once" ] && [ -O "$weftrun_once" ]; then
  ln -s -n -- "$weftrun_me" "$weftrun_once/job" 2> /dev/null || :
  weftrun_first=$(readlink -- "$weftrun_once/job") || weftrun_first=$weftrun_me
  if [ "$weftrun_first" != "$weftrun_me" ]; then
    echo "weftrun: job $weftrun_first runs this submission already; job $weftrun_me is a copy of it and ends" >&2
    exit @IS_A_COPY@
  fi
fi
"#;

/// If the job names its own output file, the log that is followed is a link to it.
const FOLLOW: &str = r#"weftrun_output=$(readlink "/proc/$$/fd/1") || weftrun_output=
case $weftrun_output in (/*) ln -s -n -f -- "$weftrun_output" "$weftrun_base.log" || : ;; esac
"#;

/// The end of the line that begins an attempt.
const ATTEMPT: &str = r#"\n' "$weftrun_attempt""#;

/// The same for a job whose tasks write separate files. The path comes last, since it may contain blanks.
const FILES: &str = r#" files=%s\n' "$weftrun_attempt" "$weftrun_files""#;

/// The shell functions. srun exits with the highest code of its tasks, and tasks that `-K1` ended have 143,
/// so the job's code is read from srun's first message. Slurm forgets exit codes after MinJobAge if there is
/// no accounting, and accounting before 26.05 reports some of them wrongly: hence the file. A file that
/// another user left in a shared log folder is neither followed (`set -C`) nor evaluated (the pattern matches
/// digits only).
const FUNCTIONS: &str = r#"weftrun_attempt=
[ ! -f "$weftrun_base.exit" ] || weftrun_attempt=$(sed -E -n '1s/^[0-9-]+ (0|[1-9][0-9]{0,5})$/\1/p' "$weftrun_base.exit" 2> /dev/null) || weftrun_attempt=
weftrun_note() { # the exit code (- while the job runs) and the attempt, in a file beside the log
  { rm -f "$weftrun_base.exit.new" && (set -C; echo "$1 $weftrun_attempt" > "$weftrun_base.exit.new") && mv -f "$weftrun_base.exit.new" "$weftrun_base.exit"; } || :
}
weftrun_begin() {
  weftrun_attempt=$((${weftrun_attempt:--1} + 1))
  printf '#weftrun log=1 attempt=%s labels=@LABELS@ tasks=@TASKS@ ranks=@RANKS@@FILES@
  weftrun_note -
}
weftrun_why() { # what srun reported: `lost` for a failed launch, else the exit code of the task that failed first
  tail -c @TAIL@ -- "$weftrun_base.log" 2> /dev/null | awk '
    /^#weftrun log=1 / { code = ""; lost = 0 }
    /^srun: error: Application launch failed: / { lost = 1 }
    code == "" && sub(/^srun: error: [^:]*: tasks? [0-9,-]*: /, "") {
      code = /^Exited with exit code/ ? $5 + 0 : /^Segmentation fault/ ? 139 : /^Aborted/ ? 134 : /^Bus error/ ? 135 : /^Killed/ ? 137 : "" }
    END { print lost ? "lost" : code }' || :
}
"#;

/// Runs the program of a script that is carried as it is. Slurm sends a signal of `--signal=B:` and `scancel --batch` to the
/// script alone, so it is passed on; one to all processes of the job (a cancel, the time limit) has reached the program already,
/// and has ended the other process here as well. Without the inner traps, INT and QUIT would be ignored in the background.
const PROGRAM: &str = r#"weftrun_beside() {
  (trap - INT QUIT; exec sleep 2147483647) &
  weftrun_other=$!
  disown "$weftrun_other"
}
weftrun_program() {
  weftrun_beside
  (trap - INT QUIT; exec "$@") &
  weftrun_pid=$!
  for weftrun_signal in @SIGNALS@; do trap "weftrun_pass $weftrun_signal" "$weftrun_signal"; done
  weftrun_passed=1
  while [ -n "$weftrun_passed" ]; do
    weftrun_passed= weftrun_code=0
    wait "$weftrun_pid" || weftrun_code=$?
  done
  trap - @SIGNALS@
  trap : USR1 USR2
  kill "$weftrun_other" 2> /dev/null || :
  return "$weftrun_code"
}
weftrun_pass() {
  weftrun_passed=1
  sleep 0.2
  if kill -0 "$weftrun_other" 2> /dev/null; then kill -s "$1" "$weftrun_pid" 2> /dev/null || :; else weftrun_beside; fi
}
"#;

/// The signals that programs handle for a last checkpoint.
const SIGNALS: &str = "HUP INT QUIT USR1 USR2 ALRM TERM";

const RESTART: &str = r#"weftrun_restart() {
  [ "${weftrun_restarts:=0}" -lt @MAX@ ]@LOST@ || exit "$1"
  weftrun_restarts=$((weftrun_restarts + 1))
  weftrun_begin
}
"#;

const END: &str = r#"weftrun_end() {
  { weftrun_code=$? weftrun_cause=; set +x; } 2> /dev/null
  trap - EXIT
  [ "$weftrun_code" -eq 0 ] || weftrun_cause=$(weftrun_why)
@REQUEUE@@RESULT@  printf '#weftrun end attempt=%s code=%s\n' "$weftrun_attempt" "$weftrun_code"
  weftrun_note "$weftrun_code"
@LIBRARY@@CODE@  exit "$weftrun_code"
}
trap weftrun_end EXIT
trap : USR1 USR2 # over slurmrestd the script gets the ranks' signals as well
weftrun_begin
weftrun_job
"#;

/// Takes the exit code of the task that failed first for that of srun. A script that starts its ranks itself has a code of its own.
const RESULT: &str = r#"  if [ "$weftrun_code" -ge 128 ] && [ -n "${weftrun_cause#lost}" ]; then weftrun_code=$weftrun_cause; fi
"#;

/// Removes the files that came with the job, so that copies of code do not pile up: those of exactly the archive's second, and what
/// Python made of them. What the job wrote or changed stays.
const CODE: &str = r#"  if [ -f "$weftrun_base.code.whole" ]; then
    cd / && TZ=UTC0 touch -t 198001010000.37 "$weftrun_base.code.last" && find "$weftrun_base.code" ! -type d \( -newer "$weftrun_base.code.whole" ! -newer "$weftrun_base.code.last" -o -path '*/__pycache__/*.pyc' \) -exec rm -f -- {} +
    rm -f -- "$weftrun_base.code.whole" "$weftrun_base.code.last"
    find "$weftrun_base.code" -depth -type d -exec rmdir -- {} + 2> /dev/null || :
  fi
"#;

/// Writes the block.
pub fn write(draft: &RenderInput<'_>) -> Result<String> {
    let dir = script::log_dir(draft)?;
    let labels = match draft.job.spec.launch {
        Launch::Once => "none",
        launch if launch::are_ranks(launch) => "rank",
        _ => "node",
    };
    let role = |role: &&weftrun_core::spec::Role| {
        format!("{}:{}", script::safe(&role.name), launch::tasks(draft, role))
    };
    let roles: Vec<String> = draft.workers.iter().map(role).collect();
    let functions = FUNCTIONS
        .replace("@LABELS@", labels)
        .replace("@TASKS@", &roles.join(","))
        .replace("@RANKS@", &draft.world().to_string())
        .replace("@FILES@", if draft.output.tasks.is_some() { FILES } else { ATTEMPT })
        .replace("@TAIL@", &TAIL.to_string());
    let follow = if draft.output.own { FOLLOW } else { "" };
    let files = files(draft, &dir);
    let requeue = requeue(draft);
    let brings = crate::remote::script::brings_library(draft.job);
    let library = if brings { format!("  rm -rf -- {} || :\n", launch::LIBRARY) } else { String::new() };
    let code = if draft.job.spec.code_folder().is_some() { CODE } else { "" };
    let restart = match draft.job.spec.restart {
        RestartPolicy::OnFailure { max } if max > 0 => {
            // A job that is requeued because a node was lost does not restart on the remaining nodes.
            let lost = if requeue.is_empty() { "" } else { r#" && [ "$(weftrun_why)" != lost ]"# };
            RESTART.replace("@MAX@", &max.to_string()).replace("@LOST@", lost)
        }
        _ => String::new(),
    };
    let program = match draft.job.spec.launch {
        Launch::Once => PROGRAM.replace("@SIGNALS@", SIGNALS),
        _ => String::new(),
    };
    let result = if draft.job.spec.launch == Launch::Once { "" } else { RESULT };
    Ok(format!(
        "# weftrun's own part: a submission that Slurm has twice runs once; attempts and the exit code go to a file beside the log.\n\
         weftrun_base={dir}/\"{name}\"\n\
         weftrun_once={dir}/.submit-{submission} weftrun_me=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}\n\
         {claim}{follow}{files}{functions}{program}{restart}{end}",
        name = draft.log_name_in_shell(),
        submission = draft.job.submission,
        claim = CLAIM.replace("@IS_A_COPY@", &IS_A_COPY.to_string()),
        end = END
            .replace("@REQUEUE@", &requeue)
            .replace("@RESULT@", result)
            .replace("@LIBRARY@", &library)
            .replace("@CODE@", code),
    ))
}

/// Returns the lines that create the folders of the job's output files. Slurm before 25.05 does not create them.
fn files(draft: &RenderInput<'_>, dir: &str) -> String {
    let mut text = String::new();
    if let Some(link) = &draft.output.link {
        text.push_str(&link.folders("\"$PWD\"", 1, 1));
        text.push_str(&format!(
            "ln -s -n -f -- \"$weftrun_base.log\" {} || :\n",
            link.word_of_batch("\"$PWD\"")
        ));
    }
    if let Some(files) = &draft.output.tasks {
        let root = if draft.output.in_log_dir { dir } else { "\"$PWD\"" };
        let nodes = draft.workers.iter().map(|role| role.nodes).fold(0, u32::saturating_add);
        let tasks = draft.workers.iter().map(|role| launch::tasks(draft, role)).fold(0, u32::saturating_add);
        text.push_str(&format!("weftrun_files={}\n", files.word(root)));
        text.push_str(&files.folders(root, nodes, tasks));
    }
    text
}

/// Requeues the job if a node was lost while srun launched. Slurm's own requeue comes only once slurmctld
/// misses the node (SlurmdTimeout, minutes on most sites); srun gives up within seconds, and when the script
/// then ends, the job has failed (seen on 22.05.8: FAILED with 233, Restarts=0).
fn requeue(draft: &RenderInput<'_>) -> String {
    let most = match draft.job.spec.restart {
        RestartPolicy::OnFailure { max } => max,
        RestartPolicy::Never => LAUNCHES,
    };
    if !draft.requeues() || most == 0 {
        return String::new();
    }
    format!(
        "  if [ \"$weftrun_cause\" = lost ] && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {most} ] && scontrol requeue \"$SLURM_JOB_ID\"; then exec sleep 600; fi\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use weftrun_core::spec::{JobSpec, Launch, RestartPolicy, Role};

    use super::super::tests::text;
    use weftrun_testkit::child;

    const SRUN: &str = "#!/bin/sh\necho srun >> \"$HOME/calls\"\n. \"$HOME/ends\"\n";

    /// Creates a folder for `$HOME` with fake Slurm programs; `ends` is the behavior of srun.
    fn home(ends: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("weftrun")).unwrap();
        std::fs::write(home.path().join("ends"), ends).unwrap();
        for (name, text) in [
            ("srun", SRUN),
            ("scontrol", "#!/bin/sh\n[ \"$1\" = requeue ] && touch \"$HOME/requeued\"; echo node1\n"),
            ("sleep", "#!/bin/sh\n"),
        ] {
            let file = home.path().join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        home
    }

    fn script(restart: RestartPolicy) -> String {
        let role = Role::worker().nodes(2).gpus_per_node(8).command(["./train"]);
        text(
            JobSpec::builder("j").launch(Launch::PerRank).role(role).restart(restart).build().unwrap(),
            Vec::new(),
        )
    }

    /// Runs a script as Slurm does: its output is appended to the log. Returns the exit code and the end of
    /// the log.
    fn run(home: &Path, script: &str) -> (Option<i32>, String) {
        let log = home.join("weftrun/j-7-0a1b2c3d.log");
        let begin = std::fs::metadata(&log).map_or(0, |known| known.len());
        let open = || std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let path = format!("{}:{}", home.display(), child::path());
        let mut command = child::command("timeout");
        command.args(["120", "bash", "-c", script]).current_dir(home).stdout(open()).stderr(open());
        command
            .env("HOME", home)
            .env("PATH", path)
            .env("SLURM_JOB_ID", "7")
            .env("SLURM_JOB_NODELIST", "node1");
        let code = command.status().unwrap().code();
        let mut file = std::fs::File::open(&log).unwrap();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(begin)).unwrap();
        (code, std::io::read_to_string(file).unwrap())
    }

    fn kept(home: &Path) -> String {
        std::fs::read_to_string(home.join("weftrun/j-7-0a1b2c3d.exit")).unwrap()
    }

    /// Point 10 of issue 16: a requeued job with a long log does not read it while it holds its nodes. The
    /// log is a sparse file of 64 GiB, which no program reads within the limit.
    #[test]
    fn attempts_and_the_first_failure_are_known_without_reading_the_whole_log() {
        let home = home(
            "echo 'srun: error: n2: task 9: Exited with exit code 3'\n\
             echo 'srun: error: n1: task 1: Terminated'\nexit 143\n",
        );
        let script = script(RestartPolicy::Never);
        let (code, log) = run(home.path(), &script);
        assert_eq!(code, Some(3), "{log}");
        assert!(log.starts_with("#weftrun log=1 attempt=0 labels=rank tasks=worker:16 ranks=16\n"), "{log}");
        assert!(log.ends_with("#weftrun end attempt=0 code=3\n"), "{log}");
        assert_eq!(kept(home.path()), "3 0\n");
        let file = home.path().join("weftrun/j-7-0a1b2c3d.log");
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(64 << 30).unwrap();
        let (code, log) = run(home.path(), &format!("echo\n{script}"));
        assert_eq!(code, Some(3), "{log}");
        assert!(log.contains("\n#weftrun log=1 attempt=1 ") && log.ends_with("attempt=1 code=3\n"), "{log}");
        assert_eq!(kept(home.path()), "3 1\n");
    }

    #[test]
    fn a_running_job_has_no_exit_code_and_restarts_count_as_attempts() {
        let home = home("cat \"$HOME\"/weftrun/*.exit >> \"$HOME/seen\"; exit 1\n");
        let (code, log) = run(home.path(), &script(RestartPolicy::OnFailure { max: 2 }));
        assert_eq!((code, kept(home.path()).as_str()), (Some(1), "1 2\n"), "{log}");
        assert_eq!(std::fs::read_to_string(home.path().join("seen")).unwrap(), "- 0\n- 1\n- 2\n");
        assert_eq!(log.matches("#weftrun log=1 ").count(), 3, "{log}");
    }

    #[test]
    fn a_launch_that_loses_a_node_is_queued_again_and_not_restarted() {
        let home = home("echo 'srun: error: Application launch failed: Communication failure'; exit 233\n");
        let (code, log) = run(home.path(), &script(RestartPolicy::OnFailure { max: 2 }));
        assert!(home.path().join("requeued").exists(), "{log}");
        assert_eq!(
            (code, kept(home.path()).as_str()),
            (Some(0), "- 0\n"),
            "slurmctld ends the script: {log}"
        );
        assert_eq!(std::fs::read_to_string(home.path().join("calls")).unwrap(), "srun\n");
    }

    #[test]
    fn an_attempt_that_another_user_left_is_not_evaluated() {
        for planted in ["0 a[$(touch canary)]\n", "0 08\n", "0 99999999999999999999\n", "junk\n"] {
            let home = home("exit 0\n");
            std::fs::write(home.path().join("weftrun/j-7-0a1b2c3d.exit"), planted).unwrap();
            let (code, log) = run(home.path(), &script(RestartPolicy::Never));
            assert_eq!((code, kept(home.path()).as_str()), (Some(0), "0 0\n"), "{planted}: {log}");
            assert!(!home.path().join("canary").exists(), "{planted}");
        }
    }

    /// Point 10 of issue 39: the archive is checked, an interrupted copy is completed, and only what the job wrote stays.
    #[test]
    fn a_folder_is_checked_unpacked_and_removed_without_what_the_job_wrote() {
        let source = tempfile::tempdir().unwrap();
        std::fs::create_dir(source.path().join("sub")).unwrap();
        std::fs::write(source.path().join("sub/a.py"), "1\n").unwrap();
        std::fs::write(source.path().join("b.py"), "2\n").unwrap();
        std::os::unix::fs::symlink("b.py", source.path().join("near")).unwrap();
        let code = weftrun_testkit::code_folder(source.path());
        let weftrun_core::spec::Code::Folder { content: Some(content), .. } = &code else {
            panic!("a folder")
        };
        let ends = "cd \"$HOME\"/weftrun/*.code || exit 9\ncat sub/a.py near\necho out > out.txt\necho 3 > b.py\n\
                    mkdir -p sub/__pycache__\necho c > sub/__pycache__/a.pyc\n\
                    echo c > kept.pyc\ntouch -d @1 old\nTZ=UTC0 touch -t 198001010000 zipped\n";
        let home = home(ends);
        let role = Role::worker().command(["./train"]);
        let spec = JobSpec::builder("j").role(role).code(code.clone()).build().unwrap();
        let script = text(spec, Vec::new());
        let folder = home.path().join("weftrun");
        let (exit, log) = run(home.path(), &script);
        assert!(exit == Some(1) && log.contains("`weftrun submit` sends the folder"), "{log}");
        let once = script.split("/.submit-").nth(1).unwrap().split_whitespace().next().unwrap();
        let archive = folder.join(format!(".submit-{once}.code.tar.gz"));
        std::fs::write(&archive, &content.archive.bytes()[..50]).unwrap();
        let (exit, log) = run(home.path(), &script);
        assert!(exit == Some(1) && log.contains("the archive has other files"), "{log}");
        std::fs::write(&archive, content.archive.bytes()).unwrap();
        // An interrupted copy.
        let copy = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let copy = copy.into_iter().find(|path| path.extension().is_some_and(|end| end == "code")).unwrap();
        std::fs::write(copy.join("b.py"), "half").unwrap();
        let (exit, log) = run(home.path(), &script);
        assert!(exit == Some(0) && log.contains("1\n2\n"), "{log}");
        let mut left: Vec<_> =
            std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["b.py", "kept.pyc", "old", "out.txt", "zipped"], "what the job changed and wrote");
        assert_eq!(std::fs::read_to_string(copy.join("b.py")).unwrap(), "3\n");
    }
}
