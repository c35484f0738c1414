//! A stream fed by a task; dropping the stream ends the task.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;
use weftrun_core::Result;

/// The sender through which a task feeds its stream.
pub type Feed<T> = mpsc::Sender<Result<T>>;

/// Returns a stream of the items that `work` sends to its feed.
pub fn fed<T, F, W>(work: W) -> BoxStream<'static, Result<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
    W: FnOnce(Feed<T>) -> F + Send + 'static,
{
    // When the queue is full, the readers stop reading.
    let (feed, items) = mpsc::channel(64);
    let ends = feed.clone();
    let start = move || {
        tokio::spawn(async move {
            let closed = ends.clone();
            let outcome = tokio::select! {
                outcome = work(feed) => outcome,
                () = closed.closed() => Ok(()),
            };
            if let Err(error) = outcome {
                let _ = ends.send(Err(error)).await;
            }
        });
    };
    // The task starts with the first poll: creating a stream does nothing yet.
    futures_util::stream::unfold((Some(start), items), |(start, mut items)| async move {
        if let Some(start) = start {
            start();
        }
        items.recv().await.map(|item| (item, (None, items)))
    })
    .boxed()
}

/// Sends an item to the feed; returns false if the reader is gone.
pub async fn put<T>(feed: &Feed<T>, item: T) -> bool {
    feed.send(Ok(item)).await.is_ok()
}
