//! Order between sets of changes that a caller chooses: two empty patches around each set.
//!
//! Every change of a set waits for its head, and its tail waits for every change. The head waits
//! for the tails of earlier sets. A set gets changes only until another one waits for it, and it
//! gets what it waits for before its first change. So no patch comes to wait for itself: nothing
//! waits for a tail that may come to wait for more, and nothing for a head that is not complete.

use crate::cache::Cache;
use crate::graph::PatchId;

/// The two patches around a set of changes.
#[derive(Clone, Copy, Debug)]
pub struct Bracket {
    /// What all of the changes wait for.
    pub head: PatchId,
    /// What waits for all of the changes.
    tail: PatchId,
}

impl Cache {
    /// A set without changes, which comes after others that are sealed.
    pub fn open_bracket(&mut self, earlier: &[Bracket]) -> Bracket {
        let tails: Vec<PatchId> = earlier.iter().map(|bracket| bracket.tail).collect();
        let head = self.graph.stand_for(&tails);
        let tail = self.graph.hold();
        self.graph.add(tail, &[head]);
        Bracket { head, tail }
    }

    /// Lets patches be among those that come before what waits for a set. It is not sealed.
    pub fn add_to_bracket(&mut self, bracket: Bracket, patches: &[PatchId]) {
        self.graph.add(bracket.tail, patches);
    }

    /// Lets a set have all of its changes, so that others may wait for it. If the other changes are
    /// made in no order, it comes after all of them.
    pub fn seal_bracket(&mut self, bracket: Bracket, comes_after_all: bool) {
        let others = if comes_after_all { self.graph.all_with_units() } else { Vec::new() };
        self.graph.release(bracket.tail, &others);
    }

    /// Makes the changes of a set durable, and all that they wait for.
    ///
    /// # Errors
    /// As for [`Cache::wave`].
    pub fn sync_bracket(&mut self, bracket: Bracket) -> marram_device::Result<()> {
        self.sync_patches(&[bracket.tail])
    }
}
