//! One `submit` is one job, whatever becomes of sbatch's answer.

use crate::bed::{Bed, WAYS};
use crate::run::{User, said};

#[test]
fn a_lost_answer_of_sbatch_makes_no_second_job() {
    let Some(bed) = Bed::find() else { return };
    for way in WAYS {
        for (case, script) in [
            ("silent", "\"$real\" \"$@\" > /dev/null; exit 1"),
            ("killed", "\"$real\" \"$@\"; kill -9 $PPID"),
        ] {
            // Only the answer of the real submission is lost, not that of the test before it.
            let script =
                format!("case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n{script}");
            let programs = bed.wrapper(way, "sbatch", &script);
            let name = format!("once-{case}-{way:?}-{}", std::process::id()).to_lowercase();
            let user = User::new(
                &bed,
                way,
                &[("bin-dir", &programs.display().to_string()), ("command-seconds", "5")],
            );
            user.file("job.toml", &format!("name = \"{name}\"\ncommand = [\"sleep\", \"60\"]\n"));
            let output = user.weftrun(&["submit", "job.toml"]);
            assert_eq!(output.status.code(), Some(0), "{way:?} {case}: {}", said(&output));
            assert_eq!(bed.count(&name), 1, "{way:?} {case}");
            let handle = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let output = user.weftrun(&["cancel", &handle]);
            assert_eq!(output.status.code(), Some(0), "{way:?} {case}: {}", said(&output));
        }
    }
}
