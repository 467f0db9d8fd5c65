//! Items, batches and blocks of one dataset.

use super::{MakeStore, bytes, content, fresh, put, root, section, value};
use crate::{
    BLOCK_BYTES_MAX, Batch, Block, Error, Item, Key, Part, Store, VALUE_BYTES_MAX, View, kind,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Items are found under their keys, replaced and removed, before and after a sync.
pub fn items_are_set_found_and_removed(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    let key = Key::new(7, kind::INODE, 0);
    assert_eq!(value(&*view, key), None);
    put(&*view, key, Item::plain(&b"one"[..]));
    assert_eq!(value(&*view, key), Some(b"one".to_vec()));
    view.sync().expect("the view syncs");
    assert_eq!(value(&*view, key), Some(b"one".to_vec()));
    put(&*view, key, Item::plain(vec![7; VALUE_BYTES_MAX]));
    assert_eq!(value(&*view, key), Some(vec![7; VALUE_BYTES_MAX]));
    let mut batch = Batch::new();
    batch.remove(key).remove(Key::new(8, kind::INODE, 0));
    view.apply(batch).expect("removing what is not there is no error");
    assert_eq!(value(&*view, key), None);
    view.sync().expect("the view syncs");
    assert_eq!(value(&*view, key), None);
}

fn keys(view: &dyn View, from: Key, to: Key, max: usize) -> Vec<Key> {
    let mut found = Vec::new();
    let mut visit = |key: Key, item: &Item| {
        assert_eq!(item.value[..], key.encode(), "the item is that of its key");
        found.push(key);
        found.len() < max
    };
    view.scan(from, to, &mut visit).expect("the scan succeeds");
    found
}

/// Scans and `last` see the items of a range in order, whether they have been synced or not.
pub fn scans_follow_the_order_of_keys(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    let mut expected = Vec::new();
    for number in 0..600_u64 {
        let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = Key::new(2 + scattered % 5, kind::ENTRY, scattered >> 8);
        put(&*view, key, Item::plain(key.encode().to_vec()));
        expected.push(key);
        if number == 300 {
            view.sync().expect("the view syncs");
        }
    }
    for key in expected.iter().step_by(7) {
        let mut batch = Batch::new();
        batch.remove(*key);
        view.apply(batch).expect("the batch applies");
    }
    let mut expected: Vec<Key> = expected
        .iter()
        .enumerate()
        .filter(|(index, _)| index % 7 != 0)
        .map(|(_, key)| *key)
        .collect();
    expected.sort_unstable();
    let top = Key::new(1000, 0, 0);
    assert_eq!(keys(&*view, Key::new(2, 0, 0), top, usize::MAX), expected);
    let (from, to) = (expected[100], expected[200]);
    assert_eq!(keys(&*view, from, to, usize::MAX), expected[100..=200]);
    assert_eq!(keys(&*view, from, to, 3), expected[100..103], "the visitor can stop");
    assert_eq!(keys(&*view, to, from, 3), [], "an empty range");
    let last = |from: Key, to: Key| view.last(from, to).expect("found").map(|(key, _)| key);
    assert_eq!(last(from, to), Some(to));
    let below = Key { offset: to.offset - 1, ..to };
    assert_eq!(last(from, below), Some(expected[199]));
    assert_eq!(last(Key::new(999, 0, 0), top), None);
}

/// A batch that is refused leaves nothing behind.
pub fn batches_apply_wholly_or_not_at_all(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    put(&*view, section(2, 0), Item::plain(&b"kept"[..]));
    let mut batch = Batch::new();
    batch.put(section(3, 0), fresh(b"", vec![1; 100]));
    batch.remove(section(2, 0));
    batch.patch(section(9, 0), (&b"no such item"[..]).into(), 0, b"x");
    assert_eq!(view.apply(batch), Err(Error::NotFresh));
    assert_eq!(value(&*view, section(2, 0)), Some(b"kept".to_vec()));
    assert_eq!(value(&*view, section(3, 0)), None);
    assert_eq!(value(&*view, section(9, 0)), None);
}

/// Blocks of all sizes come back as they were, before and after a sync, and through another view.
pub fn blocks_come_back_whole(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    let lens = [1, 511, 4096, 4097, 131_072, 200_000, BLOCK_BYTES_MAX];
    for (seed, len) in (0..).zip(lens) {
        let item = fresh(b"random", bytes(seed, len));
        put(&*view, section(2, seed), item);
        put(&*view, section(3, seed), fresh(b"repeated", vec![b'r'; len]));
    }
    for _ in 0..2 {
        for (seed, len) in (0..).zip(lens) {
            assert_eq!(content(&*view, section(2, seed)), bytes(seed, len));
            assert_eq!(content(&*root(&store), section(3, seed)), vec![b'r'; len]);
        }
        let block = |key| view.get(key).expect("it is read").and_then(|item| item.block);
        let keys = (0..).zip(lens).flat_map(|(seed, _)| [section(3, seed), section(2, seed)]);
        let blocks: Vec<_> = keys.filter_map(block).collect();
        // Each twice, and not in the order of their places.
        let asked: Vec<&Block> = blocks.iter().rev().chain(&blocks).collect();
        check_parts(&*view, asked.iter().map(|block| (*block, 0, block.len())));
        // But for their first byte and their last.
        let long = asked.iter().filter(|block| block.len() > 2);
        check_parts(&*view, long.map(|block| (*block, 1, block.len() - 2)));
        view.sync().expect("the view syncs");
    }
}

/// Parts of blocks that are read together are what each is alone, and there are zeros between them.
fn check_parts<'b>(view: &dyn View, wanted: impl Iterator<Item = (&'b Block, usize, usize)>) {
    const GAP_BYTES: usize = 3;
    let mut expected = b"what was there".to_vec();
    let mut out = expected.clone();
    let mut parts = Vec::new();
    for (block, from, len) in wanted {
        expected.extend_from_slice(&[0; GAP_BYTES]);
        let passes_by = parts.len() % 2 == 1;
        parts.push(Part { block, from, len, at: expected.len(), passes_by });
        let content = view.read_block(block).expect("it is read");
        expected.extend_from_slice(&content[from..from + len]);
    }
    view.read_parts(&parts, &mut out).expect("they are read");
    assert!(out == expected, "together and alone");
}

