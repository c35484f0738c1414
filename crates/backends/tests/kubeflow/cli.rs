//! What a researcher does: the binary itself, as a user who has rights in one namespace only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use weftrun_replay::{Capture, Replay, Shape};

use crate::bed::{Bed, bed, name, poll};
use crate::holding::Holding;

/// Jobs that take all nodes would wait for each other's GPUs, half of each scheduled.
static WHOLE_CLUSTER: Mutex<()> = Mutex::new(());

pub fn whole_cluster() -> MutexGuard<'static, ()> {
    WHOLE_CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A researcher's shell: an empty home, a kubeconfig, and the binary.
pub struct Shell {
    pub bed: Bed,
    home: tempfile::TempDir,
    binary: PathBuf,
    kubeconfig: PathBuf,
}

/// What a command did.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Ran {
    /// The events of `-o json`.
    pub fn events(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
    }

    /// The ranks' lines, each with how often it came.
    fn lines(&self) -> BTreeMap<String, usize> {
        let mut lines = BTreeMap::new();
        for event in self.events().iter().filter(|event| event["type"] == "log") {
            *lines.entry(event["text"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        lines
    }

    fn ended(&self) -> Value {
        self.events()
            .into_iter()
            .rfind(|event| event["type"] == "ended")
            .unwrap_or_else(|| panic!("{}", self.stderr))
    }
}

impl Shell {
    pub fn of(bed: Bed, who: &str) -> Self {
        // Beside the test binaries lies what `cargo build --workspace --bin weftrun` made.
        let beside = || std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("weftrun");
        let binary = std::env::var_os("WEFTRUN_TEST_BINARY").map_or_else(beside, PathBuf::from);
        assert!(binary.is_file(), "no {}: cargo build --workspace --bin weftrun", binary.display());
        let kubeconfig = bed.kubeconfig(who);
        Self { bed, home: tempfile::tempdir().unwrap(), binary, kubeconfig }
    }

    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.home.path().join(file), text).unwrap();
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.home.path()).env_clear().env("HOME", self.home.path());
        command.env("PATH", "/usr/bin:/bin").env("KUBECONFIG", &self.kubeconfig).env("NO_COLOR", "1");
        command
    }

    pub fn weftrun(&self, args: &[&str]) -> Ran {
        let ran = Ran::from(self.command(&self.binary, args).stdin(Stdio::null()).output().unwrap());
        eprintln!("weftrun {}: {}", args.join(" "), ran.code);
        ran
    }

    /// Runs kubectl as the researcher.
    pub fn kubectl(&self, args: &[&str]) -> Ran {
        self.command(&self.bed.state.join("kubectl"), args).output().unwrap().into()
    }

    pub fn delete(&self, handle: &str) {
        let ran = self.weftrun(&["delete", "--yes", handle]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
}

/// A capture over libfabric's TCP provider, 4 nodes of 8 ranks wide, with the provider's name made EFA's: what a real run
/// prints there differs in this word alone as far as the map goes.
fn over_efa() -> (Replay, String) {
    let replay = Capture::shipped("ofi_tcp_2x2").unwrap().scale(Shape::new(4, 8)).unwrap();
    let script = replay.script(1.0).unwrap().replace("tcp;ofi_rxm", "efa");
    (replay, script)
}

fn job(name: &str, launch: &str, more: &str) -> String {
    format!(
        "name = \"{name}\"\nimage = \"example.test/mpi:1\"\nlaunch = \"{launch}\"\nnodes = 4\ngpus_per_node = 8\n\
         instance_type = \"p5.48xlarge\"\nmemory = \"64Gi\"\ncommand = [\"sh\", \"play.sh\"]\n\
         code = {{ script = \"play.sh\" }}\nfabric = \"efa\"\nprofile = \"dgxc\"\n{more}"
    )
}

fn expected_lines(replay: &Replay) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for rank in 0..32 {
        let mut log = Vec::new();
        replay.write_log(rank, &mut log).unwrap();
        for line in String::from_utf8(log).unwrap().lines() {
            *lines.entry(line.replace("tcp;ofi_rxm", "efa")).or_default() += 1;
        }
    }
    lines
}

