//! Converts the API server's answers to errors.

use kube::core::Status;
use weftrun_core::{Error, ErrorKind, Finding};

/// The message where an API server shows a certificate that is not trusted.
pub const NOT_TRUSTED: &str = "the API server's certificate is not trusted";

/// The code of a webhook that does not answer.
pub const WEBHOOK_DOWN: &str = "K8S-WEBHOOK";

/// Converts an error of the client; `what` is the operation (`create pytorchjobs/llama`).
pub fn from_kube(error: kube::Error, what: &str) -> Error {
    match error {
        kube::Error::Api(status) => from_status(&status, what),
        kube::Error::Auth(error) => Error::new(ErrorKind::Credentials, "the kubeconfig's credentials do not work")
            .with("while", what)
            .hint("log in again with your cloud's or cluster's CLI (an exec plugin or token of the kubeconfig failed)")
            .with_source(error),
        kube::Error::SerdeError(error) => {
            Error::new(ErrorKind::Protocol, format!("unexpected answer of the API server: {}", one_line(&error.to_string())))
                .with("while", what)
                .hint("check the server's address in the kubeconfig: something else may answer there")
        }
        kube::Error::InferConfig(_) | kube::Error::InferKubeconfig(_) | kube::Error::TlsRequired => {
            Error::new(ErrorKind::InvalidConfig, "the kubeconfig cannot be used").with("while", what).with_source(error)
        }
        // An error of weftrun's own layers: a credential plugin that failed.
        kube::Error::Service(error) => match error.downcast::<Error>() {
            Ok(own) => own.with("while", what),
            Err(error) => unreachable(kube::Error::Service(error), what),
        },
        error => unreachable(error, what),
    }
}

/// Returns weftrun's own error in a chain of causes, if there is one: a credential plugin failed before a
/// request was sent.
fn own(error: &kube::Error) -> Option<&Error> {
    chain(error).find_map(|cause| cause.downcast_ref())
}

/// Returns an error and its causes.
pub(super) fn chain<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

fn unreachable(error: kube::Error, what: &str) -> Error {
    if let Some(own) = own(&error) {
        let made = Error::new(own.kind(), own.message().to_owned()).with("while", what);
        let made = if own.is_retryable() { made.retryable() } else { made };
        return own.hints().iter().fold(made, |made, hint| made.hint(hint.clone())).with_source(error);
    }
    let text = chain(&error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let credentials = ["certificate", "UnknownIssuer", "BadSignature"].iter().any(|word| text.contains(word));
    if credentials && !text.contains("Connection refused") {
        return Error::new(ErrorKind::Credentials, NOT_TRUSTED)
            .with("while", what)
            .hint("the kubeconfig's certificate-authority does not fit this server; get a new kubeconfig")
            .with_source(error);
    }
    Error::new(ErrorKind::Unreachable, "the API server does not answer")
        .with("while", what)
        .hint("check the network or VPN, and `kubectl cluster-info`")
        .retryable()
        .with_source(error)
}

/// Converts a refusal to an error with a hint.
fn from_status(status: &Status, what: &str) -> Error {
    let message = one_line(&status.message);
    let error = |kind: ErrorKind, text: String| Error::new(kind, text).with("while", what);
    match status.code {
        401 => error(ErrorKind::Credentials, "the API server rejected your credentials (401)".into())
            .hint("the token or certificate has expired or is wrong: log in again")
            .with_source(Cause::Unauthenticated),
        403 if message.contains("exceeded quota") => error(ErrorKind::Refused, message)
            .hint("request less, wait for others' jobs, or ask your cluster administrator for a larger ResourceQuota"),
        403 if message.contains("violates PodSecurity") => error(ErrorKind::Refused, message)
            .hint("the namespace's Pod Security level forbids it: use a profile without hostPath, or another namespace"),
        403 if message.starts_with("admission webhook") => admission(status, &message, what),
        403 if message.is_empty() => error(ErrorKind::Credentials, format!("you may not {what} (403)"))
            .hint("ask your cluster administrator for a Role in this namespace; `weftrun doctor` lists what is missing"),
        403 => error(ErrorKind::Credentials, message)
            .hint("ask your cluster administrator for a Role in this namespace; `weftrun doctor` lists what is missing"),
        404 if message.contains("could not find the requested resource") || status.details.is_none() => {
            error(ErrorKind::Unsupported, "the cluster does not serve this kind".into())
                .hint("the operator (or this version of it) is not installed")
        }
        404 => error(ErrorKind::NotFound, message)
            .hint("it was removed, or is in another namespace; `weftrun list -a` lists the jobs"),
        409 if status.reason == "AlreadyExists" => error(ErrorKind::AlreadyExists, message)
            .hint("choose another name, or `--name-suffix` to make a new one"),
        409 => error(ErrorKind::Refused, message).with_source(Cause::Changed).retryable(),
        400 | 422 => invalid(status, &message, what),
        429 => error(ErrorKind::Unreachable, message)
            .hint("wait until the API server has less to do, or set `retry-seconds` of the target to try for longer")
            .retryable(),
        500..=599 if webhook_down(&message).is_some() => no_webhook(&message, what),
        408 | 500..=599 => error(ErrorKind::Unreachable, message).retryable(),
        _ => error(ErrorKind::Refused, message),
    }
}

/// A webhook that the API server asks before it stores an object, and that does not answer.
#[derive(Debug, PartialEq, Eq)]
pub struct WebhookDown<'m> {
    /// Its name in the cluster's configuration.
    pub name: &'m str,
    /// The service that answers for it, and the service's namespace.
    pub service: Option<(&'m str, &'m str)>,
}

