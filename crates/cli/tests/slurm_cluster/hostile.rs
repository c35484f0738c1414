//! Values, arguments and paths full of quotes, `$`, newlines and `;` come back as data.

use serde_json::Value;

use crate::cluster::{EVERY, TestCluster, Way};
use crate::run::{User, said};

const NASTY: &str = "it's \"$HOME\" `id` $(id); rm -rf / \\ \n two\t# * ~ !x é🦀 %j a=b,c";
/// A folder's name.
const FOLDER: &str = "we ird; $(touch gone) 'q' \"d\" é";
/// A working folder's name: Slurm takes no backslash or newline in the path of a log.
const WORK: &str = "a\\b\nc";

fn hex(text: &str) -> String {
    text.bytes()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|half| char::from_digit(half.into(), 16))
        .collect()
}

#[test]
fn hostile_text_comes_back_as_data() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in EVERY {
        let shared = cluster.dir.join("shared/fsx").join(FOLDER);
        std::fs::create_dir_all(shared.join(WORK)).expect("a folder");
        // Over local commands root makes the folder, and the job is researcher's.
        std::fs::create_dir_all(shared.join("logs")).expect("a folder");
        cluster
            .sh("chown -R 2001:2001 \"$CLUSTER\"/shared/fsx/we*; chmod -R a+rwx \"$CLUSTER\"/shared/fsx/we*");
        // The log folder is named as the machine that makes it sees it.
        let logs = match way {
            Way::Here => shared.join("logs").display().to_string(),
            Way::Ssh | Way::Rest => format!("/fsx/{FOLDER}/logs"),
        };
        let user = User::new(&cluster, way, &[("log-dir", &logs)]);
        user.file(
            "show.sh",
            "hex() { od -An -v -tx1 | tr -d ' \\n'; echo; }\nprintf %s \"$1\" | hex\nprintf %s \"$NASTY\" | hex\nprintf %s \"$(pwd)\" | hex\n",
        );
        let quoted = Value::from(NASTY).to_string();
        // Where the job is submitted the folder must exist too.
        let work = match way {
            Way::Here => shared.join(WORK).display().to_string(),
            Way::Ssh | Way::Rest => format!("/fsx/{FOLDER}/{WORK}"),
        };
        let workdir = Value::from(work.as_str()).to_string();
        user.file(
            "job.toml",
            &format!(
                "name = \"hostile\"\ncommand = [\"sh\", \"-c\", \". ./show.sh\", \"x\", {quoted}]\nenv = {{ NASTY = {quoted} }}\nworkdir = {workdir}\n"
            ),
        );
        std::fs::copy(user.dir().join("show.sh"), shared.join(WORK).join("show.sh")).expect("copied");
        let output = user.weftrun(&["submit", "--follow", "job.toml"]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(0), "{way:?}: {text}");
        let seen = |wanted: &str| text.lines().filter(|line| line.ends_with(&hex(wanted))).count();
        assert_eq!((seen(NASTY), seen(&work)), (2, 1), "{way:?}: {text}");
        // What is no name on any cluster is refused before anything is sent.
        user.file("named.toml", &format!("name = {quoted}\ncommand = [\"true\"]\n"));
        let output = user.weftrun(&["submit", "named.toml"]);
        assert_eq!(output.status.code(), Some(3), "{way:?}: {}", said(&output));
        assert!(!cluster.dir.join("shared/fsx/gone").exists(), "{way:?}");
    }
}