/// Every line of every rank once, and the map is the truth's.
fn assert_complete(ran: &Ran, replay: &Replay) {
    let (mut seen, wanted) = (ran.lines(), expected_lines(replay));
    // Pods say more than ranks do (mpirun's and ssh's warnings); none of the ranks' lines may be missing or twice.
    seen.retain(|line, _| wanted.contains_key(line) || line.contains("NCCL"));
    let missing: Vec<_> =
        wanted.iter().filter(|(line, count)| seen.get(*line) != Some(*count)).take(5).collect();
    let strange: Vec<_> = seen.keys().filter(|line| !wanted.contains_key(*line)).take(9).collect();
    assert!(missing.is_empty() && strange.is_empty(), "missing: {missing:#?}\nnot theirs: {strange:#?}");
    assert_map(ran, replay);
}

/// What each rank wrote, to the letter; mpirun passes on lines in pieces, each with its rank, so line ends and blanks do not count.
fn assert_complete_by_rank(ran: &Ran, replay: &Replay, before: &str) {
    let dense = |text: &str| text.split_whitespace().collect::<String>();
    let events = ran.events();
    for rank in 0..32 {
        let mut log = Vec::new();
        replay.write_log(rank, &mut log).unwrap();
        let wanted = format!("{before}{}", String::from_utf8(log).unwrap()).replace("tcp;ofi_rxm", "efa");
        let own = events.iter().filter(|event| event["type"] == "log" && event["rank"] == rank);
        let seen: String = own.map(|event| event["text"].as_str().unwrap()).collect();
        assert_eq!(dense(&seen), dense(&wanted), "rank {rank}");
    }
    assert_map(ran, replay);
}

fn assert_map(ran: &Ran, replay: &Replay) {
    let ended = ran.ended();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let pairs: BTreeSet<_> = ended["transport"]["pairs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| {
            let rank = |key: &str| u32::try_from(pair[key].as_u64().unwrap()).unwrap();
            (rank("global_from"), rank("global_to"), text(&pair["kind"]).unwrap(), text(&pair["net"]))
        })
        .collect();
    let truth: BTreeSet<_> = replay.expected().pairs.iter().cloned().collect();
    assert_eq!(pairs, truth);
}

/// What EFA needs is in the object that the server has, and in its pods.
fn assert_mutated(pod: &Value) {
    let container = &pod["containers"][0];
    for which in ["limits", "requests"] {
        let resources = &container["resources"][which];
        assert_eq!(resources["vpc.amazonaws.com/efa"], "32", "{container:#}");
        assert_eq!(resources["hugepages-2Mi"], "5Gi", "{container:#}");
        assert_eq!(resources["nvidia.com/gpu"], "8", "{container:#}");
    }
    let env = |name: &str| {
        container["env"]
            .as_array()
            .unwrap()
            .iter()
            .find(|var| var["name"] == name)
            .map(|var| var["value"].clone())
    };
    assert_eq!(env("NCCL_DEBUG").unwrap(), "INFO");
    assert!(env("LD_LIBRARY_PATH").unwrap().as_str().unwrap().starts_with("/opt/amazon-efa-ofi/ofi/lib:"));
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["hostPath"]["path"] == "/opt/amazon-efa-ofi"), "{volumes:#?}");
}

fn handle_of(ran: &Ran) -> String {
    ran.events()[0]["handle"].as_str().unwrap_or_else(|| panic!("{}", ran.stderr)).to_owned()
}

/// A PyTorchJob of 4 nodes and 32 ranks: mutated objects on the server, all lines, the right map, exit 0.
#[test]
fn a_pytorch_job_of_32_ranks() {
    let Some(bed) = bed() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(bed, "researcher"), name("cli-pt"));
    let (replay, script) = over_efa();
    shell.write("play.sh", &script);
    shell.write("job.toml", &job(&name, "per-rank", ""));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    assert_complete(&ran, &replay);
    assert_eq!(ran.ended()["transport"]["verdict"]["fabric"], "efa");
    let object = shell.bed.get(&["pytorchjob", &name]);
    assert_mutated(&object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]);
    assert_mutated(&shell.bed.get(&["pod", &format!("{name}-worker-3")])["spec"]);
    // The script is in a ConfigMap that goes with the job.
    let of = format!(
        "weftrun.dev/submission={}",
        object["metadata"]["labels"]["weftrun.dev/submission"].as_str().unwrap()
    );
    let map = &shell.bed.get(&["configmap", "-l", &of])["items"][0];
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], object["metadata"]["uid"]);
    shell.delete(&handle_of(&ran));
}

