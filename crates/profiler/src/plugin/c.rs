//! What speaks C: NCCL's tables of functions, and the few functions of the C library that are used. The layouts are those of
//! `src/include/plugin/profiler/profiler_v{4,5,6}.h` of NVIDIA/nccl, v2.27.3-1 to v2.30.7-1 (read 2026-11-26).
#![allow(
    unsafe_code,
    reason = "NCCL hands over addresses and calls by C's rules; the C library is called by them"
)]

use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32};

use super::ops::{self, Op};
use super::sums::NAMES;
use super::{comms, writer};

const COLL: u64 = 1 << 1;
const P2P: u64 = 1 << 2;
const CHANNEL: u64 = 1 << 6;
/// The state that brings a channel's end.
const CHANNEL_STOP: c_int = 22;
/// `ncclSuccess`. Nothing else is ever returned.
const OK: c_int = 0;

#[repr(C)]
#[derive(Clone, Copy)]
struct Coll {
    seq: u64,
    func: *const c_char,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    root: c_int,
    datatype: *const c_char,
    channels: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct P2p {
    func: *const c_char,
    buffer: *mut c_void,
    datatype: *const c_char,
    count: usize,
    peer: c_int,
    channels: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Channel {
    id: u8,
    clock: u64,
}

#[repr(C)]
union Body {
    coll: Coll,
    p2p: P2p,
    channel: Channel,
}

/// What NCCL tells of an event that starts. In v4 only the lowest byte of `kind` is set; the rest is padding.
#[repr(C)]
struct Event {
    kind: u64,
    parent: *mut c_void,
    rank: c_int,
    body: Body,
}

type Log = Option<unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...)>;

/// A table of functions: `Init` differs, the rest does not.
#[repr(C)]
struct Table<Init> {
    name: *const c_char,
    init: Init,
    start: extern "C" fn(*mut c_void, *mut *mut c_void, *const Event) -> c_int,
    stop: extern "C" fn(*mut c_void) -> c_int,
    record: extern "C" fn(*mut c_void, c_int, *const u64) -> c_int,
    finalize: extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: a table is never changed, and its name is a constant.
unsafe impl<Init> Sync for Table<Init> {}

type Init4 =
    extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, Log) -> c_int;
type Init5 =
    extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, Log) -> c_int;

const fn table<Init>(
    init: Init,
    start: extern "C" fn(*mut c_void, *mut *mut c_void, *const Event) -> c_int,
) -> Table<Init> {
    Table { name: c"weftrun".as_ptr(), init, start, stop, record, finalize }
}

// SAFETY of the three: no other library defines these names in the process but a profiler, and NCCL loads one.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
static ncclProfiler_v4: Table<Init4> = table(init4, start4);
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
static ncclProfiler_v5: Table<Init5> = table(init5, start5);
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
static ncclProfiler_v6: Table<Init5> = table(init5, start5);

extern "C" fn init4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    id: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: Log,
) -> c_int {
    init5(context, id, mask, name, nodes, ranks, rank, log)
}

extern "C" fn init5(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    _: *const c_char,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: Log,
) -> c_int {
    LOG.store(log.map_or(null_mut(), |log| log as *mut c_void), Relaxed);
    let on = writer::begin();
    let number = |number: c_int| u32::try_from(number).unwrap_or(0);
    let opened = if on { comms::open(id, number(rank), number(ranks), number(nodes)) } else { None };
    if opened.is_some() {
        LIVE.fetch_add(1, Relaxed);
    }
    // SAFETY: NCCL passes the places for its context and its mask, or null.
    unsafe {
        if let Some(context) = context.as_mut() {
            // A number from 1 on, which NCCL hands back and never follows.
            *context = opened.map_or(null_mut(), |at| (at + 1) as *mut c_void);
        }
        if let Some(mask) = mask.as_mut() {
            *mask = if on { (COLL | P2P | CHANNEL) as c_int } else { 0 };
        }
    }
    OK
}

extern "C" fn start4(context: *mut c_void, handle: *mut *mut c_void, event: *const Event) -> c_int {
    start(context, handle, event, 0xff)
}

extern "C" fn start5(context: *mut c_void, handle: *mut *mut c_void, event: *const Event) -> c_int {
    start(context, handle, event, u64::MAX)
}

fn start(context: *mut c_void, handle: *mut *mut c_void, event: *const Event, kinds: u64) -> c_int {
    // SAFETY: NCCL passes a place for the handle, and an event that lives during the call.
    let (Some(handle), Some(event)) = (unsafe { handle.as_mut() }, unsafe { event.as_ref() }) else {
        return OK;
    };
    // SAFETY: `kind` says which part of the union NCCL has filled in.
    let started = unsafe {
        match event.kind & kinds {
            COLL => start_coll(context, &event.body.coll),
            P2P => start_p2p(context, &event.body.p2p),
            CHANNEL => ops::start_channel(event.parent as u64, event.body.channel.clock),
            _ => None,
        }
    };
    *handle = started.unwrap_or(0) as *mut c_void;
    OK
}

