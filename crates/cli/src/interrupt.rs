//! How a user ends a verb.

use tokio::signal::unix::{SignalKind, signal};

/// Ends when the user presses Ctrl-C, or the program is told to end (SIGTERM).
pub async fn interrupted() {
    let told = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    let pressed = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = pressed => {}
        _ = told => {}
    }
}
