//! Switches of studies: what each of the ways to have fewer patches saves.
//!
//! A product leaves them as they are. `docs/patch.md` has the rules.

/// Which changes become a part of an older patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merging {
    /// By this crate's rules, which keep what different owners wait for apart.
    #[default]
    Owned,
    /// None: each change is a patch that can be taken back, as the thesis's naive graph.
    None,
    /// The thesis's hard patches, merged (sections 2.2.1 and 2.2.2).
    Hard,
    /// The thesis's overlap merging (section 2.2.3).
    Overlap,
    /// Both of the thesis's.
    Both,
}

impl Merging {
    pub(crate) fn is_hard(self) -> bool {
        matches!(self, Merging::Hard | Merging::Both)
    }

    pub(crate) fn is_overlapping(self) -> bool {
        matches!(self, Merging::Overlap | Merging::Both)
    }
}

/// How a cache works, for studies. Every choice keeps the order of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Study {
    /// Which changes become a part of an older patch.
    pub merging: Merging,
    /// What can be written is known; else a wave looks at every unit that has patches.
    pub has_ready_lists: bool,
    /// The unit of metadata is the block, which the medium must then write whole; else it is a
    /// sector.
    pub has_whole_blocks: bool,
}

impl Default for Study {
    /// What a product takes.
    fn default() -> Study {
        Study { merging: Merging::Owned, has_ready_lists: true, has_whole_blocks: false }
    }
}
