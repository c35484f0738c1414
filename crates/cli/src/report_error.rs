//! Prints errors: as text on stderr, with `-o json` as an object on stderr too.

use std::io::Write;

use weftrun::Error;
use weftrun::core::exit_codes;
use weftrun::report::ErrorReport;

use crate::output::{Output, finding_text, is_closed_stdout, plain_lines, style};

/// Prints an error and returns its exit code.
pub fn report(out: &Output, error: &Error) -> u8 {
    if is_closed_stdout(error) {
        return exit_codes::OK;
    }
    if out.is_data() {
        let text = out.item_text(&ErrorReport::from(error)).unwrap_or_default();
        let mut stderr = out.stderr_document_writer();
        let _ = stderr.write_all(text.as_bytes()).map(|()| stderr.finish());
    } else {
        out.stderr(&text(error));
    }
    exit_codes::of(error.kind())
}

fn text(error: &Error) -> String {
    let red = style::ERROR;
    let mut text = format!("{red}error{red:#}: {}", plain_lines(&error.to_string()));
    for cause in error.causes() {
        if !error.message().contains(&cause) {
            text.push_str(&format!("\n  because: {}", plain_lines(&cause)));
        }
    }
    for finding in error.findings() {
        text.push_str(&format!("\n{}", finding_text(finding)));
    }
    for hint in error.hints() {
        text.push_str(&format!("\nhint: {}", plain_lines(hint)));
    }
    text
}
