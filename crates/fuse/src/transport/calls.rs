//! The callers that wait for an answer; a program that has been killed waits no longer.
//!
//! Once a request has been read from the kernel, its caller waits for the answer whatever signal
//! comes, SIGKILL too. With a device that hangs, no signal could end a program that reads, looks
//! something up or syncs, as long as the daemon lives. So a caller that is found killed while its
//! request has been in work for a while gets the answer "interrupted" at once. The work goes on,
//! and what comes of it is dropped when it is done.
//!
//! This looks for the signal itself, and does not wait for the kernel's INTERRUPT: that comes once,
//! for the first signal of any kind, and only if a thread is left to read it. Signals that a
//! program handles change nothing: no local file system interrupts a sync for them, and
//! databases take it for a failure.
//!
//! Only requests are cut short that change nothing, or whose change the kernel can be notified of
//! afterwards: what was written, and names. Changed attributes are not among them: the kernel would
//! have to forget a file's size while others write it.

use crate::protocol::Opcode;
use parking_lot::Mutex;
use std::fs;

/// Where the fields of a request's header lie that are looked at here.
const OPCODE_AT: usize = 4;
const UNIQUE_AT: usize = 8;
const NODE_AT: usize = 16;
const PID_AT: usize = 32;
/// Bytes of a request's header.
const HEADER_BYTES: usize = 40;
/// SIGKILL among the pending signals in `/proc/<pid>/status`.
const KILLED: u64 = 1 << 8;

/// A request that has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) unique: u64,
    opcode: u32,
    pub(super) node: u64,
    pid: u32,
    /// It was here at the last look already.
    is_slow: bool,
    /// Its caller has been answered.
    is_cut_short: bool,
}

/// What is to become of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes to the caller.
    Send,
    /// It comes too late.
    Drop,
}

/// The requests of one lane that are in work. Each has a caller that waits.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Mutex<Vec<Call>>,
    /// Inodes that were written to after their writer had been let go.
    written_late: Mutex<Vec<u64>>,
}

impl Calls {
    /// A request has come.
    pub(super) fn begin(&self, request: &[u8]) {
        if let Some(call) = Call::of(request) {
            self.open.lock().push(call);
        }
    }

    /// Its answer is ready; `succeeded` tells which.
    pub(super) fn end(&self, unique: u64, succeeded: bool) -> Fate {
        let mut open = self.open.lock();
        let Some(at) = open.iter().position(|call| call.unique == unique) else {
            return Fate::Send;
        };
        let call = open.swap_remove(at);
        drop(open);
        if !call.is_cut_short {
            return Fate::Send;
        }
        if succeeded && call.opcode == Opcode::Write as u32 {
            self.written_late.lock().push(call.node);
        }
        Fate::Drop
    }

    /// Those that were here at the last look too, and whose callers `is_killed` finds killed: from
    /// now on they count as answered.
    pub(super) fn cut_short(&self, is_killed: impl Fn(u32) -> bool) -> Vec<Call> {
        let slow: Vec<Call> = {
            let mut open = self.open.lock();
            let slow = open.iter().filter(|call| call.is_slow && call.may_be_cut_short());
            let slow = slow.copied().collect();
            open.iter_mut().for_each(|call| call.is_slow = true);
            slow
        };
        let mut killed: Vec<Call> = slow.into_iter().filter(|call| is_killed(call.pid)).collect();
        if !killed.is_empty() {
            let mut open = self.open.lock();
            killed.retain(|call| {
                let here = open.iter_mut().find(|open| open.unique == call.unique);
                here.map(|open| open.is_cut_short = true).is_some()
            });
        }
        killed
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.open.lock().is_empty()
    }

    /// Whether there are inodes that the kernel must be notified of.
    pub(super) fn has_written_late(&self) -> bool {
        !self.written_late.lock().is_empty()
    }

    /// Inodes that the kernel must be notified of.
    pub(super) fn take_written_late(&self) -> Vec<u64> {
        std::mem::take(&mut *self.written_late.lock())
    }
}

