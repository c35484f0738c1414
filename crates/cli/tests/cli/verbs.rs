//! The verbs that need no cluster, each as its help says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use crate::place::{Place, SMALL_JOB};

#[test]
fn plan_reports_what_render_refuses() {
    let place = Place::new();
    place.write("config.toml", "[target.pc]\nbackend = \"slurm\"\n");
    for (job, refused) in [
        ("launch = \"once\"\nimage = \"a/b:1\"\ncommand = [\"bash\", \"x\"]\n", "outside of any container"),
        ("command = [\"x\"]\nbackend.slurm.sbatch = [\"--nodes=3\"]\n", "weftrun sets `--nodes` itself"),
        ("command = [\"x\"]\nbackend.slurm.sbatch = [\"--wait\"]\n", "`--wait` cannot be used here"),
        ("command = [\"x\"]\nbackend.slurm.array = \"1-x\"\n", "is not a list of tasks"),
    ] {
        place.write("refused.toml", format!("name = \"x\"\nnodes = 2\n{job}"));
        for verb in ["render", "plan"] {
            let done = place.run(&format!("--config config.toml {verb} refused.toml -b pc"));
            assert_eq!(done.code, 3, "{verb}: {}{}", done.out, done.err);
            assert!(done.err.contains(refused), "{verb}: {}", done.err);
        }
    }
}

/// Every verb refuses a wrong value of a flag before anything is sent, and names the flag, not the file.
#[test]
fn a_wrong_flag_is_named_and_refused() {
    let place = Place::new();
    place.write("config.toml", "[target.pc]\nbackend = \"slurm\"\n");
    place.write("job.toml", "name = \"x\"\nnodes = 2\ncommand = [\"x\"]\n");
    for (flags, code, said) in [
        ("--sbatch junk", 2, "--sbatch: `junk` is not an option of sbatch"),
        ("--sbatch=-n4", 2, "--sbatch: `-n4` is not an option of sbatch"),
        ("--array 1-x", 3, "the value of --array is wrong"),
        ("--array 0-3%0", 3, "the value of --array is wrong"),
        ("--cpus 0", 3, "the value of --cpus is wrong"),
        ("--cpus 0m", 3, "the value of --cpus is wrong"),
        ("--nodes x", 3, "the value of --nodes is wrong"),
        ("--nodes 0 --memory 0", 3, "the values of 2 flags are wrong"),
        ("--runtime a.yaml --runtime b.yaml", 2, "'--runtime <FILE>' cannot be used multiple times"),
    ] {
        for verb in ["render", "plan", "submit"] {
            let done = place.run(&format!("--config config.toml {verb} job.toml -b pc {flags}"));
            assert_eq!(done.code, code, "{verb} {flags}: {}{}", done.out, done.err);
            assert!(done.err.contains(said), "{verb} {flags}: {}", done.err);
            assert!(!done.err.contains("job.toml has"), "{verb} {flags}: {}", done.err);
        }
    }
}

#[test]
fn plan_says_why() {
    let place = Place::new();
    place.write("job.toml", "name = \"llama\"\nimage = \"i\"\nlaunch = \"torchrun\"\nnodes = 4\ngpus_per_node = 8\nmemory = \"1800Gi\"\n\
                 instance_type = \"p5.48xlarge\"\nprofile = \"dgxc\"\nfabric = \"efa\"\ncommand = [\"train.py\"]\n");
    let done = place.run("plan -b kubeflow job.toml").ok();
    for said in [
        "llama: 4 nodes, 32 ranks",
        "fabric efa",
        "efa.devices",
        "vpc.amazonaws.com/efa = 32",
        "detect.nccl-debug",
    ] {
        assert!(done.out.contains(said), "`{said}` is not in:\n{}", done.out);
    }
    let plan = place.run("plan -b kubeflow -o json job.toml").ok().json();
    for decision in plan["decisions"].as_array().unwrap() {
        for key in ["rule", "target", "value", "why", "origin"] {
            assert!(!decision[key].is_null(), "{key} of {decision}");
        }
    }
    let off = place.run("plan -b kubeflow -o json --no-fabric-rule efa.hugepages job.toml").ok().json();
    let has = |plan: &serde_json::Value| {
        plan["decisions"].as_array().unwrap().iter().any(|decision| decision["rule"] == "efa.hugepages")
    };
    assert!(has(&plan) && !has(&off));
    let none = place.run("plan -b kubeflow -o json --fabric off job.toml").ok().json();
    // The webhook of such a cluster would add EFA, unless each pod opts out.
    let left_alone = |decision: &serde_json::Value| decision["rule"] == "efa.webhook";
    assert!(none["decisions"].as_array().unwrap().iter().all(left_alone), "{none:#}");
}

