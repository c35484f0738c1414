//! `lint --fix`: misspelt names of variables, where only one name can be meant. Nothing else is near enough to safe.

use weftrun::Result;

use crate::commands::mutate::{Given, Source, Spool, each_document};
use crate::context::Context;

/// Corrects one file in place.
pub fn file(context: &Context, source: &Source, given: &Given) -> Result<()> {
    let mut spool = Spool::new();
    let mut fixed = 0;
    each_document(source, |text, start| {
        let mut text = text.to_owned();
        let mut places: Vec<(usize, String)> = given
            .lint(&text, start)
            .iter()
            .filter(|finding| finding.code == "L-NAME-MISSPELT")
            .filter_map(|finding| {
                Some((finding.span.as_ref()?.start - start.offset, finding.message.clone()))
            })
            .collect();
        places.sort();
        for (at, message) in places.into_iter().rev() {
            let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
            let Some(wrong) = quoted.first() else { continue };
            let Some(right) = weftrun::core::mutation::lint::near_miss(wrong) else { continue };
            if let Some(found) = text[at..].find(wrong) {
                text.replace_range(at + found..at + found + wrong.len(), right);
                fixed += 1;
                context.out.say(format!("fixed: {wrong} is now {right}"));
            }
        }
        spool.write(text.as_bytes())
    })?;
    if fixed > 0 { spool.replace(source.path()) } else { Ok(()) }
}