impl WebhookDown<'_> {
    /// Returns what does not answer: the webhook, and the service behind it.
    pub fn who(&self) -> String {
        let service = self.service.map_or_else(String::new, |(name, namespace)| {
            format!(" (service `{name}` in the namespace `{namespace}`)")
        });
        format!("the cluster's webhook {}{service} does not answer", self.name)
    }

    /// Returns what to do about it.
    pub fn fix(&self) -> String {
        let server = match self.service {
            Some((name, namespace)) => {
                format!("whether the pods of the service `{name}` in the namespace `{namespace}` run")
            }
            None => "whether its server runs".to_owned(),
        };
        format!("your job is fine: ask your cluster administrator {server}")
    }
}

/// Returns the webhook that a message of the API server reports as not answering (`NewErrCallingWebhook` in
/// k8s.io/apiserver/pkg/admission/plugin/webhook, and of conversions in k8s.io/apiextensions-apiserver; read 2026-11-26).
pub fn webhook_down(message: &str) -> Option<WebhookDown<'_>> {
    let (name, rest) = match message.split_once("failed calling webhook \"") {
        Some((_, rest)) => rest.split_once('"')?,
        None => message.split_once("conversion webhook for ")?.1.split_once(" failed: ")?,
    };
    let host = rest.split_once("https://").and_then(|(_, url)| url.split(['/', ':']).next());
    let service = host.and_then(|host| {
        let (name, namespace) = host.split_once(".svc")?.0.split_once('.')?;
        Some((name, namespace))
    });
    Some(WebhookDown { name, service })
}

/// Converts the refusal of an object whose webhook did not answer: it was not stored.
fn no_webhook(message: &str, what: &str) -> Error {
    let Some(down) = webhook_down(message) else { return Error::new(ErrorKind::Unreachable, message) };
    let finding = Finding::error(WEBHOOK_DOWN, format!("{}: {message}", down.who())).fix(down.fix());
    Error::from_findings(ErrorKind::Unreachable, down.who(), vec![finding])
        .with("while", what)
        .with_source(Cause::NotStored)
        .retryable()
}

/// Converts the refusal of an invalid body: one finding per field.
fn invalid(status: &Status, message: &str, what: &str) -> Error {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let findings: Vec<_> =
        causes.map(|cause| field_finding(&cause.field, &one_line(&cause.message))).collect();
    let kind = if status.code == 400 { ErrorKind::Refused } else { ErrorKind::InvalidSpec };
    Error::from_findings(kind, message, findings).with("while", what)
}

