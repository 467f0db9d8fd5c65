//! A pool with the mounts that show it, for the time of one operation.

use crate::control::credentials::Credentials;
use crate::engine::mounted;
use crate::engine::mounts::Mounts;
use crate::engine::pool::open::OpenPool;
use marram_pool::Pool;
use std::ops::Deref;

/// A pool, and the mounts that show it.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'s> {
    /// The pool.
    pub(crate) open: &'s OpenPool,
    /// A handle of it that acts for the user of the request.
    pub(crate) pool: &'s Pool,
    /// What holds of any store.
    pub(crate) shown: mounted::Shown<'s>,
}

impl<'s> Shown<'s> {
    /// A pool and its mounts, for an operation within the rights of a user.
    pub(crate) fn new(
        open: &'s OpenPool,
        pool: &'s Pool,
        mounts: &'s dyn Mounts,
        user: Option<&'s Credentials>,
    ) -> Shown<'s> {
        Shown { open, pool, shown: mounted::Shown { store: pool, commits: open, mounts, user } }
    }
}

impl<'s> Deref for Shown<'s> {
    type Target = mounted::Shown<'s>;

    fn deref(&self) -> &mounted::Shown<'s> {
        &self.shown
    }
}

impl mounted::Commits for OpenPool {
    fn commits(&self) -> u64 {
        self.pool().status().group
    }
}
