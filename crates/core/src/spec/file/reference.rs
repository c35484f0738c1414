//! Writes the table of keys as a reference page and as a JSON schema.

use std::fmt::Write;

use serde_json::{Value, json};

use super::keys::{JOB, TABLES};
use super::shape::{Key, Shape, Table, Word};

/// Returns the reference page of the job file, in Markdown.
pub fn markdown() -> String {
    let mut page = String::from(
        "# The job file\n\n\
         One file, TOML or YAML (JSON is YAML), describes a job for every backend; flags and the SDK's builder say the \
         same. `weftrun init` writes one to start from, `weftrun plan FILE` explains what it means. An editor that \
         knows JSON schemas checks it while you type: [job.schema.json](job.schema.json).\n\n\
         A job with one role has the role's keys at the top. A job with several has `[roles.NAME]` tables, in order, \
         and no such keys at the top.\n\n\
         Quantities are Kubernetes' own: `64Gi` is 64 × 2³⁰, `64G` is 64 × 10⁹, `500m` is one half. `64GB` is refused, \
         since it is not told which of the two is meant. Durations are `1d12h`, `90m`, `45s`.\n",
    );
    for table in TABLES {
        section(&mut page, table);
    }
    page
}

fn section(page: &mut String, table: &Table) {
    let title = if table.name.is_empty() { "Top level" } else { table.name };
    let code = if table.name.is_empty() { "" } else { "`" };
    let _ = write!(
        page,
        "\n## {code}{title}{code}\n\n{}\n\n| key | value | what it does | example |\n|---|---|---|---|\n",
        table.doc
    );
    for key in table.keys {
        let required = if key.required { " **(required)**" } else { "" };
        let also = if key.aliases.is_empty() {
            String::new()
        } else {
            format!(" (also `{}`)", key.aliases.join("`, `"))
        };
        let example =
            if key.example.is_empty() { String::new() } else { format!("`{} = {}`", key.name, key.example) };
        let _ = writeln!(
            page,
            "| `{}`{also} | {} | {}{required} | {example} |",
            key.name,
            kind(&key.shape),
            key.doc
        );
    }
    for (key, words) in table.keys.iter().filter_map(|key| Some((key, words(&key.shape)?))) {
        let _ = write!(page, "\nWords of `{}`:\n\n", key.name);
        for word in words {
            let _ = writeln!(page, "- `{}`: {}", word.word, word.doc);
        }
    }
}

fn words(shape: &Shape) -> Option<&'static [Word]> {
    if let Shape::Rules(words) = shape { Some(words) } else { shape.words() }
}

fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Text => "string".to_owned(),
        Shape::Scalar => "string, integer or boolean".to_owned(),
        Shape::Texts => "string or list of strings".to_owned(),
        Shape::Command => "list of strings, or string".to_owned(),
        Shape::Bool => "boolean".to_owned(),
        Shape::Values => "list of values".to_owned(),
        Shape::Count { min: 0 } => "integer".to_owned(),
        Shape::Count { min } => format!("integer from {min}"),
        Shape::Quantity => "quantity".to_owned(),
        Shape::Duration => "duration".to_owned(),
        Shape::Word(_) => "word".to_owned(),
        Shape::Gid => "`auto`, `compute` or integer".to_owned(),
        Shape::Rules(_) => "table of words by rule id".to_owned(),
        Shape::Map(inner) => format!("table of {}", kind(inner)),
        Shape::Table(table) => format!("table [`{}`](#{})", table.name, anchor(table.name)),
        Shape::Named(table) => format!("tables [`{}`](#{})", table.name, anchor(table.name)),
        Shape::OneOf(shapes) => shapes.iter().map(kind).collect::<Vec<_>>().join(", or "),
        Shape::Any => "anything".to_owned(),
    }
}

fn anchor(title: &str) -> String {
    title
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_')
        .flat_map(char::to_lowercase)
        .collect()
}

/// Returns the JSON schema of the job file.
pub fn schema() -> Value {
    let mut schema = object(&JOB);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "weftrun job file".into();
    schema
}

fn object(table: &Table) -> Value {
    let names = |key: &'static Key| std::iter::once(key.name).chain(key.aliases.iter().copied());
    let properties: serde_json::Map<String, Value> =
        table.keys.iter().flat_map(|key| names(key).map(|name| (name.to_owned(), property(key)))).collect();
    let required: Vec<&str> = table.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    json!({
        "type": "object",
        "description": table.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(key: &Key) -> Value {
    let mut schema = of_shape(&key.shape);
    schema["description"] = key.doc.into();
    schema
}

fn of_shape(shape: &Shape) -> Value {
    const QUANTITY: &str =
        r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+]?[0-9]+)?$";
    const DURATION: &str =
        r"^(([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?|[0-9]+|([0-9]+-)?[0-9]+:[0-9]{1,2}:[0-9]{1,2})$";
    match shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::Scalar => json!({ "type": ["string", "integer", "boolean"] }),
        Shape::Texts => json!({ "oneOf": [
            { "type": "string" }, { "type": "array", "items": { "type": "string" } }
        ] }),
        Shape::Command => json!({ "oneOf": [
            { "type": "string" }, { "type": "array", "items": { "type": ["string", "number", "boolean"] } }
        ] }),
        Shape::Values => {
            json!({ "type": "array", "items": { "type": ["string", "number", "boolean"] } })
        }
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Count { min } => json!({ "type": "integer", "minimum": min, "maximum": u32::MAX }),
        Shape::Quantity => {
            json!({ "oneOf": [{ "type": "string", "pattern": QUANTITY }, { "type": "number" }] })
        }
        Shape::Duration => {
            json!({ "oneOf": [{ "type": "string", "pattern": DURATION }, { "type": "integer", "minimum": 0 }] })
        }
        Shape::Word(words) => of_words(words),
        Shape::Gid => json!({ "oneOf": [
            { "enum": ["auto", "compute"] }, { "type": "integer", "minimum": 0 }, { "type": "string", "pattern": "^[0-9]+$" }
        ] }),
        Shape::Rules(words) => json!({ "type": "object", "additionalProperties": { "anyOf": [
            of_words(words), { "type": "object" }
        ] } }),
        Shape::Map(inner) => json!({ "type": "object", "additionalProperties": of_shape(inner) }),
        Shape::Table(table) => object(table),
        Shape::Named(table) => json!({ "type": "object", "additionalProperties": object(table) }),
        Shape::OneOf(shapes) => json!({ "anyOf": shapes.iter().map(of_shape).collect::<Vec<_>>() }),
        Shape::Any => json!({}),
    }
}

/// Returns the schema of words. In YAML, and so in an editor, `off` and `yes` are booleans.
fn of_words(words: &[Word]) -> Value {
    let mut list: Vec<Value> =
        words.iter().flat_map(|word| [Some(word.word), word.alias]).flatten().map(Value::from).collect();
    for (plain, boolean) in [("off", false), ("no", false), ("on", true), ("yes", true)] {
        if words.iter().any(|word| word.word == plain) && !list.contains(&boolean.into()) {
            list.push(boolean.into());
        }
    }
    json!({ "enum": list })
}
