//! Round trips, counted: a number that grows makes everything slower that is far from its database.

use crate::stores::{StillClock, in_memory, in_memory_at, made, options, together_in};
use marram_cluster::database::{Change, Table};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database};
use marram_store::{Batch, Block, Error, Item, Key, Part, Store, View};
use std::sync::Arc;

/// Round trips of some work.
fn counted<T>(memory: &MemoryDatabase, work: impl FnOnce() -> T) -> (u64, T) {
    let before = memory.round_trips();
    let answer = work();
    (memory.round_trips() - before, answer)
}

fn root(cluster: &Cluster) -> Arc<dyn View> {
    cluster.open(&"root".parse().unwrap()).unwrap()
}

/// Puts and syncs so many items, each with a block of its own if it is to have one.
fn put(view: &dyn View, first: u64, count: u64, with_blocks: bool) {
    let mut batch = Batch::new();
    for number in first..first + count {
        let block = Block::fresh(number.to_le_bytes().repeat(1000));
        let block = with_blocks.then_some(block);
        let item = Item { block, ..Item::plain(number.to_le_bytes().to_vec()) };
        batch.put(Key::new(2, 1, number), item);
    }
    view.apply(batch).unwrap();
    view.sync().unwrap();
}

#[test]
fn a_publication_costs_the_same_whatever_is_in_it() {
    let (memory, cluster) = in_memory();
    let view = root(&cluster);
    for (first, count) in [(0, 1), (100, 900)] {
        // The heads under its keys, the entry, the rows.
        let (trips, ()) = counted(&memory, || put(&*view, first, count, false));
        assert_eq!(trips, 3, "{count} items");
        // Which blocks are there, and those that are not.
        let (trips, ()) = counted(&memory, || put(&*view, first + 2000, count.min(500), true));
        assert_eq!(trips, 5, "{count} blocks");
    }
    let (trips, ()) = counted(&memory, || view.sync().unwrap());
    assert_eq!(trips, 0, "nothing waits");
}

#[test]
fn little_content_goes_along_with_its_entry() {
    let far = MemoryDatabase::default().far_away();
    let database: Arc<dyn Database> = Arc::new(far.clone());
    made(&database);
    let cluster = Cluster::open(database, options(1, None, &StillClock::new())).unwrap();
    let view = root(&cluster);
    // The heads under its keys, and all the rest.
    let (trips, ()) = counted(&far, || put(&*view, 0, 8, true));
    assert_eq!(trips, 2, "64,000 bytes");
    let (trips, ()) = counted(&far, || put(&*view, 10, 9, true));
    assert_eq!(trips, 4, "72,000 bytes");
    assert_eq!(verify(&far).unwrap().findings, [""; 0]);
    // A cut in the middle leaves nothing of it.
    far.cut_after(Some(far.changes_made() + 3));
    let mut batch = Batch::new();
    let block = Block::fresh(vec![9; 1000]);
    batch.put(Key::new(2, 1, 50), Item { block: Some(block), ..Item::plain(vec![5]) });
    view.apply(batch).unwrap();
    view.sync().unwrap_err();
    far.cut_after(None);
    assert_eq!(verify(&far.copy()).unwrap().findings, [""; 0]);
}

#[test]
fn a_fork_is_written_to_as_its_origin_is() {
    let (memory, cluster) = in_memory();
    put(&*root(&cluster), 0, 100, false);
    let root_name = "root".parse().unwrap();
    let (trips, _) = counted(&memory, || cluster.snapshot(&root_name, "a").unwrap());
    assert_eq!(trips, 2, "a snapshot is the entry and its rows");
    let fork = "try".parse().unwrap();
    let (trips, _) = counted(&memory, || cluster.fork(&root_name, &fork, 1).unwrap());
    assert_eq!(trips, 2, "so is a fork");
    let view = cluster.open(&"try".parse().unwrap()).unwrap();
    // What the origin has under the keys is one question more.
    let (trips, ()) = counted(&memory, || put(&*view, 50, 60, false));
    assert_eq!(trips, 4);
}

#[test]
fn a_cold_read_is_one_round_trip_and_its_block_another() {
    let (memory, cluster) = in_memory();
    put(&*root(&cluster), 0, 10, true);
    cluster.snapshot(&"root".parse().unwrap(), "a").unwrap();
    put(&*root(&cluster), 5, 2, true);
    cluster.close().unwrap();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    let (trips, cluster) =
        counted(&memory, || Cluster::open(database, options(2, None, &StillClock::new())).unwrap());
    // One of them finds the locks that a client has left behind.
    assert!(trips <= 12, "{trips} to open");
    for source in ["root", "root@a"] {
        let view = cluster.open(&source.parse().unwrap()).unwrap();
        let (trips, item) = counted(&memory, || view.get(Key::new(2, 1, 5)).unwrap().unwrap());
        assert_eq!(trips, 1, "an item of {source}");
        let block = item.block.unwrap();
        let (trips, _) = counted(&memory, || view.read_block(&block).unwrap());
        assert!(trips <= 1, "a block of {source}");
        let (trips, _) = counted(&memory, || view.read_block(&block).unwrap());
        assert_eq!(trips, 0, "which is kept");
    }
}

/// Round trips of all the sweeps that give the space of so many files back.
fn sweeping(count: u64) -> u64 {
    let clock = StillClock::new();
    let (memory, cluster) = in_memory_at(&clock);
    let view = root(&cluster);
    put(&*view, 0, count, true);
    let mut batch = Batch::new();
    for number in 0..count {
        batch.remove(Key::new(2, 1, number));
    }
    view.apply(batch).unwrap();
    view.sync().unwrap();
    clock.advance(100);
    let (trips, blocks) = counted(&memory, || {
        let (mut after, mut blocks) = (Vec::new(), 0);
        loop {
            let (swept, next) = cluster.sweep_step(after).unwrap();
            (after, blocks) = (next, blocks + swept.blocks);
            if !swept.more {
                return blocks;
            }
        }
    });
    assert_eq!(blocks, count, "all of them go");
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
    trips
}

