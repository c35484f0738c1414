//! The library as NCCL uses it: loaded by `dlopen`, called through its tables by C's rules, in a process of its own. Tests start
//! this program again as that process: `child` then plays NCCL.
#![allow(unsafe_code, reason = "NCCL is C")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_for_each,
    clippy::semicolon_if_nothing_returned,
    reason = "a test"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

#[path = "../../testkit/src/child.rs"]
#[allow(dead_code, reason = "shared with other test programs")]
mod child;

const MODE: &str = "WEFTRUN_TEST_NCCL";

#[repr(C)]
struct Table {
    name: *const c_char,
    init: *const c_void,
    start: extern "C" fn(*mut c_void, *mut *mut c_void, *mut Event) -> c_int,
    stop: extern "C" fn(*mut c_void) -> c_int,
    record: extern "C" fn(*mut c_void, c_int, *mut u64) -> c_int,
    finalize: extern "C" fn(*mut c_void) -> c_int,
}
type Init4 = extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Init5 = extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;

/// `ncclProfilerEventDescr`: 24 bytes, then the union.
#[repr(C, align(8))]
struct Event([u8; 160]);

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *const Table;
    fn dlclose(library: *mut c_void) -> c_int;
}

/// NCCL with one communicator.
#[derive(Clone, Copy)]
struct Nccl {
    table: &'static Table,
    version: u32,
    context: *mut c_void,
    mask: c_int,
}
unsafe impl Send for Nccl {}

impl Nccl {
    fn load(version: u32, comm: u64) -> (Self, *mut c_void) {
        let path = CString::new(std::env::var("WEFTRUN_TEST_LIBRARY").unwrap()).unwrap();
        let library = unsafe { dlopen(path.as_ptr(), 2) };
        assert!(!library.is_null());
        (Self::of(library, version, comm), library)
    }

    fn of(library: *mut c_void, version: u32, comm: u64) -> Self {
        let name = CString::new(format!("ncclProfiler_v{version}")).unwrap();
        let table = unsafe { dlsym(library, name.as_ptr()).as_ref() }.unwrap();
        let (mut context, mut mask) = (null_mut(), 0);
        let name = c"a name".as_ptr();
        let done = unsafe {
            if version == 4 {
                let init = std::mem::transmute::<*const c_void, Init4>(table.init);
                init(&raw mut context, &raw mut mask, name, comm, 2, 16, 3, null())
            } else {
                let init = std::mem::transmute::<*const c_void, Init5>(table.init);
                init(&raw mut context, comm, &raw mut mask, name, 2, 16, 3, null())
            }
        };
        assert_eq!(done, 0);
        Self { table, version, context, mask }
    }

    fn event(&self, kind: u64, parent: *mut c_void, body: &[(usize, u64)]) -> *mut c_void {
        // What a compiler leaves in padding is anything.
        let mut event = Event([0xa5; 160]);
        let mut put = |at: usize, bytes: &[u8]| event.0[at..at + bytes.len()].copy_from_slice(bytes);
        if self.version == 4 {
            put(0, &[kind as u8])
        } else {
            put(0, &kind.to_ne_bytes())
        }
        put(8, &(parent as u64).to_ne_bytes());
        put(16, &3_u32.to_ne_bytes());
        body.iter().for_each(|(at, value)| put(24 + at, &value.to_ne_bytes()));
        let mut handle = 7 as *mut c_void;
        assert_eq!((self.table.start)(self.context, &raw mut handle, &raw mut event), 0);
        handle
    }

    fn coll(&self, func: &std::ffi::CStr, seq: u64, count: u64, channels: u8) -> *mut c_void {
        let (func, float) = (func.as_ptr() as u64, c"ncclFloat32".as_ptr() as u64);
        let body = [(0, seq), (8, func), (32, count), (48, float), (56, u64::from(channels))];
        self.event(2, null_mut(), &body)
    }

    fn send(&self, count: u64, channels: u8) -> *mut c_void {
        let (func, half) = (c"Send".as_ptr() as u64, c"ncclBfloat16".as_ptr() as u64);
        self.event(4, null_mut(), &[(0, func), (16, half), (24, count), (32, 5 | u64::from(channels) << 32)])
    }

