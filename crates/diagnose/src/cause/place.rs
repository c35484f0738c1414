//! Places in the user's own code: the path as the user knows it, and where ranks that disagree stand.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weftrun_nccl::failure::{Fact, Frame};

use super::scene::Scene;

/// Where some ranks stand in the user's own code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CausePlace"))]
pub struct Place {
    /// Global ranks.
    pub ranks: Vec<u32>,
    /// The innermost frame of the user's own code.
    pub frame: Frame,
}

/// Returns a frame with the path that the user gave, not that of the copy in a job's folder.
pub(super) fn of_user(mut frame: Frame) -> Frame {
    if let Some(own) = users_path(&frame.file) {
        frame.file = own.to_owned();
    }
    frame
}

/// Returns the path below the folder that weftrun copied the code to: `jobs/ID/code` of plain hosts and of this machine,
/// `NAME-ID-TOKEN.code` of Slurm, `/opt/weftrun/code` and `/tmp/weftrun-code/folder.*` in a pod.
fn users_path(file: &str) -> Option<&str> {
    let is_id = |part: &str| part.len() >= 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (mut before, mut last, mut at) = ("", "", 0);
    for part in file.split('/') {
        at += part.len() + 1;
        let copied = match part {
            "code" => is_id(last) && before == "jobs" || (before, last) == ("opt", "weftrun"),
            _ if last == "weftrun-code" && part.starts_with("folder.") => true,
            _ => part.strip_suffix(".code").and_then(|name| name.rsplit('-').next()).is_some_and(is_id),
        };
        if copied {
            return file.get(at..).filter(|own| !own.is_empty());
        }
        (before, last) = (last, part);
    }
    None
}

/// Returns where each of some ranks stands, ranks of one line together; nothing if no two of them differ. The stack of
/// the operation that a rank waits in says more than that of the exception that ends its wait.
pub(super) fn places(scene: &Scene<'_>) -> Vec<Place> {
    let mut waits: BTreeMap<u32, &Frame> = BTreeMap::new();
    let mut raised: BTreeMap<u32, &Frame> = BTreeMap::new();
    for known in &scene.reports {
        let Some(rank) = known.rank else { continue };
        match &known.report.fact {
            Fact::Stack(frame) => {
                waits.entry(rank).or_insert(frame);
            }
            Fact::Exception(exception) => {
                if let Some(frame) = &exception.frame {
                    raised.entry(rank).or_insert(frame);
                }
            }
            _ => {}
        }
    }
    for (rank, frame) in raised {
        waits.entry(rank).or_insert(frame);
    }
    let mut places: Vec<Place> = Vec::new();
    for (rank, frame) in waits {
        let frame = of_user(frame.clone());
        let of_line = |place: &&mut Place| (&place.frame.file, place.frame.line) == (&frame.file, frame.line);
        match places.iter_mut().find(of_line) {
            Some(place) => place.ranks.push(rank),
            None => places.push(Place { ranks: vec![rank], frame }),
        }
    }
    if places.len() < 2 {
        places.clear();
    }
    places
}

#[cfg(test)]
mod tests {
    use super::users_path;

    #[test]
    fn the_copy_in_a_job_folder_is_shown_as_the_users_path() {
        for (shown, own) in [
            ("/tmp/st/weftrun/targets/local/jobs/ba140a5865d93156/code/train.py", Some("train.py")),
            ("/home/u/weftrun/llama-8b-4711-0a1b2c3d.code/src/train.py", Some("src/train.py")),
            ("/opt/weftrun/code/train.py", Some("train.py")),
            ("/tmp/weftrun-code/folder.Xa81b0/sub/train.py", Some("sub/train.py")),
            ("/home/u/code/train.py", None),
            ("/home/u/jobs/night/code/train.py", None),
            ("train.py", None),
        ] {
            assert_eq!(users_path(shown), own, "{shown}");
        }
    }
}
