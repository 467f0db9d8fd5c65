//! Records of space: the tail of a group, chunks of dead lists and what is said of those that are
//! reclaimed, counts of references; and records of transactions over two pools.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_format::space::{DeadChunk, ReclaimRecord, ReferenceRecord, Tail};
use marram_format::transaction::TransactionRecord;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let again = match which % 5 {
        0 => Tail::decode(bytes).ok().map(|tail| tail.encode()),
        1 => DeadChunk::decode(bytes).ok().map(|chunk| chunk.encode()),
        2 => ReferenceRecord::decode(bytes).ok().map(|record| record.encode()),
        3 => ReclaimRecord::decode(bytes).ok().map(|record| record.encode()),
        _ => TransactionRecord::decode(bytes).ok().map(|record| record.encode()),
    };
    if let Some(again) = again {
        assert_eq!(again, bytes);
    }
});
