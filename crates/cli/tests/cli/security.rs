//! The guarantees of `docs/security.md` for the whole program: no network request at start-up, no secret in
//! any output, files private to their owner, no name that leads out of the state folder, only harmless
//! settings in a project's file.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::place::{Done, Place, SMALL_JOB};
use weftrun_testkit::child;

const SECRET: &str = "s3cr3t-that-nobody-may-see";

/// Verbs that need no cluster.
const OFFLINE: [&str; 12] = [
    "--version",
    "--help",
    "backends",
    "targets",
    "list -a",
    "plan job.toml -b prod",
    "render job.toml -b prod",
    "render job.toml -b slurm",
    "config show --origin",
    "instances",
    "explain efa.devices",
    "completions bash",
];

const CONFIGURATION: &str = r#"
[target.prod]
backend = "kubeflow"
namespace = "team"

[target.cloud]
backend = "runai"
url = "https://example.invalid"
project = "team"
client-id = "weftrun"
client-secret-env = "CLOUD_SECRET"
"#;

#[test]
fn nothing_is_asked_of_the_network_at_start_up() {
    let place = Place::new();
    let traced = place.program("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    place.configure(CONFIGURATION);
    place.write("job.toml", format!("image = \"i\"{SMALL_JOB}"));
    if !traced.is_ok_and(|status| status.success()) {
        weftrun_testkit::skipped("strace is not installed, or may not trace");
        return;
    }
    for line in OFFLINE {
        let like = place.command(line.split_whitespace());
        let trace = place.path("trace");
        let before =
            ["-f", "-qq", "-e", "trace=socket,connect,sendto,sendmsg", "-o", trace.to_str().unwrap()];
        Done::of(child::within("strace", before, &like)).ok();
        let calls = fs::read_to_string(&trace).unwrap();
        assert!(!calls.contains("AF_INET") && !calls.contains("connect("), "{line}\n{calls}");
    }
}

/// Starts a server that answers every request with an error that repeats it. Returns its address and the
/// requests it received.
fn parrot() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let request = read_request(stream.try_clone().unwrap());
            ears.lock().unwrap().push(request.clone());
            answer(stream, &request);
        }
    });
    (address, heard)
}

fn read_request(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_lowercase()
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next()?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return text,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
    }
}

fn answer(mut stream: TcpStream, request: &str) {
    // A token for a request with the secret in the old form, the repeated request for all others.
    let (status, body) = if request.starts_with("POST /api/v2/token") && !request.contains("wrong") {
        ("200 OK", serde_json::json!({"access_token": format!("{SECRET}-token"), "expires_in": 3600}))
    } else {
        (
            "401 Unauthorized",
            serde_json::json!({"message": request, "error_description": request, "details": request}),
        )
    };
    let body = body.to_string();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}