#[test]
fn a_job_file_a_yaml_file_and_flags_are_one_job() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    place.write(
        "job.yaml",
        "name: small\nlaunch: per-rank\nnodes: 2\nranks_per_node: 2\ncommand: [sh, -c, \"echo rank $RANK of $WORLD_SIZE\"]\n",
    );
    let document = |rendered: serde_json::Value| {
        rendered["rendered"]["documents"][0]["text"].as_str().unwrap().to_owned()
    };
    let toml = document(place.run("render -o json job.toml").ok().json());
    assert_eq!(document(place.run("render -o json job.yaml").ok().json()), toml);
    let words = ["render", "-o", "json", "--name", "small", "--launch", "per-rank", "--nodes", "2"];
    let mut command = place.command(words);
    command.args(["--ranks-per-node", "2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"]);
    assert_eq!(document(crate::place::Done::of(command).ok().json()), toml);
    let piped = place.feed("render -o json -", SMALL_JOB.as_bytes()).ok().json();
    assert_eq!(document(piped), toml);
}

/// A rendered job can be kept in a repository: it is the same each time, and another one where the job differs.
#[test]
fn the_same_job_renders_to_the_same_text() {
    let place = Place::new();
    place.configure("[target.two]\nbackend = \"hosts\"\nhosts = [\"a\", \"b\"]\n");
    place.write("job.toml", format!("image = \"a:1\"\n{SMALL_JOB}"));
    for backend in ["local", "two", "slurm", "kubeflow", "runai -p ml"] {
        let render = |more: &str| place.run(&format!("render job.toml -b {backend}{more}")).ok().out;
        let first = render("");
        assert_eq!(first, render(""), "{backend}");
        assert_ne!(first, render(" --env A=b"), "{backend}");
        let dry = place.run(&format!("submit --dry-run job.toml -b {backend}")).ok().out;
        assert_eq!(first, dry, "{backend}");
    }
}

#[test]
fn render_needs_no_cluster_and_names_what_it_does_not_know() {
    let place = Place::new();
    let line = "--name llama --nodes 2 -g 8 --image img --launch torchrun --fabric efa --instance-type p5.48xlarge --memory 1Ti";
    for (backend, said) in
        [("kubeflow", "kind: PyTorchJob"), ("slurm", "#SBATCH --nodes=2"), ("runai", "llama")]
    {
        let done = place.run(&format!("render -b {backend} {line} -p nlp -- train.py")).ok();
        assert!(done.out.contains(said), "{backend}:\n{}\n{}", done.out, done.err);
    }
    let docker = place.run(&format!("render --as docker {line} -- train.py")).ok();
    assert!(docker.out.contains("docker run"), "{}", docker.out);
}

#[test]
fn stdout_holds_the_handle_and_nothing_else() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    let done = place.run("submit --follow job.toml").ok();
    assert_eq!(done.out.lines().count(), 1);
    assert!(done.out.starts_with("local://local/small"), "{}", done.out);
    for rank in 0..4 {
        assert!(done.err.contains(&format!("rank {rank} of 4")), "{}", done.err);
    }
    let handle = done.out.trim();
    let logs = place.run(&format!("logs {handle}")).ok().out;
    assert_eq!(logs.lines().count(), 4, "{logs}");
    let some = place.run(&format!("logs --rank 1,3 --no-prefix {handle}")).ok().out;
    let mut lines: Vec<&str> = some.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 1 of 4", "rank 3 of 4"]);
    let grep = place.run(&format!("logs --no-prefix --grep [0-1].of {handle}")).ok().out;
    assert_eq!(grep.lines().count(), 2, "{grep}");
    let detail = place.run(&format!("describe {handle}")).ok().out;
    assert!(detail.contains("succeeded") && detail.contains("node1"), "{detail}");
    // A bare name is enough, and after a delete it is gone.
    place.run("describe small").ok();
    place.run("delete --yes small").ok();
    place.run("describe small").code(6);
}

