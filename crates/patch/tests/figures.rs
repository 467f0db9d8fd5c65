//! Figures 2.2, 2.3 and 2.4 of the thesis: what the patches of small operations are, and what each
//! way to have fewer of them saves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_device::{Device, MemoryDevice};
use marram_patch::{After, Cache, Content, Merging, Owner, PatchId, Plan, Study};
use std::sync::Arc;

const BLOCK: usize = 4096;
const ALL: [Merging; 5] =
    [Merging::Owned, Merging::None, Merging::Hard, Merging::Overlap, Merging::Both];
/// Blocks of the figures.
const BITMAP: u64 = 0;
const INODES: u64 = 1;
const GROUP: u64 = 2;
const SUPERBLOCK: u64 = 3;
const DIRECTORY: u64 = 4;
const DATA: u64 = 8;
const LOG: u64 = 16;
/// Places in the block of inodes.
const SIZE_AT: usize = 4;
const MODIFIED_AT: usize = 16;
const BLOCKS_AT: usize = 28;
const POINTERS_AT: usize = 40;
const OTHER_INODE_AT: usize = 256;

fn opened(merging: Merging) -> (Arc<MemoryDevice>, Cache) {
    let device = Arc::new(MemoryDevice::new(BLOCK * 24));
    let mut cache = Cache::new(Arc::clone(&device) as Arc<dyn Device>, 0, BLOCK);
    cache.set_study(Study { merging, has_whole_blocks: true, ..Study::default() });
    (device, cache)
}

/// Writes words of a block of metadata as one change.
fn put(
    plan: &mut Plan,
    cache: &mut Cache,
    block: u64,
    parts: &[(usize, u32)],
    after: &[After],
) -> After {
    let bytes: Vec<(usize, [u8; 4])> =
        parts.iter().map(|(at, it)| (*at, it.to_le_bytes())).collect();
    let parts: Vec<(usize, &[u8])> = bytes.iter().map(|(at, it)| (*at, &it[..])).collect();
    plan.put(cache, block, &parts, after).unwrap()
}

/// Appends 16 KiB to an empty file by four writes.
fn four_blocks_are_appended(cache: &mut Cache, owner: Owner) {
    for which in 0..4_u32 {
        let mut plan = Plan::default();
        plan.set_owner(owner);
        let place = (DATA + u64::from(which), Content::Data);
        let mut ready = plan.set_bits(cache, BITMAP, &[which.into()], true, &[]).unwrap();
        ready.extend(plan.fresh(cache, place, &[0; BLOCK], &[]));
        let pointer = (POINTERS_AT + which as usize * 4, place.0 as u32);
        put(&mut plan, cache, INODES, &[(BLOCKS_AT, which * 8 + 8), pointer], &ready);
        plan.fresh(cache, place, &[7; BLOCK], &[]);
        put(&mut plan, cache, INODES, &[(SIZE_AT, (which + 1) * 4096)], &ready);
        if which == 3 {
            put(&mut plan, cache, INODES, &[(MODIFIED_AT, 1)], &[]);
            put(&mut plan, cache, GROUP, &[(12, 1000)], &[]);
            put(&mut plan, cache, SUPERBLOCK, &[(12, 1000)], &[]);
        }
        cache.apply(plan).unwrap();
    }
}

/// Patches of figure 2.3, those of them that nothing takes back, and bytes kept for the others.
fn counted(merging: Merging, owner: Owner) -> (u64, u64, u64) {
    let (device, mut cache) = opened(merging);
    four_blocks_are_appended(&mut cache, owner);
    let counters = cache.counters();
    assert_eq!(counters.waiting, counters.patches());
    cache.sync().unwrap();
    let medium = device.snapshot();
    assert_eq!(medium[0], 0b1111);
    assert_eq!(medium[BLOCK * DATA as usize..][..BLOCK * 4], [7; BLOCK * 4]);
    assert_eq!(medium[BLOCK * INODES as usize + SIZE_AT..][..4], 16_384_u32.to_le_bytes());
    (counters.patches(), counters.hard + counters.into_hard, counters.kept_bytes)
}