/// Converts the refusal of a webhook. Its message is one text, with a list in brackets if there are several
/// errors.
fn admission(status: &Status, message: &str, what: &str) -> Error {
    let (webhook, text) = message
        .strip_prefix("admission webhook \"")
        .and_then(|rest| rest.split_once("\" denied the request: "))
        .unwrap_or(("a webhook", message));
    let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let findings: Vec<_> = list
        .split(", spec.")
        .enumerate()
        .map(|(index, part)| {
            let part = if index == 0 { part.to_owned() } else { format!("spec.{part}") };
            match part.split_once(": ") {
                Some((field, rest)) if !field.contains(' ') => field_finding(field, rest),
                _ => Finding::error("K8S-ADMISSION", part),
            }
        })
        .collect();
    let code = if status.code == 403 { ErrorKind::Refused } else { ErrorKind::InvalidSpec };
    Error::from_findings(code, format!("the cluster refused the job: {text}"), findings)
        .with("webhook", webhook)
        .with("while", what)
}

fn field_finding(field: &str, text: &str) -> Finding {
    let finding = Finding::error("K8S-FIELD", text);
    let finding = if field.is_empty() { finding } else { finding.at(field) };
    match fix_for(field, text) {
        Some(fix) => finding.fix(fix),
        None => finding,
    }
}

/// Returns the fix for common refusals.
fn fix_for(field: &str, text: &str) -> Option<&'static str> {
    let table = [
        ("must be no more than 63", "choose a shorter job name"),
        ("RFC 1123", "use lower-case letters, digits and `-` in the name"),
        ("DNS-1035", "use lower-case letters, digits and `-`, a letter first, in the name"),
        ("HugePages require cpu or memory", "set `memory` of the role"),
        (
            "must be unique",
            "something is mounted at this path already: switch off `efa.stack`, or remove your own mount",
        ),
        ("unknown field", "the cluster's version of this kind has no such field: see `weftrun doctor`"),
        ("must be specified before the TrainJob", "choose a runtime the cluster has with `runtime`"),
        (
            "specified clusterTrainingRuntime must be created",
            "choose a runtime the cluster has: `kubectl get clustertrainingruntimes`",
        ),
        (
            "no PriorityClass with name",
            "choose a priority class the cluster has: `kubectl get priorityclasses`",
        ),
    ];
    let hit = |word: &str| text.contains(word) || field.contains(word);
    table.iter().find(|(word, _)| hit(word)).map(|(_, fix)| *fix)
}

/// Returns a text of the cluster on one line without control characters.
pub fn one_line(text: &str) -> String {
    let text = crate::sent::hide(text);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(4000).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether the object does not exist.
pub fn is_not_found(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// Returns whether the name is taken.
pub fn is_conflict(error: &Error) -> bool {
    error.kind() == ErrorKind::AlreadyExists
}

/// What an error is of that others of its kind are not.
#[derive(Debug, PartialEq, Eq)]
enum Cause {
    /// A 409 for an object that exists.
    Changed,
    /// A 401. A 403, of the same kind, is about one right only.
    Unauthenticated,
    /// A 500 whose object was certainly not stored.
    NotStored,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Changed => "409 Conflict",
            Self::Unauthenticated => "401 Unauthorized",
            Self::NotStored => "500 Internal Server Error: the object was not stored",
        })
    }
}

impl std::error::Error for Cause {}

fn is_of(error: &Error, cause: &Cause) -> bool {
    std::error::Error::source(error).and_then(|source| source.downcast_ref()) == Some(cause)
}

/// Returns whether the request failed because the object was changed after it was read.
pub fn is_changed(error: &Error) -> bool {
    is_of(error, &Cause::Changed)
}

/// Returns whether the API server refused the credential itself (401).
pub fn is_unauthenticated(error: &Error) -> bool {
    is_of(error, &Cause::Unauthenticated)
}

/// Returns whether one right is missing (403), with a valid credential.
pub fn is_forbidden(error: &Error) -> bool {
    error.kind() == ErrorKind::Credentials && !is_unauthenticated(error)
}

/// Returns whether it is unknown if the server has executed the request.
pub fn is_unsent(error: &Error) -> bool {
    error.kind() == ErrorKind::Unreachable && !is_webhook_down(error)
}