impl Call {
    /// The call that a request is, if it is one that is answered.
    fn of(request: &[u8]) -> Option<Call> {
        let header = request.get(..HEADER_BYTES)?;
        let word = |at: usize| header[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let long = |at: usize| header[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let call = Call {
            unique: long(UNIQUE_AT)?,
            opcode: word(OPCODE_AT)?,
            node: long(NODE_AT)?,
            pid: word(PID_AT)?,
            is_slow: false,
            is_cut_short: false,
        };
        let silent = [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt, Opcode::NotifyReply];
        (!silent.iter().any(|opcode| *opcode as u32 == call.opcode)).then_some(call)
    }

    fn may_be_cut_short(&self) -> bool {
        use Opcode as O;
        let harmless = matches!(
            O::from_number(self.opcode),
            Some(
                O::Lookup
                    | O::GetAttributes
                    | O::ExtendedAttributes
                    | O::ReadLink
                    | O::Read
                    | O::Write
                    | O::Space
                    | O::Sync
                    | O::SyncDirectory
                    | O::SyncAll
                    | O::GetXattr
                    | O::ListXattrs
                    | O::ReadDirectory
                    | O::ReadDirectoryPlus
                    | O::Seek
                    | O::Open
                    | O::OpenDirectory
                    | O::Access
                    | O::MakeNode
                    | O::MakeDirectory
                    | O::Symlink
                    | O::Link
                    | O::CreateAnonymous
                    | O::Unlink
                    | O::RemoveDirectory
                    | O::Rename
                    | O::Rename2
            )
        );
        harmless && self.pid != 0 && !self.is_cut_short
    }
}

/// Whether the thread `pid` has been killed, and is still there.
pub(super) fn is_killed(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| has_kill_pending(&status))
}

fn has_kill_pending(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    pending.is_some_and(|signals| signals & KILLED != 0)
}

#[cfg(test)]
mod tests {
    use super::{Calls, Fate, has_kill_pending};
    use crate::protocol::Opcode;

    fn request(opcode: Opcode, unique: u64, pid: u32) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[4..8].copy_from_slice(&(opcode as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&unique.to_le_bytes());
        bytes[16..24].copy_from_slice(&7_u64.to_le_bytes());
        bytes[32..36].copy_from_slice(&pid.to_le_bytes());
        bytes
    }

    #[test]
    fn only_who_is_slow_and_killed_is_let_go_and_only_once() {
        let calls = Calls::default();
        for (opcode, unique, pid) in [
            (Opcode::Write, 1, 10),
            (Opcode::Read, 2, 11),
            (Opcode::SetAttributes, 3, 10),
            (Opcode::Write, 4, 0),
            (Opcode::Forget, 5, 10),
            (Opcode::Open, 6, 12),
        ] {
            calls.begin(&request(opcode, unique, pid));
        }
        let killed = |pid: u32| pid != 11;
        assert!(calls.cut_short(killed).is_empty(), "they have just come");
        let freed: Vec<u64> = calls.cut_short(killed).iter().map(|call| call.unique).collect();
        assert_eq!(freed, [1, 6]);
        assert!(calls.cut_short(killed).is_empty());
        assert_eq!(calls.end(2, true), Fate::Send);
        assert!(calls.take_written_late().is_empty());
        assert_eq!(calls.end(1, true), Fate::Drop);
        assert_eq!(calls.take_written_late(), [7]);
        assert_eq!(calls.end(3, true), Fate::Send);
        assert_eq!(calls.end(1, true), Fate::Send, "nobody knows of it any more");
    }

    #[test]
    fn the_signal_is_found_in_the_status() {
        assert!(has_kill_pending("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0\n"));
        assert!(!has_kill_pending("SigPnd:\t0000000000004000\nShdPnd:\t0000000000000100\n"));
        assert!(!has_kill_pending(""));
    }
}
