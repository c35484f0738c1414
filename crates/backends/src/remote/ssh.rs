//! The system's `ssh`: the user's configuration, agents, jump hosts and second factors work as usual. Why not
//! a Rust ssh crate: `docs/decisions/slurm-system-ssh.md`.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;

use super::quote;
use crate::helper;

/// Time limit of `ssh -G`, which may run `Match exec` programs of the user's configuration.
const LONGEST_QUERY: Duration = Duration::from_secs(15);

/// How `ssh` is called.
#[derive(Clone, Debug)]
pub struct Options {
    /// Another configuration file than the user's (`-F`).
    pub config: Option<String>,
    /// User on the host, where the configuration has another.
    pub user: Option<String>,
    /// Hosts to go through (`-J`).
    pub jump: Option<String>,
    /// Further options, one word each.
    pub args: Vec<String>,
    /// Whether one connection is shared (`ControlMaster`).
    pub share: bool,
    /// Seconds after which a host that does not answer is given up, and a connection is asked whether it lives.
    pub connect: u32,
    /// How often a connection is asked before it is given up.
    pub keepalives: u32,
}

/// One host.
#[derive(Debug)]
pub struct Ssh {
    host: String,
    /// The options of every call.
    fixed: Vec<String>,
    /// The options that the user set.
    given: Vec<String>,
    sharing: Option<OnceCell<Vec<String>>>,
}

impl Ssh {
    /// Creates the options of every call.
    pub fn new(host: &str, given: &Options) -> Self {
        // Options on the command line take precedence over the user's file, since the first value counts.
        let seconds = [
            format!("ConnectTimeout={}", given.connect),
            format!("ServerAliveInterval={}", given.connect.min(5)),
            format!("ServerAliveCountMax={}", given.keepalives),
        ];
        let fixed = [
            "BatchMode=yes", // nothing may ask: there may be no terminal
            "LogLevel=ERROR",
            "RemoteCommand=none", // a RemoteCommand in the file would exclude ours
            "RequestTTY=no",
            "ClearAllForwardings=yes", // a forwarding whose port is taken would end the connection
        ];
        let fixed = fixed.into_iter().map(str::to_owned).chain(seconds);
        let fixed = fixed.flat_map(|option| ["-o".to_owned(), option]).collect();
        let mut own = Vec::new();
        for (option, value) in [("-F", &given.config), ("-l", &given.user), ("-J", &given.jump)] {
            own.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
        }
        own.extend(given.args.iter().cloned());
        Self { host: host.to_owned(), fixed, given: own, sharing: given.share.then(OnceCell::new) }
    }

    /// Returns the host as the user named it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns `ssh HOST /bin/sh`, over a shared connection if possible.
    pub async fn command(&self) -> Command {
        let mut command = self.call(&[], "exec /bin/sh").await;
        command.process_group(0);
        command
    }

    /// Returns `ssh HOST LINE` with the caller's input and output: it stays in this program's process group, which has the
    /// terminal.
    pub async fn interactive(&self, line: &str, terminal: bool) -> Command {
        self.call(if terminal { &["-o", "RequestTTY=force"] } else { &[] }, line).await
    }

    async fn call(&self, first: &[&str], line: &str) -> Command {
        let mut command = Command::new("ssh");
        // The first value of an option counts.
        command.args(first).args(&self.fixed).args(&self.given);
        if let Some(sharing) = &self.sharing {
            command.args(sharing.get_or_init(|| self.find_sharing()).await);
        }
        command.arg("--").arg(&self.host).arg(line);
        command
    }

    /// Returns how the user checks the connection.
    pub fn check(&self) -> String {
        let words = ["ssh".to_owned()].into_iter().chain(self.given.iter().cloned());
        let words = words.chain([self.host.clone(), "true".to_owned()]);
        format!("check `{}` from this machine", quote::words(words).unwrap_or_default())
    }

    /// Returns how a connection is opened by hand if a password or a second factor is required: with the same options, since the name of
    /// a shared connection depends on them.
    pub fn by_hand(&self) -> String {
        let Some(sharing) = &self.sharing else {
            return "for a password or second factor, share a connection: `ssh-share = true` in the target"
                .to_owned();
        };
        // Where the user's configuration has its own path, ssh finds it.
        let path = sharing.get().into_iter().flatten().filter(|option| option.starts_with("ControlPath="));
        let path = path.flat_map(|option| ["-o".to_owned(), option.clone()]);
        let words = ["ssh", "-fNM", "-o", "ControlPersist=8h"].map(str::to_owned).into_iter().chain(path);
        let words = words.chain(self.given.iter().cloned()).chain(["--".to_owned(), self.host.clone()]);
        // No setting of a target holds a NUL.
        let line = quote::words(words).unwrap_or_default();
        format!("for a password or second factor, open the shared connection first: `{line}`")
    }

    /// Returns the options of a shared connection: none if the user's configuration has its own, which is
    /// then used.
    async fn find_sharing(&self) -> Vec<String> {
        let mut query = Command::new("ssh");
        query.args(&self.fixed).args(&self.given).args(["-G", "--", &self.host]);
        let asked = helper::output(query, LONGEST_QUERY).await;
        let own = asked.is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout).lines().any(|line| {
                line.strip_prefix("controlpath ").is_some_and(|path| path != "none" && !path.is_empty())
            })
        });
        match control_dir() {
            Some(dir) if !own => [
                "ControlMaster=auto".to_owned(),
                "ControlPersist=600".to_owned(),
                format!("ControlPath={}/%C", dir.display()),
            ]
            .into_iter()
            .flat_map(|option| ["-o".to_owned(), option])
            .collect(),
            _ => Vec::new(),
        }
    }
}

/// Returns a folder for the sockets that only this user can access, with a short name (socket paths are
/// limited to about 100 bytes).
pub fn control_dir() -> Option<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let dir = PathBuf::from(format!("/tmp/weftrun-ssh-{uid}"));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
    let found = std::fs::symlink_metadata(&dir).ok()?;
    let mine = found.is_dir() && found.uid() == uid && (found.mode() & 0o077).count_ones() == 0;
    (made.is_ok() || mine).then_some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_command_by_hand_has_the_options_of_the_target() {
        let options = Options {
            config: Some("/my config".to_owned()),
            user: Some("me".to_owned()),
            jump: Some("gate".to_owned()),
            args: vec!["-p".to_owned(), "2222".to_owned()],
            share: true,
            connect: 5,
            keepalives: 3,
        };
        let ssh = Ssh::new("host", &options);
        ssh.sharing.as_ref().unwrap().set(vec!["-o".to_owned(), "ControlPath=/tmp/x/%C".to_owned()]).unwrap();
        let line = ssh.by_hand();
        let wanted = "`ssh -fNM -o ControlPersist=8h -o ControlPath=/tmp/x/%C -F '/my config' -l me -J gate -p 2222 -- host`";
        assert!(line.ends_with(wanted), "{line}");
        let alone = Ssh::new("host", &Options { share: false, ..options });
        assert!(alone.by_hand().contains("ssh-share"), "{}", alone.by_hand());
    }
}
