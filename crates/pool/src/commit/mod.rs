//! The group commit: what batches changed in memory becomes durable on media, all at one moment.
//!
//! 1. Freeze: no batch is under way, the open layer of every dataset is frozen, batches go on.
//! 2. Count the owners of blocks that are adopted; then write the fresh blocks, and the changed
//!    nodes of each dataset's tree.
//! 3. Administrative work: a snapshot is the root as it is now.
//! 4. Write the changed nodes of the pool's own tree: dataset records, dead lists, bitmaps.
//! 5. Write the tail, then flush: everything that the new superblock leads to is durable.
//! 6. Write one slot of each superblock ring, then flush: the commit has happened.
//! 7. Publish: readers see the new roots, the frozen layers go, freed grains can be used.
//!
//! A crash before 6 is done leads back to the last commit, of which nothing has been overwritten.
//! An error before 6 leaves everything in memory as it was; but if a device failed, the pool
//! takes no more changes, as nobody knows what it has kept.

mod blocks;
pub(crate) mod dead_list_reclaim;
pub(crate) mod draft;
mod dry_run;
mod forks;
pub(crate) mod kept_states;
pub(crate) mod leaving;
pub(crate) mod merges;
pub(crate) mod operation_log;
pub(crate) mod owners;
mod pool_tree;
mod publish;
mod queue;
mod references;
mod steps;
pub(crate) mod sync;
mod trees;
pub(crate) mod trim;
pub(crate) mod turn;
