//! Malformed job files: each is refused with a clear error, within limits of memory and of processor time
//! that the system enforces.

use crate::place::{Done, Place};
use weftrun_testkit::child;

/// Address space, in KiB, and processor seconds. A second is promised for the program that is handed out on an idle
/// machine; this one is built for tests.
const LIMITS: &str = "ulimit -v 1000000 && ulimit -t 20 && exec \"$0\" \"$@\"";

fn limited(place: &Place, args: &[&str]) -> Done {
    Done::of(child::within("sh", ["-c", LIMITS], &place.command(args)))
}

#[track_caller]
fn refused(place: &Place, file: &str, code: i32, says: &str) {
    for verb in ["plan", "submit"] {
        let done = limited(place, &[verb, file]);
        assert_eq!(done.code, code, "{verb} {file}: {}", done.err);
        assert_eq!(done.out, "", "{verb} {file}");
        assert!(done.err.contains(says), "{verb} {file}: `{says}` is not in:\n{}", done.err);
        assert!(done.err.len() < 64 << 10, "{verb} {file}: {} bytes of error", done.err.len());
        assert!(!done.err.contains("panicked"), "{}", done.err);
    }
}

#[test]
fn large_files() {
    let place = Place::new();
    place.write("large.toml", vec![b'a'; 100 << 20]);
    refused(&place, "large.toml", 3, "large.toml");
    place.write("large.yaml", "- x\n".repeat(25 << 20));
    refused(&place, "large.yaml", 3, "large.yaml");
    refused(&place, "/dev/zero", 3, "/dev/zero");
    place.write("line.yaml", format!("name: {}\n", "x".repeat(900_000)));
    refused(&place, "line.yaml", 3, "name");
}

#[test]
fn bytes_that_are_no_text() {
    let place = Place::new();
    place.write("elf.toml", std::fs::read(env!("CARGO_BIN_EXE_weftrun")).unwrap());
    refused(&place, "elf.toml", 3, "elf.toml");
    place.write("utf16.yaml", [0xff, 0xfe, b'n', 0, b'a', 0]);
    refused(&place, "utf16.yaml", 3, "UTF-16");
    place.write("latin1.toml", b"name = \"caf\xe9\"\n");
    refused(&place, "latin1.toml", 3, "UTF-8");
    place.write("nul.toml", b"name = \"a\0b\"\n");
    refused(&place, "nul.toml", 3, "nul.toml");
    place.write("empty.toml", b"");
    refused(&place, "empty.toml", 3, "name");
}

#[test]
fn files_made_to_hurt() {
    let place = Place::new();
    let bomb = (0..40).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let alias = format!("*a{n},").repeat(9);
        format!("{text}a{}: &a{} [{}]\n", n + 1, n + 1, alias.trim_end_matches(','))
    });
    place.write("bomb.yaml", bomb);
    refused(&place, "bomb.yaml", 3, "alias");
    place.write("deep.yaml", format!("env: {}", "[".repeat(400_000)));
    refused(&place, "deep.yaml", 3, "too deep");
    place.write("deep.toml", format!("a = {}", "[".repeat(400_000)));
    refused(&place, "deep.toml", 3, "too deep");
    place.write("dots.toml", format!("a{} = 1\n", ".a".repeat(200_000)));
    refused(&place, "dots.toml", 3, "deep");
    place.write("tag.yaml", "name: !!python/object/apply:os.system [\"touch owned\"]\n");
    refused(&place, "tag.yaml", 3, "tag");
    assert!(!place.path("owned").exists());
    place.write("cycle.yaml", "env: &a\n  <<: *a\n");
    refused(&place, "cycle.yaml", 3, "cycle.yaml");
    let keys = (0..80_000).fold(String::new(), |text, n| format!("{text}k{n} = 1\n"));
    place.write("keys.toml", keys);
    refused(&place, "keys.toml", 3, "k0");
    place.write("errors.toml", "=\n".repeat(300_000));
    refused(&place, "errors.toml", 3, "errors.toml:1");
    let escape = "name: \"\\e]52;c;AAAA\\a\\u202ex\"\n\u{9b}31m: 1\n";
    place.write("escape.yaml", escape);
    for verb in ["plan", "lint"] {
        let done = limited(&place, &[verb, "--color", "never", "escape.yaml"]);
        let shown = done.out + &done.err;
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{verb}: {shown:?}");
    }
}

#[test]
fn files_that_cannot_be_read() {
    let place = Place::new();
    refused(&place, "none.toml", 6, "weftrun init");
    std::fs::create_dir(place.path("folder.toml")).unwrap();
    let done = limited(&place, &["plan", "folder.toml"]);
    assert!(done.code != 0 && done.err.contains("folder.toml"), "{}: {}", done.code, done.err);
    let locked = place.write("locked.toml", "name = \"a\"\n");
    std::fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    if std::fs::read(&locked).is_ok() {
        weftrun_testkit::skipped("root reads every file");
        return;
    }
    let done = limited(&place, &["plan", "locked.toml"]);
    assert!(done.code != 0 && done.err.contains("locked.toml"), "{}: {}", done.code, done.err);
}

/// The other verbs read files too.
#[test]
fn logs_and_manifests_that_are_no_such() {
    let place = Place::new();
    place.write("noise.log", noise(8 << 20));
    let report = limited(&place, &["transport", "-o", "json", "noise.log"]);
    assert_eq!(report.json()["verdict"]["fabric"], "unknown", "{}", report.err);
    assert_eq!(report.json()["totals"]["bytes"], 8 << 20);
    place.write("line.log", [vec![b'x'; 100 << 20], b"\nend\n".to_vec()].concat());
    let report = limited(&place, &["transport", "-o", "json", "line.log"]).ok().json();
    assert_eq!(
        (&report["totals"]["lines"], &report["totals"]["bytes"]),
        (&2.into(), &((100 << 20) + 5).into())
    );
    place.write("noise.yaml", noise(1 << 20));
    let done = limited(&place, &["mutate", "-f", "noise.yaml", "--profile", "dgxc"]);
    assert!(done.out.is_empty() && done.code == 3, "{}", done.code);
}

/// Bytes without a pattern (xorshift), the same each time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(next).collect()
}
