//! `exec`: a command on the host of a rank, with the rank's environment and folder.

use tokio::process::Command;
use weftrun_core::backend::{ExecRequest, ExecSink};
use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Result};

use super::client::Client;
use crate::refusals::{self, no_rank};
use crate::remote::quote;

/// Runs a command beside a rank, or on the first host.
pub async fn exec(
    client: &Client,
    handle: &JobHandle,
    request: &ExecRequest,
    sink: &mut ExecSink<'_>,
) -> Result<i32> {
    let (host, words) = locate(client, handle, request).await?;
    client.transport(&host)?.relay(&format!("weftrun_exec {words}\n"), sink).await
}

/// Returns the command that does so with the caller's input and output.
pub async fn interactive(client: &Client, handle: &JobHandle, request: &ExecRequest) -> Result<Command> {
    let (host, words) = locate(client, handle, request).await?;
    let input = if request.terminal { "-it" } else { "-i" };
    client.transport(&host)?.interactive(&format!("weftrun_attach {input} {words}\n"), request.terminal).await
}

/// Returns the host of a rank, and the arguments of the function that runs the command there.
async fn locate(client: &Client, handle: &JobHandle, request: &ExecRequest) -> Result<(String, String)> {
    let job = client.job(handle).await?;
    refusals::ended(handle, job.phase().0)?;
    if request.command.is_empty() {
        return Err(Error::new(ErrorKind::Usage, "there is no command to run"));
    }
    let place = &job.place;
    let at = match request.rank {
        None => 0,
        Some(rank) => place.node_of(rank).ok_or_else(|| no_rank(ErrorKind::NotFound, rank, place.world()))?,
    };
    let seat = place.hosts.get(at).ok_or_else(|| Error::new(ErrorKind::NotFound, "the job has no hosts"))?;
    let local = request.rank.map(|rank| rank - place.first_ranks().get(at).copied().unwrap_or(0));
    let words = format!(
        "{} {} {}",
        place.submission,
        local.map_or_else(|| "''".to_owned(), |local| local.to_string()),
        quote::words(&request.command)?
    );
    Ok((seat.host.clone(), words))
}
