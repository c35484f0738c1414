//! The JSON objects, one per line, that are printed while something is followed.

use jiff::Timestamp;
use serde::Serialize;

use super::{PlanShape, SchemaName, TransportReport, WhyReport};
use weftrun_core::job::{JobEvent, JobHandle, JobPhase, JobSummary};
use weftrun_core::nccl;
use weftrun_core::request::Fabric;
use weftrun_core::spec::Role;

weftrun_core::shapes! {
    /// One line of `submit`, `watch`, `logs`, `demo` and `transport --follow` with `-o json`.
    pub struct EventLine<'a> {
        /// The contract.
        pub schema: SchemaName,
        /// What happened; `type` names the kind.
        #[serde(flatten)]
        pub event: Event<'a>,
    }

    /// A line of a log, sanitised.
    pub struct LogLine<'a> {
        /// The pod, process or file that wrote it.
        pub source: &'a str,
        /// Which attempt of the job, from 0.
        pub attempt: u32,
        /// The rank, where it is known.
        pub rank: Option<u32>,
        /// When, where the cluster reports it.
        #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
        pub time: Option<Timestamp>,
        /// The line.
        pub text: &'a str,
    }
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "one is made for each line, and written at once")]
pub enum Event<'a> {
    /// An event of a job, as reported by its cluster.
    Job(&'a JobEvent),
    /// To what weftrun does with it.
    Own(OwnEvent<'a>),
}

/// An event of weftrun itself.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OwnEvent<'a> {
    /// The first line of `submit`: the cluster has the job.
    Submitted {
        /// Its handle.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        handle: &'a JobHandle,
        /// The backend it runs on.
        backend: &'a str,
        /// Its name.
        name: &'a str,
        /// `submitted`: the cluster has it, and nothing more is known yet.
        phase: JobPhase,
        /// Its roles, as requested.
        roles: &'a [Role],
        /// What was decided for it.
        plan: PlanShape<'a>,
    },
    /// A line a rank wrote.
    Log(LogLine<'a>),
    /// What a log has between two lines: a gap, its end.
    Mark(LogLine<'a>),
    /// The transport map has something new.
    Transport {
        /// What.
        event: &'a nccl::Event,
        /// The same for a person.
        text: String,
    },
    /// The last line of `transport --follow`.
    Report {
        /// The map, as `transport -o json` prints it.
        report: &'a TransportReport,
    },
    /// The last line of `submit --follow`: the job has ended.
    Ended {
        /// Its handle.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        handle: &'a JobHandle,
        /// How it ended; null where that is not known.
        job: Option<&'a JobSummary>,
        /// The fabric that was planned.
        planned: Fabric,
        /// What its logs prove of its transports.
        transport: &'a TransportReport,
        /// Why it failed; left out where it did not.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<Box<WhyReport>>,
    },
}

impl<'a> LogLine<'a> {
    /// Makes the shape of a line.
    pub fn new(
        source: &'a str,
        attempt: u32,
        rank: Option<u32>,
        time: Option<Timestamp>,
        text: &'a str,
    ) -> Self {
        Self { source, attempt, rank, time, text }
    }
}

impl<'a> From<&'a JobEvent> for EventLine<'a> {
    fn from(event: &'a JobEvent) -> Self {
        Self { schema: SchemaName, event: Event::Job(event) }
    }
}

impl<'a> From<OwnEvent<'a>> for EventLine<'a> {
    fn from(event: OwnEvent<'a>) -> Self {
        Self { schema: SchemaName, event: Event::Own(event) }
    }
}

impl<'a> OwnEvent<'a> {
    /// Makes the line of an event of the transport map.
    pub fn transport(event: &'a nccl::Event) -> Self {
        Self::Transport { event, text: event.to_string() }
    }
}
