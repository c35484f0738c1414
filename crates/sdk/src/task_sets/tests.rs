use std::sync::Mutex;

use weftrun_core::backend::{Document, Language};

use super::*;

/// A cluster of jobs in memory.
#[derive(Debug, Default)]
struct Cluster {
    jobs: Mutex<Vec<JobSummary>>,
    /// The task that is refused.
    refused: Mutex<Option<u32>>,
    /// How long a submission takes.
    takes: Duration,
    /// The tasks that were acted on.
    acted: Mutex<Vec<u32>>,
    has_dependencies: bool,
    /// The statuses of a watch.
    events: Mutex<Vec<JobSummary>>,
}

fn task(number: u32, phase: JobPhase) -> JobSummary {
    let handle = JobHandle::new("local", "local", [format!("lr-{number}")]).with_uid(number.to_string());
    let mut job = JobSummary::new(handle, phase);
    job.created = Some(weftrun_backends::clock::now());
    let set = id_of(&SubmissionId::from_text(["set"]));
    for (key, value) in [(SET_LABEL, set), (TASK_LABEL, number.to_string()), (TASKS_LABEL, "6".to_owned())] {
        job.labels.insert(key.to_owned(), value);
    }
    job
}

#[async_trait]
impl Backend for Cluster {
    fn capability(&self) -> Capability {
        Capability { arrays: Arrays::Jobs, dependencies: self.has_dependencies, ..Capability::default() }
    }
    async fn discover(&self, _: &Scope) -> Result<ClusterFacts> {
        Ok(ClusterFacts::default())
    }
    fn render(&self, _: &PlannedJob) -> Result<Rendered> {
        Err(Error::unsupported("cluster", "render"))
    }
    async fn check(&self, _: &Rendered) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        tokio::time::sleep(self.takes).await;
        let number: u32 = rendered.name.parse().unwrap();
        if *self.refused.lock().unwrap() == Some(number) {
            return Err(Error::new(ErrorKind::Refused, "the quota is used up"));
        }
        let job = task(number, JobPhase::Running);
        let mut jobs = self.jobs.lock().unwrap();
        if jobs.iter().all(|known| known.handle != job.handle) {
            jobs.push(job.clone());
        }
        Ok(job.handle)
    }
    async fn find(&self, _: &SubmissionId) -> Result<Option<JobHandle>> {
        Ok(None)
    }
    async fn list(&self, _: &JobFilter) -> Result<Vec<JobSummary>> {
        Ok(self.jobs.lock().unwrap().clone())
    }
    async fn describe(&self, _: &JobHandle) -> Result<JobDetail> {
        Err(Error::unsupported("cluster", "describe"))
    }
    async fn act(&self, job: &JobHandle, _: Action) -> Result<()> {
        self.acted.lock().unwrap().extend(job.uid().and_then(|uid| uid.parse::<u32>().ok()));
        let mut jobs = self.jobs.lock().unwrap();
        jobs.iter_mut().filter(|known| known.handle == *job).for_each(|job| job.phase = JobPhase::Cancelled);
        Ok(())
    }
    /// Returns the statuses of these jobs that were prepared, once.
    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        let mut events = self.events.lock().unwrap();
        let (own, others) =
            events.drain(..).partition(|job: &JobSummary| filter.handles.contains(&job.handle));
        *events = others;
        stream::iter(own.into_iter().map(|job| Ok(JobEvent::Status { job }))).boxed()
    }
    fn logs(&self, _: &JobHandle, _: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        stream::empty().boxed()
    }
}

/// Returns six tasks.
fn six() -> Rendered {
    let one = |name: String, submission| {
        let document = Document { title: "job".to_owned(), language: Language::Json, text: String::new() };
        Rendered::new(name, submission, document)
    };
    let set = SubmissionId::from_text(["set"]);
    let tasks = (0..6).map(|number| (number, one(number.to_string(), set.of_task(number)))).collect();
    let mut whole = one("lr".to_owned(), set);
    whole.prepared = Prepared::new(RenderedTasks { tasks, stopped: AtomicBool::new(false) });
    whole
}

