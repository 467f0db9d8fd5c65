//! Agreeing on the protocol: what the kernel offers, and what of it is taken.
//!
//! Taken is what the adapter serves and nothing else: a feature that is negotiated and not served
//! is a hole (setuid that survives a write, lists of access rights that nobody enforces).

use crate::adapter::Agreement;
use crate::errno::Errno;
use crate::error::MountError;
use crate::options::{Checks, MountOptions, Offer};
use crate::protocol::flags::init;
use crate::protocol::{Encoder, Init, InitReply, MAJOR, MINOR_MIN, Operation, parse, reply_header};
use crate::transport::Transport;
use std::io::IoSlice;

/// Bytes of a request buffer beside the data that it carries: header and body, a page of them.
pub(super) const REQUEST_OVERHEAD_BYTES: usize = 4096;
/// Most requests that the kernel sends without anyone waiting for them (read-ahead, write-back).
const BACKGROUND_MAX: u16 = 64;
/// From how many on it holds back.
const CONGESTION_THRESHOLD: u16 = 48;
/// Most greetings to answer: the kernel greets again if it knows a newer major version.
const GREETINGS_MAX: usize = 2;

/// Without these the promises of the adapter do not hold.
const REQUIRED: [(u64, &str); 4] = [
    (init::HANDLE_KILLPRIV_V2, "the clearing of setuid by the file system"),
    (init::SETXATTR_EXT, "the long form of SETXATTR"),
    (init::MAX_PAGES, "large requests"),
    (init::BIG_WRITES, "large writes"),
];

/// Taken where the kernel has it. Locks are not among them: where one kernel sees all users of a
/// mount, its own locks are right (docs/decisions/0004-locks-stay-in-the-kernel.md). Neither is the
/// invalidation of cached data by time and size: this server is the only writer and says so itself
/// when something changes behind the kernel's back. Where others may write too, it is the other way
/// round.
const WANTED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::HAS_IOCTL_DIR
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::ABORT_ERROR
    | init::CACHE_SYMLINKS
    | init::EXPLICIT_INVAL_DATA
    | init::INIT_EXT
    | init::HAS_EXPIRE_ONLY;

/// Taken beside them where the kernel checks permissions. A server that checks them itself serves
/// each opening. It gets identities in the file system's own numbers only without mapped
/// identities. And it opens files that may only grow for direct I/O so that they cannot be mapped.
const KERNEL_CHECKS: u64 = init::NO_OPEN_SUPPORT
    | init::NO_OPENDIR_SUPPORT
    | init::DIRECT_IO_ALLOW_MMAP
    | init::ALLOW_IDMAP;

/// Taken beside them where the file system keeps locks between hosts
/// (docs/decisions/0073-locks-between-hosts.md). Each opening is served then, so that an open file
/// is known when it is closed.
const LOCKS: u64 = init::POSIX_LOCKS | init::FLOCK_LOCKS;

/// Answers the kernel's greeting; `rings` says whether everything for io_uring is at hand: once it
/// is agreed on the kernel waits for it.
pub(super) fn shake_hands(
    transport: &dyn Transport,
    options: &MountOptions,
    rings: bool,
) -> Result<Agreement, MountError> {
    let mut buffer = vec![0; request_buffer_bytes(transfer_bytes_max(options))];
    for _ in 0..GREETINGS_MAX {
        let (unique, greeting) = greeting(transport, &mut buffer)?;
        if let Some(error) = refusal(&greeting) {
            send(transport, unique, Err(Errno::PROTOCOL), &[])?;
            return Err(error);
        }
        let reply = answer(&greeting, options, rings);
        let mut payload = Vec::new();
        Encoder(&mut payload).init(&reply);
        send(transport, unique, Ok(()), &payload)?;
        if greeting.major == MAJOR {
            let agreed = |flag| reply.flags & flag != 0;
            return Ok(Agreement {
                writeback: agreed(init::WRITEBACK_CACHE),
                posix_lists: agreed(init::POSIX_ACL),
                umask: agreed(init::DONT_MASK),
                transfer_bytes_max: transfer_bytes_max(options),
                io_uring: agreed(init::OVER_IO_URING),
                locks: agreed(init::POSIX_LOCKS) && agreed(init::FLOCK_LOCKS),
            });
        }
    }
    Err(handshake("the kernel keeps on greeting".into()))
}

