//! Notices credentials that are revoked while a job is followed: the API server does not end the watches and streams that it
//! granted before, and sends nothing on them that would show it.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::time::{Instant, sleep};
use weftrun_core::{ErrorKind, Result};

use super::watcher::ROTATION;
use super::{Change, Cluster, Resource};

/// How often the credentials are tried.
const EVERY: Duration = Duration::from_secs(4);
/// After a refusal, how soon once more: an API server that has just started has not loaded Roles yet.
const AGAIN: Duration = Duration::from_secs(2);

/// Tries the right to list pods from time to time, over the connection of the other requests. A refusal is a lost
/// connection, until the credentials work again or have not worked for `ROTATION`.
pub fn credentials<T: Send + 'static>(cluster: &Cluster) -> BoxStream<'static, Result<Change<T>>> {
    let state = Tried { cluster: cluster.clone(), refusals: 0, since: None, over: false };
    stream::unfold(state, |mut state| async move {
        let next = state.next().await?;
        Some((next, state))
    })
    .boxed()
}

struct Tried {
    cluster: Cluster,
    /// In succession.
    refusals: u32,
    /// Start of the refusals.
    since: Option<Instant>,
    over: bool,
}

impl Tried {
    async fn next<T>(&mut self) -> Option<Result<Change<T>>> {
        while !self.over {
            sleep(if self.refusals == 1 { AGAIN } else { EVERY }).await;
            match self.cluster.some(&Resource::PODS, 1).await {
                Err(error) if error.kind() == ErrorKind::Credentials => {
                    self.refusals += 1;
                    let since = *self.since.get_or_insert_with(Instant::now);
                    if since.elapsed() > ROTATION {
                        self.over = true;
                        return Some(Err(error));
                    }
                    if self.refusals == 2 {
                        return Some(Ok(Change::Lost(error.one_line())));
                    }
                }
                // Whether the server answers at all is shown by the watches.
                Err(error) if error.kind() == ErrorKind::Unreachable => {}
                _ => {
                    self.since = None;
                    if std::mem::take(&mut self.refusals) > 1 {
                        return Some(Ok(Change::Back));
                    }
                }
            }
        }
        None
    }
}
