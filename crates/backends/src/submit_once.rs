//! Creates a job exactly once over a connection that may lose answers.
//!
//! Every backend submits in the same steps: the object carries a marker of its submission; after an answer
//! that proves neither success nor refusal the cluster is searched for that marker; and the request is sent
//! again only when the object is known to be absent. [`Policy`] defines how long an absence must last before
//! it counts and whether a second request is safe.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};
use weftrun_core::backend::Rendered;
use weftrun_core::{Error, ErrorKind, Result};

/// Returns what a backend kept of a job when it rendered it, so that it does not read its own documents back.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for documents that this backend did not render in this program.
pub fn prepared<T: Any>(rendered: &Rendered) -> Result<&T> {
    rendered.prepared.get().ok_or_else(|| {
        Error::new(ErrorKind::InvalidSpec, "the job was not rendered by this program: plan it again")
    })
}

/// The outcome of a create request. A refusal, after which nothing was created, is the `Err` beside it.
#[derive(Debug)]
pub enum Created<T> {
    /// The object was created.
    Made(T),
    /// The answer was lost, or leaves open whether the object was created.
    Unknown(Error),
    /// The name is taken, perhaps by an earlier request of the same submission.
    Taken(Error),
    /// The request did not arrive, or sending it again cannot create a second object.
    Unsent(Error),
}

/// The result of a search for the submission.
#[derive(Debug)]
pub enum SearchResult<T> {
    /// The object with the submission's marker.
    Ours(T),
    /// No object.
    Absent,
    /// An object with the same name and another marker.
    Other(Error),
}

/// The operations of one submission to a cluster.
#[async_trait]
pub trait Submission: Sync {
    /// The value that identifies the job afterwards.
    type Made: Send;

    /// Sends the create request once.
    async fn create(&self) -> Result<Created<Self::Made>>;

    /// Searches for the object by its marker.
    async fn search(&self) -> Result<SearchResult<Self::Made>>;

    /// Returns how long the object must stay absent before its absence counts, if only the cluster can tell.
    async fn absence(&self) -> Option<Duration> {
        None
    }

    /// Returns the error of a lost answer whose object never appeared; by default the request counts as failed.
    fn unseen(&self, lost: Error) -> Error {
        lost
    }
}

/// How a cluster treats requests whose answer was lost.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// How long the object must stay absent before its absence counts.
    pub absence: Duration,
    /// Largest number of requests. A second one must be refused if the first arrives late.
    pub requests: u32,
    /// The largest number of times that a request that did not arrive is sent.
    pub sends: u32,
    /// Whether such a request is sent again even if the search before it failed.
    pub blind: bool,
    /// How long failing searches are repeated and requests are sent again; for searches at least `absence`.
    pub patience: Duration,
    /// The first pause between searches, and before a request is sent again; it doubles, for searches up to five
    /// seconds.
    pub pause: Duration,
}

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Submits once.
///
/// # Errors
/// The refusal of the cluster. [`ErrorKind::Unreachable`] or [`ErrorKind::Timeout`] if it remains unknown
/// whether the object was created: the caller must not treat these as a refusal.
pub async fn submit_once<S: Submission + ?Sized>(submission: &S, policy: Policy) -> Result<S::Made> {
    let began = Instant::now();
    let (mut requests, mut unsent) = (0, 0);
    let mut lost = false;
    let mut wait = policy.pause;
    loop {
        requests += 1;
        let (error, taken) = match submission.create().await {
            Ok(Created::Made(made)) => return Ok(made),
            Ok(Created::Unknown(error)) => (error, false),
            Ok(Created::Taken(error)) => (error, true),
            Ok(Created::Unsent(error)) => {
                unsent += 1;
                tracing::debug!(unsent, %error, "the submission did not arrive");
                if unsent >= policy.sends {
                    return Err(error);
                }
                sleep(wait).await;
                wait *= 2;
                match submission.search().await {
                    Ok(SearchResult::Ours(made)) => return Ok(made),
                    Ok(SearchResult::Other(error)) => return Err(error),
                    Err(failed) if !policy.blind => return Err(failed),
                    Ok(SearchResult::Absent) | Err(_) => continue,
                }
            }
            // After a lost answer, an API server that comes back may refuse what it allows a moment later.
            Err(error) if lost && error.kind() == ErrorKind::Credentials => (error, false),
            Err(error) => return Err(error),
        };
        lost |= !taken;
        let absence = if taken && !lost {
            Duration::ZERO
        } else {
            submission.absence().await.unwrap_or(policy.absence)
        };
        match search(submission, policy, absence, lost, began).await {
            Search::Found(made) => return Ok(made),
            Search::Other(other) => return Err(if taken { error } else { other }),
            Search::Unknown(failed) => return Err(unknown(submission.unseen(error), taken, &failed)),
            // The owner of the name cannot be seen, so the refusal is final.
            Search::Absent if taken => return Err(error),
            Search::Absent if requests >= policy.requests || began.elapsed() > policy.patience => {
                return Err(submission.unseen(error));
            }
            Search::Absent => {}
        }
    }
}