/// Waits until the only job is in a phase: a verb returns when its order was taken, which is before it is done.
fn comes_to(place: &Place, phase: &str) {
    let began = std::time::Instant::now();
    loop {
        let listed = place.run("list --all -o json").ok().json();
        if listed["jobs"][0]["phase"] == phase {
            return;
        }
        assert!(began.elapsed() < std::time::Duration::from_mins(1), "it is never {phase}: {listed}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn suspended_ranks_stand_still() {
    let place = Place::new();
    let here = place.path("ticks").display().to_string();
    let script = format!("while :; do echo tick >> {here}; sleep 0.05; done");
    place.write(
        "job.toml",
        format!("name = \"ticks\"\nranks_per_node = 1\ncommand = [\"sh\", \"-c\", \"{script}\"]\n"),
    );
    let handle = place.run("submit job.toml").ok().out;
    let ticks = || std::fs::metadata(&here).map_or(0, |metadata| metadata.len());
    while ticks() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let done = place.run(&format!("suspend {handle}"));
    if done.code == 4 {
        assert!(done.err.contains("suspend"), "{}", done.err);
    } else {
        let phase = |of: &Place| of.run("list --all -o json").ok().json()["jobs"][0]["phase"].clone();
        // Immediately: the verb returns when the processes are stopped and the record shows it.
        assert_eq!(phase(&place), "suspended");
        let before = ticks();
        place.run(&format!("resume {handle}")).ok();
        while ticks() <= before {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    place.run(&format!("cancel {handle}")).ok();
    comes_to(&place, "cancelled");
    // There is nothing left to cancel, which is no error.
    let again = place.run(&format!("cancel {handle}")).ok();
    assert!(again.err.contains("had ended before: cancelled"), "{}", again.err);
}

#[test]
fn exec_runs_beside_a_rank_with_its_environment_and_ends_with_the_code_of_the_command() {
    let place = Place::new();
    let folder = place.path("data");
    std::fs::create_dir(&folder).unwrap();
    place.write(
        "job.toml",
        format!(
            "name = \"ranks\"\nlaunch = \"per-rank\"\nranks_per_node = 2\nworkdir = \"{}\"\nenv = {{ COLOUR = \"blue\" }}\n\
             command = [\"sleep\", \"600\"]\n",
            folder.display()
        ),
    );
    let handle = place.run("submit job.toml").ok().out.trim().to_owned();
    comes_to(&place, "running");
    let exec = |words: &[&str]| {
        let words = [&["exec", handle.as_str()], words].concat();
        place.command(words).output().unwrap()
    };
    let done = exec(&[
        "--rank",
        "1",
        "--",
        "sh",
        "-c",
        "printf '\\033[2J\\377%s %s %s' $RANK $COLOUR $PWD; echo e >&2; exit 9",
    ]);
    let wanted = [b"\x1b[2J\xff1 blue ".as_slice(), folder.as_os_str().as_encoded_bytes()].concat();
    assert_eq!(
        (done.status.code(), done.stdout, done.stderr.as_slice()),
        (Some(9), wanted, b"e\n".as_slice())
    );
    // Options behind `--` are the command's, and a name serves as the handle.
    assert_eq!(
        place.command(["exec", "ranks", "--", "echo", "--rank", "-q"]).output().unwrap().stdout,
        b"--rank -q\n"
    );

    let beyond = exec(&["--rank", "2", "--", "true"]);
    let said = String::from_utf8_lossy(&beyond.stderr).into_owned();
    assert!(beyond.status.code() == Some(6) && said.contains("rank 2") && said.contains("0, 1"), "{said}");
    let missing = exec(&["--", "no-such-program-weftrun"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(127) && said.contains("no-such-program-weftrun"), "{said}");
    place.run(&format!("cancel {handle}")).ok();
    comes_to(&place, "cancelled");
    assert_eq!(exec(&["--", "true"]).status.code(), Some(4));
}

#[test]
fn exec_passes_input_and_gives_a_terminal() {
    let place = Place::new();
    place
        .write("job.toml", "name = \"shell\"\nenv = { COLOUR = \"blue\" }\ncommand = [\"sleep\", \"600\"]\n");
    let handle = place.run("submit job.toml").ok().out.trim().to_owned();
    comes_to(&place, "running");
    let mut fed = place
        .command([
            "exec",
            "-i",
            &handle,
            "--",
            "sh",
            "-c",
            "cat; echo; [ -t 0 ] || echo $COLOUR no terminal; exit 5",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    fed.stdin.take().unwrap().write_all(b"a\0\xffb").unwrap();
    let done = fed.wait_with_output().unwrap();
    assert_eq!(
        (done.status.code(), done.stdout.as_slice()),
        (Some(5), b"a\0\xffb\nblue no terminal\n".as_slice())
    );
    let none = place.command(["exec", "-it", &handle, "--", "true"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.code() == Some(2) && said.contains("needs a terminal"), "{said}");

    let (mut master, slave) = crate::terminal::open_terminal();
    let mut command =
        place.command(["exec", "-it", &handle, "--", "sh", "-c", "read x; [ -t 0 ] && echo got $x; exit 6"]);
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    drop(command);
    master.write_all(b"word\n").unwrap();
    let mut got = Vec::new();
    let _ = master.read_to_end(&mut got);
    let got = String::from_utf8_lossy(&got);
    assert!(child.wait().unwrap().code() == Some(6) && got.contains("got word"), "{got}");
    place.run(&format!("cancel {handle}")).ok();
}

#[test]
fn a_port_leads_into_a_job() {
    let place = Place::new();
    place.write("job.toml", "name = \"serves\"\ncommand = [\"sleep\", \"600\"]\n");
    let handle = place.run("submit job.toml").ok().out.trim().to_owned();
    comes_to(&place, "running");
    // The job runs on this machine, so the test is its service.
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let echo = std::thread::spawn(move || {
        // Only once, like a debugger: the connection is the user's.
        let mut stream = service.accept().unwrap().0;
        let mut line = [0; 5];
        stream.read_exact(&mut line).unwrap();
        stream.write_all(&[b"you said ".as_slice(), &line].concat()).unwrap();
    });
    let words = ["port-forward", handle.as_str(), &format!("0:{port}"), "-o", "json"];
    let mut forward = place.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let said: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let local = u16::try_from(said["local"].as_u64().unwrap()).unwrap();
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", local)).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert_eq!(ask(), "you said hello");
    echo.join().unwrap();
    // The service is gone: that is told, and the port stays.
    assert_eq!(ask(), "");
    let mut told = String::new();
    let mut stderr = BufReader::new(forward.stderr.take().unwrap());
    stderr.read_line(&mut told).unwrap();
    assert!(told.contains(&format!("nothing listens on port {port}")), "{told}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&forward), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(forward.wait().unwrap().code(), Some(0));
    let beyond = place.run(&format!("port-forward {handle} --rank 9 {port}"));
    assert!(beyond.code == 6 && beyond.err.contains("rank 9"), "{}", beyond.err);
    place.run(&format!("cancel {handle}")).ok();
    comes_to(&place, "cancelled");
    assert_eq!(place.run(&format!("port-forward {handle} {port}")).code, 4);
}

#[test]
fn instances_are_looked_up() {
    let place = Place::new();
    let all = place.run("instances -o json").ok().json();
    assert_eq!(all["instances"].as_array().unwrap().len(), 100);
    let efa = place.run("instances --fabric efa -o json").ok().json();
    let rows = efa["instances"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "p5.48xlarge" && row["efa_max"] == 32), "{efa:#}");
    assert!(place.run("instances ml.p5.48xlarge").ok().out.contains("p5.48xlarge"));
    assert!(place.run("instances p5.48xlagre").code(6).err.contains("did you mean `p5.48xlarge`"));
    place.configure("[instances.ours]\nextends = \"p5.48xlarge\"\nefa_max = 16\n");
    let ours = place.run("instances ours -o json").ok().json();
    assert_eq!(
        (&ours["instances"][0]["efa_max"], &ours["instances"][0]["from_config"]),
        (&16.into(), &true.into())
    );
}

#[test]
fn doctor_is_pasteable() {
    let place = Place::new();
    let done = place.run("doctor").ok();
    for said in ["weftrun 0.", "target", "local (local)", "nodes"] {
        assert!(done.out.contains(said), "`{said}` is not in:\n{}", done.out);
    }
    assert!(!done.out.contains('\u{1b}'));
    let none = place.run("doctor --private-access").code(4);
    assert!(none.err.contains("backend `local` has no endpoint"), "{}", none.err);
}

#[test]
fn backends_and_targets_are_listed() {
    let place = Place::new();
    let names = |line: &str, key: &str| -> Vec<String> {
        let value = place.run(line).ok().json();
        value[key].as_array().unwrap().iter().map(|b| b["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("backends -o json", "backends"), ["hosts", "kubeflow", "local", "runai", "slurm"]);
    place.configure("default_target = \"prod\"\n[target.prod]\nbackend = \"slurm\"\n");
    let targets = place.run("targets -o json").ok().json();
    let default = targets["targets"].as_array().unwrap().iter().find(|target| target["default"] == true);
    assert_eq!(default.unwrap()["name"], "prod");
    assert!(place.run("list -b prdo").code(6).err.contains("prod"));
}

#[test]
fn explain_has_a_page_for_every_code() {
    let place = Place::new();
    let codes = place.run("explain -o json").ok().json();
    for code in codes["codes"].as_array().unwrap().iter().step_by(17) {
        let page = place.run(&format!("explain {}", code.as_str().unwrap())).ok().out;
        assert!(page.len() > 40, "{code}: {page}");
    }
    assert!(place.run("explain efa.device").code(6).err.contains("efa.devices"));
}

/// What is not from the job file is not called its mistake, and a file for another tool is recognised.
#[test]
fn a_mistake_is_named_where_it_is() {
    let place = Place::new();
    place.write("job.toml", "name = \"a\"\ncommand = [\"true\"]\n[backend.slrm]\naccount = \"ml\"\n");
    let planned = place.run("plan job.toml").ok();
    assert!(
        planned.err.contains("SPEC-BACKEND") && planned.err.contains("`[backend.slurm]`"),
        "{}",
        planned.err
    );
    let done = place.command(["plan", "job.toml"]).env("WEFTRUN_FABRIC", "foo").output().expect("runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("the value of WEFTRUN_FABRIC is wrong") && !said.contains("job.toml"), "{said}");
    place.write("r.yaml", "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\n");
    place.write("t.sbatch", "#!/bin/bash\n#SBATCH -N 2\nsrun train\n");
    place.write("u.sh", "#!/bin/bash\n#SBATCH -N 2\nif true; then srun \"train\"; fi\n");
    for (file, what) in
        [("r.yaml", "(PyTorchJob)"), ("t.sbatch", "an sbatch script"), ("u.sh", "an sbatch script")]
    {
        let refused = place.run(&format!("plan {file}")).code(3);
        assert!(refused.err.contains(what) && refused.err.contains("weftrun import"), "{}", refused.err);
    }
    // A job that cannot run is not printed.
    let refused = place.run("render job.toml -b kubeflow").code(3);
    assert!(refused.out.is_empty() && refused.err.contains("K8S-NO-IMAGE"), "{}", refused.out);
}

/// Also a mistake that is found before the flags are known is an object, in the format that they ask for.
#[test]
fn mistakes_in_the_command_line_are_data_where_data_is_asked_for() {
    let place = Place::new();
    for (line, message) in [
        ("plan -o json --nope", "unexpected argument '--nope' found"),
        ("--output=json nosuch", "unrecognized subcommand 'nosuch'"),
        ("transport -ojson --counters=zz h", "invalid value 'zz' for '--counters[=<TIME>]': "),
    ] {
        let ran = place.run(line);
        assert_eq!((ran.code, &*ran.out), (2, ""), "{line}");
        let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
        assert_eq!(error["error"]["code"], "usage", "{line}");
        assert!(error["error"]["message"].as_str().unwrap().starts_with(message), "{line}: {error}");
    }
    let ran = place.run("plan --nope -- -o json");
    assert!(ran.code == 2 && ran.err.starts_with("error: "), "{}", ran.err);
}

/// A heading of clap also takes the flags that are declared behind it, unless each flag names its own.
#[test]
fn flags_of_one_backend_have_headings_of_their_own() {
    for verb in weftrun_cli::command().get_subcommands() {
        for arg in verb.get_arguments() {
            let own: &[&str] = match arg.get_help_heading() {
                Some("Slurm") => &["sbatch"],
                Some("Plain hosts") => &["wait_for_hosts"],
                _ => continue,
            };
            assert!(own.contains(&arg.get_id().as_str()), "{}: {}", verb.get_name(), arg.get_id());
        }
    }
    let help = Place::new().run("submit --help").ok().out;
    let (before, _) = help.split_once("\nSlurm:\n").unwrap();
    assert!(before.contains("--dry-run") && before.contains("--follow"), "{before}");
}