#[test]
fn figure_2_3_has_23_then_15_then_8_patches_and_no_undo() {
    let (patches, hard, kept) = counted(Merging::None, Owner(2));
    assert_eq!((patches, hard), (23, 0));
    assert!((32_768..33_300).contains(&kept), "{kept}");
    let (patches, hard, kept) = counted(Merging::Hard, Owner(2));
    assert_eq!((patches, hard), (15, 16));
    assert!((16_384..16_600).contains(&kept), "{kept}");
    let (patches, _, kept) = counted(Merging::Both, Owner(2));
    assert_eq!((patches, kept), (8, 0));
}

#[test]
fn the_four_appends_of_figure_2_3_are_six_patches_here() {
    // The bitmap, all content of the file, its inode, its time, and the two counts.
    let (patches, _, kept) = counted(Merging::Owned, Owner(2));
    assert_eq!(patches, 6);
    assert!(kept <= 28, "only fields of the inode are kept: {kept}");
    let (patches, _, _) = counted(Merging::Owned, Owner::default());
    assert_eq!(patches, 9, "blocks that belong to no file stay apart");
}

/// Figure 2.2a: one block is appended.
fn a_block_is_appended(cache: &mut Cache) -> Vec<PatchId> {
    let mut plan = Plan::default();
    plan.set_owner(Owner(2));
    let bit = plan.set_bits(cache, BITMAP, &[3], true, &[]).unwrap();
    let clear = plan.fresh(cache, (DATA, Content::Data), &[9; BLOCK], &bit);
    let after = [bit, clear].concat();
    put(&mut plan, cache, INODES, &[(POINTERS_AT, DATA as u32)], &after);
    put(&mut plan, cache, INODES, &[(SIZE_AT, 4096)], &after[1..]);
    cache.apply(plan).unwrap()
}

#[test]
fn figure_2_2a_is_written_in_its_order() {
    for merging in ALL {
        let (device, mut cache) = opened(merging);
        a_block_is_appended(&mut cache);
        if merging == Merging::None {
            assert_eq!(cache.counters().patches(), 4);
        }
        let parts = [0, BLOCK * DATA as usize, BLOCK * INODES as usize + POINTERS_AT];
        for wave in 0..3 {
            cache.wave().unwrap();
            let medium = device.snapshot();
            let seen = parts.iter().filter(|at| medium[**at] != 0).count();
            assert_eq!(seen, wave + 1, "{merging:?}: bit, then block, then inode");
        }
        assert!(cache.is_clean() && cache.counters().rollbacks == 0, "{merging:?}");
    }
}

#[test]
fn figure_2_2b_takes_back_what_lies_in_a_circle_of_blocks() {
    for merging in ALL {
        let (device, mut cache) = opened(merging);
        let mut plan = Plan::default();
        plan.set_bits(&mut cache, BITMAP, &[5], true, &[]).unwrap();
        put(&mut plan, &mut cache, INODES, &[(OTHER_INODE_AT, 77)], &[]);
        cache.apply(plan).unwrap();
        cache.sync().unwrap();
        a_block_is_appended(&mut cache);
        // Another file of the same blocks is removed: its bit waits for its inode.
        let mut plan = Plan::default();
        let cleared = put(&mut plan, &mut cache, INODES, &[(OTHER_INODE_AT, 0)], &[]);
        plan.set_bits(&mut cache, BITMAP, &[5], false, &[cleared]).unwrap();
        cache.apply(plan).unwrap();
        let before = cache.counters().written_bytes;
        cache.wave().unwrap();
        assert_eq!(device.snapshot()[0], 0b10_1000, "{merging:?}: the freed bit was taken back");
        assert_eq!(cache.read(BITMAP).unwrap()[0], 0b1000, "{merging:?}: readers see it freed");
        cache.sync().unwrap();
        let counters = cache.counters();
        assert_eq!(device.snapshot()[0], 0b1000, "{merging:?}");
        assert!(counters.rollbacks > 0 && counters.twice_bytes >= BLOCK as u64, "{merging:?}");
        assert!(counters.written_bytes - before >= 4 * BLOCK as u64, "a block was written twice");
    }
}

