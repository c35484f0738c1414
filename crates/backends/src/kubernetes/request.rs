//! Requests about plain JSON objects.

use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;
use weftrun_core::{Error, ErrorKind, Result};

use super::slim::{Page, Whole};
use super::{Cluster, from_kube};

/// A kind of object, as the API names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// Group; empty for the core one.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Plural, lower case.
    pub plural: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Whether it is namespaced.
    pub namespaced: bool,
}

/// Objects per page, which is in memory as a whole: on the wire a pod has some 8 to 20 KiB and an event 2.
const PAGE: u32 = 250;
const EVENTS_PAGE: u32 = 1000;
/// Pages of one list: more than a million objects are no list of a namespace.
const PAGES: u32 = 2000;

/// Whether a write is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Stored.
    Real,
    /// Everything but storing: schema, defaults, webhooks, quota of the object itself.
    DryRun,
}

impl Resource {
    /// Pods.
    pub const PODS: Self = Self::core("pods", "Pod");
    /// What pods use now; of a cluster with metrics-server.
    pub const POD_METRICS: Self = Self::of("metrics.k8s.io", "v1beta1", "pods", "PodMetrics");
    /// Events.
    pub const EVENTS: Self = Self::core("events", "Event");
    /// ConfigMaps.
    pub const CONFIG_MAPS: Self = Self::core("configmaps", "ConfigMap");
    /// Resource quotas.
    pub const QUOTAS: Self = Self::core("resourcequotas", "ResourceQuota");
    /// Nodes.
    pub const NODES: Self = Self::core("nodes", "Node").of_cluster();
    /// Namespaces.
    pub const NAMESPACES: Self = Self::core("namespaces", "Namespace").of_cluster();
    /// Priority classes.
    pub const PRIORITIES: Self =
        Self::of("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass").of_cluster();
    /// Mutating webhooks.
    pub const WEBHOOKS: Self = Self::of(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
    )
    .of_cluster();
    /// Access reviews.
    pub const REVIEWS: Self =
        Self::of("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
            .of_cluster();
    /// DRA device classes.
    pub const DEVICE_CLASSES: Self =
        Self::of("resource.k8s.io", "v1", "deviceclasses", "DeviceClass").of_cluster();

    /// Runtimes of TrainJobs in a namespace.
    pub const TRAINING_RUNTIMES: Self =
        Self::of("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime");

    /// Domains of NVLink that joins several nodes: `api/nvidia.com/resource/v1beta1/computedomain.go` of NVIDIA's DRA driver.
    pub const COMPUTE_DOMAINS: Self =
        Self::of("resource.nvidia.com", "v1beta1", "computedomains", "ComputeDomain");

    /// Kinds that are created with a job, and refer to nothing else.
    pub const COMPANIONS: [Self; 4] = [
        Self::CONFIG_MAPS,
        Self::TRAINING_RUNTIMES,
        Self::of("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
        Self::COMPUTE_DOMAINS,
    ];

    /// Returns it with the objects of all namespaces.
    #[must_use]
    pub const fn of_cluster(self) -> Self {
        Self { namespaced: false, ..self }
    }

    const fn core(plural: &'static str, kind: &'static str) -> Self {
        Self::of("", "v1", plural, kind)
    }

    /// Returns a namespaced kind of a group.
    pub const fn of(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self { group, version, plural, kind, namespaced: true }
    }

    /// Returns `group/version`, or `version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the resource in kube's own type.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(self.group, self.version, self.kind),
            self.plural,
        )
    }

    fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let scope = if self.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        format!("{root}/{}{scope}/{}", self.version, self.plural)
    }
}

impl Cluster {
    fn request_for(&self, resource: &Resource) -> Request {
        Request::new(resource.path(&self.namespace))
    }

    /// Returns one object.
    pub async fn get(&self, resource: &Resource, name: &str) -> Result<Value> {
        let what = format!("get {}/{name}", resource.plural);
        let request = built(self.request_for(resource).get(name, &GetParams::default()), &what)?;
        self.object(request, &what).await
    }

    /// Returns all objects of a label selector (all if empty), page by page.
    pub async fn list(&self, resource: &Resource, selector: &str) -> Result<Vec<Value>> {
        self.list_as(resource, selector, "", |object| object).await
    }

    /// Returns what `read` keeps of all objects of a label selector and a field selector (all if empty). One
    /// page is in memory at a time.
    pub async fn list_as<T>(
        &self,
        resource: &Resource,
        labels: &str,
        fields: &str,
        read: impl Fn(Value) -> T,
    ) -> Result<Vec<T>> {
        let what = format!("list {}", resource.plural);
        let page = if *resource == Resource::EVENTS { EVENTS_PAGE } else { PAGE };
        let mut params = ListParams::default().limit(page);
        if !labels.is_empty() {
            params = params.labels(labels);
        }
        if !fields.is_empty() {
            params = params.fields(fields);
        }
        let (mut items, mut pages) = (Vec::new(), 0);
        loop {
            let request = built(self.request_for(resource).list(&params), &what)?;
            let page: Page = self.answer(self.client.request(request).await, &what)?;
            items.extend(page.items.into_iter().map(&read));
            pages += 1;
            match page.token.filter(|token| !token.is_empty()) {
                Some(_) if pages == PAGES => return Err(endless(&what)),
                Some(token) => params = params.continue_token(&token),
                None => return Ok(items),
            }
        }
    }

