//! How an error reaches the user: for people on stderr, with `-o json` as an object on stderr too.

use weftrun::Error;
use weftrun::core::exit_codes;
use weftrun::core::report::ErrorReport;

use crate::output::{BROKEN_PIPE, Output, finding_text, style};

/// Prints an error and gives its exit code.
pub fn report(out: &Output, error: &Error) -> u8 {
    if error.message() == BROKEN_PIPE {
        return exit_codes::OK;
    }
    if out.is_data() {
        out.stderr(out.item_text(&ErrorReport::from(error)).unwrap_or_default().trim_end());
    } else {
        out.stderr(&text(error));
    }
    exit_codes::of(error.kind())
}

fn text(error: &Error) -> String {
    let red = style::ERROR;
    let mut text = format!("{red}error{red:#}: {error}");
    for cause in error.causes() {
        if !error.message().contains(&cause) {
            text.push_str(&format!("\n  because: {cause}"));
        }
    }
    for finding in error.findings() {
        text.push_str(&format!("\n{}", finding_text(finding)));
    }
    for hint in error.hints() {
        text.push_str(&format!("\nhint: {hint}"));
    }
    text
}
