//! Hostile rows answer with errors: nothing panics, and the verifier finds them.

use crate::engines::Engine;
use crate::mongo_server::Shared;
use crate::server::Server;
use crate::stores::{StillClock, in_memory_at, options, seal};
use marram_cluster::database::{Change, Range, Row, Table};
use marram_cluster::format::{
    BlockRow, ClientRecord, Entry, Head, Header, LineRecord, LockPlace, LockRow, Past, Record, Seal,
};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database};
use marram_store::{Batch, Block, DatasetName, Item, Key, Store};
use std::sync::Arc;

/// A store with rows in all tables.
fn filled() -> MemoryDatabase {
    filled_at(&StillClock::new()).0
}

/// The same, without rows and blocks that nothing needs.
fn settled() -> MemoryDatabase {
    let clock = StillClock::new();
    let (memory, cluster) = filled_at(&clock);
    while cluster.prune_step().unwrap().more {}
    clock.advance(100);
    cluster.sweep_step(Vec::new()).unwrap();
    memory
}

fn filled_at(clock: &StillClock) -> (MemoryDatabase, Cluster) {
    let (memory, cluster) = in_memory_at(clock);
    let view = cluster.open(&"root".parse().unwrap()).unwrap();
    for value in 1..4 {
        let mut batch = Batch::new();
        let block = Block::fresh(vec![value; 2000]);
        batch.put(Key::new(2, 5, 0), Item::with_block(vec![value], block));
        view.apply(batch).unwrap();
        cluster.snapshot(&DatasetName::root(), &format!("s{value}")).unwrap();
    }
    cluster.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
    cluster.destroy(&"root@s1".parse().unwrap(), false).unwrap();
    drop(view);
    (memory, cluster)
}

/// Opens the store and reads all of it; errors are answers.
fn read_all(memory: &MemoryDatabase) {
    read_all_of(Arc::new(memory.clone()));
}

fn read_all_of(database: Arc<dyn Database>) {
    let Ok(cluster) = Cluster::open(database, options(2, Some(1), &StillClock::new())) else {
        return;
    };
    for report in cluster.list().unwrap_or_default() {
        let Ok(view) = cluster.open(&report.source) else { continue };
        let _answer = view.scan(Key::MIN, Key::MAX, &mut |_, item| {
            if let Some(block) = &item.block {
                let _content = view.read_block(block);
            }
            true
        });
        let _answer = view.last(Key::MIN, Key::MAX);
    }
    let _answer = cluster.prune_step();
    let _answer = cluster.sweep_step(Vec::new());
}

#[test]
fn a_changed_bit_of_any_row_is_found() {
    for (table, (key, value)) in filled().rows() {
        for bit in [0, value.len() * 4, value.len() * 8 - 1] {
            let memory = filled();
            let mut bytes = value.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            memory.write(&[Change::put(table, key.to_vec(), bytes)]).unwrap();
            let found = verify(&memory);
            let is_found = found.is_err() || found.is_ok_and(|found| found.findings_count > 0);
            assert!(is_found, "bit {bit} of {key:?} in {}", table.name());
            read_all(&memory);
        }
    }
}

#[test]
fn a_missing_row_is_found_or_does_no_harm() {
    let harmless = [Table::Clients];
    for (table, (key, _)) in settled().rows() {
        let memory = settled();
        memory.write(&[Change::remove(table, key.to_vec())]).unwrap();
        let found = verify(&memory);
        let is_found = found.is_err() || found.is_ok_and(|found| found.findings_count > 0);
        // The first entry of the log is one that a trim takes away.
        let is_first = table == Table::Log && key[..] == 1_u64.to_be_bytes();
        let may_go = harmless.contains(&table) || is_first;
        assert!(is_found || may_go, "{key:?} of {}", table.name());
        read_all(&memory);
    }
}

#[test]
fn rows_with_sound_seals_and_wild_content_answer_with_errors() {
    let seal = Seal::of(&Header { id: [7; 16], key: [9; 32], has_blocks_outside: false });
    let wild: [&[u8]; 5] = [b"", b"\xff", &[0xff; 40], &[0; 64], &[1; 200]];
    for (table, (key, _)) in filled().rows() {
        for value in wild {
            let memory = filled();
            let sealed = seal.close(table, &key, value.to_vec());
            memory.write(&[Change::put(table, key.to_vec(), sealed)]).unwrap();
            read_all(&memory);
            let _found = verify(&memory);
            let long = [&key[..], b"more"].concat();
            let sealed = seal.close(table, &long, value.to_vec());
            memory.write(&[Change::put(table, long, sealed)]).unwrap();
            read_all(&memory);
            let _found = verify(&memory);
        }
    }
}

#[test]
fn decoders_answer_each_prefix_and_each_flipped_bit() {
    for (_, (_, value)) in filled().rows() {
        let mut inputs: Vec<Vec<u8>> = (0..value.len()).map(|len| value[..len].to_vec()).collect();
        for bit in 0..value.len().min(300) * 8 {
            let mut bytes = value[..value.len().saturating_sub(8)].to_vec();
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            inputs.push(bytes);
        }
        for bytes in inputs {
            let _answers = (Entry::decode(&bytes), Head::decode(&bytes), Past::decode(&bytes));
            let _answers = (Record::decode(&bytes), LineRecord::decode(&bytes));
            let _answers = (ClientRecord::decode(&bytes), BlockRow::decode(&bytes).is_ok());
            let _answers =
                (Header::decode(&bytes), LockPlace::decode(&bytes), LockRow::decode(&bytes));
        }
    }
}

/// Has a database hold rows, and no others.
fn refill(database: &dyn Database, rows: &[(Table, Row)]) {
    let all = |table| Range::first(table, Vec::new(), vec![u8::MAX; 64], usize::MAX);
    let found = database.read(&Table::ALL.map(all)).unwrap();
    let gone = Table::ALL.iter().zip(found).flat_map(|(table, rows)| {
        rows.into_iter().map(|(key, _)| Change::remove(*table, key.to_vec()))
    });
    let put =
        rows.iter().map(|(table, (key, value))| Change::put(*table, key.to_vec(), value.to_vec()));
    database.write(&gone.chain(put).collect::<Vec<_>>()).unwrap();
}

#[test]
fn hostile_rows_of_a_server_answer_with_errors() {
    Server::start().iter().for_each(|server| hostile_rows_answer_with_errors(server, 1));
}

#[test]
fn hostile_rows_of_mongodb_answer_with_errors() {
    Shared::find().iter().for_each(|server| hostile_rows_answer_with_errors(server, 5));
}

fn hostile_rows_answer_with_errors(server: &dyn Engine, step: usize) {
    let database = server.store(1).remove(0);
    let (seal, rows) = (seal(), settled().rows());
    refill(&*database, &rows);
    assert!(verify(&*database).unwrap().findings.is_empty(), "it is sound as it is");
    for (number, (table, (key, value))) in rows.iter().enumerate().step_by(step) {
        let mut flipped = value.to_vec();
        flipped[value.len() / 2] ^= 1;
        let wild = seal.close(*table, key, vec![0xff; 40]);
        let is_wild = number % 2 == 1;
        let harm = if is_wild { wild } else { flipped };
        database.write(&[Change::put(*table, key.to_vec(), harm)]).unwrap();
        let found = verify(&*database);
        let is_found = found.is_err() || found.is_ok_and(|found| found.findings_count > 0);
        assert!(is_found || is_wild, "{key:?} of {}", table.name());
        read_all_of(Arc::clone(&database));
        refill(&*database, &rows);
    }
}
