//! Access control lists: what they say, how they are stored, and how they are checked.
//!
//! A dataset obeys lists of one kind, or none; see `docs/decisions/0010-access-control-lists.md`.
//! POSIX lists are checked by the kernel, and what is done here is to keep them true: mode and list
//! say the same after every operation, in the same batch. NFSv4 lists are checked here as well, by
//! the guard: the kernel does not know them.
//!
//! `posix_list` and `nfs4` are pure: bytes and numbers in, bytes and numbers out. Lists come from
//! users and from media, so nothing in them may make their decoders panic.

pub(crate) mod guard;
pub(crate) mod inherit;
mod nfs4;
mod posix_list;
pub(crate) mod stored;

pub use nfs4::{
    Entry as Nfs4Entry, Inheritance as Nfs4Inheritance, List as Nfs4List,
    ListError as Nfs4ListError, Rights as Nfs4Rights, Verdict as Nfs4Verdict, Who as Nfs4Who,
};
pub use posix_list::{PosixList, PosixListError};