fn start_coll(context: *mut c_void, coll: &Coll) -> Option<u64> {
    let comm = (context as usize).checked_sub(1)?;
    let bytes = (coll.count as u64).saturating_mul(size(coll.datatype));
    ops::start(Op { comm, name: name(coll.func), bytes, seq: coll.seq, channels: coll.channels.into() })
}

fn start_p2p(context: *mut c_void, p2p: &P2p) -> Option<u64> {
    let comm = (context as usize).checked_sub(1)?;
    let seq = comms::get(comm)?.sent.fetch_add(1, Relaxed);
    let bytes = (p2p.count as u64).saturating_mul(size(p2p.datatype));
    ops::start(Op { comm, name: name(p2p.func), bytes, seq, channels: p2p.channels.into() })
}

/// The end of what is no channel brings no time: NCCL ends it when it is enqueued.
extern "C" fn stop(_: *mut c_void) -> c_int {
    OK
}

extern "C" fn record(handle: *mut c_void, state: c_int, clock: *const u64) -> c_int {
    if state == CHANNEL_STOP && !handle.is_null() {
        // SAFETY: in this state the union of arguments is the GPU's clock.
        if let Some(clock) = unsafe { clock.as_ref() } {
            ops::stop_channel(handle as u64, *clock);
        }
    }
    OK
}

extern "C" fn finalize(context: *mut c_void) -> c_int {
    if let Some(at) = (context as usize).checked_sub(1) {
        LIVE.fetch_sub(1, Relaxed);
        if comms::close(at) {
            writer::flush();
        }
    }
    OK
}

/// Returns the place of an operation's name.
fn name(func: *const c_char) -> usize {
    let other = NAMES.len() - 1;
    text(func).map_or(other, |func| NAMES.iter().position(|name| name.as_bytes() == func).unwrap_or(other))
}

/// Returns the bytes of an element: `ncclFloat32`, `ncclBfloat16`, `ncclFloat8e4m3`, …
fn size(datatype: *const c_char) -> u64 {
    match text(datatype) {
        Some(name) if name.ends_with(b"64") => 8,
        Some(name) if name.ends_with(b"32") => 4,
        Some(name) if name.ends_with(b"16") => 2,
        _ => 1,
    }
}

fn text<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: NCCL's names of functions and types are constants in it that end in NUL.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// NCCL's function that prints, while a communicator lives: with the last one NCCL may be gone.
static LOG: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static LIVE: AtomicU32 = AtomicU32::new(0);

/// Prints a line as NCCL does.
pub fn say(line: &CStr) {
    const WARN: c_int = 2;
    let log = LOG.load(Relaxed);
    if log.is_null() || LIVE.load(Relaxed) == 0 {
        return;
    }
    // SAFETY: only a function of this type is stored, and its library is loaded while a communicator lives.
    unsafe {
        let log = core::mem::transmute::<*mut c_void, Log>(log);
        if let Some(log) = log {
            log(WARN, c_ulong::MAX, c"weftrun".as_ptr(), 0, c"%s".as_ptr(), line.as_ptr());
        }
    }
}

#[repr(C)]
struct Time {
    seconds: i64,
    nanos: c_long,
}

// The library is linked with nothing, so that it carries no version of a symbol: the process has a C library already, of any
// version since 2.17.
unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Time) -> c_int;
    fn nanosleep(time: *const Time, left: *mut Time) -> c_int;
    fn getenv(name: *const c_char) -> *const c_char;
    fn getpid() -> c_int;
    fn gethostname(name: *mut c_char, length: usize) -> c_int;
    fn mkdir(path: *const c_char, mode: u32) -> c_int;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn lseek(file: c_int, to: i64, from: c_int) -> i64;
    fn write(file: c_int, bytes: *const c_void, length: usize) -> isize;
    fn close(file: c_int) -> c_int;
    #[link_name = "rename"]
    fn rename_file(from: *const c_char, to: *const c_char) -> c_int;
    fn pthread_create(
        thread: *mut c_ulong,
        attributes: *const c_void,
        run: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_detach(thread: c_ulong) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const [u64; 16], old: *mut [u64; 16]) -> c_int;
}

/// Returns the nanoseconds since 1970.
pub fn now() -> u64 {
    const REALTIME: c_int = 0;
    let mut time = Time { seconds: 0, nanos: 0 };
    // SAFETY: the place is writable.
    unsafe { clock_gettime(REALTIME, &raw mut time) };
    time.seconds.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(time.nanos.unsigned_abs())
}

pub fn sleep(nanos: u64) {
    let nanos = c_long::try_from(nanos).unwrap_or(c_long::MAX).min(999_999_999);
    let time = Time { seconds: 0, nanos };
    // SAFETY: the time is readable, and null means that the rest is not wanted.
    unsafe { nanosleep(&raw const time, null_mut()) };
}

pub fn pid() -> u32 {
    // SAFETY: it has no conditions.
    unsafe { getpid() }.unsigned_abs()
}

