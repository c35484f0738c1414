//! Messages about the job: versions, networks, plugins, variables, warnings.

use std::collections::BTreeSet;

use super::event::Event;
use super::ids::{ProcessId, SourceIndex};
use super::process::Phase;
use super::signatures::printable;
use super::traits::{NCCL_VERSION, NVLINK_DOMAIN, Told};
use super::verdict::interfaces;
use super::{PluginSeen, TEXT, TransportMap, cut, cut_at};
use crate::event::NcclEvent;
use crate::failure;
use crate::network::Network;
use crate::parser::Entry;
use crate::record::Level;
use crate::signature::{self, Signature};
use crate::text::{Cursor, contains, text};

/// Bytes kept of a list of devices; the longest real ones have about forty.
const LIST: usize = 8192;

/// The trait of whether a process has a plugin for the network, and its value where it has one.
const PLUGIN: &str = "the network plugin";
const LOADED: &str = "loaded";

/// Returns whether a message says that a plugin for the network was found; none where it says nothing of it. The wordings are those of
/// NCCL's net.cc and plugin_open.cc, 2.4 to 2.30, and of the plugin for RDMA and SHARP.
fn has_plugin(message: &[u8]) -> Option<bool> {
    let has = |words: &str| contains(message, words);
    if has("Plugin Path : ") {
        return Some(true);
    }
    let absent = has("NET/Plugin") && (has("No plugin found") || has("Could not find: ") && has("nccl-net"));
    absent.then_some(false)
}

/// Reads the domain of NVLinks of a GPU: `MNNVL busId 0x1b000 fabric UUID 5f.a1 cliqueId 0x7ffe state 3 healthMask 0xaa` (`src/mnnvl.cc`).
/// A clique has its number in its UUID only, and the UUID of a GPU in no domain is zero
/// (<https://github.com/meta-pytorch/torchcomms/pull/3612>). The mask of the health is left out: 0xaa stands on healthy hosts too.
fn nvlink_domain(message: &[u8]) -> Option<String> {
    let line = text(crate::text::behind(message, "MNNVL busId ")?);
    let (_, behind) = line.split_once("fabric UUID ")?;
    let (uuid, behind) = behind.split_once(" cliqueId ")?;
    let clique = behind.split_ascii_whitespace().next()?;
    let is_zero = uuid.bytes().all(|byte| byte == b'0' || byte == b'.' || byte == b'x');
    (!is_zero && uuid.len() <= 64).then(|| format!("{uuid} clique {clique}"))
}

impl TransportMap {
    /// Applies a message that changes what is known about the job.
    pub(super) fn fact(&mut self, process: Option<ProcessId>, entry: &Entry<'_>, events: &mut Vec<Event>) {
        if matches!(entry.event, NcclEvent::Plugin(_) | NcclEvent::OfiVersion(_)) {
            let told = self.told(process, entry);
            self.seen.traits.add(PLUGIN, LOADED, told);
        }
        match entry.event {
            NcclEvent::Announced(network) => {
                let name = self.name(network);
                if let (Some(process), Some(name)) = (process, name) {
                    self.seen.processes[process].announced_line = entry.line;
                    // What failed before was a plugin, which it does without.
                    let before = self.seen.processes[process].reached();
                    self.seen.processes[process].phase = before;
                    let announced = &mut self.seen.processes[process].announced;
                    if announced.last() != Some(&name) {
                        announced.retain(|other| *other != name);
                        announced.push(name);
                        events
                            .push(Event::Announced { who: self.seen.who(process), network: network.into() });
                    }
                }
            }
            NcclEvent::Version(version) => {
                let seen = self.seen.versions.len();
                if seen < 64 || self.seen.versions.contains_key(cut(version)) {
                    let processes = self.seen.versions.entry(cut(version).into()).or_default();
                    if processes.len() < 4096 {
                        processes.extend(process);
                    }
                }
                let base = version.split('+').next().unwrap_or(version);
                let told = self.told(process, entry);
                self.seen.traits.add(NCCL_VERSION, base, told);
                if self.seen.versions.len() > seen {
                    events.push(Event::Version { version: version.into() });
                }
            }
            NcclEvent::Connected(phase) => {
                if let Some(process) = process {
                    self.connected(process, entry, phase, events);
                }
            }
            NcclEvent::Provider { name, nics } => {
                let name = cut(name);
                let plugin = self.ofi();
                plugin.provider = Some(name.into());
                plugin.nics = nics.or(plugin.nics);
                let known = plugin.providers.contains(name);
                if !known && plugin.providers.len() < 16 {
                    plugin.providers.insert(name.into());
                    events.push(Event::Provider { name: name.into(), nics });
                }
            }
            NcclEvent::OfiVersion(version) => {
                self.ofi().version = Some(cut(version).into());
                let told = self.told(process, entry);
                self.seen.traits.add("aws-ofi-nccl", cut(version), told);
            }
            NcclEvent::Plugin(name)
                if Network::of_name(name) != Network::LibfabricOther
                    && self.seen.plugins.len() < 32
                    && !self.seen.plugins.iter().any(|p| *p.name == *name) =>
            {
                self.seen.plugins.push(PluginSeen::new(cut(name)));
            }
            NcclEvent::Listed { network, devices, out_of_band } => {
                if let Some(interface) = out_of_band
                    && self.seen.out_of_band.len() < 64
                {
                    self.seen.out_of_band.insert(cut(interface).into());
                }
                if network == "Socket" {
                    let names: BTreeSet<&str> = interfaces(devices).map(|(name, _)| name).collect();
                    let names = names.into_iter().collect::<Vec<_>>().join(",");
                    let told = self.told(process, entry);
                    self.seen.traits.add("the interfaces", &names, told);
                }
                let lists = self.seen.listed.entry(network.into()).or_default();
                let devices = cut_at(devices, LIST);
                if lists.len() < 64 || lists.contains_key(devices) {
                    let processes = lists.entry(devices.into()).or_default();
                    if processes.len() < 4096 {
                        processes.extend(process);
                    }
                }
            }
            NcclEvent::Env { name, value } => {
                let told = self.told(process, entry);
                self.seen.traits.variable(name, value, told);
                self.environment(process, name, value);
            }
            NcclEvent::Channels { coll, p2p } => {
                if let Some(process) = process {
                    let tid = entry.writer.map_or(0, |writer| writer.tid);
                    let process = &mut self.seen.processes[process];
                    if let Some((_, local)) = process.recent.iter().find(|recent| recent.0 == tid)
                        && let Some(local) = process.locals.get_mut(*local)
                        && !local.complete
                    {
                        local.channels = Some((coll, p2p.unwrap_or(u32::MAX)));
                    }
                }
            }
            NcclEvent::RasPort(port) => self.seen.ras_port = Some(port),
            NcclEvent::Initialised(network) => self.seen.initialised = Some(cut(network).into()),
            _ => {}
        }
    }

