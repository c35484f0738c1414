//! Files that the user names to be written: ordinary files of the user, all or none.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use crate::cases::case;
use crate::place::Place;

const LINTED: &str =
    "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nexport NCCL_BUFFERSIZE=1\nsrun ./train\n";

/// Makes a path that no verb may write to, and returns a part of the message; none if this user cannot make it.
fn make(place: &Place, kind: &str, text: &str) -> Option<&'static str> {
    let path = place.path("second");
    match kind {
        "fifo" => {
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            Some("it is a FIFO")
        }
        "folder" => fs::create_dir(&path).map(|()| "it is a folder").ok(),
        "socket" => {
            std::os::unix::net::UnixListener::bind(&path).unwrap();
            Some("it is a socket")
        }
        "device" => symlink("/dev/null", &path).map(|()| "it is a device").ok(),
        "read-only" => {
            place.write("second", text);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
            Some("read-only (mode 0444)")
        }
        "hard link" => {
            place.write("second", text);
            fs::hard_link(&path, place.path("other")).unwrap();
            Some("2 hard links")
        }
        "link to a read-only file" => {
            place.write("other", text);
            fs::set_permissions(place.path("other"), fs::Permissions::from_mode(0o400)).unwrap();
            symlink("other", &path).unwrap();
            Some("read-only (mode 0400)")
        }
        "another owner" => {
            place.write("second", text);
            std::os::unix::fs::chown(&path, Some(12_345), None).ok().map(|()| "the id 12345")
        }
        "another owner's link" => {
            place.write("other", text);
            symlink("other", &path).unwrap();
            std::os::unix::fs::lchown(&path, Some(12_345), None).ok().map(|()| "the id 12345")
        }
        _ => unreachable!("{kind}"),
    }
}

#[test]
fn only_ordinary_files_of_the_user_are_written_and_all_or_none() {
    let manifest = case("01-pytorchjob-full-nodes", "before.yaml");
    let config = "[job]\nqueue = \"a\"\n";
    let verbs = [
        ("mutate --profile dgxc --webhook no --write -f first -f second", manifest.as_str()),
        ("mutate --profile dgxc --webhook no --write -f first --report second", manifest.as_str()),
        ("mutate --profile dgxc --webhook no -f first --report second", manifest.as_str()),
        ("lint --fix first second", LINTED),
        ("init --yes --force second", "a = 1"),
        ("--config second config set job.queue b", config),
        ("--config second config unset job.queue", config),
        ("--config second config edit", config),
    ];
    let kinds = [
        "fifo",
        "folder",
        "socket",
        "device",
        "read-only",
        "hard link",
        "link to a read-only file",
        "another owner",
        "another owner's link",
    ];
    for (verb, text) in verbs {
        for kind in kinds {
            // A named configuration may be a pipe: it is read to its end before anything else.
            if kind == "fifo" && verb.contains("config") {
                continue;
            }
            let place = Place::new();
            place.write("first", text);
            let Some(part) = make(&place, kind, text) else { continue };
            let before = fs::symlink_metadata(place.path("second")).unwrap();
            let ran = place.run(verb);
            let why = format!("{verb}, {kind}: {}", ran.err);
            assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{why}");
            assert!(ran.err.contains(part) && ran.err.contains("second"), "{why}");
            assert!(ran.err.contains("hint: "), "{why}");
            assert_eq!(fs::read_to_string(place.path("first")).unwrap(), text, "{why}");
            let after = fs::symlink_metadata(place.path("second")).unwrap();
            assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()), "{why}");
            let left = fs::read_dir(place.path("")).unwrap().flatten();
            let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".tmp-"));
            assert_eq!(left.count(), 0, "{why}");
        }
    }
}

#[test]
fn a_link_to_a_file_of_the_user_stays_and_the_file_keeps_its_mode() {
    let place = Place::new();
    for (verb, text) in [
        (
            "mutate --profile dgxc --webhook no --write -f link",
            case("01-pytorchjob-full-nodes", "before.yaml"),
        ),
        ("lint --fix link", LINTED.to_owned()),
        ("init --yes --force link", "a = 1".to_owned()),
    ] {
        place.write("file", &text);
        fs::set_permissions(place.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
        let _ = fs::remove_file(place.path("link"));
        symlink("file", place.path("link")).unwrap();
        let ran = place.run(verb);
        assert_ne!(fs::read_to_string(place.path("file")).unwrap(), text, "{verb}: {}", ran.err);
        assert!(fs::symlink_metadata(place.path("link")).unwrap().is_symlink(), "{verb}");
        assert_eq!(fs::metadata(place.path("file")).unwrap().mode() & 0o777, 0o640, "{verb}");
    }
}

#[test]
fn a_report_is_not_written_over_what_is_read() {
    let place = Place::new();
    let before = case("01-pytorchjob-full-nodes", "before.yaml");
    place.write("job.yaml", &before);
    let ran = place.run("mutate --profile dgxc -f job.yaml --report ./job.yaml");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(fs::read_to_string(place.path("job.yaml")).unwrap(), before);
}
