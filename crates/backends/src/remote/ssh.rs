//! The system's `ssh`: the user's configuration, agents, jump hosts and second factors work as usual. Why not
//! a Rust ssh crate: `docs/decisions/slurm-system-ssh.md`.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;

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
}

/// One host.
#[derive(Debug)]
pub struct Ssh {
    host: String,
    options: Vec<String>,
    sharing: Option<OnceCell<Vec<String>>>,
}

impl Ssh {
    /// Creates the options of every call.
    pub fn new(host: &str, given: &Options) -> Self {
        // Options on the command line take precedence over the user's file, since the first value counts.
        let fixed = [
            "BatchMode=yes", // nothing may ask: there may be no terminal
            "ConnectTimeout=10",
            "ServerAliveInterval=5", // a dead link is noticed within 15 s
            "ServerAliveCountMax=3",
            "LogLevel=ERROR",
            "RemoteCommand=none", // a RemoteCommand in the file would exclude ours
            "RequestTTY=no",
            "ClearAllForwardings=yes", // a forwarding whose port is taken would end the connection
        ];
        let mut options: Vec<String> =
            fixed.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]).collect();
        for (option, value) in [("-F", &given.config), ("-l", &given.user), ("-J", &given.jump)] {
            options.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
        }
        options.extend(given.args.iter().cloned());
        Self { host: host.to_owned(), options, sharing: given.share.then(OnceCell::new) }
    }

    /// Returns the host as the user named it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns `ssh HOST /bin/sh`, over a shared connection if possible.
    pub async fn command(&self) -> Command {
        let mut command = Command::new("ssh");
        command.args(&self.options);
        if let Some(sharing) = &self.sharing {
            command.args(sharing.get_or_init(|| self.find_sharing()).await);
        }
        command.arg("--").arg(&self.host).arg("exec /bin/sh");
        command.process_group(0);
        command
    }

    /// Returns the command that opens a connection by hand if a password or a second factor is required.
    pub fn by_hand(&self) -> String {
        let path =
            control_dir().map_or_else(|| "PATH".to_owned(), |dir| dir.join("%C").display().to_string());
        format!(
            "for a password or second factor, open the shared connection first: `ssh -fNM -o ControlPersist=8h -o ControlPath={path} {}`",
            self.host
        )
    }

    /// Returns the options of a shared connection: none if the user's configuration has its own, which is
    /// then used.
    async fn find_sharing(&self) -> Vec<String> {
        let mut query = Command::new("ssh");
        query.args(&self.options).args(["-G", "--", &self.host]);
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
fn control_dir() -> Option<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let dir = PathBuf::from(format!("/tmp/weftrun-ssh-{uid}"));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
    let found = std::fs::symlink_metadata(&dir).ok()?;
    let mine = found.is_dir() && found.uid() == uid && (found.mode() & 0o077).count_ones() == 0;
    (made.is_ok() || mine).then_some(dir)
}
