//! What holds where a view does not have a capability, so that callers need not ask.
//!
//! Where there is no honest answer without it (a label, a trim, a halt), there is no method here:
//! the caller looks into [`Capabilities`](super::Capabilities), and refuses.

use super::{BlockPlace, Holding, Space, View};
use crate::{Batch, Block, Key, Result};
use bytes::Bytes;

impl dyn View + '_ {
    /// [`CountedSpace::space`](super::CountedSpace::space); without it
    /// [`Space::UNCOUNTED`].
    pub fn space(&self) -> Space {
        self.capabilities().space.map_or(Space::UNCOUNTED, |it| it.space())
    }

    /// [`AdmissionControl::promise`](super::AdmissionControl::promise); without it nothing is kept
    /// back: space is not what such a store runs out of.
    pub fn promise(&self, bytes: u64) {
        if let Some(admission) = self.capabilities().admission {
            admission.promise(bytes);
        }
    }

    /// [`AdmissionControl::dry_run`](super::AdmissionControl::dry_run); without it every batch is
    /// taken to fit.
    ///
    /// # Errors
    /// Those that a merge would give.
    pub fn dry_run(&self, batch: Batch<'_>) -> Result<()> {
        self.capabilities().admission.map_or(Ok(()), |it| it.dry_run(batch))
    }

    /// [`AdmissionControl::commit`](super::AdmissionControl::commit); without it a sync, since
    /// nothing has to come back.
    ///
    /// # Errors
    /// As for [`View::sync`].
    pub fn commit(&self) -> Result<()> {
        self.capabilities().admission.map_or_else(|| self.sync(), |it| it.commit())
    }

    /// [`Placement::stored_bytes`](super::Placement::stored_bytes); without it the length of the
    /// block.
    pub fn stored_bytes(&self, block: &Block) -> u64 {
        let placement = self.capabilities().placement;
        placement.map_or(block.len() as u64, |it| it.stored_bytes(block))
    }

    /// [`Placement::place_of`](super::Placement::place_of); without it the block has no address and
    /// may be shared.
    pub fn place_of(&self, block: &Block) -> BlockPlace {
        let in_memory = || BlockPlace::in_memory(block.len() as u64);
        self.capabilities().placement.map_or_else(in_memory, |it| it.place_of(block))
    }

    /// [`Placement::read_block_anew`](super::Placement::read_block_anew); without it a read like
    /// any other.
    ///
    /// # Errors
    /// A failed read.
    pub fn read_block_anew(&self, block: &Block) -> Result<Bytes> {
        let placement = self.capabilities().placement;
        placement.map_or_else(|| self.read_block(block), |it| it.read_block_anew(block))
    }

    /// [`Placement::is_held_only_by`](super::Placement::is_held_only_by); without it no block is
    /// known to be.
    ///
    /// # Errors
    /// A failed read.
    pub fn is_held_only_by(&self, block: &Block, keys: &[Key]) -> Result<bool> {
        self.capabilities().placement.map_or(Ok(false), |it| it.is_held_only_by(block, keys))
    }

    /// [`Ownership::holding`](super::Ownership::holding); without it nothing is known.
    ///
    /// # Errors
    /// A failed read.
    pub fn holding(&self, block: &Block) -> Result<Option<Holding>> {
        self.capabilities().ownership.map_or(Ok(None), |it| it.holding(block))
    }

    /// [`Adoption::adopt`](super::Adoption::adopt); without it a copy.
    ///
    /// # Errors
    /// A failed read.
    pub fn adopt(&self, from: &dyn View, block: &Block) -> Result<Block> {
        match self.capabilities().adoption {
            Some(adoption) => adoption.adopt(from, block),
            None => Ok(Block::fresh(from.read_block(block)?.to_vec())),
        }
    }
}
