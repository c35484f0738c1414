//! The network devices that a node reports.

use serde::Serialize;
use serde_json::Value;

use weftrun_core::fabric::DeviceKind;
use weftrun_core::request::Fabric;

/// A network device of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Device {
    /// Device and port: `rdmap79s0:1`, `cxi0`.
    pub device: String,
    /// What it is.
    pub kind: DeviceKind,
    /// The fabric that it is evidence of; null if weftrun has no rules for it.
    pub fabric: Option<Fabric>,
    /// `4: ACTIVE`; empty where the kernel does not report it.
    pub state: String,
    /// `400 Gb/sec (4X NDR)`.
    pub rate: String,
    /// Link layer.
    pub link: String,
    /// Driver.
    pub driver: String,
    /// Firmware version.
    pub firmware: String,
    /// The number and types of the addresses of the port: `2 RoCE v2;2 IB/RoCE v1;`.
    pub gids: String,
}

impl Device {
    /// Reads an interface of a node's report.
    pub(super) fn read(interface: &Value) -> Option<Self> {
        let text = |key: &str| match &interface[key] {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let device = interface["device"].as_str()?.to_owned();
        let (driver, link) = (text("driver"), text("link"));
        let kind = DeviceKind::of(&text("class"), &device, &driver, &link, &text("node_type"));
        let fabric = kind.fabric();
        let (state, rate) = (text("state"), text("rate"));
        Some(Self {
            device,
            kind,
            fabric,
            state,
            rate,
            link,
            driver,
            firmware: text("firmware"),
            gids: text("gids"),
        })
    }

    /// Returns whether its port is active, or may be.
    pub fn is_active(&self) -> bool {
        self.state.is_empty() || self.state.contains("ACTIVE")
    }

    /// Returns what it has in common with the same device of another node.
    pub(super) fn shape(&self) -> String {
        let parts = [self.kind.as_str(), &self.rate, &self.state, &self.driver, &self.firmware, &self.gids];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }
}