    /// Returns at most so many objects of the namespace, in the order of their names.
    pub async fn some(&self, resource: &Resource, count: u32) -> Result<Vec<Value>> {
        let what = format!("list {}", resource.plural);
        let params = ListParams::default().limit(count);
        let request = built(self.request_for(resource).list(&params), &what)?;
        let page: Page = self.answer(self.client.request(request).await, &what)?;
        Ok(page.items)
    }

    /// Creates an object; fields the server does not have are an error instead of being dropped silently.
    pub async fn create(&self, resource: &Resource, object: &Value, write: Write) -> Result<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("create {}/{name}", resource.plural);
        let params = PostParams { dry_run: write == Write::DryRun, field_manager: Some("weftrun".into()) };
        let mut request =
            built(self.request_for(resource).create(&params, object.to_string().into_bytes()), &what)?;
        let strict = format!("{}&fieldValidation=Strict", request.uri());
        *request.uri_mut() = strict.parse().map_err(|_| {
            Error::new(ErrorKind::InvalidSpec, "the namespace or kind makes no valid address")
                .with("address", &strict)
        })?;
        self.object(request, &what).await
    }

    /// Merges a patch into an object.
    pub async fn patch(&self, resource: &Resource, name: &str, patch: &Value) -> Result<Value> {
        let what = format!("patch {}/{name}", resource.plural);
        let params = PatchParams { field_manager: Some("weftrun".into()), ..PatchParams::default() };
        let request = built(self.request_for(resource).patch(name, &params, &Patch::Merge(patch)), &what)?;
        self.object(request, &what).await
    }

    /// Deletes an object, and in the background the objects it owns; only if it still has this uid.
    pub async fn delete(&self, resource: &Resource, name: &str, uid: Option<&str>) -> Result<()> {
        self.delete_as(resource, name, uid, None).await
    }

    /// Deletes an object that nothing has changed since it was read.
    pub async fn delete_unchanged(&self, resource: &Resource, object: &Value) -> Result<()> {
        let meta = &object["metadata"];
        let name = meta["name"].as_str().unwrap_or_default();
        self.delete_as(resource, name, meta["uid"].as_str(), meta["resourceVersion"].as_str()).await
    }

    async fn delete_as(
        &self,
        resource: &Resource,
        name: &str,
        uid: Option<&str>,
        version: Option<&str>,
    ) -> Result<()> {
        let what = format!("delete {}/{name}", resource.plural);
        let mut params = DeleteParams::background();
        if uid.is_some() || version.is_some() {
            params = params.preconditions(kube::api::Preconditions {
                uid: uid.map(str::to_owned),
                resource_version: version.map(str::to_owned),
            });
        }
        let request = built(self.request_for(resource).delete(name, &params), &what)?;
        self.answer::<Whole>(self.client.request(request).await, &what).map(drop)
    }

    /// Returns the JSON of any path.
    pub async fn raw(&self, path: &str) -> Result<Value> {
        let what = format!("get {path}");
        let request = built(Request::new(path).list(&ListParams::default()), &what)?;
        self.answer::<Whole>(self.client.request(request).await, &what).map(|answer| answer.0)
    }

    /// Sends a request whose answer is an object.
    async fn object(&self, request: http::Request<Vec<u8>>, what: &str) -> Result<Value> {
        let writes = request.method() != http::Method::GET;
        let answer: Whole = self.answer(self.client.request(request).await, what)?;
        if answer.0.pointer("/metadata/name").is_some_and(Value::is_string)
            || answer.0.get("status").is_some()
        {
            return Ok(answer.0);
        }
        // Whether a write was done is then not known.
        let kind = if writes { ErrorKind::Unreachable } else { ErrorKind::Protocol };
        Err(Error::new(kind, "unexpected answer of the API server: it is not an object of Kubernetes")
            .with("while", what)
            .with("server", &self.server))
    }

    fn answer<T>(&self, answer: kube::Result<T>, what: &str) -> Result<T> {
        answer.map_err(|error| from_kube(error, what).with("server", &self.server))
    }
}

/// Returns the error of a list that does not end.
fn endless(what: &str) -> Error {
    let message = format!("unexpected answer of the API server: the list has more than {PAGES} pages");
    Error::new(ErrorKind::Protocol, message).with("while", what)
}

fn built<T>(request: Result<T, kube::core::request::Error>, what: &str) -> Result<T> {
    request.map_err(|error| from_kube(kube::Error::BuildRequest(error), what))
}
