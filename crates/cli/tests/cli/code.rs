//! `code = { dir = … }` and `--code`: the folder of a job, on this machine and in what would be sent elsewhere.

use std::os::unix::fs::PermissionsExt as _;

use crate::place::Place;

/// A place with a repository in `project`, and a job file in it.
fn project() -> Place {
    let place = Place::new();
    for folder in ["project", "project/sub"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("project/.gitignore", "*.log\n");
    place.write("project/ignored.log", "x");
    place.write("project/show.sh", "#!/bin/sh\ncat sub/deep.txt; ls; echo out > result\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("project/show.sh"), mode).unwrap();
    place.write("project/sub/deep.txt", "deep\n");
    place.write("project/job.toml", "name = \"c\"\ncommand = [\"./show.sh\"]\ncode = { dir = \".\" }\n");
    for line in
        ["init --quiet", "add .", "-c user.name=a -c user.email=a@example.com commit --quiet -m first"]
    {
        let mut git = place.program("git");
        let done = git.args(line.split(' ')).current_dir(place.path("project")).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    }
    place
}

#[test]
fn a_job_runs_in_a_copy_of_its_folder_and_describe_says_which() {
    let place = project();
    place.write("project/sub/deep.txt", "deeper\n");
    let done = place.run("submit --follow -b local project/job.toml").ok();
    let said = done.out.clone() + &done.err;
    assert!(
        said.contains("| deeper") && said.contains("| show.sh") && !said.contains("ignored.log"),
        "{said}"
    );
    assert!(!place.path("project/result").exists(), "the job ran in the user's folder");
    let handle = done.out.trim();
    let described = place.run(&format!("describe {handle}")).ok();
    assert!(described.out.contains(" with uncommitted changes, 4 files, "), "{}", described.out);
    let json = place.run(&format!("describe {handle} -o json")).ok().json();
    let planned = place.run("plan -b local project/job.toml -o json").ok().json();
    assert_eq!(json["code"], planned["code"]);
    assert_eq!(json["code"]["hash"].as_str().map(str::len), Some(64), "{json:#}");
    assert_eq!(
        (&json["code"]["dirty"], json["code"]["commit"].as_str().map(str::len)),
        (&true.into(), Some(40))
    );
    let plan = place.run("plan -b local project/job.toml").ok();
    assert!(plan.out.contains("code .: commit "), "{}", plan.out);
    // The journal has no bytes of the folder.
    let found = std::fs::read_dir(place.state().join("journal")).unwrap();
    for entry in found.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&entry).unwrap();
        assert!(!text.contains("archive"), "{}", entry.display());
    }
}

/// A filter of the repository's own configuration is a program that git would run: looking at a folder starts none.
#[test]
fn no_program_of_the_repository_runs() {
    let place = project();
    let ran = place.path("ran");
    place.write("project/.gitattributes", "* filter=own\n");
    let program = format!("sh -c 'touch {}; cat'", ran.display());
    for key in ["clean", "smudge", "process"] {
        let mut git = place.program("git");
        let key = format!("filter.own.{key}");
        let done = git.args(["config", &key, &program]).current_dir(place.path("project")).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    place.write("project/sub/deep.txt", "deeper\n");
    let plan = place.run("plan -b local project/job.toml").ok();
    assert!(plan.out.contains(" with uncommitted changes"), "{}", plan.out);
    place.run("plan -b local --name x --code project -- true").ok();
    place.run("submit --wait -b local project/job.toml").ok();
    assert!(!ran.exists(), "a program of the repository ran");
}

/// What is printed is not all that a host gets, and says so.
#[test]
fn a_script_for_hosts_says_that_the_folder_is_not_in_it() {
    let place = project();
    place.configure("[target.machines]\nbackend = \"hosts\"\nhosts = [\"h1\"]\n");
    let rendered = place.run("render -b machines --name c --code project -- ./show.sh").ok();
    assert!(rendered.out.contains("# The folder of its code is not in this script"), "{}", rendered.out);
    let without = place.run("render -b machines --name c -- true").ok();
    assert!(!without.out.contains("The folder of its code"), "{}", without.out);
}

#[test]
fn a_relative_workdir_is_in_the_folder_of_a_flag() {
    let place = project();
    for line in [
        "submit --follow -b local --name a --code project --workdir sub -- cat deep.txt",
        "submit --follow -b local --name b --code project/sub -- cat deep.txt",
    ] {
        let done = place.run(line).ok();
        assert!((done.out + &done.err).contains("| deep\n"), "{line}");
    }
    let refused = place.run("plan -b local --name a --code project --workdir ../x -- true").code(3);
    assert!(refused.err.contains("is not inside the job's folder"), "{}", refused.err);
}

#[test]
fn a_job_file_sends_no_folder_outside_its_own_without_permission() {
    let place = project();
    place.write("project/sub/job.toml", "name = \"c\"\ncommand = [\"./show.sh\"]\ncode = { dir = \"..\" }\n");
    let refused = place.run("submit -b local project/sub/job.toml").code(3);
    assert!(refused.err.contains("the folder `..` is outside the job file's folder"), "{}", refused.err);
    let allowed = place.run("submit --follow --allow-outside -b local project/sub/job.toml").ok();
    assert!(allowed.err.contains("[SPEC-OUTSIDE]") && allowed.err.contains("| deep"), "{}", allowed.err);
}

#[test]
fn a_folder_that_changes_is_another_job_and_an_equal_one_the_same() {
    let place = project();
    let hash = || place.run("plan -b local project/job.toml -o json").ok().json()["code"]["hash"].clone();
    let first = hash();
    place.write("project/ignored.log", "changed");
    assert_eq!(first, hash());
    place.write("project/new.py", "x");
    assert_ne!(first, hash());
}

#[test]
fn what_would_be_sent_elsewhere_has_the_folder_or_says_why_not() {
    let place = project();
    place.configure(
        "[target.rest]\nbackend = \"slurm\"\nrest = \"http://127.0.0.1:9\"\nlog-dir = \"/fsx/logs\"\ntoken-command = [\"echo\", \"x\"]\n\
         [target.pods]\nbackend = \"kubeflow\"\n",
    );
    let job = "--image busybox:1.36 --nodes 2 --code project --name c";
    let sent = place.run(&format!("render -b pods {job} -- ./show.sh")).ok();
    for part in ["kind: ConfigMap", "code.tar.gz:", "weftrun.dev/code: commit "] {
        assert!(sent.out.contains(part), "{part}: {}", sent.out);
    }
    // Incompressible.
    let next = |n: &u32| Some(n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let noise = std::iter::successors(Some(1_u32), next).take(2_000_000).map(|n| n.to_be_bytes()[0]);
    let noise: Vec<u8> = noise.collect();
    place.write("project/noise", noise);
    for verb in ["render", "plan"] {
        let refused = place.run(&format!("{verb} -b pods {job} -- ./show.sh")).code(3);
        assert!(
            refused.err.contains("fit into a ConfigMap") && refused.err.contains("git ="),
            "{}",
            refused.err
        );
        let refused = place.run(&format!("{verb} -b rest --nodes 2 --code project --name c -- ./show.sh"));
        assert_eq!(refused.code, 4, "{}", refused.err);
        assert!(
            refused.err.contains("slurmrestd carries no files") && refused.err.contains("path-map"),
            "{}",
            refused.err
        );
    }
}