/// An MPIJob of 32 ranks: the launcher has neither GPUs nor EFA, its ranks have the forwarded environment.
#[test]
fn an_mpi_job_of_32_ranks() {
    let Some(bed) = bed() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(bed, "researcher"), name("cli-mpi"));
    let (replay, script) = over_efa();
    let says = "echo \"forwarded $WEFT_SAYS $NCCL_DEBUG $OPAL_PREFIX\"\n";
    shell.write("play.sh", &script.replacen("rank=", &format!("{says}rank="), 1));
    shell.write("job.toml", &job(&name, "mpi", "env = { WEFT_SAYS = \"hello\" }\n"));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    assert_complete_by_rank(&ran, &replay, "forwarded hello INFO /opt/amazon-efa-ofi/openmpi\n");
    // What waits for the workers' names found them, and did not wait its whole minute.
    let launcher = format!("training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher");
    let waited = shell.kubectl(&["logs", "-n", "research", "-l", &launcher, "-c", "weftrun-wait"]);
    assert_eq!((waited.code, waited.stdout.as_str()), (0, ""), "{}", waited.stderr);
    let object = shell.bed.get(&["mpijob", &name]);
    assert_mutated(&object["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]);
    let launcher = &object["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0];
    assert_eq!(launcher["command"][0], "/opt/amazon-efa-ofi/openmpi/bin/mpirun");
    let asked = launcher["resources"].to_string();
    assert!(!asked.contains("efa") && !asked.contains("hugepages") && !asked.contains("gpu"), "{asked}");
    shell.delete(&handle_of(&ran));
}

/// One rank fails: exit 1, and what it said before is there.
#[test]
fn a_failing_job_is_exit_code_1() {
    let Some(bed) = bed() else { return };
    let _whole = whole_cluster();
    let shell = Shell::of(bed, "researcher");
    for launch in ["per-rank", "mpi"] {
        let name = name("cli-bad");
        let fails = "rank=${RANK:-$OMPI_COMM_WORLD_RANK}\necho up $rank\n[ $rank = 5 ] || exec sleep 60\necho why; exit 9\n";
        shell.write("play.sh", fails);
        shell.write("job.toml", &job(&name, launch, ""));
        let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
        assert_eq!(ran.code, 1, "{launch}: {}\n{}", ran.stderr, ran.stdout);
        assert_eq!(ran.lines().get("why"), Some(&1), "{launch}: {}", ran.stdout);
        assert_eq!(ran.ended()["job"]["exit_code"], 9, "{launch}: {}", ran.ended());
        shell.delete(&handle_of(&ran));
    }
}

/// A TrainJob is submitted and followed.
#[test]
fn a_train_job_of_32_ranks() {
    let Some(bed) = bed() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(bed, "researcher"), name("cli-tj"));
    let (replay, script) = over_efa();
    shell.write("play.sh", &script);
    shell.write(
        "job.toml",
        &job(&name, "per-rank", "[backend.kubeflow]\nkind = \"trainjob\"\nscripts = \"configmap\"\n"),
    );
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    assert_complete(&ran, &replay);
    shell.delete(&handle_of(&ran));
}

/// Planned EFA that runs on sockets is exit 7, and the finding says what to do.
#[test]
fn sockets_where_efa_was_planned_is_exit_code_7() {
    let Some(bed) = bed() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(bed, "researcher"), name("cli-fall"));
    let replay = Capture::shipped("socket_2x2").unwrap().scale(Shape::new(4, 8)).unwrap();
    shell.write("play.sh", &replay.script(0.0).unwrap());
    shell.write("job.toml", &job(&name, "per-rank", ""));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 7, "{}\n{}", ran.stderr, ran.ended());
    assert_complete(&ran, &replay);
    shell.delete(&handle_of(&ran));
}

