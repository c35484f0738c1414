//! Where the ranks of a script meet: which of its variables name the first node, as in a rendered script.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use weftrun_core::shell::without_comment;

/// Variables of which the rendered script sets its own values, whatever the script's are, and what separates words.
const OWN: [&str; 6] = ["WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "IFS"];

/// The variables that name the first node.
#[derive(Debug, Default)]
pub(super) struct FirstNode(BTreeSet<String>);

impl FirstNode {
    /// Reads the assignments of a command. Returns whether one of them gives a variable that the rendered script sets itself a value
    /// that may be another one.
    pub fn read(&mut self, text: &str, nodes: u32) -> bool {
        let mut is_other = false;
        for (name, value) in assignments(text) {
            let is_first = self.is_value(value);
            let plain = value.trim_matches('"').trim_start_matches('$').trim_matches(['{', '}']);
            is_other |= match name {
                "MASTER_ADDR" => !is_first,
                "NNODES" => {
                    plain != "SLURM_NNODES" && plain != "SLURM_JOB_NUM_NODES" && plain != nodes.to_string()
                }
                name => OWN.contains(&name),
            };
            if is_first {
                self.0.insert(name.to_owned());
            } else {
                self.0.remove(name);
            }
        }
        is_other
    }

    fn is_value(&self, value: &str) -> bool {
        const OF_SLURM: &str = r#"^"?\$\(\s*scontrol\s+show\s+hostnames?(\s+"?\$\{?SLURM_(JOB_)?NODELIST\}?"?)?\s*\|\s*head\s+(-n\s*1|-1)\s*\)"?$"#;
        static FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(OF_SLURM).ok());
        FIRST.as_ref().is_some_and(|first| first.is_match(value)) || self.is_host(value)
    }

    fn is_host(&self, host: &str) -> bool {
        const HOST: [&str; 5] = ["$(hostname)", "`hostname`", "$(hostname -s)", "localhost", "127.0.0.1"];
        const OF_SLURM: [&str; 3] = ["HOSTNAME", "SLURMD_NODENAME", "SLURM_LAUNCH_NODE_IPADDR"];
        let host = host.trim_matches('"');
        let name = host.strip_prefix('$').map(|name| name.trim_matches(['{', '}']));
        HOST.contains(&host) || name.is_some_and(|name| self.0.contains(name) || OF_SLURM.contains(&name))
    }

    /// Returns whether an endpoint of torchrun is on the first node.
    pub fn is_at(&self, endpoint: &str) -> bool {
        let endpoint = endpoint.trim_matches('"');
        let is_port = |port: &str| !port.contains([')', '}']) || port.starts_with('$');
        let host =
            endpoint.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(endpoint, |(host, _)| host);
        self.is_host(host)
    }
}

/// Returns the variables that a command sets, with their values, line by line.
fn assignments(text: &str) -> impl Iterator<Item = (&str, &str)> {
    const SETS: &str = r#"(?:^|[\s;&|({])([A-Za-z_][A-Za-z0-9_]*)=("\$\([^)]*\)"|\$\([^)]*\)\S*|"[^"]*"\S*|'[^']*'\S*|[^\s;&|]*)"#;
    static SET: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SETS).ok());
    let of_line = |line| SET.iter().flat_map(move |set| set.captures_iter(without_comment(line)));
    let found = text.lines().flat_map(of_line);
    found.filter_map(|found| Some((found.get(1)?.as_str(), found.get(2)?.as_str())))
}
