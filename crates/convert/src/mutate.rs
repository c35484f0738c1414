//! What the mutation of every kind of document takes and returns.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value as Json;

use super::kubeflow::TrainerVersion;
use super::report::MutatedJob;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::evidence::{Form, Signs, Weighed, choose};
use weftrun_core::fabric::{ClusterFacts, Profile};
use weftrun_core::finding::Span;
use weftrun_core::request::FabricRequest;
use weftrun_core::span::Lines;

/// How documents and scripts are mutated.
#[derive(Clone, Copy, Debug)]
pub struct MutateOptions<'a> {
    /// The site, where it was named.
    pub profile: &'a Profile,
    /// The profiles that evidence chooses from for each job, where none was named ([`Profiles::of_sites`]).
    ///
    /// [`Profiles::of_sites`]: weftrun_core::fabric::Profiles::of_sites
    pub by_evidence: Option<&'a [Profile]>,
    /// The user's fabric request.
    pub options: &'a FabricRequest,
    /// The instance types.
    pub catalogue: &'a Catalogue,
    /// The facts of the cluster; empty offline.
    pub facts: &'a ClusterFacts,
    /// Version of Kubeflow Trainer; by default the one that the TrainJob uses, else the newest.
    pub trainer: Option<TrainerVersion>,
    /// Training runtimes that TrainJobs may refer to.
    pub runtimes: &'a [Json],
    /// Whether to rewrite a document that cannot be changed in place.
    pub reformat: bool,
}

impl<'a> MutateOptions<'a> {
    /// Returns settings for use without a cluster: nodes and runtimes are unknown, and every text is
    /// changed in place.
    ///
    /// ```
    /// use weftrun_convert::MutateOptions;
    /// use weftrun_core::{catalogue::Catalogue, fabric::Profiles, request::FabricRequest};
    /// let (profile, catalogue, options) = (Profiles::builtin().get("dgxc")?, Catalogue::builtin(), FabricRequest::default());
    /// let settings = MutateOptions { reformat: true, ..MutateOptions::offline(&profile, &options, &catalogue) };
    /// assert!(!settings.facts.online);
    /// # Ok::<(), weftrun_core::Error>(())
    /// ```
    pub fn offline(profile: &'a Profile, options: &'a FabricRequest, catalogue: &'a Catalogue) -> Self {
        static NOTHING: LazyLock<ClusterFacts> = LazyLock::new(ClusterFacts::default);
        Self {
            profile,
            by_evidence: None,
            options,
            catalogue,
            facts: &NOTHING,
            trainer: None,
            runtimes: &[],
            reformat: false,
        }
    }

    /// Returns the same with the profile that the signs of a job choose, where none was named, and its
    /// evidence.
    pub(super) fn chosen(&self, form: Form, collect: impl FnOnce(&mut Signs)) -> (Self, Option<Weighed>) {
        static NO_SITE: LazyLock<Profile> = LazyLock::new(Profile::default);
        let Some(profiles) = self.by_evidence else { return (*self, None) };
        let mut signs = Signs::default();
        collect(&mut signs);
        signs.all.extend(choose::instance_sign(self.options.instance_type.as_deref()));
        let (weighed, profile) = choose::choose(signs, self.facts, form, self.options.kind, profiles);
        (Self { profile: profile.unwrap_or(&NO_SITE), ..*self }, Some(weighed))
    }
}

/// A place in a file: its name, and where a document starts in it.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// File name as the user gave it.
    pub file: &'a str,
    /// Byte offset of the document.
    pub offset: usize,
    /// Lines before the document.
    pub line: usize,
}

impl<'a> Start<'a> {
    /// Returns the start of a file.
    pub fn of(file: &'a str) -> Self {
        Self { file, offset: 0, line: 0 }
    }

    /// Returns the document's text, in which places are looked up.
    pub(super) fn of_text(self, text: &'a str) -> SourceText<'a> {
        SourceText { text, start: self, lines: Lines::new(text) }
    }
}

/// The text of a document and its place in a file.
#[derive(Debug)]
pub(super) struct SourceText<'a> {
    pub text: &'a str,
    pub start: Start<'a>,
    lines: Lines<'a>,
}

impl SourceText<'_> {
    /// Returns the place of bytes of the document.
    pub fn span(&self, range: &std::ops::Range<usize>) -> Span {
        let span = self.lines.span(self.start.file, range);
        Span {
            start: self.start.offset + span.start,
            end: self.start.offset + span.end,
            line: self.start.line + span.line,
            ..span
        }
    }
}

/// A document after the mutation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mutated<'t> {
    /// Its text; the old one if nothing changed or an error prevented the change.
    pub text: Cow<'t, str>,
    /// One for each job in it.
    pub jobs: Vec<MutatedJob>,
}