fn numbers(cluster: &Cluster) -> Vec<u32> {
    cluster.jobs.lock().unwrap().iter().map(|job| job.labels[TASK_LABEL].parse().unwrap()).collect()
}

fn set() -> (Arc<Cluster>, TaskSets) {
    let cluster = Arc::new(Cluster { takes: Duration::from_millis(300), ..Cluster::default() });
    (cluster.clone(), TaskSets(cluster))
}

#[tokio::test]
async fn a_set_that_is_refused_midway_is_continued_without_the_tasks_that_were_made() {
    let (cluster, sets) = set();
    *cluster.refused.lock().unwrap() = Some(3);
    let error = submit_unless(&sets, &six(), || false).await.unwrap_err();
    let handle = made_before(&error).unwrap();
    assert!(handle.to_string().starts_with("local://local/set/lr#"), "{handle}");
    assert!(error.context().contains(&("submitted", "3 of 6 tasks".to_owned())), "{error:?}");
    assert_eq!((error.kind(), numbers(&cluster)), (ErrorKind::Refused, vec![0, 1, 2]));
    assert!(!is_whole(&sets, &handle, None).await.unwrap());

    // A task that has ended and was deleted does not run again.
    cluster.jobs.lock().unwrap().remove(1);
    *cluster.refused.lock().unwrap() = None;
    assert_eq!(submit_unless(&sets, &six(), || false).await.unwrap(), handle);
    assert_eq!(numbers(&cluster), [0, 2, 3, 4, 5]);
    let mut spec = JobSpec::default();
    spec.array = Some("0-5".to_owned());
    assert!(is_whole(&sets, &handle, Some(&spec)).await.unwrap(), "all of them were submitted once");
}

#[tokio::test]
async fn a_set_is_stopped_between_two_tasks() {
    let (cluster, sets) = set();
    let began = Instant::now();
    let stop = || began.elapsed() > Duration::from_millis(400);
    let error = submit_unless(&sets, &six(), stop).await.unwrap_err();
    assert_eq!((error.kind(), numbers(&cluster)), (ErrorKind::Interrupted, vec![0, 1]));
    assert!(made_before(&error).is_some());
}

#[tokio::test]
async fn a_set_that_is_cancelled_while_it_is_submitted_gets_no_more_tasks() {
    let cluster = Arc::new(Cluster { takes: Duration::from_millis(700), ..Cluster::default() });
    let sets = TaskSets(cluster.clone());
    let whole = six();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let handle = sets.describe_any().await;
        sets.act(&handle, Action::Cancel).await.unwrap();
    };
    let (submitted, ()) = tokio::join!(sets.submit(&whole), cancel);
    let error = submitted.unwrap_err();
    assert!(error.message().contains("the set was cancelled"), "{error}");
    let jobs = cluster.jobs.lock().unwrap();
    assert!(jobs.len() < 6 && jobs.iter().all(|job| job.phase == JobPhase::Cancelled), "{jobs:?}");
}

impl TaskSets {
    /// Returns the handle of the one set that there is.
    async fn describe_any(&self) -> JobHandle {
        self.list(&JobFilter::all()).await.unwrap().remove(0).handle
    }
}

fn lines(events: &[JobEvent]) -> Vec<String> {
    let line = |event: &JobEvent| match event {
        JobEvent::Status { job } => Some(job.reason.clone()),
        _ => None,
    };
    events.iter().filter_map(line).collect()
}

#[tokio::test]
async fn a_set_ends_with_its_last_task_and_is_failed_if_one_is() {
    use JobPhase::{Failed, Running, Succeeded};
    let (cluster, sets) = set();
    *cluster.jobs.lock().unwrap() = (0..6).map(|number| task(number, Running)).collect();
    let ends = [Failed, Succeeded, Succeeded, Succeeded, Succeeded, Succeeded];
    *cluster.events.lock().unwrap() = (0..).zip(ends).map(|(number, phase)| task(number, phase)).collect();
    let filter = JobFilter::one(&sets.describe_any().await);
    let seen: Vec<JobEvent> = sets.watch(filter).map(Result::unwrap).collect().await;
    assert_eq!(lines(&seen).last().map(String::as_str), Some("1/6 failed, 5 succeeded"), "{seen:?}");
    assert_eq!(seen.last().and_then(JobEvent::phase), Some(Failed), "nothing comes after the end");
}

