//! Records of space: the tail of a group, chunks of dead lists and what is said of those that are
//! reclaimed, counts of references.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_format::space::{DeadChunk, ReclaimRecord, ReferenceRecord, Tail};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let again = match which % 4 {
        0 => Tail::decode(bytes).ok().map(|tail| tail.encode()),
        1 => DeadChunk::decode(bytes).ok().map(|chunk| chunk.encode()),
        2 => ReferenceRecord::decode(bytes).ok().map(|record| record.encode()),
        _ => ReclaimRecord::decode(bytes).ok().map(|record| record.encode()),
    };
    if let Some(again) = again {
        assert_eq!(again, bytes);
    }
});