/// Returns the name of the host, which ends before the first NUL.
pub fn host() -> [u8; 65] {
    let mut name = [0; 65];
    // SAFETY: one byte less than there are, so that the name ends.
    unsafe { gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    name
}

/// Returns the milliseconds between two lines.
pub fn period() -> u64 {
    let mut place = [0; 1024];
    let asked = variable(c"WEFTRUN_NCCL_MS", &mut place).and_then(|millis| millis.parse::<u64>().ok());
    asked.unwrap_or(1_000).clamp(100, 60_000)
}

/// Returns whether a place for the files is set.
pub fn is_wanted() -> bool {
    folder(&mut [0; 1024]).is_some()
}

/// Copies the name of the folder, or `stderr`.
pub fn folder(place: &mut [u8; 1024]) -> Option<&str> {
    variable(c"WEFTRUN_NCCL_OUT", place).filter(|name| !name.is_empty())
}

/// Copies the value of a variable; none if it is longer than its place.
fn variable<'a>(name: &CStr, place: &'a mut [u8; 1024]) -> Option<&'a str> {
    // SAFETY: the name ends in NUL; the value does, and is copied at once.
    let value = text(unsafe { getenv(name.as_ptr()) })?;
    let copy = place.get_mut(..value.len())?;
    copy.copy_from_slice(value);
    core::str::from_utf8(copy).ok()
}

/// Starts a detached thread that gets no signals: those are the job's.
pub fn spawn(run: fn()) -> bool {
    extern "C" fn enter(run: *mut c_void) -> *mut c_void {
        // SAFETY: `spawn` passes this function and nothing else.
        let run = unsafe { core::mem::transmute::<*mut c_void, fn()>(run) };
        run();
        null_mut()
    }
    const SET: c_int = 2;
    let (mut thread, mut before) = (0, [0; 16]);
    // SAFETY: all places are writable, the sets have the size of `sigset_t` (128 bytes), and a thread that runs can be detached.
    unsafe {
        let masked = pthread_sigmask(SET, &[u64::MAX; 16], &raw mut before) == 0;
        let started = pthread_create(&raw mut thread, null(), enter, run as *mut c_void) == 0;
        if started {
            pthread_detach(thread);
        }
        if masked {
            pthread_sigmask(SET, &raw const before, null_mut());
        }
        started
    }
}

/// An open file, or standard error.
pub struct File(c_int);

impl File {
    pub const fn stderr() -> Self {
        Self(2)
    }

    pub fn is_stderr(&self) -> bool {
        self.0 == 2
    }

    /// Opens a file at its end, with its size. The path ends in NUL; its folder is made.
    pub fn append(path: &[u8]) -> Option<(Self, u64)> {
        const WRITE_CREATE_APPEND_CLOEXEC: c_int = 0o1 | 0o100 | 0o2000 | 0o2_000_000;
        const NOFOLLOW: c_int = if cfg!(target_arch = "aarch64") { 0o100_000 } else { 0o400_000 };
        const END: c_int = 2;
        let mut folder = [0; 1024];
        let length = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        folder.get_mut(..length)?.copy_from_slice(path.get(..length)?);
        // `folder` ends in NUL, since a path that fills it is refused.
        folder.get(length)?;
        let path = CStr::from_bytes_with_nul(path).ok()?;
        // SAFETY: both paths end in NUL. A folder that cannot be made makes `open` fail.
        let file = unsafe {
            mkdir(folder.as_ptr().cast(), 0o700);
            open(path.as_ptr(), WRITE_CREATE_APPEND_CLOEXEC | NOFOLLOW, 0o644)
        };
        if file < 0 {
            return None;
        }
        let opened = Self(file);
        // SAFETY: the file is open.
        let size = unsafe { lseek(file, 0, END) };
        // A process without the three standard files would get their numbers, and then mistake this file for one.
        (file > 2).then_some((opened, size.max(0).unsigned_abs()))
    }

    /// Writes all of it; a part is an error. The thread gets no signals, so that neither a closed pipe nor a limit ends the job.
    pub fn write(&self, bytes: &[u8]) -> bool {
        // SAFETY: the bytes are readable for their length.
        let written = unsafe { write(self.0, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(written) == Ok(bytes.len())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_stderr() {
            // SAFETY: it is open, and closed once.
            unsafe { close(self.0) };
        }
    }
}

/// Renames a file. Both paths end in NUL; an error leaves the file as it is.
pub fn rename(from: &[u8], to: &[u8]) {
    if let (Ok(from), Ok(to)) = (CStr::from_bytes_with_nul(from), CStr::from_bytes_with_nul(to)) {
        // SAFETY: both end in NUL.
        unsafe { rename_file(from.as_ptr(), to.as_ptr()) };
    }
}

/// Ends the calling thread's work for good, without ending the process.
#[cfg(not(any(test, clippy)))]
pub fn halt() -> ! {
    loop {
        sleep(999_999_999);
    }
}
