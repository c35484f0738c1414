//! The exact documents that are sent.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Finding;
use crate::fabric::Op;
use crate::job::SubmissionId;

/// Exactly what will be sent: what `weftrun render` prints, and what `submit` sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Rendered {
    /// Name of the job.
    pub name: String,
    /// The id it carries.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub submission: SubmissionId,
    /// The documents, in the order they are sent. The first is the job itself.
    pub documents: Vec<Document>,
    /// Ops that are in the documents.
    pub applied: Vec<Op>,
    /// Ops this backend cannot express, each with the reason.
    pub inexpressible: Vec<Inexpressible>,
    /// Values that are only known to the server, shown in the documents as `<name>`.
    #[serde(rename = "holes")]
    pub placeholders: Vec<Placeholder>,
    /// Settings of the job file that this kind of job has no field for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// What the backend needs to check and send the job, so that it does not read its own documents back.
    #[serde(skip)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub prepared: Prepared,
}

/// A value that a backend keeps from rendering to sending. It holds nothing that the documents do not, so
/// two of them are equal where the documents are.
#[derive(Clone, Default)]
pub struct Prepared(Option<Arc<dyn Any + Send + Sync>>);

impl Prepared {
    /// Keeps a value.
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self(Some(Arc::new(value)))
    }

    /// Returns the value, if it has this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Prepared(..)" } else { "Prepared" })
    }
}

impl PartialEq for Prepared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One document that is sent.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Document {
    /// What it is (`PyTorchJob`, `ConfigMap`, `sbatch script`, `POST /api/v1/workloads/distributed`).
    pub title: String,
    /// Its language.
    pub language: Language,
    /// Its text.
    pub text: String,
}

/// Hides the text, which holds the job's environment.
impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { title, language, text } = self;
        let mut shown = f.debug_struct("Document");
        shown.field("title", title).field("language", language).field("bytes", &text.len()).finish()
    }
}

/// The language of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Language {
    /// A Kubernetes manifest.
    Yaml,
    /// A request body.
    Json,
    /// A script.
    Shell,
    /// A TOML table (the local backend's process list).
    Toml,
}

/// The reason of an [`Inexpressible`] variable of a launcher that the job does not have.
pub const RANKS_HAVE_IT: &str = "the job has no launcher of its own, and the ranks have the variables";

/// An op a backend cannot express.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inexpressible {
    /// The op.
    pub op: Op,
    /// Why not, and what follows.
    pub reason: String,
}

/// A value that is only known to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Placeholder {
    /// Its name in the document, without the angle brackets (`project-id:nlp`).
    pub name: String,
    /// What it is and how it is found out.
    pub what: String,
}

impl Rendered {
    /// Makes a rendered job of one document, to which more can be pushed.
    pub fn new(name: impl Into<String>, submission: SubmissionId, document: Document) -> Self {
        Self {
            name: name.into(),
            submission,
            documents: vec![document],
            applied: Vec::new(),
            inexpressible: Vec::new(),
            placeholders: Vec::new(),
            findings: Vec::new(),
            prepared: Prepared::default(),
        }
    }
}