/// `weftrun mutate | kubectl apply` makes the pods that `weftrun submit` makes.
#[test]
fn mutate_and_apply_make_the_same_pods() {
    let Some(bed) = bed() else { return };
    let _whole = whole_cluster();
    let shell = Shell::of(bed, "researcher");
    for launch in ["per-node", "mpi"] {
        let name = name("cli-same");
        let text = job(&name, launch, "").replace("code = { script = \"play.sh\" }\n", "");
        let command = if launch == "mpi" { "[\"hostname\"]" } else { "[\"sleep\", \"60\"]" };
        shell.write("job.toml", &text.replace("[\"sh\", \"play.sh\"]", command));
        let pods = || {
            let jobs = format!("training.kubeflow.org/job-name={name}");
            let pods = || shell.bed.get(&["pods", "-l", &jobs])["items"].as_array().unwrap().clone();
            crate::bed::poll("4 pods", || (pods().len() >= 4).then_some(()));
            let mut list: Vec<Value> = pods();
            list.retain(|pod| !pod["metadata"]["name"].as_str().unwrap().contains("launcher"));
            list.sort_by_key(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
            list.iter().map(comparable).collect::<Vec<_>>()
        };
        let gone = || {
            let jobs = format!("training.kubeflow.org/job-name={name}");
            crate::bed::poll("no pods", || {
                shell.bed.get(&["pods", "-l", &jobs])["items"].as_array().unwrap().is_empty().then_some(())
            });
        };
        let ran = shell.weftrun(&["submit", "-b", "kubeflow", "-o", "json", "job.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let submitted = pods();
        shell.delete(&handle_of(&ran));
        gone();

        let plain = shell.weftrun(&["render", "-b", "kubeflow", "--fabric", "off", "job.toml"]);
        assert_eq!(plain.code, 0, "{}", plain.stderr);
        assert!(!plain.stdout.contains("amazon"), "{}", plain.stdout);
        shell.write("plain.yaml", &plain.stdout);
        let mutated = shell.weftrun(&[
            "mutate",
            "-f",
            "plain.yaml",
            "--profile",
            "dgxc",
            "--fabric",
            "efa",
            "--instance-type",
            "p5.48xlarge",
            // What a job file has by itself, a filter over somebody's manifest has when it is asked.
            "--detect",
            "--webhook",
            "yes",
            "--fabric-rule",
            "efa.colocate",
        ]);
        assert_eq!(mutated.code, 0, "{}", mutated.stderr);
        shell.write("mutated.yaml", &mutated.stdout);
        let applied = shell.kubectl(&["apply", "-f", "mutated.yaml"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        assert_eq!(pods(), submitted);
        shell.kubectl(&["delete", "--wait=false", "-f", "mutated.yaml"]);
        gone();
    }
}

/// What is refused: the exit code, and a sentence that says what to do. Nothing is submitted.
#[test]
fn refusals_say_what_to_do() {
    let Some(bed) = bed() else { return };
    let shell = Shell::of(bed, "researcher");
    let plain = "image = \"busybox:1.36\"\nnodes = 1\ncommand = [\"true\"]\nfabric = \"off\"\n";
    let named = |name: &str| format!("name = \"{name}\"\n{plain}");
    let taken = name("taken");
    shell.write("taken.toml", &named(&taken));
    let first = shell.weftrun(&["submit", "-b", "kubeflow", "taken.toml"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    shell.write("long.toml", &named(&format!("a{}", "b".repeat(55))));
    shell.write("v1.toml", &format!("{}[backend.kubeflow]\nkind = \"mpijob.v1\"\n", named("v1")));
    shell.write("ok.toml", &named(&name("ok")));
    shell.write("config.toml", "[target.nowhere]\nbackend = \"kubeflow\"\ncontext = \"tset\"\n");
    let cases: [(&[&str], i32, &str); 6] = [
        (&["-b", "kubeflow", "taken.toml"], 4, "--name-suffix"),
        (&["-b", "kubeflow", "long.toml"], 3, "at most"),
        (&["-b", "kubeflow", "v1.toml"], 4, "install"),
        (&["-b", "kubeflow", "-n", "other", "ok.toml"], 4, "Role"),
        (&["-b", "nowhere", "--config", "config.toml", "ok.toml"], 3, "did you mean `test`"),
        (&["-b", "kubeflow", "--kubeconfig-is-no-flag", "ok.toml"], 2, "unexpected argument"),
    ];
    for (args, code, fix) in cases {
        let mut words = vec!["submit"];
        words.extend(args);
        let ran = shell.weftrun(&words);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(fix), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}: {}", ran.stdout);
    }
    shell.bed.expired();
    let expired = Shell::of(shell.bed.clone(), "expired");
    expired.write("ok.toml", &named(&name("late")));
    let ran = expired.weftrun(&["submit", "-b", "kubeflow", "ok.toml"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("log in again"), "{}", ran.stderr);
    let doctor = shell.weftrun(&["doctor", "-b", "kubeflow", "-n", "other"]);
    assert_eq!(doctor.code, 4, "{}", doctor.stderr);
    for said in ["may create no job in the namespace `other`", "rbac.yaml", "pods/log"] {
        assert!(doctor.stderr.contains(said), "{said}: {}", doctor.stderr);
    }
    let doctor = shell.weftrun(&["doctor", "-b", "kubeflow"]);
    assert_eq!(doctor.code, 0, "{}", doctor.stderr);
    shell.write("tj.toml", &format!("{}[backend.kubeflow]\nkind = \"trainjob\"\n", named(&name("tj"))));
    let tried = shell.weftrun(&["submit", "-b", "kubeflow", "--dry-run=server", "tj.toml"]);
    assert_eq!(tried.code, 0, "{}", tried.stderr);
    assert!(tried.stderr.contains("[K8S-TRAINJOB-RESTARTS]"), "{}", tried.stderr);
    shell.delete(first.stdout.trim());
}

/// A job that cannot start is followed until the time is out, and why it does not start is said with what to do; one that is deleted
/// under its follower ends the following, and is no success.
#[test]
fn a_followed_job_that_cannot_end_well_says_why() {
    let Some(bed) = bed() else { return };
    let text = |name: &str, image: &str, more: &str| {
        format!(
            "name = \"{name}\"\nimage = \"{image}\"\nnodes = 1\nfabric = \"off\"\ncommand = [\"sleep\", \"600\"]\n{more}"
        )
    };
    let cases = [
        ("cli-img", "example.test/nope:9", "", 124, ["K8S-IMAGE-PULL", "cannot resolve the registry's name"]),
        (
            "cli-big",
            "busybox:1.36",
            "gpus_per_node = 64\n",
            124,
            ["K8S-UNSCHEDULABLE", "nvidia.com/gpu free"],
        ),
        ("cli-del", "busybox:1.36", "", 1, ["no longer in the cluster", "cli-del"]),
    ];
    std::thread::scope(|scope| {
        for (what, image, more, code, said) in cases {
            let bed = bed.clone();
            scope.spawn(move || {
                let (shell, name) = (Shell::of(bed, "researcher"), name(what));
                shell.write("job.toml", &text(&name, image, more));
                let args = ["submit", "-b", "kubeflow", "--follow", "--timeout", "60s", "job.toml"];
                let ran = std::thread::scope(|scope| {
                    let following = scope.spawn(|| shell.weftrun(&args));
                    if code == 1 {
                        let pod = format!("{name}-worker-0");
                        let runs = || {
                            shell.bed.kubectl_says(&["get", "pod", &pod, "-o", "jsonpath={.status.phase}"])
                        };
                        crate::bed::poll("its pod", || (runs().1 == "Running").then_some(()));
                        shell.bed.kubectl(&["delete", "pytorchjob", &name, "--wait=false"]);
                    }
                    following.join().unwrap()
                });
                assert_eq!(ran.code, code, "{what}: {}", ran.stderr);
                for word in said {
                    assert!(ran.stderr.contains(word), "{what}, {word}: {}", ran.stderr);
                }
                // The handle and nothing else.
                assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
                shell.bed.kubectl_says(&["delete", "pytorchjob", &name, "--wait=false"]);
            });
        }
    });
}

/// Whoever has the least rights submits and follows all the same; what is hidden is said.
#[test]
fn a_guest_submits_and_is_told_what_is_hidden() {
    let Some(bed) = bed() else { return };
    let (shell, name) = (Shell::of(bed, "guest"), name("guest"));
    let script = format!("echo \"hello from rank $RANK\"\n# {}\n", "x".repeat(20 << 10));
    shell.write("play.sh", &script);
    let text = job(&name, "per-rank", "")
        .replace("gpus_per_node = 8", "ranks_per_node = 2")
        .replace("\"efa\"", "\"off\"");
    let text = text.replace("nodes = 4", "nodes = 2").replace("profile = \"dgxc\"\n", "");
    shell.write("job.toml", &text);
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for rank in 0..4 {
        assert_eq!(ran.lines().get(&format!("hello from rank {rank}")), Some(&1), "{}", ran.stdout);
    }
    // Without the right to make ConfigMaps the script is in the command.
    assert!(!shell.bed.kubectl(&["get", "configmap", "-o", "name"]).contains(&format!("{name}-code")));
    // Whoever insists on one is refused, and no job is left behind that would wait for it.
    let insists = text.replace(&name, &format!("{name}-map"));
    shell.write("map.toml", &format!("{insists}[backend.kubeflow]\nscripts = \"configmap\"\n"));
    let refused = shell.weftrun(&["submit", "-b", "kubeflow", "map.toml"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("configmaps") && refused.stderr.contains("Role"), "{}", refused.stderr);
    crate::bed::poll("no job", || {
        (!shell.bed.kubectl_says(&["get", "pytorchjob", &format!("{name}-map")]).0).then_some(())
    });
    // The check of the plan is the server's dry run: of a name that is taken it says so.
    let plan = shell.weftrun(&["plan", "-b", "kubeflow", "--online", "job.toml"]);
    assert!(plan.code == 4 && plan.stderr.contains("already exists"), "{}: {}", plan.code, plan.stderr);
    shell.write("next.toml", &text.replace(&name, &format!("{name}-next")));
    let plan = shell.weftrun(&["plan", "-b", "kubeflow", "--online", "next.toml"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(
        plan.stderr.contains("you may not read nodes") && plan.stderr.contains("resource quotas"),
        "{}",
        plan.stderr
    );
    let doctor = shell.weftrun(&["doctor", "-b", "kubeflow"]);
    let said = doctor.stdout + &doctor.stderr;
    assert!(said.contains("you may not read nodes") && said.contains("configmaps"), "{said}");
    shell.delete(&handle_of(&ran));
}

/// A pod without what differs between two pods of one template.
fn comparable(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let mut spec = pod["spec"].take();
    let map = spec.as_object_mut().unwrap();
    map.remove("nodeName");
    // Each pod gets a token of its own, in a volume whose name ends by chance.
    map.get_mut("volumes")
        .and_then(Value::as_array_mut)
        .unwrap()
        .retain(|volume| volume["projected"].is_null());
    for containers in ["containers", "initContainers"] {
        for container in map.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array_mut().unwrap();
            mounts.retain(|mount| !mount["name"].as_str().unwrap().starts_with("kube-api-access"));
        }
    }
    spec
}

/// The API server is killed while the binary follows: the output is complete.
#[test]
fn alone_a_followed_job_outlives_the_api_server() {
    let Some(bed) = bed() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(bed, "researcher"), name("cli-down"));
    let replay = Capture::shipped("ofi_tcp_2x2").unwrap().scale(Shape::new(4, 8)).unwrap();
    let script = replay.script(4.0).unwrap().replace("tcp;ofi_rxm", "efa");
    shell.write("play.sh", &script);
    shell.write("job.toml", &job(&name, "per-rank", ""));
    let ran = std::thread::scope(|scope| {
        let following = scope
            .spawn(|| shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]));
        crate::bed::poll("4 running pods", || {
            let pods = shell.bed.get(&["pods", "-l", &format!("training.kubeflow.org/job-name={name}")]);
            let running = |pod: &&Value| pod["status"]["phase"] == "Running";
            (pods["items"].as_array().unwrap().iter().filter(running).count() == 4).then_some(())
        });
        shell.bed.restart_api_server();
        following.join().unwrap()
    });
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    assert_complete(&ran, &replay);
    shell.delete(&handle_of(&ran));
}

const MAPPED: &str = "image = \"busybox:1.36\"\nlaunch = \"per-node\"\nnodes = 2\nranks_per_node = 1\nfabric = \"off\"\n\
    command = [\"sh\", \"play.sh\"]\ncode = { script = \"play.sh\" }\n[backend.kubeflow]\nscripts = \"configmap\"\n";

/// A submit that is killed after any of its requests leaves no job whose pods wait for a ConfigMap; what it left is not in the way
/// of the next, and the next command gives a ConfigMap to its job.
#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_is_killed_leaves_no_job_that_hangs() {
    let Some(bed) = bed() else { return };
    for request in 1..=3 {
        let holding = Holding::start(&bed, request).await;
        let (mut shell, name) = (Shell::of(bed.clone(), "researcher"), name("killed"));
        shell.write("play.sh", "echo done\n");
        shell.write("job.toml", &format!("name = \"{name}\"\n{MAPPED}"));
        let direct = std::mem::replace(&mut shell.kubeconfig, holding.proxy.kubeconfig.clone());
        let mut child =
            shell.command(&shell.binary, &["submit", "-b", "kubeflow", "job.toml"]).spawn().unwrap();
        holding.held().await;
        child.kill().unwrap();
        child.wait().unwrap();
        shell.kubeconfig = direct;
        let exists = || bed.kubectl_says(&["get", "pytorchjob", &name]).0;
        // The first request is the ConfigMap's, the second the job's, the third gives the one to the other.
        assert_eq!(exists(), request > 1, "request {request}");
        if !exists() {
            let again = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml"]);
            assert_eq!(again.code, 0, "{}", again.stderr);
        }
        let listed = shell.weftrun(&["list", "-a", "-b", "kubeflow"]);
        assert_eq!(listed.code, 0, "{}", listed.stderr);
        crate::bed::poll("the job's end", || {
            let phase = "jsonpath={.status.conditions[?(@.type=='Succeeded')].status}";
            (bed.kubectl(&["get", "pytorchjob", &name, "-o", phase]) == "True").then_some(())
        });
        let object = bed.get(&["pytorchjob", &name]);
        let of = object["metadata"]["labels"]["weftrun.dev/submission"].as_str().unwrap().to_owned();
        let map = &bed.get(&["configmap", "-l", &format!("weftrun.dev/submission={of}")])["items"][0];
        assert_eq!(
            map["metadata"]["ownerReferences"][0]["uid"], object["metadata"]["uid"],
            "request {request}: {map}"
        );
        bed.kubectl(&["delete", "pytorchjob", &name, "--wait=false"]);
    }
}

/// Ctrl-C while a plain submit waits for the cluster's answer: the handle of the job that was made is printed, and the exit code is 130.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_submit_names_its_job() {
    let Some(bed) = bed() else { return };
    let holding = Holding::start(&bed, 2).await;
    let (mut shell, name) = (Shell::of(bed.clone(), "researcher"), name("ctrlc"));
    shell.write("play.sh", "echo done\n");
    shell.write("job.toml", &format!("name = \"{name}\"\n{MAPPED}"));
    shell.kubeconfig = holding.proxy.kubeconfig.clone();
    let mut command = shell.command(&shell.binary, &["submit", "-b", "kubeflow", "job.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    holding.held().await;
    let interrupt = || {
        let done = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(done.success());
    };
    interrupt();
    // The answer is let through once it has said that it waits for it.
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut stderr = String::new();
    while !stderr.contains("waiting for the cluster's answer") {
        let read = std::io::BufRead::read_line(&mut said, &mut stderr).unwrap();
        assert!(read > 0, "{stderr}");
    }
    holding.release();
    std::io::Read::read_to_string(&mut said, &mut stderr).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{stderr}");
    let handle = ran.stdout.trim();
    assert!(handle.starts_with("kubeflow://") && handle.contains(&name), "{handle}");
    assert!(stderr.contains("the job keeps running") && stderr.contains(handle), "{stderr}");
    bed.kubectl(&["delete", "pytorchjob", &name, "--wait=false"]);
}

/// `logs --rank` prints the lines of a rank, wherever its rank is proved only by later lines, and nobody else's; a rank that is not
/// there is an error.
#[test]
fn logs_of_one_rank_are_that_ranks_and_an_unknown_rank_is_an_error() {
    let Some(bed) = bed() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(bed, "researcher"), name("cli-rank"));
    let (replay, script) = over_efa();
    shell.write("play.sh", &script);
    shell.write("job.toml", &job(&name, "per-rank", ""));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    let handle = handle_of(&ran);
    for rank in [0u32, 5, 31] {
        let mut log = Vec::new();
        replay.write_log(rank, &mut log).unwrap();
        let wanted: Vec<String> =
            String::from_utf8(log).unwrap().lines().map(|line| line.replace("tcp;ofi_rxm", "efa")).collect();
        let read = shell.weftrun(&["logs", "--no-prefix", "--rank", &rank.to_string(), &handle]);
        assert_eq!(read.code, 0, "{}", read.stderr);
        let mut seen: Vec<&str> = read.stdout.lines().collect();
        // Lines without NCCL's prefix prove no rank.
        let mut proved: Vec<&str> =
            wanted.iter().map(String::as_str).filter(|line| line.contains("NCCL")).collect();
        seen.retain(|line| line.contains("NCCL"));
        (seen.sort_unstable(), proved.sort_unstable());
        assert_eq!(seen, proved, "rank {rank}");
    }
    let unknown = shell.weftrun(&["logs", "--rank", "30-40", &handle]);
    assert_eq!(unknown.code, 6, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("no output of rank 32-40 was found"), "{}", unknown.stderr);
    assert!(unknown.stdout.contains("NCCL"), "the ranks that are there are printed");
    shell.delete(&handle);
}

/// Where each pod runs one process, its number is its rank, without a line of NCCL's.
#[test]
fn the_rank_of_a_pod_with_one_process_is_known() {
    let Some(bed) = bed() else { return };
    // With torchrun the first is the master, for which the workers' init containers wait: it runs until the worker has written.
    for (launch, file) in [("per-node", "play.sh"), ("torchrun", "play.py")] {
        let (shell, name) = (Shell::of(bed.clone(), "researcher"), name("cli-one"));
        let waits = if launch == "torchrun" {
            "while [ $RANK = 0 ] && [ ! -e /tmp/end ]; do sleep 0.2; done"
        } else {
            ""
        };
        shell.write(file, &format!("echo I am $RANK\n{waits}\n"));
        let text = format!("name = \"{name}\"\n{MAPPED}").replace("per-node", launch);
        let text =
            if launch == "torchrun" { text.replace("\"sh\", ", "").replace("play.sh", file) } else { text };
        shell.write("job.toml", &text);
        let ran = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let handle = ran.stdout.trim();
        if launch == "torchrun" {
            let (master, worker) = (format!("{name}-master-0"), format!("{name}-worker-0"));
            poll("the worker's line", || {
                bed.kubectl_says(&["logs", &worker]).1.contains("I am 1").then_some(())
            });
            poll("the master's end", || {
                bed.kubectl_says(&["exec", &master, "--", "touch", "/tmp/end"]).0.then_some(())
            });
        }
        let waited = shell.weftrun(&["wait", handle]);
        assert_eq!(waited.code, 0, "{}", waited.stderr);
        for rank in 0..2 {
            let read = shell.weftrun(&["logs", "--no-prefix", "--rank", &rank.to_string(), handle]);
            assert_eq!(
                (read.code, read.stdout.trim()),
                (0, format!("I am {rank}").as_str()),
                "{}",
                read.stderr
            );
        }
        assert_eq!(shell.weftrun(&["logs", "--rank", "2", handle]).code, 6);
        shell.delete(handle);
    }
}
