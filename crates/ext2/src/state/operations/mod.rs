//! The operations, each as a plan whose parts wait for one another as the contract's promises need
//! it. `docs/ext2.md` has the rules in one table.

mod attributes;
mod content;
mod names;
mod rename;
mod xattrs;

pub(crate) use content::has_blocks;
pub(crate) use names::{read_target, reading};
pub(crate) use rename::Move;
