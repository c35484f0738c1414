//! `lint --fix`: corrects names that have exactly one valid spelling. No other fix is safe enough.

use weftrun::files::Staged;
use weftrun::{Finding, Result};

use crate::commands::mutate::{Buffer, Given, Source, each_document};
use crate::context::Context;

/// Corrects files in place: all, or none if one cannot be written.
pub fn files(context: &Context, sources: &[Source], given: &Given) -> Result<()> {
    let sources: Vec<Source> = sources.iter().filter(|source| !source.is_stdin()).cloned().collect();
    let (mut staged, mut fixed) = (Vec::new(), Vec::new());
    for (source, file) in sources.iter().zip(Source::files(&sources)?) {
        let mut buffer = Buffer::default();
        let before = fixed.len();
        each_document(source, |text, start| {
            let findings = super::found(source, text, start, given);
            let (text, renamed) = corrected(text, start.offset, &findings);
            fixed.extend(renamed);
            buffer.write(text.as_bytes())
        })?;
        if fixed.len() > before {
            staged.push(buffer.stage(file)?);
        }
    }
    staged.into_iter().try_for_each(Staged::commit)?;
    for (wrong, right) in &fixed {
        context.out.say(format!("fixed: {wrong} is now {right}"));
    }
    Ok(())
}

/// Returns the text with every name corrected that a finding renames, and those names.
fn corrected(text: &str, offset: usize, findings: &[Finding]) -> (String, Vec<(String, String)>) {
    let mut renames: Vec<(usize, &str, &str)> = Vec::new();
    for finding in findings {
        let at = finding.span.as_ref().map_or(0, |span| span.start.saturating_sub(offset));
        let patches = finding.fix.iter().flat_map(|fix| &fix.patch).filter(|edit| edit.op == "rename");
        renames.extend(
            patches.filter_map(|edit| Some((at, edit.path.as_str(), edit.value.as_ref()?.as_str()?))),
        );
    }
    renames.sort_unstable();
    let (mut text, mut done) = (text.to_owned(), Vec::new());
    // From the end, so that earlier positions stay valid.
    for (at, wrong, right) in renames.into_iter().rev() {
        if let Some(found) = place_of(&text, at, wrong) {
            text.replace_range(found..found + wrong.len(), right);
            done.push((wrong.to_owned(), right.to_owned()));
        }
    }
    done.reverse();
    (text, done)
}

/// Returns the position of a name at or after a place: as a whole word, and preferably where it is set
/// (`NAME=`), since a shell script may mention it in a comment.
fn place_of(text: &str, at: usize, name: &str) -> Option<usize> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let whole = |found: &usize| {
        let after = text.get(found + name.len()..).unwrap_or_default();
        !text[..*found].ends_with(inside) && !after.starts_with(inside)
    };
    let places: Vec<usize> =
        text.get(at..)?.match_indices(name).map(|(found, _)| at + found).filter(whole).collect();
    let is_set = |found: &&usize| text.get(**found + name.len()..).is_some_and(|rest| rest.starts_with('='));
    // A key or a list entry is exactly where the finding points; only other texts are searched further on.
    match places.first() {
        Some(first) if *first <= at + 2 && !text[at..*first].contains('#') => Some(*first),
        first => places.iter().find(is_set).or(first).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_corrected_where_they_are_set() {
        let text = "# NCCL_BUFFERSIZE\nexport MY_NCCL_BUFFERSIZE=1 NCCL_BUFFERSIZE=2 # NCCL_BUFFERSIZE\n";
        let finding = || Finding::warning("L-NAME-MISSPELT", "").rename("NCCL_BUFFERSIZE", "NCCL_BUFFSIZE");
        let (fixed, done) = corrected(text, 0, &[finding()]);
        assert_eq!(fixed, text.replace(" NCCL_BUFFERSIZE=2", " NCCL_BUFFSIZE=2"));
        assert_eq!(done.len(), 1);
        assert_eq!(corrected("nothing", 0, &[finding()]).0, "nothing");
    }
}
