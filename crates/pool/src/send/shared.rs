//! Which blocks of what is sent are not new: the base has them, or several items do.
//!
//! A block pointer says when its block was born and whether other items may refer to it, so only
//! those are looked at that may be known. The references to such a block in the base are found
//! without a look at all of the base. A batch that makes a second reference puts the first one anew
//! (the contract of a batch), so its leaf is one of those that differ.

use crate::base::pointers::decode_pointer;
use crate::io::At;
use crate::tree::{self, Differing};
use bytes::Bytes;
use marram_format::group::Group;
use marram_format::key::Key;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_store::Result;
use marram_stream::reader::is_sent;
use std::collections::{HashMap, HashSet};

/// Blocks that are remembered; what is beyond is sent again with each item.
const SHARED_BLOCKS_MAX: usize = 1 << 20;

/// The trees that are walked.
pub(super) struct Roots<'r> {
    pub(super) base: Option<&'r Bytes>,
    pub(super) snapshot: Option<&'r Bytes>,
    /// When the base was taken.
    pub(super) base_group: Group,
}

/// How a block may be named instead of being sent.
pub(super) enum Known {
    /// The base has it under this key.
    OfBase(Key),
    /// It has been sent with this key.
    Sent(Key),
}

/// See the module.
#[derive(Default)]
pub(super) struct SharedBlocks {
    /// Addresses of blocks that may be known.
    candidates: HashSet<u64>,
    /// Where the base has them.
    origins: HashMap<u64, Key>,
    sent: HashMap<u64, Key>,
}

impl SharedBlocks {
    /// Finds what may be known. Reads nodes, no blocks.
    pub(super) fn find(at: &At<'_>, roots: &Roots<'_>) -> Result<SharedBlocks> {
        let mut shared = SharedBlocks::default();
        walk(at, roots, &mut |differing| shared.note_candidate(differing, roots))?;
        if roots.base.is_some() && !shared.candidates.is_empty() {
            walk(at, roots, &mut |differing| shared.note_origin(differing))?;
        }
        Ok(shared)
    }

    fn note_candidate(&mut self, differing: &Differing, roots: &Roots<'_>) -> Result<()> {
        let Some(after) = differing.after.as_ref().filter(|_| !differing.is_same()) else {
            return Ok(());
        };
        let Some(encoded) = &after.pointer else { return Ok(()) };
        let pointer = decode_pointer(encoded)?;
        let may_be_known = pointer.flags.contains(PointerFlags::SHARED)
            || pointer.flags.contains(PointerFlags::ADOPTED)
            || (roots.base.is_some() && pointer.birth <= roots.base_group);
        if may_be_known
            && !is_kept(differing)
            && self.candidates.len() < SHARED_BLOCKS_MAX
            && let Some(address) = pointer.address()
        {
            self.candidates.insert(address);
        }
        Ok(())
    }

    fn note_origin(&mut self, differing: &Differing) -> Result<()> {
        if let Some(before) = &differing.before
            && let Some((_, address)) = before.pointer.as_deref().and_then(Pointer::peek_identity)
            && self.candidates.contains(&address)
        {
            self.origins.entry(address).or_insert(before.key);
        }
        Ok(())
    }

    /// How the block at `address` may be named by the item under `key`, if it is known; else it is
    /// from now on.
    pub(super) fn look_up(&mut self, address: u64, key: Key) -> Option<Known> {
        if !self.candidates.contains(&address) {
            return None;
        }
        if let Some(origin) = self.origins.get(&address) {
            return Some(Known::OfBase(*origin));
        }
        if let Some(sent) = self.sent.get(&address) {
            return Some(Known::Sent(*sent));
        }
        self.sent.insert(address, key);
        None
    }
}

/// Whether the item has the block that the base's item under the same key has. No block of a
/// snapshot that is there is ever written over, so an address is enough.
pub(super) fn is_kept(differing: &Differing) -> bool {
    let address = |pointer: &Option<Bytes>| {
        pointer.as_deref().and_then(Pointer::peek_identity).map(|(_, address)| address)
    };
    let before = differing.before.as_ref().and_then(|found| address(&found.pointer));
    before.is_some() && before == differing.after.as_ref().and_then(|found| address(&found.pointer))
}

/// Visits the items of all leaves that are not the same in both trees, of kinds that are sent.
fn walk(
    at: &At<'_>,
    roots: &Roots<'_>,
    visit: &mut dyn FnMut(&Differing) -> Result<()>,
) -> Result<()> {
    let mut failed = None;
    tree::beside(at, (roots.base, roots.snapshot), Key::MIN, &mut |differing| {
        let found = differing.after.as_ref().or(differing.before.as_ref());
        if found.is_some_and(|found| is_sent(found.key.kind)) {
            failed = visit(&differing).err();
        }
        failed.is_none()
    })?;
    failed.map_or(Ok(()), Err)
}
