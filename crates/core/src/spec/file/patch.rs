//! Edits of a job file that leave everything else unchanged.

use toml_edit::{DocumentMut, Item, Key, Table, TableLike};

use super::Format;
use super::keys::is_shorthand;
use super::toml::{from_json, inline};
use crate::finding::PatchEdit;
use crate::{Error, ErrorKind, Result};

/// Applies a finding's edits to the text of a TOML job file; comments, order and quoting of everything else
/// stay.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] where the text is no TOML or an edit's path leads through a value that is no table, and
/// [`ErrorKind::Unsupported`] for YAML.
pub fn patched(file: &str, text: &str, edits: &[PatchEdit]) -> Result<String> {
    if Format::of(file, text) == Format::Yaml {
        return Err(
            Error::new(ErrorKind::Unsupported, "edits are applied to TOML job files only").with("file", file)
        );
    }
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        Error::new(ErrorKind::InvalidSpec, error.message().to_owned()).with("file", file)
    })?;
    for edit in edits {
        apply(document.as_table_mut(), edit).map_err(|why| {
            Error::new(ErrorKind::InvalidSpec, format!("`{}` cannot be {}: {why}", edit.path, edit.op))
                .with("file", file)
        })?;
    }
    Ok(document.to_string())
}

fn apply(root: &mut Table, edit: &PatchEdit) -> std::result::Result<(), &'static str> {
    let keys = Key::parse(&edit.path).map_err(|_| "the path cannot be read")?;
    let Some((last, way)) = keys.split_last() else { return Err("the path is empty") };
    let mut table: &mut dyn TableLike = root;
    for key in way {
        // `fabric = "efa"` becomes a table when something is set below it.
        if key.get() == "fabric" && table.get("fabric").is_some_and(Item::is_str) {
            let kind = table.get("fabric").and_then(Item::as_str).unwrap_or("auto").to_owned();
            table.insert("fabric", inline([("kind", kind.into())]));
        }
        if !table.contains_key(key.get()) {
            if edit.op == "unset" {
                return Ok(());
            }
            let new = if is_shorthand(key.get()) || key.get() == "rules" {
                inline([])
            } else {
                // Written only where it has values of its own: `[target.prod]` needs no `[target]`.
                let mut table = Table::new();
                table.set_implicit(true);
                Item::Table(table)
            };
            table.insert(key.get(), new);
        }
        table =
            table.get_mut(key.get()).and_then(Item::as_table_like_mut).ok_or("it leads through a value")?;
    }
    match (edit.op.as_str(), &edit.value) {
        ("set", Some(value)) => set(table, last.get(), value),
        ("unset", _) => {
            table.remove(last.get());
            Ok(())
        }
        _ => Err("it neither sets nor unsets"),
    }
}

fn set(
    table: &mut dyn TableLike,
    key: &str,
    value: &serde_json::Value,
) -> std::result::Result<(), &'static str> {
    let mut value = from_json(value).ok_or("it has no value")?;
    match table.get_mut(key) {
        // The comment after the old value stays.
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        _ => {
            table.insert(key, Item::Value(value));
        }
    }
    Ok(())
}
