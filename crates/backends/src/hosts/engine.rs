//! Whether the container engine of a host works: its command alone says nothing of a daemon that is not running, or of rights.

use crate::remote::quote;

/// Engines that need more than their command.
pub const ENGINES: [&str; 2] = ["docker", "podman"];
/// The code of an engine that does not work.
pub const CODE: &str = "HOSTS-ENGINE";

/// Returns the program that prints `engine NAME WHY` for each that is installed and does not work.
pub fn programs(engines: &[&str]) -> String {
    let one = |engine: &&str| {
        format!(
            "if command -v {engine} > /dev/null; then said=$($limit {engine} info 2>&1 > /dev/null) || \
             printf 'engine {engine} %s\\n' \"$(printf '%s\\n' \"$said\" | grep . | tail -n 1)\"; fi\n"
        )
    };
    let text: String = engines.iter().map(one).collect();
    if text.is_empty() { text } else { format!("{}{text}", quote::limit(10)) }
}

/// Returns what is wrong with an engine on a host, and what to do.
pub fn text(host: &str, engine: &str, said: &str) -> (String, String) {
    let because = if said.is_empty() { "no answer in 10 s" } else { said };
    let fix = match engine {
        "docker" => {
            "start the daemon there (`systemctl start docker`), add your user to the group `docker`, or set `container = \"podman\"`"
        }
        _ => "run `podman info` there and correct what it names",
    };
    (format!("`{engine}` does not work on {host}: {because}"), fix.to_owned())
}