/// Size of the buffer that any request fits into.
pub(super) fn request_buffer_bytes(transfer_bytes_max: usize) -> usize {
    (REQUEST_OVERHEAD_BYTES + transfer_bytes_max).max(1 << 17)
}

pub(super) fn transfer_bytes_max(options: &MountOptions) -> usize {
    usize::try_from(options.transfer_pages() * 4096).expect("bounded by the options")
}

fn handshake(reason: String) -> MountError {
    MountError::Handshake { reason }
}

fn greeting(transport: &dyn Transport, buffer: &mut [u8]) -> Result<(u64, Init), MountError> {
    let len = transport
        .receive(buffer)
        .map_err(|error| handshake(error.to_string()))?
        .ok_or_else(|| handshake("it was unmounted meanwhile".into()))?;
    let request = parse(&buffer[..len]).map_err(|(_, reason)| handshake(reason.to_string()))?;
    match request.operation {
        Operation::Init(greeting) => Ok((request.header.unique, greeting)),
        other => Err(handshake(format!("expected INIT, got {other:?}"))),
    }
}

fn send(
    transport: &dyn Transport,
    unique: u64,
    outcome: Result<(), Errno>,
    payload: &[u8],
) -> Result<(), MountError> {
    let errno = outcome.err().map_or(0, |errno| errno.0);
    let header = reply_header(unique, errno, payload.len());
    transport
        .send(&[IoSlice::new(&header), IoSlice::new(payload)])
        .map_err(|error| handshake(error.to_string()))
}

/// Why the kernel cannot be served. One with a newer major version will greet again in ours.
fn refusal(greeting: &Init) -> Option<MountError> {
    let Init { major, minor, .. } = *greeting;
    let error = |missing: &'static str| Some(MountError::Kernel { major, minor, missing });
    if major > MAJOR {
        return None;
    }
    if major < MAJOR || minor < MINOR_MIN {
        return error("what came with 7.34");
    }
    let missing = REQUIRED.iter().find(|(flag, _)| greeting.flags & flag == 0);
    missing.and_then(|(_, what)| error(what))
}

fn answer(greeting: &Init, options: &MountOptions, rings: bool) -> InitReply {
    let required = REQUIRED.iter().fold(0, |flags, (flag, _)| flags | flag);
    let writeback = if options.writeback { init::WRITEBACK_CACHE } else { 0 };
    let checks = match options.checks {
        Checks::Modes => KERNEL_CHECKS,
        Checks::PosixLists => KERNEL_CHECKS | init::POSIX_ACL | init::DONT_MASK,
        Checks::Server => init::DONT_MASK,
    };
    let asks_opens = options.strict_open || options.serves_locks;
    let checks = if asks_opens { checks & !init::NO_OPEN_SUPPORT } else { checks };
    let (handles, no_handles) = match options.file_handles {
        true => (0, 0),
        false => (init::EXPORT_SUPPORT, init::NO_EXPORT_SUPPORT),
    };
    let locks = if options.serves_locks { LOCKS } else { 0 };
    let rings = if rings { init::OVER_IO_URING } else { 0 };
    let declined = options.declined.iter().fold(0, |flags, offer| flags | flags_of(*offer));
    let (by_time, not_by_time) = match options.shareable {
        true => (init::AUTO_INVAL_DATA, init::EXPLICIT_INVAL_DATA),
        false => (0, 0),
    };
    let taken = (WANTED | checks | no_handles | by_time) & !declined & !handles & !not_by_time;
    let pages_max = options.transfer_pages();
    InitReply {
        flags: greeting.flags & (taken | required | writeback | rings | locks),
        read_ahead_bytes: greeting.read_ahead_bytes.max(options.read_ahead_bytes),
        background_max: BACKGROUND_MAX,
        congestion_threshold: CONGESTION_THRESHOLD,
        write_bytes_max: pages_max * 4096,
        time_grain_nanoseconds: 1,
        pages_max: u16::try_from(pages_max).expect("bounded by the options"),
    }
}

