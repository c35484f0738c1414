//! A folder that is sent with a job: the job runs in a copy of it, which is sent once for each content.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::cluster::{EVERY, TestCluster, Way};
use crate::run::{User, said};
use weftrun_testkit::child;

const SHOW: &str = "#!/bin/sh\necho \"$(cat data.txt) $(cat near) $(cat 'odd\nname') on $SLURM_NODEID\"\n\
                    [ -e ignored.log ] && echo an ignored file was sent\npwd > \"result-$SLURM_NODEID\"\n";

/// A repository with what a careless copy would lose.
fn project(user: &User<'_>) {
    std::fs::create_dir(user.dir().join("sub")).expect("made");
    for (name, text) in [
        (".gitignore", "*.log\nconfig.toml\nstate/\n"),
        ("show.sh", SHOW),
        ("data.txt", "hello"),
        ("odd\nname", "newline"),
        ("sub/deep.txt", "deep"),
        ("ignored.log", "not to be sent"),
        ("job.toml", "name = \"code\"\nnodes = 2\ncommand = [\"./show.sh\"]\ncode = { dir = \".\" }\n"),
    ] {
        user.file(name, text);
    }
    symlink("data.txt", user.dir().join("near")).expect("linked");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(user.dir().join("show.sh"), mode).expect("executable");
    let made = child::command("git").args(["init", "--quiet"]).current_dir(user.dir()).status();
    assert!(made.expect("git runs").success());
}

/// The folder for logs of a way.
fn logs(way: Way) -> &'static str {
    match way {
        Way::Ssh => "home/researcher/weftrun",
        Way::Here | Way::Rest => "shared/fsx/logs",
    }
}

/// Returns the archives in the store of the user of a way, with their inodes.
fn store(cluster: &TestCluster, way: Way) -> String {
    let find = "find . -path './.code-*' -name '*.gz' -printf '%f %i\\n' | sort";
    cluster.sh(&format!("cd \"$CLUSTER\"/{} && {find}", logs(way)))
}

#[test]
fn a_folder_is_sent_once_and_the_job_runs_in_a_copy() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in EVERY {
        let user = User::new(&cluster, way, &[]);
        project(&user);
        let (mut stores, mut handle) = (Vec::new(), String::new());
        for _ in 0..2 {
            let done = user.weftrun(&["submit", "--follow", "job.toml"]);
            let text = said(&done);
            assert!(done.status.success(), "{way:?}: {text}");
            for node in 0..2 {
                assert!(text.contains(&format!("hello hello newline on {node}")), "{way:?}: {text}");
            }
            assert!(!text.contains("ignored file"), "{way:?}: {text}");
            stores.push(store(&cluster, way));
            let mut words = text.split_whitespace();
            handle = words.find(|word| word.starts_with("slurm://")).expect("a handle").to_owned();
        }
        let described = said(&user.weftrun(&["describe", &handle]));
        // Other tests send folders of theirs into the same store.
        let hash = described.split("sha256 ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let hash = hash.unwrap_or_else(|| panic!("{way:?}: {described}"));
        let own = |store: &String| store.lines().find(|line| line.starts_with(hash)).map(str::to_owned);
        assert!(own(&stores[0]).is_some() && own(&stores[0]) == own(&stores[1]), "{way:?}: {stores:?}");
        assert!(described.contains("no git commit, 7 files"), "{way:?}: {described}");
        // What came with the job is removed at its end, and what it wrote stays.
        let id = handle.rsplit('/').next().expect("an id");
        let find = format!(
            "find \"$CLUSTER\"/{} -path '*/code-{id}-*.code*' ! -type d -printf '%f\\n' | sort",
            logs(way)
        );
        assert_eq!(cluster.sh(&find), "result-0\nresult-1\n", "{way:?}");

        let inside = user.weftrun(&[
            "submit",
            "--follow",
            "--name",
            "sub",
            "--code",
            ".",
            "--workdir",
            "sub",
            "--",
            "cat",
            "deep.txt",
        ]);
        assert!(inside.status.success() && said(&inside).contains("deep"), "{way:?}: {}", said(&inside));
        let once = user.weftrun(&[
            "submit",
            "--follow",
            "--name",
            "once",
            "--launch",
            "once",
            "--code",
            ".",
            "--",
            "./show.sh",
        ]);
        assert!(
            once.status.success() && said(&once).contains("hello hello newline on 0"),
            "{way:?}: {}",
            said(&once)
        );
    }
}

#[test]
fn a_large_folder_is_sent_in_pieces_over_a_connection_that_is_cut() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    // Incompressible, so that the archive has several pieces.
    let mut noise = vec![0_u8; 10 << 20];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for byte in &mut noise {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state.to_le_bytes()[3];
    }
    std::fs::write(user.dir().join("noise"), &noise).expect("written");
    user.file(".gitignore", "config.toml\nstate/\n");
    user.file(
        "job.toml",
        "name = \"large\"\ncommand = [\"wc\", \"-c\", \"noise\"]\ncode = { dir = \".\" }\n",
    );
    let done = std::thread::scope(|scope| {
        let submitting = scope.spawn(|| user.weftrun(&["submit", "--follow", "job.toml"]));
        std::thread::sleep(std::time::Duration::from_millis(1500));
        cluster.cut_ssh();
        submitting.join().expect("ends")
    });
    assert!(done.status.success() && said(&done).contains("10485760 noise"), "{}", said(&done));
    let parts = cluster.sh(&format!("find \"$CLUSTER\"/{} -name '.part-*' | wc -l", logs(Way::Ssh)));
    assert_eq!(parts.trim(), "0", "parts stay");
}