#[tokio::test]
async fn tasks_that_are_submitted_later_are_waited_for() {
    use JobPhase::{Running, Succeeded};
    let (cluster, sets) = set();
    *cluster.jobs.lock().unwrap() = vec![task(0, Running)];
    *cluster.events.lock().unwrap() = (0..6).map(|number| task(number, Succeeded)).collect();
    let filter = JobFilter::one(&sets.describe_any().await);
    let later = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        cluster.jobs.lock().unwrap().extend((1..6).map(|number| task(number, Running)));
    };
    let (seen, ()) = tokio::join!(sets.watch(filter).map(Result::unwrap).collect::<Vec<_>>(), later);
    let lines = lines(&seen);
    assert_eq!(lines.first().map(String::as_str), Some("1/6 succeeded, 5 not in the cluster"), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("6/6 succeeded"), "{lines:?}");
}

#[test]
fn a_set_has_a_handle_of_its_own() {
    for (task, set) in [
        ("local://here/lr-0#1", "local://here/set/lr#abc"),
        ("kubeflow://prod/ns/pytorchjob/lr-0#1", "kubeflow://prod/ns/set/lr#abc"),
    ] {
        let task: JobHandle = task.parse().unwrap();
        let handle = task.of_set("lr", "abc");
        assert_eq!(handle.to_string(), set);
        assert_eq!((handle.set(), task.set()), (Some("abc"), None));
    }
}

/// No two tasks of a lane may run at once, whatever becomes of those between them.
#[test]
fn a_task_waits_for_all_before_it_in_its_lane() {
    let set = SubmissionId::from_random(7);
    let tasks = [0, 1, 5, 6, 9, 12];
    let before = |place| lane_of(&set, &tasks, place, 2).map(|lane| lane.before);
    let expected = [None, None, Some(vec![0]), Some(vec![1]), Some(vec![0, 5]), Some(vec![1, 6])];
    assert_eq!((0..6).map(before).collect::<Vec<_>>(), expected);
    let lane = lane_of(&set, &tasks, 4, 2).unwrap();
    assert_eq!(lane.submissions(), [set.of_task(0), set.of_task(5)]);
}

/// A set that is suspended stops the tasks that run; those that wait or have ended have nothing to stop.
#[tokio::test]
async fn a_set_is_suspended_where_it_runs() {
    use JobPhase::{Pending, Running, Succeeded};
    let cluster = Arc::new(Cluster { has_dependencies: true, ..Cluster::default() });
    let sets = TaskSets(cluster.clone());
    *cluster.jobs.lock().unwrap() =
        (0..).zip([Succeeded, Running, Pending]).map(|(n, p)| task(n, p)).collect();
    let set = sets.describe_any().await;
    sets.act(&set, Action::Suspend).await.unwrap();
    assert_eq!(*cluster.acted.lock().unwrap(), [1]);
    *cluster.jobs.lock().unwrap() = vec![task(0, Succeeded), task(1, Succeeded)];
    let refused = sets.act(&set, Action::Suspend).await.unwrap_err();
    assert!(refused.message().contains("have ended"), "{refused}");
    sets.act(&set, Action::Cancel).await.unwrap();
    assert_eq!(*cluster.acted.lock().unwrap(), [1], "nothing of it was left to cancel");
}

#[test]
fn the_submissions_of_tasks_differ_from_their_beginning() {
    let set = SubmissionId::from_random(7);
    let mut beginnings: Vec<String> =
        (0..MAX_TASKS).map(|task| set.of_task(task).as_str().chars().take(8).collect()).collect();
    assert_eq!(set.of_task(3), set.of_task(3));
    beginnings.sort();
    beginnings.dedup();
    assert_eq!(beginnings.len(), usize::try_from(MAX_TASKS).unwrap());
}