fn flags_of(offer: Offer) -> u64 {
    match offer {
        Offer::UnaskedOpens => init::NO_OPEN_SUPPORT,
        Offer::UnaskedDirectoryOpens => init::NO_OPENDIR_SUPPORT,
        Offer::AttributesWithNames => init::DO_READDIRPLUS | init::READDIRPLUS_AUTO,
        Offer::KeptSymlinks => init::CACHE_SYMLINKS,
    }
}

#[cfg(test)]
mod tests {
    use super::{Init, answer, init, refusal};
    use crate::options::{Checks, MountOptions};

    const OFFERED: Init = Init { major: 7, minor: 45, read_ahead_bytes: 131_072, flags: u64::MAX };

    #[test]
    fn locks_acls_and_truncating_opens_stay_with_the_kernel() {
        let taken = answer(&OFFERED, &MountOptions::new("/mnt", "x"), false).flags;
        let (posix_locks, atomic_truncate, flock, acl) = (1 << 1, 1 << 3, 1 << 10, 1 << 20);
        assert_eq!(taken & (posix_locks | atomic_truncate | flock | acl), 0);
        assert_eq!(taken & init::WRITEBACK_CACHE, 0);
        assert_ne!(taken & init::HANDLE_KILLPRIV_V2, 0);
    }

    #[test]
    fn pages_are_forgotten_by_time_where_others_write() {
        let by_time = init::AUTO_INVAL_DATA;
        let not_by_time = init::EXPLICIT_INVAL_DATA;
        let mut options = MountOptions::new("/mnt", "x");
        let taken = |options: &MountOptions| {
            answer(&OFFERED, options, false).flags & (by_time | not_by_time)
        };
        assert_eq!(taken(&options), not_by_time);
        options.shareable = true;
        assert_eq!(taken(&options), by_time);
    }

    #[test]
    fn locks_are_taken_from_the_kernel_only_where_they_are_kept_between_hosts() {
        let options = MountOptions::new("/mnt", "x").with_locks(true);
        assert_eq!(answer(&OFFERED, &options, false).flags & super::LOCKS, 0, "nobody shares it");
        let options = MountOptions { shareable: true, ..options };
        let without = options.clone().with_locks(false);
        assert_eq!(answer(&OFFERED, &without, false).flags & super::LOCKS, 0);
        let taken = answer(&OFFERED, &options.with_locks(true), false).flags;
        assert_eq!(taken & (super::LOCKS | init::NO_OPEN_SUPPORT), super::LOCKS);
    }

    #[test]
    fn who_checks_permissions_decides_what_is_taken() {
        let mut options = MountOptions::new("/mnt", "x");
        options.checks = Checks::PosixLists;
        let lists = init::POSIX_ACL | init::DONT_MASK;
        assert_eq!(answer(&OFFERED, &options, false).flags & lists, lists);
        options.checks = Checks::Server;
        let taken = answer(&OFFERED, &options, false).flags;
        assert_eq!(taken & (lists | super::KERNEL_CHECKS), init::DONT_MASK);
    }

    #[test]
    fn nothing_is_taken_that_is_not_offered() {
        let offered = Init { flags: init::BIG_WRITES, ..OFFERED };
        let mut options = MountOptions::new("/mnt", "x");
        options.writeback = true;
        assert_eq!(answer(&offered, &options, false).flags, init::BIG_WRITES);
    }

    #[test]
    fn old_kernels_are_refused_by_name() {
        assert!(refusal(&OFFERED).is_none());
        assert!(refusal(&Init { minor: 31, ..OFFERED }).is_some());
        let poor = Init { flags: !init::HANDLE_KILLPRIV_V2, ..OFFERED };
        let error = refusal(&poor).expect("refused").to_string();
        assert!(error.contains("setuid"), "{error}");
        assert!(refusal(&Init { major: 8, minor: 0, ..OFFERED }).is_none());
    }
}