#[test]
fn figure_2_2c_is_a_journal_made_of_patches() {
    const COMMIT: u32 = 0xc0;
    const COMPLETE: u32 = 0xcc;
    for merging in ALL {
        let (device, mut cache) = opened(merging);
        let mut plan = Plan::default();
        let copies: Vec<After> = (0..3)
            .flat_map(|which| plan.fresh(&cache, (LOG + which, Content::Data), &[4; BLOCK], &[]))
            .collect();
        let committed = [put(&mut plan, &mut cache, LOG + 3, &[(0, COMMIT)], &copies)];
        let mut originals = plan.set_bits(&mut cache, BITMAP, &[3], true, &committed).unwrap();
        let place = (DATA, Content::Data);
        originals.extend(plan.fresh(&cache, place, &[9; BLOCK], &committed));
        let parts = [(POINTERS_AT, DATA as u32), (SIZE_AT, 4096)];
        originals.push(put(&mut plan, &mut cache, INODES, &parts, &committed));
        put(&mut plan, &mut cache, LOG + 3, &[(0, COMPLETE)], &originals);
        cache.apply(plan).unwrap();
        let mut seen = Vec::new();
        while cache.wave().unwrap() {
            let medium = device.snapshot();
            let record = medium[BLOCK * (LOG as usize + 3)];
            seen.push((record, medium[BLOCK * INODES as usize + SIZE_AT + 1]));
        }
        let (commit, complete) = (COMMIT as u8, COMPLETE as u8);
        assert_eq!(seen, [(0, 0), (commit, 0), (commit, 16), (complete, 16)], "{merging:?}");
        assert!(cache.counters().rollbacks > 0, "{merging:?}: the commit block is written twice");
    }
}

#[test]
fn figure_2_4_makes_soft_patches_hard_when_their_circle_is_gone() {
    for merging in [Merging::Hard, Merging::Both] {
        let (device, mut cache) = opened(merging);
        let mut plan = Plan::default();
        let removed = put(&mut plan, &mut cache, DIRECTORY, &[(0, 1)], &[]);
        let inode = put(&mut plan, &mut cache, INODES, &[(0, 1)], &[removed]);
        let added = put(&mut plan, &mut cache, DIRECTORY, &[(64, 2)], &[inode]);
        let made = cache.apply(plan).unwrap();
        let of = |step: After| match step {
            After::Step(step) => made[step],
            _ => unreachable!("a step"),
        };
        assert_eq!((cache.counters().waiting, cache.counters().undo_bytes), (3, 4));
        cache.wave().unwrap();
        assert_eq!(device.snapshot()[BLOCK * DIRECTORY as usize + 64], 0, "it waits");
        let mut plan = Plan::default();
        let after = [After::Patch(of(inode))];
        put(&mut plan, &mut cache, DIRECTORY, &[(128, 3)], &after);
        cache.apply(plan).unwrap();
        let counters = cache.counters();
        assert_eq!((counters.waiting, counters.undo_bytes), (2, 0), "{merging:?}");
        cache.wave().unwrap();
        assert!(!cache.is_committed(of(added)));
        cache.wave().unwrap();
        assert!(cache.is_committed(of(added)) && cache.is_clean());
        let medium = device.snapshot();
        let entries = [0, 64, 128].map(|at| medium[BLOCK * DIRECTORY as usize + at]);
        assert_eq!(entries, [1, 2, 3], "{merging:?}");
    }
}
