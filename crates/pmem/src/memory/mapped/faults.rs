//! What becomes of a page of a mapped file that cannot be had.
//!
//! The kernel raises SIGBUS in the thread that touches such a page: the file has been cut, its host
//! has no space, or the memory is broken. The handler puts zeros in the place of the whole mapping
//! and notes where the fault was, so that the instruction ends and the process lives. What has
//! touched the mapping asks the [`Watch`] before it believes what it has read or stored.
//!
//! A handler can neither lock nor allocate: the mappings stand in a table of atomic words. The
//! place of another thread's mapping may change while the handler looks at it. A turn number on
//! both sides of what is read tells that, so the begin of one mapping is never taken with the
//! length of another.
//!
//! A signal that a process has sent is none of this: the process dies of it.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ptr::{NonNull, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};

/// Most mappings at the same time.
const RANGES_MAX: usize = 256;
/// Bytes that are replaced if a whole mapping cannot be.
const PAGE: usize = 4096;

/// A mapping that is watched.
struct Range {
    is_taken: AtomicBool,
    /// Odd while its place changes.
    turn: AtomicUsize,
    /// Its address; 0 while there is none.
    start: AtomicUsize,
    len: AtomicUsize,
    /// How far from the start the first fault was, and one more; 0 if there was none.
    fault: AtomicUsize,
}

static RANGES: [Range; RANGES_MAX] = [const { Range::new() }; RANGES_MAX];
static INSTALLED: Once = Once::new();

impl Range {
    const fn new() -> Range {
        Range {
            is_taken: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            fault: AtomicUsize::new(0),
        }
    }

    /// Begin and length, if they belong together.
    fn place(&self) -> Option<(usize, usize)> {
        let turn = self.turn.load(Ordering::Acquire);
        let place = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = turn.is_multiple_of(2) && self.turn.load(Ordering::Relaxed) == turn;
        is_whole.then_some(place)
    }

    /// Changes begin and length. Only the watch that has taken the place does so.
    fn set_place(&self, start: usize, len: usize) {
        self.turn.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::Release);
    }

    /// Takes note of a fault, if it lies here, and puts zeros in the place of the mapping. Called
    /// by the handler: the mapping that has faulted is in use, so its place does not change.
    fn meet(&self, address: usize) -> bool {
        let Some((start, len)) = self.place() else { return false };
        let distance = address.wrapping_sub(start);
        if start == 0 || distance >= len {
            return false;
        }
        let first = |none: usize| (none == 0).then_some(distance + 1);
        let _another_was_first =
            self.fault.fetch_update(Ordering::Release, Ordering::Relaxed, first);
        put_zeros(start, len) || put_zeros(address / PAGE * PAGE, PAGE)
    }
}

fn put_zeros(start: usize, len: usize) -> bool {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the range is a mapping that is watched: its owner keeps it mapped until it has ended
    // the watch, and reaches it by raw pointers alone.
    unsafe { mmap_anonymous(start as *mut _, len, rights, flags).is_ok() }
}

/// The action of the process for SIGBUS.
extern "C" fn on_fault(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel calls a handler with SA_SIGINFO with information that is valid.
    let is_fault = unsafe { (*info).si_code } > 0;
    if !is_fault {
        // It waits until this has returned, and then the process dies of it.
        set_action(libc::SIG_DFL, 0);
        // SAFETY: `raise` can be called by handlers, and touches no memory of ours.
        let _a_signal_that_there_is = unsafe { libc::raise(libc::SIGBUS) };
        return;
    }
    // SAFETY: as above; the kernel's own SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    if !RANGES.iter().any(|range| range.meet(address)) {
        // Nothing of ours: the instruction is tried again, and the process dies of it.
        set_action(libc::SIG_DFL, 0);
    }
}

fn set_action(handler: libc::sighandler_t, flags: libc::c_int) {
    // SAFETY: a structure of integers may be all zeros; the handler is the one above or the
    // default, and the flags go with it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        let _a_signal_that_there_is = libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
}

/// A mapping that is watched until this ends. The mapping has to stay until then.
pub(super) struct Watch(&'static Range);

impl Watch {
    /// Watches a mapping; none if there are too many.
    pub(super) fn begin(start: NonNull<u8>, len: usize) -> Option<Watch> {
        INSTALLED.call_once(|| {
            let handler = on_fault as *const () as libc::sighandler_t;
            set_action(handler, libc::SA_SIGINFO | libc::SA_ONSTACK);
        });
        let is_free = |range: &&Range| !range.is_taken.swap(true, Ordering::AcqRel);
        let range = RANGES.iter().find(is_free)?;
        range.fault.store(0, Ordering::Relaxed);
        range.set_place(start.as_ptr() as usize, len);
        Some(Watch(range))
    }

    /// How far from the start of the mapping the first fault was, in bytes; none if all that was
    /// read and stored so far is true.
    pub(super) fn fault(&self) -> Option<u64> {
        // The handler runs in the midst of what this thread does.
        compiler_fence(Ordering::SeqCst);
        self.0.fault.load(Ordering::Acquire).checked_sub(1).map(|distance| distance as u64)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.set_place(0, 0);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{RANGES_MAX, Range, Watch};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// With this variable a process watches a mapping and sends itself a signal.
    const SENDS: &str = "MARRAM_TEST_SENDS_SIGBUS";

    #[test]
    fn a_signal_that_was_sent_ends_the_process() {
        if std::env::var_os(SENDS).is_some() {
            let mut bytes = [0_u8; 8];
            let _watch = Watch::begin(NonNull::from(&mut bytes).cast(), 8);
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::BUS).unwrap();
            return;
        }
        let name = "a_signal_that_was_sent_ends_the_process";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--test-threads=1"]).env(SENDS, "1").stdout(Stdio::null());
        let ended = command.stderr(Stdio::null()).status().unwrap();
        assert_eq!(ended.signal(), Some(libc::SIGBUS), "{ended}");
    }

    #[test]
    fn a_place_is_never_read_in_two_halves() {
        let (range, is_done) = (Range::new(), AtomicBool::new(false));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for number in 1..200_000 {
                    range.set_place(number, number);
                }
                is_done.store(true, Ordering::Release);
            });
            while !is_done.load(Ordering::Acquire) {
                assert!(range.place().is_none_or(|(start, len)| start == len));
            }
        });
    }

    #[test]
    fn places_in_the_table_are_taken_again() {
        let mut bytes = [0_u8; 8];
        let start = NonNull::from(&mut bytes).cast();
        for _ in 0..2 * RANGES_MAX {
            assert!(Watch::begin(start, 8).is_some_and(|watch| watch.fault().is_none()));
        }
    }
}
