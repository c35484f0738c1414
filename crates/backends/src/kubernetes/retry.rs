//! Repeats requests that a busy API server rejects.
//!
//! API priority and fairness answers 429 with `Retry-After`, an API server that starts or loses etcd 500 to
//! 504, and a load balancer in front of it resets connections. Idempotent requests are repeated after all of
//! these; a create only after 429, which guarantees that nothing was done. Whether a create that may have
//! been executed is repeated is decided by its caller.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{BoxError, service_fn};

use super::error;
use crate::retry_after;

/// Default for how long a request is repeated before its error is returned.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A request that is repeated for longer is reported on stderr.
const NOTICE: Duration = Duration::from_secs(5);
/// The answer to a completed delete.
const DELETED: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#;
/// Largest error body that is read.
const LARGEST_ERROR: usize = 1 << 20;

/// Creates a client that repeats rejected requests.
pub(super) fn retrying(client: kube::Client, patience: Duration) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    kube::Client::new(service_fn(move |request| send(client.clone(), patience, request)), namespace)
}

async fn send(
    client: kube::Client,
    patience: Duration,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    let (parts, body) = request.into_parts();
    let safe = may_be_repeated(&parts.method, &parts.uri);
    let (began, mut pause, mut tries) = (Instant::now(), FIRST_PAUSE, 0u32);
    let (reads, deletes) = (parts.method == Method::GET, parts.method == Method::DELETE);
    let mut noticed = false;
    loop {
        let Some(copy) = body.try_clone() else {
            return Ok(client.send(Request::from_parts(parts, body)).await?);
        };
        tries += 1;
        let answer = client.send(Request::from_parts(parts.clone(), copy)).await;
        let (wait, why) = match &answer {
            // An earlier try may have been executed, although its answer was lost.
            Ok(response) if deletes && tries > 1 && response.status() == StatusCode::NOT_FOUND => {
                return Ok(Response::new(Body::from(DELETED.as_bytes().to_vec())));
            }
            Ok(response) if turned_away(response.status(), safe, reads) => {
                let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let asked = asked.and_then(|value| retry_after::parse(value, SystemTime::now()));
                (asked.unwrap_or(pause), response.status().to_string())
            }
            Err(error) if safe && broke_off(error) => (pause, "the connection broke".to_owned()),
            _ => return Ok(answer?),
        };
        let tried = began.elapsed();
        if tried + wait > patience {
            return match answer {
                Ok(response) => Ok(with_tries(response, tries, tried).await),
                Err(error) => Err(error.into()),
            };
        }
        if !noticed && tried + wait > NOTICE {
            noticed = true;
            let limit = patience.as_secs();
            tracing::warn!("the API server is busy ({why}); trying again for up to {limit} s");
        }
        drop(answer);
        sleep(wait).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the last refusal, with the number and duration of the tries.
async fn with_tries(response: Response<Body>, tries: u32, tried: Duration) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let bytes = Limited::new(body, LARGEST_ERROR).collect().await.map(http_body_util::Collected::to_bytes);
    let said = bytes.unwrap_or_default();
    let mut status = serde_json::from_slice(&said).ok().filter(Value::is_object).unwrap_or_else(|| {
        let plain = String::from_utf8_lossy(&said).trim().to_owned();
        let text = if plain.is_empty() { parts.status.to_string() } else { plain };
        json!({"message": text})
    });
    let message = status["message"].as_str().unwrap_or_default().to_owned();
    let times = if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") };
    status["message"] =
        json!(format!("the API server is busy: {message} ({times} in {} s)", tried.as_secs()));
    let reason = status["reason"].as_str().unwrap_or_default().to_owned();
    status["reason"] = json!(reason);
    status["code"] = json!(parts.status.as_u16());
    status["status"] = json!("Failure");
    parts.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(status.to_string().into_bytes()))
}

/// Returns whether a request has the same effect when it is sent twice: all but real creates, watches and
/// logs, whose readers reopen them at their position, and commands, which may have run. Deletes name the
/// object's uid, and patches contain the new value.
fn may_be_repeated(method: &Method, uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    let streams = ["/log", "/exec", "/portforward"].iter().any(|end| uri.path().ends_with(end))
        || query.contains("watch=");
    // An access review is created but never stored.
    let stores = *method == Method::POST
        && !query.contains("dryRun=All")
        && !uri.path().contains("/authorization.k8s.io/");
    !streams && !stores
}

/// Returns whether an answer means that a retry may succeed. A webhook that does not answer makes every write
/// fail with 500.
fn turned_away(status: StatusCode, safe: bool, reads: bool) -> bool {
    let unavailable =
        matches!(status.as_u16(), 502..=504) || (reads && status == StatusCode::INTERNAL_SERVER_ERROR);
    status == StatusCode::TOO_MANY_REQUESTS || (safe && unavailable)
}