/// Returns whether a webhook of the cluster did not answer.
pub fn is_webhook_down(error: &Error) -> bool {
    is_of(error, &Cause::NotStored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str, message: &str) -> Status {
        serde_json::from_value(serde_json::json!({"code": code, "reason": reason, "message": message}))
            .unwrap()
    }

    #[test]
    fn refusals_say_what_to_do() {
        let cases = [
            (401, "Unauthorized", "Unauthorized", ErrorKind::Credentials, "log in again"),
            (
                403,
                "Forbidden",
                "pods is forbidden: User \"researcher\" cannot create resource \"pods\"",
                ErrorKind::Credentials,
                "Role",
            ),
            (
                403,
                "Forbidden",
                "pods \"a\" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8",
                ErrorKind::Refused,
                "ResourceQuota",
            ),
            (
                403,
                "Forbidden",
                "pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": hostPath volumes",
                ErrorKind::Refused,
                "hostPath",
            ),
            (
                409,
                "AlreadyExists",
                "pytorchjobs.kubeflow.org \"a\" already exists",
                ErrorKind::AlreadyExists,
                "--name-suffix",
            ),
            (
                404,
                "NotFound",
                "the server could not find the requested resource",
                ErrorKind::Unsupported,
                "operator",
            ),
        ];
        for (code, reason, message, kind, hint) in cases {
            let error = from_status(&status(code, reason, message), "create");
            assert_eq!(error.kind(), kind, "{message}");
            assert!(error.hints()[0].contains(hint), "{message}: {:?}", error.hints());
        }
        assert!(from_status(&status(503, "ServiceUnavailable", "etcd"), "get").is_retryable());
        let mut gone = status(404, "NotFound", "pytorchjobs.kubeflow.org \"a\" not found");
        gone.details =
            serde_json::from_value(serde_json::json!({"name": "a", "kind": "pytorchjobs"})).unwrap();
        let error = from_status(&gone, "get");
        assert!(
            error.kind() == ErrorKind::NotFound && error.hints()[0].contains("weftrun list -a"),
            "{error:?}"
        );
    }

    /// As API servers of 1.34 wrote them (recorded 2026-11-26).
    #[test]
    fn a_webhook_that_does_not_answer_is_named() {
        let of_service = "Internal error occurred: failed calling webhook \"validator.pytorchjob.training-operator.kubeflow.org\": \
            failed to call webhook: Post \"https://training-operator.kubeflow.svc:443/validate-kubeflow-org-v1-pytorchjob?timeout=10s\": \
            dial tcp 10.88.0.1:29443: connect: connection refused";
        let error = from_status(&status(500, "InternalError", of_service), "create pytorchjobs/a");
        assert_eq!(
            error.message(),
            "the cluster's webhook validator.pytorchjob.training-operator.kubeflow.org (service `training-operator` in the \
             namespace `kubeflow`) does not answer"
        );
        let fix = &error.findings()[0].fix.as_ref().unwrap().text;
        assert!(fix.contains("your job is fine") && fix.contains("`training-operator`"), "{fix}");
        assert!(error.is_retryable() && is_webhook_down(&error) && !is_unsent(&error), "nothing was stored");
        let of_url = "Internal error occurred: failed calling webhook \"guard.example.test\": failed to call webhook: \
            Post \"https://127.0.0.1:9/?timeout=2s\": context deadline exceeded";
        assert_eq!(webhook_down(of_url), Some(WebhookDown { name: "guard.example.test", service: None }));
        let conversion = "conversion webhook for trainer.kubeflow.org/v1alpha1, Kind=TrainJob failed: \
            Post \"https://trainer.system.svc:443/convert?timeout=30s\": no endpoints available for service \"trainer\"";
        assert_eq!(webhook_down(conversion).unwrap().service, Some(("trainer", "system")));
        assert_eq!(webhook_down("admission webhook \"a\" denied the request: failed calling"), None);
        assert!(is_unsent(&from_status(&status(500, "InternalError", "etcd leader changed"), "create")));
    }

    #[test]
    fn a_webhook_that_names_two_fields_gives_two_findings() {
        let message = "admission webhook \"validator.pytorchjob.training-operator.kubeflow.org\" denied the request: \
            [spec.pytorchReplicaSpecs[Master].template.spec.containers: Required value: must have at least one container with name pytorch, \
            spec.pytorchReplicaSpecs[Worker].template.spec.containers: Required value: must have at least one container with name pytorch]";
        let error = from_status(&status(403, "Forbidden", message), "create");
        assert_eq!(error.kind(), ErrorKind::Refused);
        let fields: Vec<_> = error.findings().iter().map(|f| f.subject.as_deref().unwrap()).collect();
        assert_eq!(
            fields,
            [
                "spec.pytorchReplicaSpecs[Master].template.spec.containers",
                "spec.pytorchReplicaSpecs[Worker].template.spec.containers"
            ]
        );
    }
}