#[test]
fn no_secret_is_told_even_by_a_server_that_repeats_it() {
    let (address, heard) = parrot();
    let place = Place::new();
    place.write("job.toml", SMALL_JOB.replace("launch", "image = \"x:1\"\nlaunch"));
    for (id, verbs) in [("right", ["list -a", "doctor"]), ("wrong", ["list -a", "submit job.toml"])] {
        place.configure(&format!(
            "[target.cloud]\nbackend = \"runai\"\nurl = \"http://{address}\"\nproject = \"team\"\nclient-id = \"{id}\"\nclient-secret-env = \"CLOUD_SECRET\"\n"
        ));
        for verb in verbs {
            for format in ["", " -o json"] {
                let line = format!("{verb} -b cloud -vv{format}");
                let mut command = place.command(line.split_whitespace());
                command.env("CLOUD_SECRET", SECRET);
                let done = Done::of(command);
                assert!(!done.out.contains(SECRET) && !done.err.contains(SECRET), "{line}: {done:?}");
            }
        }
    }
    // The other clients, with a secret in a header.
    place.write("kubeconfig", kubeconfig(&address, ""));
    place.configure(&format!(
        "[target.kube]\nbackend = \"kubeflow\"\nkubeconfig = \"{}\"\n[target.head]\nbackend = \"slurm\"\nrest = \"http://{address}\"\n\
         rest-user = \"me\"\nlog-dir = \"/logs\"\n",
        place.path("kubeconfig").display()
    ));
    for target in ["kube", "head"] {
        for verb in ["list -a", "doctor", "submit job.toml", "plan job.toml --online"] {
            for format in ["", " -o json"] {
                let line = format!("{verb} -b {target} -vv{format}");
                let mut command = place.command(line.split_whitespace());
                command.env("SLURM_JWT", SECRET);
                let done = Done::of(command);
                assert!(!done.out.contains(SECRET) && !done.err.contains(SECRET), "{line}: {done:?}");
            }
        }
    }
    let heard = heard.lock().unwrap();
    assert!(heard.iter().any(|request| request.contains(SECRET)), "the server was never asked");
    for header in ["authorization: bearer", "x-slurm-user-token"] {
        let sent = |request: &String| request.to_lowercase().contains(header) && request.contains(SECRET);
        assert!(heard.iter().any(sent), "{header} was never sent");
    }
    for request in heard.iter() {
        let line = request.lines().next().unwrap_or_default();
        assert!(!line.contains(SECRET), "in a URL: {line}");
    }
    // Nor is one left on the disk.
    each_file(&place.state(), &mut |path| {
        assert!(!String::from_utf8_lossy(&fs::read(path).unwrap()).contains(SECRET), "{}", path.display());
    });
}

/// Returns a kubeconfig whose token is the secret.
fn kubeconfig(address: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {{server: 'http://{address}'{more}}}}}]\n\
         users: [{{name: u, user: {{token: {SECRET}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u, namespace: n}}}}]\n"
    )
}

/// An API server that serves jobs and gives one answer to all that is asked about them.
fn api_server(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let request = read_request(stream.try_clone().unwrap());
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (status, body) = match path.split('?').next().unwrap_or_default() {
                "/apis/kubeflow.org/v1" => ("200 OK", r#"{"resources": [{"name": "pytorchjobs"}]}"#),
                "/apis/kubeflow.org/v2beta1" => ("200 OK", r#"{"resources": [{"name": "mpijobs"}]}"#),
                "/apis/trainer.kubeflow.org/v1alpha1" => ("200 OK", r#"{"resources": []}"#),
                _ => (status, body),
            };
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}", body.len());
            let _ = write!(stream, "{head}\r\n\r\n{body}");
        }
    });
    address
}

