//! Evaluates the arithmetic of a script: `$((NODES * 8))`.

use super::words::{Value, Variables};
use crate::shell::is_variable;

/// Largest number of parentheses in an expression.
const BRACKETS: usize = 32;

impl Variables {
    /// Evaluates whole numbers, names, `+ - * / %` and parentheses.
    pub(super) fn arithmetic(&self, text: &str) -> Option<i64> {
        if text.matches('(').count() > BRACKETS {
            return None;
        }
        let mut rest = text.trim();
        let value = self.sum(&mut rest)?;
        rest.trim().is_empty().then_some(value)
    }

    fn sum(&self, rest: &mut &str) -> Option<i64> {
        let mut value = self.product(rest)?;
        while let Some(operator) = operator(rest, "+-") {
            let right = self.product(rest)?;
            value = if operator == '+' { value.checked_add(right) } else { value.checked_sub(right) }?;
        }
        Some(value)
    }

    fn product(&self, rest: &mut &str) -> Option<i64> {
        let mut value = self.atom(rest)?;
        while let Some(operator) = operator(rest, "*/%") {
            let right = self.atom(rest)?;
            value = match operator {
                '*' => value.checked_mul(right)?,
                '/' => value.checked_div(right)?,
                _ => value.checked_rem(right)?,
            };
        }
        Some(value)
    }

    fn atom(&self, rest: &mut &str) -> Option<i64> {
        *rest = rest.trim_start();
        if let Some(inside) = rest.strip_prefix('(') {
            *rest = inside;
            let value = self.sum(rest)?;
            *rest = rest.trim_start().strip_prefix(')')?;
            return Some(value);
        }
        let braced = rest.starts_with("${");
        let start = if braced { 2 } else { usize::from(rest.starts_with('$')) };
        let word = rest.get(start..)?;
        let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(word.len());
        let (name, after) = word.split_at_checked(end)?;
        *rest = if braced { after.strip_prefix('}')? } else { after };
        if is_variable(name) {
            return match self.get(name)? {
                Value::Text(text) => text.trim().parse().ok(),
                Value::List(_) => None,
            };
        }
        (!name.starts_with('0') || name == "0").then(|| name.parse().ok()).flatten()
    }
}

/// Takes the next character if it is one of these operators.
fn operator(rest: &mut &str, operators: &str) -> Option<char> {
    *rest = rest.trim_start();
    let operator = rest.chars().next().filter(|c| operators.contains(*c))?;
    *rest = rest.get(1..)?;
    Some(operator)
}
