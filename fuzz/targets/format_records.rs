//! Values of a dataset's items and dataset records; the first byte says which.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_format::dataset::DatasetRecord;
use marram_format::record::{
    Counters, Entry, Inode, InodeCount, Limit, OrphanReason, Section, Usage, XattrRecord,
    decode_target,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 11 {
        0 => same(Inode::decode(bytes).ok().map(|inode| inode.encode().to_vec()), bytes),
        1 => same(Entry::decode(bytes).ok().map(|entry| entry.encode()), bytes),
        2 => same(XattrRecord::decode(bytes).ok().map(|record| record.encode()), bytes),
        3 => same(section(bytes), bytes),
        4 => same(OrphanReason::decode(bytes).ok().map(|reason| reason.encode().to_vec()), bytes),
        5 => same(Counters::decode(bytes).ok().map(|counters| counters.encode().to_vec()), bytes),
        6 => same(InodeCount::decode(bytes).ok().map(|count| count.encode().to_vec()), bytes),
        7 => same(decode_target(bytes).ok().map(<[u8]>::to_vec), bytes),
        8 => same(Usage::decode(bytes).ok().map(|usage| usage.encode().to_vec()), bytes),
        9 => same(Limit::decode(bytes).ok().map(|limit| limit.encode().to_vec()), bytes),
        _ => drop(DatasetRecord::decode(bytes).map(|record| record.encode())),
    }
});

/// The offset and the block's size come from the first bytes, so that every bound is tried.
fn section(bytes: &[u8]) -> Option<Vec<u8>> {
    let offset = u64::from(*bytes.first()?) << 56 | u64::from(*bytes.last()?) << 12;
    let block_bytes = (bytes.len() % 2 == 0).then_some(131_072);
    Section::decode(bytes, offset, block_bytes).ok().map(|section| section.encode().to_vec())
}

/// What decodes encodes to the same bytes again.
fn same(again: Option<Vec<u8>>, bytes: &[u8]) {
    if let Some(again) = again {
        assert_eq!(again, bytes);
    }
}