#[test]
fn a_list_without_the_right_and_a_list_of_nonsense_are_no_empty_lists() {
    let forbidden = r#"{"kind": "Status", "message": "pytorchjobs.kubeflow.org is forbidden: User \"me\" cannot list resource \"pytorchjobs\"", "code": 403}"#;
    for (status, body, told) in [
        ("403 Forbidden", forbidden, "cannot list resource \"pytorchjobs\""),
        ("403 Forbidden", "{}", "you may not"),
        ("200 OK", "null", "unexpected answer"),
        ("200 OK", "\"x\"", "unexpected answer"),
        ("200 OK", "{}", "unexpected answer"),
        ("200 OK", r#"{"items": 5}"#, "unexpected answer"),
    ] {
        let place = Place::new();
        place.write("kubeconfig", kubeconfig(&api_server(status, body), ""));
        place.configure(&format!(
            "[target.kube]\nbackend = \"kubeflow\"\nkubeconfig = \"{}\"\n",
            place.path("kubeconfig").display()
        ));
        for line in [
            "list -b kube",
            "list -a -b kube -o json",
            "describe a -b kube",
            "describe kubeflow://kube/n/pytorchjob/a",
            "cancel a -b kube",
        ] {
            let done = Done::of(place.command(line.split_whitespace()));
            assert_eq!(done.code, 4, "{line} {status} {body}: {done:?}");
            assert!(done.err.replace("\\\"", "\"").contains(told), "{line} {status} {body}: {done:?}");
        }
    }
}

#[test]
fn a_report_and_the_messages_about_a_job_hold_no_secret_of_its_own() {
    let place = Place::new();
    let secrets = ["flag-secret-1", "pat-secret-2", "sk-abcdefghijklmnop0123", "url-secret-4"];
    place.write(
        "job.toml",
        format!(
            "name = \"leaky\"\nimage = \"x:1\"\nlaunch = \"per-rank\"\nnodes = 1\ngpus_per_node = 0\n\
             command = [\"sh\", \"-c\", \"exit 3 # --token={} https://me:{}@host/x\", \"--api-key\", \"{}\"]\n[env]\nGH_PAT = \"{}\"\nMODEL = \"{}\"\n",
            secrets[0], secrets[3], secrets[0], secrets[1], secrets[2]
        ),
    );
    let hidden = |line: &str| {
        let done = Done::of(place.command(line.split_whitespace()));
        for secret in secrets {
            assert!(!done.out.contains(secret) && !done.err.contains(secret), "{line}: {done:?}");
        }
        done
    };
    let lint = hidden("lint -f job.toml").ok();
    assert_eq!(lint.out.matches("SPEC-SECRET").count(), 3, "{lint:?}");
    hidden("plan job.toml").ok();
    hidden("plan job.toml -o json").ok();
    hidden("submit --wait job.toml");
    for line in [
        "report leaky -o json",
        "report leaky -o yaml",
        "report leaky -o html",
        "describe leaky -o json",
        "describe leaky",
        "why leaky -o json",
    ] {
        hidden(line);
    }
    let report = hidden("report leaky -o json").ok().json();
    assert!(report["spec"].as_str().unwrap().contains("--token=…"), "{report}");
    // What is sent is what was written.
    let rendered = place.run("render job.toml -o json").ok();
    assert!(secrets.iter().all(|secret| rendered.out.contains(secret)), "{rendered:?}");
    for address in [
        "https://Ab12Cd34Ef56@host/x",
        "https://me:pw@host/x",
        "fd::17/foo",
        "ext::sh -c x",
        "git://host/x",
        "http://host/x",
    ] {
        place.write(
            "git.toml",
            SMALL_JOB.replace("launch", &format!("code = {{ git = \"{address}\" }}\nlaunch")),
        );
        for backend in ["local", "kubeflow", "slurm", "runai", "hosts"] {
            let done = Done::of(place.command(["render", "git.toml", "-b", backend]));
            assert_eq!(done.code, 3, "{address} {backend}: {done:?}");
            assert!(
                done.out.is_empty() && !done.err.contains("Ab12Cd34Ef56") && !done.err.contains(":pw@"),
                "{done:?}"
            );
        }
    }
}

#[test]
fn twice_verbose_logs_each_request_and_no_secret() {
    let (address, _) = parrot();
    let place = Place::new();
    place.configure(&format!(
        "[target.cloud]\nbackend = \"runai\"\nurl = \"http://{address}\"\nproject = \"team\"\nclient-id = \"right\"\nclient-secret-env = \"CLOUD_SECRET\"\n"
    ));
    let said = |flags: &str| {
        let mut command = place.command(format!("list -a -b cloud {flags}").split_whitespace());
        command.env("CLOUD_SECRET", SECRET);
        Done::of(command).err
    };
    let logged = said("-vv");
    let token = format!("method=POST url=http://{address}/api/v2/token");
    let request = logged.lines().find(|line| line.contains(&token)).unwrap_or_else(|| panic!("{logged}"));
    assert!(request.contains("status=200") && request.contains("ms="), "{request}");
    assert!(
        logged.lines().any(|line| line.contains("method=GET") && line.contains("status=401")),
        "{logged}"
    );
    assert!(!logged.contains(SECRET) && !logged.contains('\u{1b}'), "{logged}");
    assert!(!said("").contains("method=") && !said("-v").contains("method="));
}

#[test]
fn no_secret_stands_in_the_arguments_of_a_process() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB.replace("echo rank", "sleep 2; echo rank"));
    let mut command = place.command(["submit", "job.toml"]);
    command.env("HF_TOKEN", SECRET);
    let handle = Done::of(command).ok().out;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&arguments).contains(SECRET), "{}", entry.path().display());
    }
    place.run(&format!("wait {}", handle.trim())).ok();
    each_file(&place.state(), &mut |path| {
        assert!(!String::from_utf8_lossy(&fs::read(path).unwrap()).contains(SECRET), "{}", path.display());
    });
}

