//! Tests of the contract, for any store.
//!
//! Each function takes a way to make an empty store (with its root dataset) and panics where the
//! store breaks the contract. [`all`] runs every one of them. A capability that a store or its
//! views hand out has to behave; without it, what holds instead has to. What a crash leaves is not
//! tested here: that needs the store's devices.

mod capabilities;
mod counters;
mod datasets;
mod history;
mod items;
mod several;
mod store_capabilities;
mod together;
mod volatile;

pub use capabilities::{
    blocks_have_places, capabilities_stay, dry_runs_apply_nothing, halted_stores_only_read,
    labels_are_set, space_is_counted_and_kept_back, trims_spare_what_is_in_use,
};
pub use counters::{counters_add_up, counters_keep_their_limits, counters_lose_nothing_to_threads};
pub use datasets::{
    clones_diverge_from_their_origin, destruction_is_refused_while_in_use,
    limits_of_owners_are_items, properties_are_set_and_reset, reports_are_those_of_the_list,
    snapshots_keep_their_moment, snapshots_together_are_of_one_moment,
};
pub use history::{
    adopted_blocks_outlive_their_first_owner, changes_are_found, forks_begin_as_their_base,
    names_change, promoted_clones_take_their_snapshots_over, rollbacks_go_back_and_keep_what_was,
};
pub use items::{
    batches_apply_wholly_or_not_at_all, blocks_are_shared_and_cut, blocks_come_back_whole,
    items_are_set_found_and_removed, many_threads_see_whole_batches, patches_write_fresh_blocks,
    scans_follow_the_order_of_keys,
};
pub use several::{
    forks_of_several_datasets_begin_at_one_moment, merges_into_several_datasets_are_one_step,
    several_datasets_are_refused_without_the_capability,
};
pub use store_capabilities::{
    ephemeral_snapshots_go_when_they_are_discarded, frozen_views_know_what_holds_a_block,
    holds_keep_snapshots, merges_are_one_step, merges_on_another_base_are_refused,
    overtaken_states_are_not_merged, store_capabilities_stay, usage_adds_up,
};

pub use together::{
    OpenTwice, batches_that_name_no_moment_are_refused, counters_add_up_between_clients,
    datasets_are_made_by_one_and_seen_by_both, one_of_two_that_make_a_name_wins,
    overtaken_batches_change_nothing, own_changes_leave_the_moment, together,
    what_one_applies_the_other_sees,
};
pub use volatile::{
    volatile_forks_are_forks, volatile_forks_begin_in_each_other,
    volatile_forks_end_without_a_trace, volatile_forks_keep_their_moment,
};

use crate::{Batch, Block, DatasetName, Error, Item, Key, Result, Source, Store, View, kind};
use std::sync::Arc;

/// Makes an empty store.
pub type MakeStore<'a> = &'a dyn Fn() -> Arc<dyn Store>;

/// Runs every test of this module.
pub fn all(make: MakeStore<'_>) {
    items_are_set_found_and_removed(make);
    scans_follow_the_order_of_keys(make);
    batches_apply_wholly_or_not_at_all(make);
    blocks_come_back_whole(make);
    patches_write_fresh_blocks(make);
    blocks_are_shared_and_cut(make);
    many_threads_see_whole_batches(make);
    counters_add_up(make);
    counters_keep_their_limits(make);
    counters_lose_nothing_to_threads(make);
    snapshots_keep_their_moment(make);
    snapshots_together_are_of_one_moment(make);
    reports_are_those_of_the_list(make);
    clones_diverge_from_their_origin(make);
    destruction_is_refused_while_in_use(make);
    properties_are_set_and_reset(make);
    limits_of_owners_are_items(make);
    forks_begin_as_their_base(make);
    rollbacks_go_back_and_keep_what_was(make);
    promoted_clones_take_their_snapshots_over(make);
    names_change(make);
    changes_are_found(make);
    adopted_blocks_outlive_their_first_owner(make);
    capabilities_stay(make);
    space_is_counted_and_kept_back(make);
    dry_runs_apply_nothing(make);
    blocks_have_places(make);
    labels_are_set(make);
    trims_spare_what_is_in_use(make);
    halted_stores_only_read(make);
    store_capabilities_stay(make);
    ephemeral_snapshots_go_when_they_are_discarded(make);
    usage_adds_up(make);
    frozen_views_know_what_holds_a_block(make);
    merges_are_one_step(make);
    overtaken_states_are_not_merged(make);
    merges_on_another_base_are_refused(make);
    holds_keep_snapshots(make);
    volatile_forks_are_forks(make);
    volatile_forks_keep_their_moment(make);
    volatile_forks_end_without_a_trace(make);
    volatile_forks_begin_in_each_other(make);
    several_datasets_are_refused_without_the_capability(make);
    forks_of_several_datasets_begin_at_one_moment(make);
    merges_into_several_datasets_are_one_step(make);
}

/// The live dataset of that name.
fn live(name: &str) -> Source {
    name.parse().expect("a valid name")
}

/// The root dataset's view.
fn root(store: &Arc<dyn Store>) -> Arc<dyn View> {
    let source = Source { dataset: DatasetName::root(), snapshot: None };
    store.open(&source).expect("the root dataset opens")
}

/// A key among those of sections.
fn section(object: u64, offset: u64) -> Key {
    Key::new(object, kind::SECTION, offset)
}

/// Puts one item.
fn put(view: &dyn View, key: Key, item: Item) {
    let mut batch = Batch::new();
    batch.put(key, item);
    view.apply(batch).expect("the batch applies");
}

/// The value under a key.
fn value(view: &dyn View, key: Key) -> Option<Vec<u8>> {
    view.get(key).expect("the item is read").map(|item| item.value.to_vec())
}

/// The content of the block under a key.
fn content(view: &dyn View, key: Key) -> Vec<u8> {
    let item = view.get(key).expect("the item is read").expect("there is an item");
    let block = item.block.expect("the item has a block");
    let content = view.read_block(&block).expect("the block is read");
    assert_eq!(block.len(), content.len(), "a block has its length");
    content.to_vec()
}

/// The block under `section(object, 0)`.
fn block_at(view: &dyn View, object: u64) -> Block {
    let item = view.get(section(object, 0)).expect("it is read").expect("there is an item");
    item.block.expect("the item has a block")
}

/// Whether a store answers that it does not have what was asked for.
fn is_absent<T>(answer: Result<T>) -> bool {
    matches!(answer, Err(Error::Unsupported(_)))
}

/// Content that differs from byte to byte and from seed to seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

/// An item with a fresh block.
fn fresh(value: &'static [u8], content: Vec<u8>) -> Item {
    Item::with_block(value, Block::fresh(content))
}
