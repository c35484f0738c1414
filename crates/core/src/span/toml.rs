//! Reads TOML, with all its mistakes at once.

use ::toml::Spanned;
use ::toml::de::{DeInteger, DeTable, DeValue};

use super::tree::{Entry, SpanDocument, SpanTree, Style, SyntaxError, Value};

/// Reads TOML. Returns the document as far as it could be read, and all errors.
pub fn toml(text: &str) -> (SpanDocument<'_>, Vec<SyntaxError>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<_> = errors
        .iter()
        .map(|error| SyntaxError::new(error.message(), error.span().unwrap_or(text.len()..text.len())))
        .collect();
    let span = table.span();
    let root = SpanTree::new(map(table.into_inner(), &mut errors), span, Style::Block);
    (SpanDocument { root, duplicates: Vec::new() }, errors)
}

/// Converts a table; its keys, which toml sorts by name, are put into the order of the file.
fn map<'a>(table: DeTable<'a>, errors: &mut Vec<SyntaxError>) -> Value<'a> {
    let mut entries: Vec<Entry<'a>> = table
        .into_iter()
        .map(|(key, value)| Entry { key_span: key.span(), key: key.into_inner(), value: node(value, errors) })
        .collect();
    entries.sort_by_key(|entry| entry.key_span.start);
    Value::Map(entries)
}

fn node<'a>(value: Spanned<DeValue<'a>>, errors: &mut Vec<SyntaxError>) -> SpanTree<'a> {
    let span = value.span();
    let (value, style) = match value.into_inner() {
        DeValue::String(text) => (Value::Str(text), Style::DoubleQuoted),
        DeValue::Boolean(b) => (Value::Bool(b), Style::Plain),
        DeValue::Integer(number) => (integer(&number, &span, errors), Style::Plain),
        DeValue::Float(number) => (float(number.as_str(), &span, errors), Style::Plain),
        DeValue::Datetime(date) => (Value::Str(date.to_string().into()), Style::Plain),
        DeValue::Array(items) => {
            (Value::Seq(items.into_iter().map(|item| node(item, errors)).collect()), Style::Flow)
        }
        DeValue::Table(table) => (map(table, errors), Style::Block),
    };
    SpanTree::new(value, span, style)
}

fn integer(
    number: &DeInteger<'_>,
    span: &std::ops::Range<usize>,
    errors: &mut Vec<SyntaxError>,
) -> Value<'static> {
    if let Ok(n) = i64::from_str_radix(number.as_str(), number.radix()) {
        return Value::Int(n);
    }
    errors.push(SyntaxError::new("the integer does not fit into 64 bits", span.clone()));
    Value::Null
}

fn float(text: &str, span: &std::ops::Range<usize>, errors: &mut Vec<SyntaxError>) -> Value<'static> {
    if let Ok(n) = text.parse::<f64>() {
        return Value::Float(n);
    }
    errors.push(SyntaxError::new("not a number", span.clone()));
    Value::Null
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::position;

    #[test]
    fn reads_in_the_files_order_with_places() {
        let text = "name = \"x\"\n\n[worker]\nnodes = 4\nenv = { B = \"1\", A = '2' }\n[[extra]]\nn = 0x10\n";
        let (document, errors) = toml(text);
        assert_eq!(errors, []);
        let keys: Vec<_> = document.root.entries().iter().map(|e| e.key.as_ref()).collect();
        assert_eq!(keys, ["name", "worker", "extra"]);
        let nodes = document.root.at(["worker", "nodes"]).unwrap();
        assert_eq!((&nodes.value, &text[nodes.span.clone()]), (&Value::Int(4), "4"));
        assert_eq!(position(text, nodes.span.start), (4, 9));
        assert_eq!(document.root.at(["extra", "0", "n"]).unwrap().value, Value::Int(16));
        let env: Vec<_> =
            document.root.at(["worker", "env"]).unwrap().entries().iter().map(|e| &*e.key).collect();
        assert_eq!(env, ["B", "A"]);
    }

    #[test]
    fn tells_every_mistake_at_once() {
        let (_, errors) = toml("a =\nb = yes\n[t]\n[t]\nc = 012\n");
        assert!(errors.len() >= 4, "{errors:?}");
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        let (_, errors) = toml(&format!("a = {}", "[".repeat(100_000)));
        assert!(!errors.is_empty());
    }
}