enum Search<T> {
    Found(T),
    Other(Error),
    Absent,
    Unknown(Error),
}

async fn search<S: Submission + ?Sized>(
    submission: &S,
    policy: Policy,
    absence: Duration,
    lost: bool,
    began: Instant,
) -> Search<S::Made> {
    let mut pause = policy.pause;
    let first = Instant::now();
    let mut absent: Option<Instant> = None;
    loop {
        match submission.search().await {
            Ok(SearchResult::Ours(made)) => return Search::Found(made),
            Ok(SearchResult::Other(error)) => return Search::Other(error),
            Ok(SearchResult::Absent) => {
                if absent.get_or_insert_with(Instant::now).elapsed() >= absence {
                    if absence.is_zero() {
                        sleep(pause).await;
                    }
                    return Search::Absent;
                }
            }
            Err(error) => {
                let passes = error.is_retryable() || (lost && error.kind() == ErrorKind::Credentials);
                if first.elapsed() >= absence && (!passes || began.elapsed() >= policy.patience) {
                    return Search::Unknown(error);
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the error of a submission whose state remains unknown. A taken name does not prove that another
/// job has it.
fn unknown(error: Error, taken: bool, failed: &Error) -> Error {
    const HINT: &str = "it is not known whether the job was made; `weftrun list` looks for it again";
    if !taken {
        return error.hint(HINT);
    }
    let message =
        format!("the name is taken, and the search for this submission failed: {}", failed.message());
    Error::new(ErrorKind::Unreachable, message).hint(HINT).retryable().with_source(error)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A cluster that answers requests and searches from two scripts; the last entry repeats.
    struct Script {
        creates: Mutex<Vec<&'static str>>,
        searches: Mutex<Vec<&'static str>>,
        sent: Mutex<u32>,
    }

    impl Script {
        fn new(creates: &[&'static str], searches: &[&'static str]) -> Self {
            let list = |items: &[&'static str]| Mutex::new(items.iter().rev().copied().collect());
            Self { creates: list(creates), searches: list(searches), sent: Mutex::new(0) }
        }

        fn next(list: &Mutex<Vec<&'static str>>) -> &'static str {
            let mut list = list.lock().unwrap();
            if list.len() > 1 { list.pop().unwrap() } else { list[0] }
        }
    }

    #[async_trait]
    impl Submission for Script {
        type Made = &'static str;

        async fn create(&self) -> Result<Created<&'static str>> {
            *self.sent.lock().unwrap() += 1;
            match Self::next(&self.creates) {
                "lost" => Ok(Created::Unknown(Error::new(ErrorKind::Unreachable, "lost").retryable())),
                "unsent" => Ok(Created::Unsent(Error::new(ErrorKind::Unreachable, "unsent").retryable())),
                "taken" => Ok(Created::Taken(Error::new(ErrorKind::AlreadyExists, "taken"))),
                "forbidden" => Err(Error::new(ErrorKind::Credentials, "forbidden")),
                "refused" => Err(Error::new(ErrorKind::Refused, "refused")),
                made => Ok(Created::Made(made)),
            }
        }

        async fn search(&self) -> Result<SearchResult<&'static str>> {
            match Self::next(&self.searches) {
                "absent" => Ok(SearchResult::Absent),
                "other" => Ok(SearchResult::Other(Error::new(ErrorKind::AlreadyExists, "another job"))),
                "error" => Err(Error::new(ErrorKind::Unreachable, "500").retryable()),
                "forbidden" => Err(Error::new(ErrorKind::Credentials, "forbidden")),
                ours => Ok(SearchResult::Ours(ours)),
            }
        }
    }

    const POLICY: Policy = Policy {
        absence: Duration::ZERO,
        requests: 3,
        sends: 3,
        blind: true,
        // Where an answer comes, a slow machine does not run out of it.
        patience: Duration::from_secs(60),
        pause: Duration::from_millis(1),
    };

    /// For searches that are never answered.
    const IMPATIENT: Policy = Policy { patience: Duration::from_millis(20), ..POLICY };

    async fn run(
        policy: Policy,
        creates: &[&'static str],
        searches: &[&'static str],
    ) -> (Result<&'static str>, u32) {
        let script = Script::new(creates, searches);
        let result = submit_once(&script, policy).await;
        let sent = *script.sent.lock().unwrap();
        (result, sent)
    }

    #[tokio::test]
    async fn a_lost_answer_is_searched_for_before_anything_is_sent_again() {
        let (made, sent) = run(POLICY, &["lost", "second"], &["error", "error", "first"]).await;
        assert_eq!((made.unwrap(), sent), ("first", 1));
        let (made, sent) = run(POLICY, &["lost", "second"], &["absent"]).await;
        assert_eq!((made.unwrap(), sent), ("second", 2));
        let (made, sent) = run(POLICY, &["lost", "taken"], &["absent", "error", "first"]).await;
        assert_eq!((made.unwrap(), sent), ("first", 2));
    }

    #[tokio::test]
    async fn an_absence_is_believed_only_after_its_time() {
        let policy = Policy { absence: Duration::from_secs(60), ..POLICY };
        let (made, sent) = run(policy, &["lost", "second"], &["absent", "absent", "first"]).await;
        assert_eq!((made.unwrap(), sent), ("first", 1));
    }

    #[tokio::test]
    async fn a_taken_name_without_an_answer_to_the_search_is_unknown() {
        let (made, sent) = run(IMPATIENT, &["taken"], &["error"]).await;
        let error = made.unwrap_err();
        assert_eq!((error.kind(), sent), (ErrorKind::Unreachable, 1), "{error}");
        assert!(error.hints()[0].contains("not known whether the job was made"), "{error}");
        let (made, _) = run(POLICY, &["taken"], &["other"]).await;
        assert_eq!(made.unwrap_err().kind(), ErrorKind::AlreadyExists);
    }

    #[tokio::test]
    async fn a_refusal_is_final_unless_an_answer_was_lost_before() {
        let (made, sent) = run(POLICY, &["refused"], &["ours"]).await;
        assert_eq!((made.unwrap_err().kind(), sent), (ErrorKind::Refused, 1));
        let (made, sent) = run(POLICY, &["forbidden"], &["ours"]).await;
        assert_eq!((made.unwrap_err().kind(), sent), (ErrorKind::Credentials, 1));
        let (made, sent) = run(POLICY, &["lost", "forbidden", "third"], &["absent"]).await;
        assert_eq!((made.unwrap(), sent), ("third", 3));
    }

    /// An object that was found is not created again, and nothing is sent again without a search unless the policy
    /// allows it.
    #[tokio::test]
    async fn a_request_that_did_not_arrive_is_sent_again() {
        let (made, sent) = run(POLICY, &["unsent", "second"], &["error"]).await;
        assert_eq!((made.unwrap(), sent), ("second", 2));
        let (made, sent) = run(Policy { blind: false, ..POLICY }, &["unsent", "second"], &["error"]).await;
        assert_eq!((made.unwrap_err().message().to_owned(), sent), ("500".to_owned(), 1));
        let (made, sent) = run(POLICY, &["unsent", "second"], &["first"]).await;
        assert_eq!((made.unwrap(), sent), ("first", 1));
        let (made, sent) = run(POLICY, &["unsent"], &["absent"]).await;
        assert_eq!((made.unwrap_err().message().to_owned(), sent), ("unsent".to_owned(), 3));
        let once = Policy { requests: 1, ..POLICY };
        let (made, sent) = run(once, &["unsent", "lost", "second"], &["absent"]).await;
        assert_eq!((made.unwrap_err().message().to_owned(), sent), ("lost".to_owned(), 2));
    }

    #[tokio::test]
    async fn requests_are_bounded() {
        let (made, sent) = run(POLICY, &["lost"], &["absent"]).await;
        assert_eq!((made.unwrap_err().kind(), sent), (ErrorKind::Unreachable, 3));
    }
}