/// Patches overwrite and extend fresh blocks, and are refused on written ones.
pub fn patches_write_fresh_blocks(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    let key = section(2, 0);
    let patch = |at: usize, data: &[u8]| {
        let mut batch = Batch::new();
        batch.patch(key, at.to_string().into(), at, data);
        view.apply(batch)
    };
    assert_eq!(patch(0, b"nothing is there"), Err(Error::NotFresh));
    let mut expected = bytes(1, 1000);
    put(&*view, key, fresh(b"", expected.clone()));
    let held = view.get(key).expect("read").expect("there");
    let mut fresh_still = true;
    for (at, len) in [(0, 10), (500, 600), (1100, 50_000), (1200, 7)] {
        let data = bytes(at as u64, len);
        match patch(at, &data) {
            Ok(()) => {
                expected.resize(expected.len().max(at + len), 0);
                expected[at..at + len].copy_from_slice(&data);
                let expected = at.to_string().into_bytes();
                assert_eq!(value(&*view, key), Some(expected), "the value is set too");
            }
            Err(Error::NotFresh) => fresh_still = false,
            Err(other) => panic!("{other}"),
        }
        assert_eq!(content(&*view, key), expected);
    }
    let before = held.block.expect("it has a block");
    assert_eq!(view.read_block(&before).expect("read")[..], bytes(1, 1000), "others see no patch");
    drop(before);
    view.sync().expect("the view syncs");
    let stored =
        matches!(view.get(key).expect("read").expect("there").block, Some(Block::Stored(_)));
    assert!(!(stored && fresh_still) || patch(0, b"x") == Err(Error::NotFresh));
}

/// One block referred to from several items lives until the last of them goes.
pub fn blocks_are_shared_and_cut(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    for synced in [false, true] {
        let whole = bytes(4, 100_000);
        put(&*view, section(2, 0), fresh(b"whole", whole.clone()));
        if synced {
            view.sync().expect("the view syncs");
        }
        let take = |key| view.get(key).expect("read").expect("there").block.expect("a block");
        let block = take(section(2, 0));
        let mut batch = Batch::new();
        batch.put(section(2, 0), Item::with_block(&b"front"[..], block.clone()));
        batch.put(section(2, 60_000), Item::with_block(&b"tail"[..], block));
        view.apply(batch).expect("a block is cut in two");
        let block = take(section(2, 60_000));
        let mut batch = Batch::new();
        batch.put(section(2, 60_000), Item::with_block(&b"tail"[..], block.clone()));
        batch.put(section(9, 0), Item::with_block(&b"copy"[..], block));
        view.apply(batch).expect("a block gets a third reference");
        let moved = take(section(2, 60_000));
        let mut batch = Batch::new();
        batch.remove(section(2, 60_000)).remove(section(2, 0));
        batch.put(section(2, 70_000), Item::with_block(&b"moved"[..], moved));
        view.apply(batch).expect("a reference moves to another key");
        view.sync().expect("the view syncs");
        assert_eq!(content(&*view, section(2, 70_000)), whole);
        let mut batch = Batch::new();
        batch.remove(section(2, 70_000));
        view.apply(batch).expect("the batch applies");
        view.sync().expect("the view syncs");
        assert_eq!(content(&*view, section(9, 0)), whole, "one reference is left");
        let mut batch = Batch::new();
        batch.remove(section(9, 0));
        view.apply(batch).expect("the batch applies");
        view.sync().expect("the view syncs");
    }
}

const BATCHES: u64 = 200;

/// A reader never sees the half of a batch in one item, while others write and sync.
pub fn many_threads_see_whole_batches(make: MakeStore<'_>) {
    let store: Arc<dyn Store> = make();
    let view = root(&store);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for object in [2, 3] {
            let view = Arc::clone(&view);
            scope.spawn(move || {
                for number in 0..BATCHES {
                    let content = vec![number.to_le_bytes()[0]; 5000];
                    put(&*view, section(object, 0), fresh(b"", content));
                }
            });
        }
        let syncing = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                view.sync().expect("the view syncs");
            }
        });
        for _ in 0..BATCHES {
            for object in [2, 3] {
                if view.get(section(object, 0)).expect("read").is_some() {
                    let content = content(&*view, section(object, 0));
                    assert!(content.iter().all(|byte| *byte == content[0]), "one batch's content");
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        syncing.join().expect("the syncing thread ends well");
    });
    assert_eq!(content(&*view, section(2, 0)), vec![199; 5000]);
}
