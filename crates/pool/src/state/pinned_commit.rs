//! One moment of a pool, readable while commits go on.
//!
//! What a commit gives back the next one may use again, so a long read of an older state would find
//! other bytes there. While a reader holds a moment, what is given back is not used again
//! ([`SpaceMap::hold`](crate::space::SpaceMap::hold)), unless there is nothing else: then the
//! moment is broken, and its reader begins anew. **What was read without an error is always of that
//! moment**: each node is verified by the checksum in the pointer that led to it.

use crate::io::At;
use crate::state::State;
use crate::state::holders::owners_in;
use crate::state::records::Records;
use crate::tree::{self, NodeSource};
use bytes::Bytes;
use marram_format::node::Node;
use marram_format::pointer::Pointer;
use marram_format::space::owners_key;
use marram_format::superblock::Superblock;
use marram_store::{Error, Result};
use std::sync::Arc;

/// How often a moment that was broken is taken anew before commits have to wait.
const TRIES_MAX: usize = 3;

/// See the module.
pub(crate) struct PinnedCommit {
    pub(crate) pool: Arc<State>,
    pub(crate) superblock: Superblock,
    pub(crate) records: Arc<Records>,
    pool_tree: Option<Bytes>,
    epoch: u64,
    /// What [`crate::space::SpaceMap::breaks`] said when it was held, if it is.
    held: Option<u64>,
}

impl PinnedCommit {
    /// The last commit, held.
    pub(crate) fn hold(pool: &Arc<State>) -> PinnedCommit {
        let _no_commit = pool.turns.committing.lock();
        PinnedCommit::hold_still(pool)
    }

    /// The same, for a caller that has the turn to commit.
    pub(crate) fn hold_still(pool: &Arc<State>) -> PinnedCommit {
        let mut moment = PinnedCommit::still(pool);
        moment.held = Some(pool.space.lock().hold());
        moment
    }

    /// The last commit. The caller has the turn to commit: nothing is given back meanwhile.
    pub(crate) fn still(pool: &Arc<State>) -> PinnedCommit {
        let superblock = pool.superblock.lock().clone();
        PinnedCommit {
            pool: Arc::clone(pool),
            pool_tree: superblock.pool_tree.as_ref().map(Pointer::encode),
            superblock,
            records: Arc::clone(&pool.records.read()),
            epoch: pool.media.epoch(),
            held: None,
        }
    }

    /// Lets `look` read one moment. Commits wait for it only if the pool is so short of space
    /// that nothing can be held back.
    pub(crate) fn look<T>(
        pool: &Arc<State>,
        look: &mut dyn FnMut(&PinnedCommit) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..TRIES_MAX {
            let moment = PinnedCommit::hold(pool);
            match look(&moment) {
                Err(Error::Damaged(_)) if moment.is_broken() => {}
                seen => return seen,
            }
        }
        let _no_commit = pool.turns.committing.lock();
        look(&PinnedCommit::still(pool))
    }

    /// Whether something that it has may have been overwritten.
    pub(crate) fn is_broken(&self) -> bool {
        self.held.is_some_and(|before| self.pool.space.lock().breaks() != before)
    }

    /// Damage of what is called `name` that is none: what was read has been given back and
    /// overwritten.
    pub(crate) fn judge_damage<T>(&self, name: &str, read: Result<T>) -> Result<T> {
        match read {
            Err(Error::Damaged(_)) if self.is_broken() => Err(Error::InUse {
                name: name.to_owned(),
                holder: "the pool has little space, and what is being read was overwritten; try \
                         again when less is written"
                    .to_owned(),
            }),
            Err(Error::Damaged(damage)) => {
                self.pool.media.keep_damage(&damage);
                Err(Error::Damaged(damage))
            }
            read => read,
        }
    }

    /// Where its nodes are read from.
    pub(crate) fn at(&self) -> At<'_> {
        At { media: &self.pool.media, epoch: self.epoch }
    }

    /// The root of the pool's own tree.
    pub(crate) fn pool_tree(&self) -> Option<&Bytes> {
        self.pool_tree.as_ref()
    }

    /// Whether any block of the pool has several owners.
    pub(crate) fn has_owners(&self) -> Result<bool> {
        let (from, to) = (owners_key(0), owners_key(u64::MAX));
        Ok(!tree::scan(&self.at(), self.pool_tree(), from, to, &mut |_| false)?)
    }

    /// Owners of a block that is in use.
    pub(crate) fn owners_of(&self, address: u64) -> Result<u64> {
        owners_in(&self.at(), self.pool_tree(), address)
    }
}

impl Drop for PinnedCommit {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.pool.space.lock().let_go();
        }
    }
}

impl NodeSource for PinnedCommit {
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>> {
        self.at().node(pointer)
    }
}