fn each_file(folder: &Path, look: &mut impl FnMut(&Path)) {
    for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            each_file(&path, look);
        } else if path.is_file() {
            look(&path);
        }
    }
}

#[test]
fn everything_that_is_written_is_its_owners_alone() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    place.write(".weftrun.toml", "[job]\nqueue = \"x\"\n");
    // The mask of a careless user.
    let like = place.command(["submit", "--wait", "job.toml"]);
    let script = "umask 0; \"$@\" && \"$1\" config set job.labels.team nlp && \"$1\" config trust";
    Done::of(child::within("sh", ["-c", script, "sh"], &like)).ok();
    let mut folders = vec![place.state(), place.config().parent().unwrap().to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(folder.metadata().unwrap().mode() & 0o077, 0, "{}", folder.display());
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(path.symlink_metadata().unwrap().mode() & 0o077, 0, "{}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 5, "only {seen} files");
}

/// Every path below a folder, with its size.
fn tree(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    each_file(folder, &mut |path| all.push((path.to_owned(), path.metadata().unwrap().len())));
    all.sort();
    all
}

#[test]
fn no_name_leads_out_of_the_state_folder() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB);
    let mine = place.write("mine/precious", "x");
    place.run("submit --wait job.toml").ok();
    let before = tree(place.path("").parent().unwrap());
    for name in ["../../mine", "..", ".", "/etc", "a/b", "x\0y", "-rf", "%2e%2e", "a\nb", "\u{1b}[2J"] {
        if name.contains('\0') {
            continue;
        }
        let done = Done::of(place.command(["submit", "--name", name, "job.toml"]));
        assert!([2, 3].contains(&done.code), "{name:?}: {done:?}");
        assert!(!done.err.contains('\u{1b}'), "{done:?}");
    }
    for handle in [
        "local://local/..%2F..%2F..%2Fmine",
        "local://local/small#..%2F..%2Fmine",
        "local://..%2F..%2Fmine/small",
        "local://local/small%00",
        "local://local/%2Fetc",
        "local://local/..",
    ] {
        for verb in ["describe", "logs", "cancel", "wait"] {
            let done = Done::of(place.command([verb, handle]));
            assert!([2, 6].contains(&done.code), "{verb} {handle}: {done:?}");
        }
        let done = Done::of(place.command(["delete", "--yes", handle]));
        assert!([2, 6].contains(&done.code), "delete {handle}: {done:?}");
    }
    assert!(mine.exists());
    assert_eq!(tree(place.path("").parent().unwrap()), before);
    for target in ["../../mine", "/etc", ".."] {
        let done = Done::of(place.command(["list", "-b", target]));
        assert_eq!(done.code, 6, "{target}: {done:?}");
    }
}

