//! `tui --replay`: shows a replayed capture, without a cluster and without processes.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use weftrun::core::backend::{Backend, BackendEntry, ConnectFuture, TargetConfig};
use weftrun::core::job::JobHandle;
use weftrun::{Client, Config, Error, ErrorKind, Registry, Result};
use weftrun_replay::{Capture, NAME, ReplayBackend, SHIPPED, Shape};

use super::TuiArgs;

/// The replayed run. An entry of the registry cannot hold values, so it is stored here; a process replays one
/// run at a time.
static PLAYED: Mutex<Option<ReplayBackend>> = Mutex::new(None);

/// Returns a client with only the replayed run, and its job.
pub(super) fn client(config: &Config, args: &TuiArgs, what: &[String]) -> Result<(Client, JobHandle)> {
    let stage = stage(args, what)?;
    let handle = stage.handle().clone();
    *PLAYED.lock().unwrap_or_else(PoisonError::into_inner) = Some(stage);
    let connect = |_: TargetConfig| -> ConnectFuture { Box::pin(async { connect() }) };
    let entry = BackendEntry::new(NAME, "a captured run, played again", env!("CARGO_PKG_NAME"), connect);
    let mut alone = Config::empty(&config.state_dir);
    alone.resolved = config.resolved.clone();
    let client = Client::builder().registry(Registry::empty().with(entry)).config(alone).build()?;
    Ok((client, handle))
}

fn connect() -> Result<Arc<dyn Backend>> {
    let played = PLAYED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let stage = played.ok_or_else(|| Error::new(ErrorKind::NotFound, "nothing is played"))?;
    Ok(Arc::new(stage))
}

/// Returns a built-in capture by its name, a capture's folder, or plain logs.
fn stage(args: &TuiArgs, all: &[String]) -> Result<ReplayBackend> {
    let capture = |what: &String| {
        let path = Path::new(what);
        if SHIPPED.contains(&what.as_str()) {
            Some(Capture::shipped(what))
        } else {
            path.join("merged.jsonl").is_file().then(|| Capture::read(path))
        }
    };
    let captured = all.iter().find_map(|what| Some((what, capture(what)?)));
    if let (Some((name, _)), true) = (&captured, all.len() > 1) {
        return Err(Error::new(ErrorKind::Usage, format!("`{name}` is a capture, and is played alone"))
            .hint("several files and folders of logs are opened together"));
    }
    let what = all.iter().find(|what| !Path::new(what).exists()).or(all.first()).map_or("", String::as_str);
    let capture = captured.map(|(_, capture)| capture).transpose()?;
    let shape = args.nodes.or(args.ranks_per_node).is_some();
    match capture {
        Some(capture) if shape => {
            let (nodes, each) = (args.nodes.unwrap_or(2), args.ranks_per_node.unwrap_or(2));
            Ok(ReplayBackend::replay(what, capture.scale(Shape::new(nodes, each))?, args.speed))
        }
        Some(capture) => Ok(ReplayBackend::replay(&capture.name, capture.exact(), args.speed)),
        None if shape => {
            Err(Error::new(ErrorKind::Usage, "only a capture can be widened to other nodes and ranks")
                .hint(format!("captures: {}", SHIPPED.join(", "))))
        }
        None if !Path::new(what).exists() => {
            Err(Error::new(ErrorKind::NotFound, format!("there is no capture `{what}`"))
                .hint(format!("shipped are {}; else a folder or a file of logs", SHIPPED.join(", "))))
        }
        None => ReplayBackend::logs(all, args.speed),
    }
}