    fn channel(&self, op: *mut c_void, id: u8, start: u64) -> *mut c_void {
        self.event(64, op, &[(0, u64::from(id)), (8, start)])
    }

    fn end(&self, channel: *mut c_void, mut clock: u64) {
        assert_eq!((self.table.record)(channel, 22, &raw mut clock), 0);
        assert_eq!((self.table.stop)(channel), 0);
    }

    /// One operation whose channels all take a time.
    fn whole(&self, seq: u64, count: u64, nanos: u64) {
        let clock = 1_795_640_000_000_000_000 + seq * 1_000_000;
        let op = self.coll(c"AllReduce", seq, count, 4);
        (self.table.stop)(op);
        let channels: Vec<_> = (0..4).map(|id| self.channel(op, id, clock)).collect();
        channels.into_iter().for_each(|channel| self.end(channel, clock + nanos));
    }
}

#[test]
fn child() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let version = mode.split('-').next_back().and_then(|version| version.parse().ok()).unwrap_or(6);
    let (nccl, library) = Nccl::load(version, 0x00d4_ca22_975c_4437);
    if mode.starts_with("off") {
        assert!(nccl.context.is_null() && nccl.mask == 0);
        // NCCL may call with no context all the same.
        assert!(nccl.coll(c"AllReduce", 0, 1024, 1).is_null());
        assert!(nccl.send(1024, 1).is_null());
        return;
    }
    assert_eq!(nccl.mask, 2 | 4 | 64);
    match mode.as_str() {
        "run-4" | "run-5" | "run-6" => {
            (0..100).for_each(|seq| nccl.whole(seq, 1 << 24, 300_000 + seq));
            // The longest channel counts, by its own start: one began long before, one ended in an operation before.
            let op = nccl.coll(c"AllGather", 7, 1 << 20, 3);
            let clock = 1_795_640_000_000_000_000;
            for (id, start, stop) in
                [(0, clock, clock + 90_000), (1, clock - 9_000_000, clock - 8_950_000), (2, clock + 1, clock)]
            {
                nccl.end(nccl.channel(op, id, start), stop);
            }
            let send = nccl.send(4096, 1);
            nccl.end(nccl.channel(send, 0, clock), clock + 5_000);
            // Neither an operation without channels nor one without times is measured, nor what never ends.
            assert!(nccl.coll(c"AllReduce", 100, 1024, 0).is_null());
            let op = nccl.coll(c"AllReduce", 101, 1024, 1);
            nccl.end(nccl.channel(op, 0, clock), 0);
            nccl.coll(c"AllReduce", 102, 1024, 1);
            // Handles that NCCL never got, and events of kinds that were not asked for.
            for handle in [null_mut(), 64 as *mut c_void, usize::MAX as *mut c_void] {
                nccl.end(nccl.channel(handle, 0, clock), clock);
                nccl.end(handle, clock);
            }
            assert!(nccl.event(8, null_mut(), &[]).is_null());
            assert!(nccl.channel(null_mut(), 0, clock).is_null());
        }
        "many" => {
            let threads: Vec<_> = (0..8)
                .map(|thread| {
                    let nccl = Nccl::of(library, 6, thread);
                    std::thread::spawn(move || {
                        let nccl = nccl;
                        (0..20_000).for_each(|seq| nccl.whole(seq, 1 << 20, 100_000));
                        (nccl.table.finalize)(nccl.context);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        "communicators" => {
            // More than are measured at once, one after another and together.
            for id in 0..2_000 {
                let next = Nccl::of(library, 6, id);
                next.whole(0, 1 << 20, 1_000);
                (next.table.finalize)(next.context);
            }
            let open: Vec<_> = (0..300).map(|id| Nccl::of(library, 6, id)).collect();
            assert!(open.iter().any(|nccl| nccl.context.is_null()));
            open.iter().for_each(|nccl| nccl.whole(0, 1 << 20, 1_000));
        }
        "unloaded" => {
            nccl.whole(0, 1 << 20, 1_000);
            (nccl.table.finalize)(nccl.context);
            assert_eq!(unsafe { dlclose(library) }, 0);
            std::thread::sleep(Duration::from_millis(300));
            return;
        }
        _ => {
            // Until it is killed, or for as long as is asked.
            let until =
                std::env::var("WEFTRUN_TEST_SECONDS").map_or(u64::MAX, |seconds| seconds.parse().unwrap());
            let begun = Instant::now();
            for seq in 0.. {
                nccl.whole(seq, 1 << (10 + seq % 16), 100_000);
                if seq % 100 == 0 && begun.elapsed() > Duration::from_secs(until) {
                    break;
                }
            }
        }
    }
    (nccl.table.finalize)(nccl.context);
}

/// Writes the library to a folder.
fn library(folder: &Path) -> PathBuf {
    let bytes = weftrun_profiler::library(std::env::consts::ARCH).expect("this Rust can build the library");
    let path = folder.join("libweftrun-nccl.so");
    // A process may have it open.
    if !path.exists() {
        fs::write(&path, bytes).unwrap();
    }
    path
}

fn command(mode: &str, folder: &Path, out: &str) -> Command {
    let mut command = child::command(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(MODE, mode).env("WEFTRUN_NCCL_OUT", out);
    command.env("WEFTRUN_TEST_LIBRARY", library(folder));
    command
}

fn played(mode: &str, out: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let output = command(mode, folder.path(), out).output().unwrap();
    assert!(output.status.success(), "{mode} {out}: {output:?}");
    output
}

/// Returns all lines of a folder's files, each of which must be whole.
fn lines(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "a line is cut: {text}");
        lines.extend(text.lines().map(str::to_owned));
    }
    for line in &lines {
        assert!(line.starts_with("{\"weftrun_nccl\":1,\"t\":") && line.ends_with('}'), "{line}");
        assert_eq!(line.matches('"').count() % 2, 0, "{line}");
    }
    lines
}

fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let rest = line.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key} in {line}")).1;
    rest.split([',', '}']).next().unwrap().trim_matches('"')
}

fn number(line: &str, key: &str) -> u64 {
    value(line, key).parse().unwrap_or_else(|_| panic!("{key} of {line}"))
}

#[test]
fn each_version_of_the_interface_is_measured_alike() {
    for version in [4, 5, 6] {
        let out = tempfile::tempdir().unwrap();
        played(&format!("run-{version}"), out.path().to_str().unwrap());
        let lines = lines(out.path());
        let of = |op| lines.iter().filter(move |line| value(line, "op") == op);
        let sum = |op, key| of(op).map(|line| number(line, key)).sum::<u64>();
        assert_eq!(sum("AllReduce", "count"), 100, "v{version}: {lines:?}");
        assert_eq!(sum("AllReduce", "bytes"), 100 << 26);
        assert_eq!(sum("AllReduce", "ns"), 100 * 300_000 + 99 * 100 / 2);
        assert_eq!(of("AllReduce").map(|line| number(line, "min")).min(), Some(300_000));
        assert_eq!(of("AllReduce").map(|line| number(line, "max")).max(), Some(300_099));
        assert_eq!(sum("AllGather", "ns"), 90_000);
        assert_eq!(sum("AllGather", "seq"), 7);
        assert_eq!((sum("Send", "bytes"), sum("Send", "ns")), (8192, 5_000));
        for line in &lines {
            assert_eq!(value(line, "comm"), "0xd4ca22975c4437");
            assert_eq!((number(line, "rank"), number(line, "n"), number(line, "nodes")), (3, 16, 2));
            let (seq, nanos) = (number(line, "seq"), number(line, "seq_ns"));
            assert!(value(line, "op") != "AllReduce" || nanos == 300_000 + seq, "{line}");
            assert!(number(line, "dropped") <= 1, "{line}");
        }
    }
}

#[test]
fn nothing_is_lost_uncounted_when_many_threads_and_communicators_are_busy() {
    let out = tempfile::tempdir().unwrap();
    played("many", out.path().to_str().unwrap());
    let lines = lines(out.path());
    let counted: u64 = lines.iter().map(|line| number(line, "count")).sum();
    let dropped = lines.iter().map(|line| number(line, "dropped")).max().unwrap();
    assert_eq!(counted + dropped, 160_000);
    assert!(counted > 4_000, "{counted}");

    let out = tempfile::tempdir().unwrap();
    played("communicators", out.path().to_str().unwrap());
    played("unloaded", out.path().to_str().unwrap());
}

#[test]
fn without_a_place_to_write_it_does_nothing() {
    played("off-4", "");
    played("off-6", "");
    played("off-6", &"/".repeat(5000));
}

/// No permission, no such folder, a file where the folder should be, a read-only file system, a path that is too long: the job
/// runs, and ends as it would.
#[test]
fn a_place_that_cannot_be_written_does_not_touch_the_job() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let long = "x".repeat(1000);
    for out in ["/proc/weftrun", "/sys", "/no/such/folder", "/dev/full", "/dev/null", &long] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = command("until", folder.path(), out);
        let output = command.env("WEFTRUN_TEST_SECONDS", "1").output().unwrap();
        assert!(output.status.success(), "{out}: {output:?}");
    }
    let file = folder.path().join("file");
    let output =
        command("until", folder.path(), file.to_str().unwrap()).env("WEFTRUN_TEST_SECONDS", "1").output();
    assert!(output.unwrap().status.success());
}

