//! The state of a container in the watch, as its reader needs it.

use tokio::sync::watch;

use crate::kubernetes::Pod;
use crate::kubernetes::pod::ContainerState;

/// The state of a container in the watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub container: ContainerState,
    /// None of the pod's containers will restart.
    pub pod_ended: bool,
    /// The pod is gone.
    pub gone: bool,
    /// The job has ended, and its running containers are no longer followed.
    pub over: bool,
}

impl View {
    pub fn of(pod: &Pod, container: &ContainerState) -> Self {
        Self { container: container.clone(), pod_ended: pod.ended(), gone: false, over: false }
    }

    /// Returns whether the container will never run again.
    pub fn last(&self) -> bool {
        self.gone
            || self.over
            || self.pod_ended
            || (self.container.init && self.container.exit().is_some_and(|exit| exit.code == 0))
    }

    /// Returns whether an attempt has ended according to the status.
    pub fn settled(&self, number: u32) -> bool {
        self.gone || self.over || self.container.exit().is_some() || self.container.restarts > number
    }
}

/// Waits until a running container is no longer followed. The log of one that has exited ends by itself, and
/// is read to that end.
pub async fn given_up(view: &mut watch::Receiver<View>) {
    if view.wait_for(|view| view.over && view.container.exit().is_none()).await.is_err() {
        std::future::pending::<()>().await;
    }
}