#[test]
fn a_projects_file_can_neither_send_jobs_elsewhere_nor_run_a_command() {
    let place = Place::new();
    place.write("job.toml", SMALL_JOB.replace("launch", "image = \"x:1\"\nlaunch"));
    place.configure(
        "[target.cloud]\nbackend = \"runai\"\nurl = \"https://example.invalid\"\nproject = \"team\"\n",
    );
    let canary = place.path("canary");
    let hostile = format!(
        "[target.cloud]\nurl = \"http://127.0.0.1:9\"\ntoken-command = [\"touch\", \"{0}\"]\ninsecure = true\nproxy = \"http://127.0.0.1:9\"\n",
        canary.display()
    );
    // Targets of its own are refused whole.
    place.write(
        ".weftrun.toml",
        format!(
            "[target.pc]\nbackend = \"slurm\"\nssh = \"evil\"\nssh-args = [\"-oProxyCommand=touch {}\"]\n",
            canary.display()
        ),
    );
    let done = place.run("list -b pc");
    assert!(done.code != 0 && !canary.exists(), "{done:?}");
    place.write(".weftrun.toml", &hostile);
    let shown = place.run("config show --origin").ok();
    for word in ["127.0.0.1", "canary", "evil", "insecure"] {
        assert!(!shown.out.contains(word), "{word}: {}", shown.out);
    }
    let done = place.run("list -b cloud");
    assert!(done.code != 0 && !canary.exists(), "{done:?}");
    assert!(done.err.contains("trust"), "what is ignored is said: {}", done.err);
    // Trusted, it may; changed after that, it may not.
    place.run("config trust").ok();
    assert!(place.run("config show").ok().out.contains("127.0.0.1"));
    place.write(".weftrun.toml", format!("{hostile}# changed\n"));
    assert!(!place.run("config show").ok().out.contains("127.0.0.1"));
}

#[test]
fn a_log_cannot_talk_to_the_terminal() {
    let place = Place::new();
    let hostile = r"printf '\033]52;c;ZXZpbA==\007\033]8;;http://x\007link\033[2J\033P1$r\033\\\302\233 31m\342\200\256plain\n'";
    place.write(
        "job.toml",
        format!("name = \"loud\"\ncommand = [\"sh\", \"-c\", {}]\n", serde_json::json!(hostile)),
    );
    let done = place.run("submit --follow --color always job.toml").ok();
    let all = format!("{}{}", done.out, done.err);
    assert!(all.contains("link") && all.contains("plain"), "{all:?}");
    for sequence in ["\u{1b}]", "\u{1b}P", "\u{1b}[2J", "\u{9b}", "\u{202e}", "\u{7}"] {
        assert!(!all.contains(sequence), "{sequence:?} in {all:?}");
    }
}

#[test]
fn a_configuration_has_no_place_for_a_secret() {
    let place = Place::new();
    for backend in ["runai", "kubeflow", "slurm", "local"] {
        for key in ["token", "client-secret", "password", "secret"] {
            place.configure(&format!("[target.here]\nbackend = \"{backend}\"\n{key} = \"{SECRET}\"\n"));
            let done = place.run("list -b here");
            assert!(done.code != 0 && done.err.contains(key), "{backend} {key}: {done:?}");
            assert!(!done.err.contains(SECRET) && !done.out.contains(SECRET), "{backend} {key}: {done:?}");
        }
    }
}

#[test]
fn an_error_leaves_stdout_empty() {
    let place = Place::new();
    let good =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages/job.yaml")).unwrap();
    let unequal = good.replace(
        "limits: {",
        "requests: {vpc.amazonaws.com/efa: 4}\n                limits: {vpc.amazonaws.com/efa: 8, ",
    );
    for (name, bad) in [
        ("broken", "kind: PyTorchJob\napiVersion: kubeflow.org/v1\nspec: [\n".to_owned()),
        ("unequal", unequal),
    ] {
        // The first document is valid, and ready when the second one fails.
        let done = place.feed("mutate -f - --profile eks-image", format!("{good}---\n{bad}").as_bytes());
        assert_eq!((done.code, done.out.as_str()), (3, ""), "{name}: {}", done.err);
    }
    place.feed("mutate -f - --profile eks-image", good.as_bytes()).ok();
}
