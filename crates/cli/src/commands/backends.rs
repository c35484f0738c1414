//! `backends`: the linked backends, and their capabilities.

use serde_json::Value;
use weftrun::core::backend::BackendEntry;
use weftrun::core::exit_codes;
use weftrun::report::{BackendShape, BackendsReport};
use weftrun::{Capability, Result};

use crate::context::Context;
use crate::global::Format;
use crate::output::style;

/// Lists the backends that are linked in.
pub fn run(context: &Context) -> Result<u8> {
    let entries = context.registry().entries();
    let shapes: Vec<BackendShape> =
        entries.iter().map(|entry| BackendShape::new(entry, capability(context, entry).ok())).collect();
    if context.out.format == Format::Table {
        let (bold, dim) = (style::BOLD, style::DIM);
        for shape in shapes {
            context.out.line(format!("{bold}{:<12}{bold:#} {}", shape.name, shape.summary))?;
            let can = shape.capability.as_ref().map_or_else(String::new, words);
            context.out.line(format!("{:<12} {dim}{can}{dim:#}", ""))?;
        }
    } else {
        context.out.value(&BackendsReport::new(shapes))?;
    }
    Ok(exit_codes::OK)
}

/// Returns a backend's capability, from its default target without any request to a cluster.
fn capability(context: &Context, entry: &BackendEntry) -> Result<Capability> {
    let client = context.client()?;
    let target = client.target(entry.name)?;
    context.block_on(async { Ok(client.connect(&target).await?.capability()) })
}

/// Returns the names of the supported features.
fn words(capability: &Capability) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(capability) else { return String::new() };
    let can = fields.iter().filter(|(_, value)| **value == Value::Bool(true));
    can.map(|(name, _)| name.replace('_', " ")).collect::<Vec<_>>().join(", ")
}
