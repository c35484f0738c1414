//! `instances`: the catalogue of instance types.

use clap::Args;
use weftrun::core::catalogue::{Catalogue, InstanceType, NodeFabric, bandwidths};
use weftrun::core::exit_codes;
use weftrun::report::InstancesReport;
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::global::Format;
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun instances --fabric efa           how many EFA interfaces each type has
  weftrun instances p5en.48xlarge          all figures of one type
  weftrun instances -o json | jq '.instances[] | select(.accelerators == 8) | .name'

`~` marks a figure without a source, `?` an unknown one. `[instances.NAME]` in the config file changes a
row or adds one.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct InstancesArgs {
    /// Instance type to show in full (an `ml.` prefix is accepted)
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// List only types with this fabric: none, efa, ib, roce, tcpx, tcpxo
    #[arg(long, value_parser = parse_fabric, value_name = "FABRIC")]
    pub fabric: Option<NodeFabric>,
    /// List only types of this cloud or vendor
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// List only types with this accelerator (h100, b200, …)
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
}

/// `ib-or-roce` has both.
fn parse_fabric(text: &str) -> std::result::Result<NodeFabric, String> {
    let word = if text == "infiniband" { "ib" } else { text };
    NodeFabric::ALL.into_iter().find(|fabric| fabric.as_str() == word).ok_or_else(|| {
        let known: Vec<&str> = NodeFabric::ALL.iter().map(|fabric| fabric.as_str()).collect();
        format!("one of {}", known.join(", "))
    })
}

/// Prints the catalogue, or a row of it.
pub fn run(context: &Context, args: &InstancesArgs) -> Result<u8> {
    let client = context.client()?;
    let rows = chosen(client.catalogue(), args)?;
    if context.out.format != Format::Table {
        let bandwidth: Vec<_> = match &args.name {
            Some(_) => {
                bandwidths().iter().filter(|known| rows.iter().any(|row| known.is_of(&row.name))).collect()
            }
            None => Vec::new(),
        };
        context.out.value(&InstancesReport::new(&rows, &bandwidth))?;
        return Ok(exit_codes::OK);
    }
    match (&args.name, rows.as_slice()) {
        (Some(_), [row]) => context.out.text(&detail(row))?,
        _ => context.out.text(&table(&rows))?,
    }
    Ok(exit_codes::OK)
}

/// Returns an instance type; an error that suggests one if it is unknown.
pub fn known<'c>(catalogue: &'c Catalogue, name: &str) -> Result<&'c InstanceType> {
    catalogue.get(name).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no instance type `{name}`"))
            .hint(catalogue.suggestion(name))
    })
}

fn chosen<'c>(catalogue: &'c Catalogue, args: &InstancesArgs) -> Result<Vec<&'c InstanceType>> {
    if let Some(name) = &args.name {
        return Ok(vec![known(catalogue, name)?]);
    }
    let has = |row: &&InstanceType| args.fabric.is_none_or(|fabric| offers(row.fabric, fabric));
    let is = |word: &Option<String>, text: &str| {
        word.as_ref().is_none_or(|word| text.contains(&word.to_lowercase()))
    };
    let rows = catalogue.rows().iter().filter(has);
    Ok(rows.filter(|row| is(&args.provider, &row.provider) && is(&args.gpu, &row.accelerator)).collect())
}

fn offers(has: NodeFabric, asked: NodeFabric) -> bool {
    use NodeFabric::{Efa, EfaOrRoce, Ib, IbOrRoce, Roce};
    has == asked || matches!((has, asked), (EfaOrRoce, Efa | Roce) | (IbOrRoce, Ib | Roce))
}

fn table(rows: &[&InstanceType]) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(4).max(4);
    let mut text = format!(
        "{bold}{:<width$}  {:<9} {:>4} {:<20} {:<11} {:>4} {:>5} {:>7} {:>8}{bold:#}\n",
        "NAME", "PROVIDER", "GPUS", "ACCELERATOR", "FABRIC", "EFA", "NICS", "GBIT/S", "HUGE"
    );
    for row in rows {
        let mark = |column: &str, value: Option<String>| match value {
            Some(value) if row.is_unsure(column) => format!("~{value}"),
            Some(value) => value,
            None => "?".to_owned(),
        };
        let text_of = |value: &Option<u32>| value.map(|n| n.to_string());
        let huge =
            row.hugepages_2mi.clone().map_or_else(|| "-".to_owned(), |q| mark("hugepages_2mi", Some(q)));
        text.push_str(&format!(
            "{:<width$}  {:<9} {:>4} {:<20} {:<11} {:>4} {:>5} {:>7} {:>8}{}\n",
            row.name,
            row.provider,
            row.accelerators,
            row.accelerator,
            row.fabric,
            mark("efa_max", text_of(&row.efa_max)),
            mark("nics", text_of(&row.nics)),
            mark("network_gbps", row.network_gbps.map(|gbps| gbps.to_string())),
            huge,
            if row.from_config { format!(" {dim}(config){dim:#}") } else { String::new() },
        ));
    }
    text
}

/// Lists every known column of a row with its source.
fn detail(row: &InstanceType) -> String {
    let (bold, dim) = (style::BOLD, style::DIM);
    let mut text = format!("{bold}{}{bold:#}\n", row.name);
    let Ok(serde_json::Value::Object(columns)) = serde_json::to_value(row) else { return text };
    for (column, value) in columns {
        if matches!(column.as_str(), "name" | "unsure" | "notes" | "from_config") {
            continue;
        }
        let shown = match &value {
            serde_json::Value::Null => "?".to_owned(),
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(items) => {
                items.iter().filter_map(|item| item.as_str()).collect::<Vec<_>>().join(", ")
            }
            other => other.to_string(),
        };
        let unsure = if row.is_unsure(&column) { " (not checked against a source)" } else { "" };
        let note = row.notes.get(&column).map_or(String::new(), |note| format!(" {dim}{note}{dim:#}"));
        text.push_str(&format!("  {:<30} {shown}{unsure}{note}\n", column.replace('_', " ")));
    }
    for known in bandwidths().iter().filter(|known| known.is_of(&row.name)) {
        let (what, size) = (&known.collective, &known.message_size);
        text.push_str(&format!(
            "  {:<30} {} GB/s {}: {what} of {size} on {} nodes, {} {dim}{}{dim:#}\n",
            "bus bandwidth", known.busbw_gbps, known.kind, known.nodes, known.software, known.source
        ));
    }
    if row.from_config {
        text.push_str("  changed or added by the configuration\n");
    }
    text
}
