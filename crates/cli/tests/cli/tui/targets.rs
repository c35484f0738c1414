//! Targets that do not answer as they should, beside one that does: over real sockets and programs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use super::tmux::Tmux;

/// Steers a terminal, and is neither JSON nor a list of jobs.
const GARBAGE: &[u8] = b"\x1b]0;PWNED\x07\x1b[2J\xff\xfe<html>502 Bad Gateway</html>";

/// A server that treats every connection alike, for as long as the test runs.
fn server(answer: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || answer(connection));
        }
    });
    address
}

fn garbage(mut connection: TcpStream) {
    let mut request = [0; 8192];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", GARBAGE.len());
    if connection.read(&mut request).is_ok() {
        let _ = connection.write_all(&[head.as_bytes(), GARBAGE].concat());
    }
}

fn silence(mut connection: TcpStream) {
    let mut request = [0; 8192];
    while connection.read(&mut request).is_ok_and(|bytes| bytes > 0) {}
}

/// A folder with Slurm's commands, all of them this script.
fn slurm(dir: &Path, script: &str) -> String {
    std::fs::create_dir_all(dir).expect("a folder");
    for name in ["sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo"] {
        let file = dir.join(name);
        std::fs::write(&file, script).expect("a script is written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
    }
    dir.display().to_string()
}

fn config(home: &Path) -> String {
    let noise = home.join("noise.bin");
    std::fs::write(&noise, GARBAGE).expect("a file is written");
    let kubeconfig = home.join("kubeconfig");
    let cluster = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
         users: [{{name: c, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n",
        server(garbage)
    );
    std::fs::write(&kubeconfig, cluster).expect("a file is written");
    let token = home.join("token");
    std::fs::write(&token, "t").expect("a file is written");
    let runai = |address| {
        let token = token.display();
        format!(
            "backend = \"runai\"\nurl = \"http://{address}\"\nproject = \"nlp\"\ntoken-file = \"{token}\""
        )
    };
    let bin = |name: &str, script: String| {
        format!("backend = \"slurm\"\nbin-dir = \"{}\"", slurm(&home.join(name), &script))
    };
    let targets = [
        ("local", "backend = \"local\"".to_owned()),
        ("babble", bin("babble", format!("#!/bin/sh\ncat {}\n", noise.display()))),
        ("crash", bin("crash", "#!/bin/sh\nkill -9 $$\n".to_owned())),
        ("deaf", bin("deaf", "#!/bin/sh\nexec sleep 600\n".to_owned())),
        ("junk", runai(server(garbage))),
        ("hang", runai(server(silence))),
        ("gone", runai(SocketAddr::from(([127, 0, 0, 1], 1)))),
        (
            "kube",
            format!("backend = \"kubeflow\"\nkubeconfig = \"{}\"\nnamespace = \"nlp\"", kubeconfig.display()),
        ),
    ];
    targets.map(|(name, settings)| format!("[target.{name}]\n{settings}\n")).concat()
}

/// Returns how a target is, as the line of it below the jobs begins.
fn badge<'s>(screen: &'s str, name: &str) -> Option<&'s str> {
    let word = |line: &'s str, at: usize| line.split_whitespace().nth(at);
    let line = screen.lines().skip(1).find(|line| word(line, 0) == Some(name))?;
    word(line, 1).map(|word| word.trim_end_matches(','))
}

#[test]
fn a_target_that_hangs_dies_or_answers_garbage_says_so_and_the_others_go_on() {
    let Some(t) = Tmux::configured("targets", (160, 40), config) else { return };
    let bad = ["babble", "crash", "deaf", "junk", "hang", "gone", "kube"];
    let screen = t.until(
        "a badge for each",
        |screen| {
            badge(screen, "local") == Some("ok") && bad.iter().all(|name| badge(screen, name) == Some("DOWN"))
        },
        || {},
    );
    // The reasons are below the jobs, one per line.
    for (name, why) in [("babble", "unexpected squeue output"), ("deaf", "no answer"), ("gone", "refused")] {
        let said = screen
            .lines()
            .find(|line| line.contains(name) && line.contains("DOWN ") && !line.contains("[1 jobs]"));
        assert!(said.is_some_and(|line| line.contains(why)), "{name}\n{screen}");
    }
    let shape = ["submit", "-b", "local", "--name", "fine", "--nodes", "1", "--ranks-per-node", "1"];
    t.weftrun(&[&shape[..], &["--launch", "per-rank", "--", "sh", "-c", "echo all is well"]].concat());
    t.keys(&["C-l"]);
    t.wait(&["DONE", "fine"]);
    t.keys(&["Enter", "4"]);
    t.wait(&["[4 logs]", "all is well"]);
    let title = t.tmux(&["display-message", "-p", "-t", "t", "#{pane_title}"]).stdout;
    assert!(!String::from_utf8_lossy(&title).contains("PWNED"));
    t.keys(&["Q"]);
    t.wait(&["ended with 0"]);
}
