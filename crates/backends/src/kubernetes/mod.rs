//! Access to a Kubernetes API server, shared by the Kubeflow backend and Run:ai. It is independent of the
//! kinds of jobs.
//!
//! | module | what happens there |
//! |---|---|
//! | `connect` | kubeconfig, context, namespace, proxies, credentials → [`Cluster`] |
//! | `error` | the API server's refusals become [`weftrun_core::Error`], with field and fix |
//! | `guard` | the time and size of an answer, and the credentials that it repeats |
//! | `request` | get, list, create, patch, delete of plain JSON objects |
//! | `slim` | a page of a list, without what is not used of its objects |
//! | `exec` | a command in a container |
//! | `port` | a connection to a port in a pod |
//! | `credentials` | credentials that are revoked while a job is followed |
//! | `watcher` | a list and a watch that outlive 410, restarts and rotated tokens |
//! | `pod` | what is read of a pod |
//! | `pending` | why pods do not start, and what to do |
//! | `facts` | nodes, quotas, priorities, rights |
//! | `networks` | networks that pods can be attached to |
//! | `queues` | Kueue's and Volcano's |
//! | `code` | a script or a Git repository brought along by the command |
//! | `mpirun` | the launcher's command line |
//! | `logs` | every container's log, followed and resumed exactly |

pub mod code;
mod connect;
mod credentials;
mod error;
pub mod escape;
mod exec;
mod exec_plugin;
mod facts;
mod guard;
mod log_streams;
pub mod logs;
pub mod mpirun;
mod networks;
mod node_states;
mod pending;
mod pod;
pub mod pod_name;
mod port;
mod queues;
mod request;
mod retry;
mod slim;
mod watcher;

pub use connect::{Cluster, ClusterConfig};
pub use credentials::credentials;
pub use error::NOT_TRUSTED;
pub use error::{
    from_kube, is_changed, is_conflict, is_forbidden, is_not_found, is_unauthenticated, is_unsent,
    is_webhook_down, one_line,
};
pub use exec::{attach, does_not_run, exec, node_of, ranks_of};
pub use facts::{Right, fold_hidden, hostname_id, namespace_facts, node_groups, rights};
pub use pending::{NAMESPACE_DELETED, NAMESPACE_FIX, NODE_LOST, POD_ENDING, job_event_finding, pod_finding};
pub use pod::{ContainerState, Disruption, Exit, Pod, PodEvent, State};
pub use port::open_port;
pub use queues::queues;
pub use request::{Resource, Write};
pub use watcher::{Change, changes};