    /// Returns the place of a message that tells something of its process.
    fn told<'e>(&self, process: Option<ProcessId>, entry: &Entry<'e>) -> Option<Told<'e>> {
        let process = process?;
        let source = self.seen.processes.get(process)?.source;
        Some(Told { source, process, line: entry.line, text: entry.text })
    }

    fn ofi(&mut self) -> &mut PluginSeen {
        const NAME: &str = "aws-ofi-nccl";
        let at = self.seen.plugins.iter().position(|plugin| *plugin.name == *NAME).unwrap_or_else(|| {
            self.seen.plugins.push(PluginSeen::new(NAME));
            self.seen.plugins.len() - 1
        });
        &mut self.seen.plugins[at]
    }

    fn environment(&mut self, process: Option<ProcessId>, name: &str, value: &str) {
        if name == "HOSTID"
            && let Some(process) = process
        {
            let host = std::mem::take(&mut self.seen.processes[process].host);
            let number = self.host(&host, value);
            let process = &mut self.seen.processes[process];
            (process.host, process.host_number) = (host, number);
        }
        if name.len() <= TEXT && (self.seen.env.len() < 256 || self.seen.env.contains_key(name)) {
            let values = self.seen.env.entry(name.into()).or_default();
            if values.len() < 16 && value.len() <= 256 {
                values.insert(value.into());
            }
        }
    }

    /// Reads any other message: a throughput value (then it has nothing else), or an unknown message.
    pub(super) fn other(
        &mut self,
        source: SourceIndex,
        process: Option<ProcessId>,
        entry: &Entry<'_>,
    ) -> bool {
        if entry.level.is_none() {
            let throughput = &mut self.seen.sources[source].throughput;
            return throughput.observe(entry.launcher_rank, entry.line, entry.text);
        }
        if let Some(rest) = entry.text.strip_prefix(b"cudaDriverVersion ")
            && let Some(version) = Cursor::new(rest).number()
        {
            let version = format!("{}.{}", version / 1000, version % 1000 / 10);
            let told = self.told(process, entry);
            self.seen.traits.add("a driver for CUDA", &version, told);
        }
        if let Some(domain) = nvlink_domain(entry.text) {
            let told = self.told(process, entry);
            self.seen.traits.add(NVLINK_DOMAIN, &domain, told);
        }
        if let Some(has) = has_plugin(entry.text) {
            let told = self.told(process, entry);
            self.seen.traits.add(PLUGIN, if has { LOADED } else { "missing" }, told);
        }
        self.seen.unparsed += u64::from(process.is_some() && entry.text.is_empty());
        false
    }

    pub(super) fn find_signatures(
        &mut self,
        source: SourceIndex,
        process: Option<ProcessId>,
        entry: &Entry<'_>,
        events: &mut Vec<Event>,
    ) {
        let (mut failed, mut passed_on) = (false, false);
        let launcher_rank = entry.launcher_rank.or_else(|| failure::rank_of_watchdog(entry.text));
        let entry = &Entry { launcher_rank, ..*entry };
        let signatures = &mut self.seen.signatures;
        let mut explained = false;
        signature::find(entry.level, entry.location, entry.text, |id| {
            failed |= entry.level == Some(Level::Warn) && id.fails_rank();
            passed_on |= id == Signature::ErrorTrace;
            explained |= !id.is_place();
            signatures.add(id, source, process, entry);
        });
        if entry.level == Some(Level::Warn) && !entry.text.is_empty() {
            let fresh = signatures.count(Signature::Warning) < 64;
            let kinds =
                (!explained).then_some(Signature::UnknownWarning).into_iter().chain([Signature::Warning]);
            kinds.for_each(|kind| signatures.add(kind, source, process, entry));
            if fresh {
                let who = process.map(|process| self.seen.who(process));
                events.push(Event::Warning { who, text: printable(entry.text, 300) });
            }
        }
        if failed && let Some(process) = process {
            self.raise(process, Phase::Failed, events);
        }
        if passed_on
            && let Some(process) = process.map(|at| &mut self.seen.processes[at])
            && process.phase == Phase::Failed
        {
            process.gave_up_line = entry.line;
        }
    }
}