#[test]
fn space_comes_back_by_questions_about_many_blocks() {
    // What is loose, what refers to some of it, and what takes them away.
    assert_eq!(sweeping(1), 3);
    assert_eq!(sweeping(64), 3);
    assert_eq!(sweeping(161), 5, "a question for 64 blocks");
    assert!(sweeping(1000) <= 26);
}

#[test]
fn rows_that_nothing_needs_go_by_questions_about_many() {
    let (memory, cluster) = in_memory();
    let view = root(&cluster);
    let name = "root".parse().unwrap();
    put(&*view, 0, 100, true);
    cluster.snapshot(&name, "a").unwrap();
    put(&*view, 0, 100, false);
    let (trips, _) =
        counted(&memory, || cluster.destroy(&"root@a".parse().unwrap(), false).unwrap());
    // The plan asks as the pruning does, and then come the entry and its rows.
    assert!(trips <= 9, "{trips} for a destruction");
    let (trips, steps) = counted(&memory, || {
        let mut steps = 1;
        while cluster.prune_step().unwrap().more {
            steps += 1;
        }
        steps
    });
    // A step asks for its work, for marks, twice for 64 of them, and writes.
    assert!(trips <= steps * 7, "{trips} in {steps} steps");
    assert!(steps <= 4, "{steps}");
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn far_away_an_entry_and_its_rows_are_one_round_trip() {
    let memory = MemoryDatabase::default().far_away();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let clock = StillClock::new();
    let clients = together_in(&[Arc::clone(&database)], &clock);
    let (cluster, view) = (&clients[0], root(&clients[0]));
    // The heads under the keys, and the entry with its rows.
    let (trips, ()) = counted(&memory, || put(&*view, 0, 100, false));
    assert_eq!(trips, 2);
    // Which blocks are there, and those that are not.
    let (trips, ()) = counted(&memory, || put(&*view, 200, 100, true));
    assert_eq!(trips, 4);
    let (name, fork) = ("root".parse().unwrap(), "try".parse().unwrap());
    let snapshot = "root@a".parse().unwrap();
    let one = |what: &str, work: &dyn Fn()| {
        let (trips, ()) = counted(&memory, work);
        assert_eq!(trips, 1, "{what}");
    };
    one("snapshot", &|| cluster.snapshot(&name, "a").unwrap());
    one("fork", &|| cluster.fork(&name, &fork, 1).unwrap());
    let lineage = cluster.capabilities().lineage.unwrap();
    one("promotion", &|| lineage.promote(&fork).unwrap());
    one("promotion back", &|| lineage.promote(&name).unwrap());
    drop(view);
    one("rollback", &|| lineage.rollback(&snapshot, "before").unwrap());
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn what_another_client_publishes_is_one_question_more() {
    let memory = MemoryDatabase::default().far_away();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let clients = together_in(&[Arc::clone(&database), database], &StillClock::new());
    let views = [root(&clients[0]), root(&clients[1])];
    let look = |view: &dyn View| view.capabilities().together.unwrap().look().unwrap();
    let (trips, _) = counted(&memory, || look(&*views[1]));
    assert_eq!(trips, 1, "nothing has come");
    let mut batch = Batch::new();
    batch.put(Key::new(2, 1, 7), Item::plain(vec![7]));
    batch.seen = Some(look(&*views[0]));
    views[0].apply(batch).unwrap();
    // That there is one, the entry with whether the rows have followed it, and its end.
    let (trips, _) = counted(&memory, || look(&*views[1]));
    assert_eq!(trips, 3);
}

#[test]
fn the_blocks_of_one_read_are_one_question() {
    let (memory, cluster) = in_memory();
    put(&*root(&cluster), 0, 20, true);
    cluster.close().unwrap();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    let cluster = Cluster::open(database, options(2, None, &StillClock::new())).unwrap();
    let view = root(&cluster);
    let items: Vec<Item> =
        (0..20).map(|number| view.get(Key::new(2, 1, number)).unwrap().unwrap()).collect();
    let blocks: Vec<Block> = items.into_iter().map(|item| item.block.unwrap()).collect();
    let parts: Vec<Part<'_>> = blocks
        .iter()
        .enumerate()
        .map(|(number, block)| Part { block, from: 8, len: 8, at: number * 10, passes_by: false })
        .collect();
    let mut read = Vec::new();
    let (trips, ()) = counted(&memory, || view.read_parts(&parts, &mut read).unwrap());
    assert_eq!(trips, 1);
    for number in 0..20_u64 {
        let at = usize::try_from(number).unwrap() * 10;
        assert_eq!(read[at..at + 8], number.to_le_bytes(), "part {number}");
    }
    let missing = memory.rows().into_iter().find(|(table, _)| *table == Table::Blocks).unwrap();
    memory.write(&[Change::remove(Table::Blocks, missing.1.0.to_vec())]).unwrap();
    cluster.close().unwrap();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    let cluster = Cluster::open(database, options(3, None, &StillClock::new())).unwrap();
    let unread = root(&cluster).read_parts(&parts, &mut Vec::new()).unwrap_err();
    assert!(matches!(unread.error, Error::Damaged(_)), "{:?}", unread.error);
    let alone = root(&cluster).read_block(&blocks[unread.number]).unwrap_err();
    assert_eq!(alone, unread.error, "it is the one that is missing");
}