/// Returns whether an established connection broke. An address without a listener is an error at once.
fn broke_off(error: &kube::Error) -> bool {
    let clients =
        || error::chain(error).filter_map(|cause| cause.downcast_ref::<hyper_util::client::legacy::Error>());
    (matches!(error, kube::Error::HyperError(_)) || clients().next().is_some())
        && !clients().any(hyper_util::client::legacy::Error::is_connect)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use kube::api::DynamicObject;
    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;
    use crate::kubernetes::{Cluster, Resource, Write};

    /// An API server that gives these answers in order (status and `Retry-After`), and then 200.
    #[derive(Clone)]
    struct Server {
        answers: Arc<Mutex<VecDeque<(u16, u64)>>>,
        requests: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        fn cluster(&self, patience: Duration) -> Cluster {
            let server = self.clone();
            let answer = move |request| {
                let answer = server.answer(&request);
                async { Ok::<_, BoxError>(answer) }
            };
            let client = retrying(kube::Client::new(service_fn(answer), "research"), patience);
            Cluster {
                client,
                namespace: "research".into(),
                context: "test".into(),
                server: "test".into(),
                proxy: None,
            }
        }

        fn next(&self, answers: &[(u16, u64)]) {
            self.requests.lock().unwrap().clear();
            *self.answers.lock().unwrap() = answers.iter().copied().collect();
        }

        fn requests(&self) -> usize {
            self.requests.lock().unwrap().len()
        }
    }

    impl Server {
        fn answer(&self, request: &Request<Body>) -> Response<Body> {
            self.requests.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            let (status, after) = self.answers.lock().unwrap().pop_front().unwrap_or((200, 0));
            let body = match status {
                200 => r#"{"kind":"Status","metadata":{"name":"a"},"items":[]}"#.to_owned(),
                code => format!(
                    r#"{{"kind":"Status","status":"Failure","message":"busy","reason":"X","code":{code},"details":{{}}}}"#
                ),
            };
            let answer = Response::builder().status(status).header(RETRY_AFTER, after);
            answer.body(Body::from(body.into_bytes())).unwrap()
        }
    }

    fn server() -> Server {
        Server { answers: Arc::default(), requests: Arc::default() }
    }

    #[tokio::test]
    async fn what_can_be_done_twice_is_sent_again_and_a_create_only_after_429() {
        let server = server();
        let cluster = server.cluster(Duration::from_mins(1));
        let object = json!({"metadata": {"name": "a"}});
        for status in [429, 500, 502, 503, 504] {
            for verb in ["get", "list", "delete", "patch", "dry run", "review", "create"] {
                server.next(&[(status, 0), (status, 0)]);
                let maps = Resource::CONFIG_MAPS;
                let done = match verb {
                    "get" => cluster.get(&maps, "a").await.map(drop),
                    "list" => cluster.list(&maps, "").await.map(drop),
                    "delete" => cluster.delete(&maps, "a", Some("uid")).await,
                    "patch" => cluster.patch(&maps, "a", &object).await.map(drop),
                    "dry run" => cluster.create(&maps, &object, Write::DryRun).await.map(drop),
                    "review" => cluster.create(&Resource::REVIEWS, &object, Write::Real).await.map(drop),
                    _ => cluster.create(&maps, &object, Write::Real).await.map(drop),
                };
                let repeated = match status {
                    429 => true,
                    500 => matches!(verb, "get" | "list"),
                    _ => verb != "create",
                };
                assert_eq!(done.is_ok(), repeated, "{verb} after {status}: {done:?}");
                assert_eq!(server.requests(), if repeated { 3 } else { 1 }, "{verb} after {status}");
            }
        }
    }

    #[tokio::test]
    async fn a_delete_whose_first_answer_was_lost_is_done() {
        let server = server();
        let cluster = server.cluster(Duration::from_mins(1));
        server.next(&[(503, 0), (404, 0)]);
        cluster.delete(&Resource::CONFIG_MAPS, "a", Some("uid")).await.unwrap();
        server.next(&[(404, 0)]);
        let error = cluster.delete(&Resource::CONFIG_MAPS, "a", Some("uid")).await.unwrap_err();
        assert_eq!(error.kind(), weftrun_core::ErrorKind::NotFound, "{error}");
    }

    #[tokio::test]
    async fn what_the_server_asks_for_is_kept_within_the_limit() {
        let server = server();
        let cluster = server.cluster(Duration::from_secs(10));
        server.next(&[(429, 1)]);
        let began = Instant::now();
        cluster.list(&Resource::PODS, "").await.unwrap();
        assert!(began.elapsed() >= Duration::from_secs(1), "Retry-After is not kept");
        server.next(&[(429, 600)]);
        let error = cluster.list(&Resource::PODS, "").await.unwrap_err();
        assert!(error.to_string().contains("(1 try in 0 s)"), "{error}");
        assert_eq!(server.requests(), 1);
    }

    #[tokio::test]
    async fn the_start_of_a_watch_and_of_a_log_is_sent_again_after_429() {
        let server = server();
        let cluster = server.cluster(Duration::from_mins(1));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
        let pods: kube::Api<DynamicObject> =
            kube::Api::namespaced_with(cluster.client.clone(), "research", &resource);
        server.next(&[(429, 0)]);
        assert!(pods.watch(&kube::api::WatchParams::default(), "0").await.is_ok());
        assert_eq!(server.requests(), 2);
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
            kube::Api::namespaced(cluster.client.clone(), "research");
        server.next(&[(429, 0)]);
        assert!(pods.log_stream("a", &kube::api::LogParams::default()).await.is_ok());
        assert_eq!(server.requests(), 2);
    }
}