/// A limit of the size of files ends a process that gets its signal; the thread that writes gets none.
#[test]
fn a_full_disk_does_not_touch_the_job() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let made = command("until", folder.path(), out.path().to_str().unwrap());
    let mut shell = child::command("sh");
    shell.arg("-c").arg("ulimit -f 2; exec \"$0\" \"$@\"").arg(made.get_program()).args(made.get_args());
    shell.envs(made.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.env("WEFTRUN_TEST_SECONDS", "3").stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let size =
        fs::read_dir(out.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
    assert!(size <= 1024, "{size}");
}

/// `WEFTRUN_TEST_KILLS=1000` kills as often as issue 40 asks.
#[test]
fn a_killed_process_leaves_whole_lines() {
    let kills: u64 = std::env::var("WEFTRUN_TEST_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut running: Vec<Child> = Vec::new();
    for kill in 0..kills {
        let mut command = command("until", folder.path(), out.path().to_str().unwrap());
        running.push(command.stdout(Stdio::null()).spawn().unwrap());
        if running.len() == 4 || kill + 1 == kills {
            std::thread::sleep(Duration::from_millis(1000 + kill * 37 % 300));
            for mut child in running.drain(..) {
                assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }
    assert!(!lines(out.path()).is_empty());
}

#[test]
fn standard_error_takes_the_same_lines() {
    let output = played("run-6", "stderr");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.lines().any(|line| line.starts_with("weftrun: NCCL {\"weftrun_nccl\":1,")), "{text}");
    // Nobody reads it any more.
    let folder = tempfile::tempdir().unwrap();
    let mut child = command("until", folder.path(), "stderr")
        .env("WEFTRUN_TEST_SECONDS", "2")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert!(child.wait().unwrap().success());
}

/// It must load beside any C library since 2.17 (NCCL's own oldest), and fit into a ConfigMap many times.
#[test]
fn it_asks_for_no_version_of_a_symbol_and_is_small() {
    for machine in weftrun_profiler::machines() {
        let bytes = weftrun_profiler::library(machine).unwrap();
        assert!(bytes.len() <= 100_000, "{machine}: {} bytes", bytes.len());
        let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        assert!(!has(b"GLIBC_") && !has(b"libc.so") && !has(b"libgcc"), "{machine}");
        assert!(has(b"ncclProfiler_v4\0") && has(b"ncclProfiler_v6\0"), "{machine}");
        // ELF's number of the machine; and segments for the largest pages of its kernels, which are of 64 KiB on Grace.
        let (number, page) = if machine == "aarch64" { (183, 0x10000) } else { (62, 0x1000) };
        let at = |at: usize, len: usize| {
            bytes[at..at + len].iter().rev().fold(0_usize, |value, byte| value << 8 | usize::from(*byte))
        };
        assert_eq!(at(18, 2), number, "{machine}");
        let (headers, size, count) = (at(32, 8), at(54, 2), at(56, 2));
        let loads = (0..count).map(|header| headers + header * size).filter(|header| at(*header, 4) == 1);
        let aligned: Vec<usize> = loads.map(|header| at(header + 48, 8)).collect();
        assert!(!aligned.is_empty() && aligned.iter().all(|align| *align >= page), "{machine}: {aligned:?}");
    }
}
