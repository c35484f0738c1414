//! `-v` and `-vv`: the log of weftrun's operations and requests, on stderr or in a file. Without them, only
//! the warnings of backends: a busy API server, an object that could not be removed.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FmtSpan, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::output::Output;

/// Installs the log where it was asked for. `file` is for a program that draws on the terminal itself.
pub fn install(verbose: u8, quiet: bool, file: Option<File>) {
    let filter = match verbose {
        0 if file.is_none() && !quiet => {
            let warnings = tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new("off,weftrun_backends=warn,weftrun=warn"));
            let _ = warnings.with_ansi(false).event_format(Warning).with_writer(|| Line).try_init();
            return;
        }
        0 => return,
        1 => "weftrun=debug",
        // kube creates a span for each request: method, URL, status and time.
        _ => "weftrun=trace,kube_client::client=debug",
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE);
    // Only a test installs a second log in one process: the first one stays.
    let _ = match file {
        Some(file) => log.with_writer(Mutex::new(file)).try_init(),
        None => log.with_writer(|| Line).try_init(),
    };
}

/// Formats a warning like weftrun's other warnings: without a time and a module.
struct Warning;

impl<S, F> FormatEvent<S, F> for Warning
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, F>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        to.write_str("warning: ")?;
        context.format_fields(to.by_ref(), event)?;
        to.write_char('\n')
    }
}

/// Writes through the output module, which cleans text for a terminal.
struct Line;

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Output::plain().stderr(String::from_utf8_lossy(bytes).trim_end_matches('\n'));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
