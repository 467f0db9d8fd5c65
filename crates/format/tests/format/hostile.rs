//! Bytes from anywhere: every decoder answers, none panics, and what it takes for good has
//! accessors that work.

use crate::example;
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_format::key::Key;
use marram_format::node::Node;
use marram_format::operation::{OPERATION_BYTES_MAX, OPERATION_FIXED_BYTES, OperationRecord};
use marram_format::pointer::Pointer;
use marram_format::record::{Counters, Entry, Inode, InodeCount, Limit, OrphanReason, Usage};
use marram_format::record::{Section, XattrRecord};
use marram_format::signature::Signature;
use marram_format::space::{DeadChunk, OwnersRecord, ReclaimRecord, ReferenceRecord, Tail};
use marram_format::superblock::{SUPERBLOCK_BYTES, Superblock};
use marram_format::transaction::TransactionRecord;
use proptest::collection::vec;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

/// Feeds bytes to every decoder; what decodes must encode again.
fn decode_all(bytes: &[u8]) {
    decode_records(bytes);
    let _errors_are_fine = (
        Superblock::decode(bytes).map(|value| value.encode()),
        Signature::decode(bytes).map(|value| value.encode()),
        Pointer::decode(bytes).map(|value| value.encode()),
        Tail::decode(bytes).map(|value| value.encode()),
        ReferenceRecord::decode(bytes).map(|value| value.encode()),
        OwnersRecord::decode(bytes).map(|value| value.encode()),
        ReclaimRecord::decode(bytes).map(|value| value.encode()),
        Node::decode(Bytes::copy_from_slice(bytes)).map(|node| visit(&node)),
        DeadChunk::decode(bytes).map(|chunk| chunk.encoded_len()),
        DatasetRecord::decode(bytes).map(|record| record.encoded_len()),
    );
}

/// Feeds bytes to the decoders of short values; what decodes encodes to the same bytes.
fn decode_records(bytes: &[u8]) {
    let section = Section::decode(bytes, 1 << 40, Some(1 << 20)).ok();
    let again = [
        Inode::decode(bytes).ok().map(|value| value.encode().to_vec()),
        Entry::decode(bytes).ok().map(|value| value.encode()),
        XattrRecord::decode(bytes).ok().map(|value| value.encode()),
        Counters::decode(bytes).ok().map(|value| value.encode().to_vec()),
        InodeCount::decode(bytes).ok().map(|value| value.encode().to_vec()),
        Usage::decode(bytes).ok().map(|value| value.encode().to_vec()),
        Limit::decode(bytes).ok().map(|value| value.encode().to_vec()),
        OrphanReason::decode(bytes).ok().map(|value| value.encode().to_vec()),
        OperationRecord::decode(bytes).ok().map(|value| value.encode().to_vec()),
        section.map(|value| value.encode().to_vec()),
    ];
    for again in again.into_iter().flatten() {
        assert_eq!(again, bytes);
    }
}

/// Touches all of a node.
fn visit(node: &Node) {
    match node {
        Node::Leaf(leaf) => {
            for index in 0..leaf.len() {
                assert_eq!(leaf.search(&leaf.key(index)), Ok(index));
                let _bytes = (leaf.value(index), leaf.pointer(index));
            }
        }
        Node::Branch(branch) => {
            for index in 0..branch.len() {
                assert_eq!(branch.child_for(&branch.key(index)), index);
                assert!(!branch.pointer(index).is_empty());
            }
            assert_eq!(branch.child_for(&Key::MIN), 0);
            assert_eq!(branch.child_for(&Key::MAX), branch.len() - 1);
        }
    }
}

/// Gives a page the checksum that it should have, so that the fields behind it are reached.
fn seal(bytes: &mut [u8]) {
    if bytes.len() == SUPERBLOCK_BYTES {
        let (body, checksum) = bytes.split_at_mut(SUPERBLOCK_BYTES - 16);
        checksum.copy_from_slice(&xxh3_128(body).to_le_bytes());
    }
}

#[test]
fn truncated_examples_are_refused() {
    for (name, bytes) in example::all() {
        let step = if bytes.len() == SUPERBLOCK_BYTES { 61 } else { 1 };
        for len in (0..bytes.len()).step_by(step) {
            let cut = &bytes[..len];
            decode_all(cut);
            let refused = match name {
                "superblock" => Superblock::decode(cut).is_err(),
                "signature" => Signature::decode(cut).is_err(),
                "dataset" => DatasetRecord::decode(cut).is_err(),
                "tail" => Tail::decode(cut).is_err(),
                "dead-chunk" => DeadChunk::decode(cut).is_err(),
                "references" => ReferenceRecord::decode(cut).is_err(),
                "owners" => OwnersRecord::decode(cut).is_err(),
                "reclaim" => ReclaimRecord::decode(cut).is_err(),
                "transaction" => TransactionRecord::decode(cut).is_err(),
                "operation" | "operation-limit" => OperationRecord::decode(cut).is_err(),
                "leaf" | "branch" => Node::decode(Bytes::copy_from_slice(cut)).is_err(),
                "key" => true,
                // Its end is not that of its last grain; see `log`.
                "log-frame" | "log-merge" => true,
                _ => Pointer::decode(cut).is_err(),
            };
            assert!(refused, "{name} cut to {len} bytes was taken for good");
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    for (_, bytes) in example::all().into_iter().chain(example::records()) {
        for bit in 0..bytes.len().min(700) * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            decode_all(&bytes);
            seal(&mut bytes);
            decode_all(&bytes);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_page_is_noticed() {
    for page in [example::superblock().encode(), example::signature().encode()] {
        for bit in 0..page.len() * 8 {
            let mut bytes = page.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bytes).is_err(), "bit {bit}");
            assert!(Signature::decode(&bytes).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn an_entry_of_the_log_of_operations_is_no_longer_than_it_may_be() {
    let (command, texts) = (String::new(), Vec::new());
    let short = OperationRecord { command, texts, ..example::operation() }.encode();
    for (len, is_taken) in [(OPERATION_BYTES_MAX, true), (OPERATION_BYTES_MAX + 1, false)] {
        let mut bytes = short.to_vec();
        let command_len = u16::try_from(len - OPERATION_FIXED_BYTES).unwrap();
        bytes[88..90].copy_from_slice(&command_len.to_le_bytes());
        bytes.resize(len, b'x');
        decode_all(&bytes);
        assert_eq!(OperationRecord::decode(&bytes).is_ok(), is_taken, "{len} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn overwritten_examples_never_panic(
        which in 0..16usize,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let (_, mut bytes) = example::all().swap_remove(which);
        let reach = bytes.len().min(700);
        for (place, value) in changes {
            bytes[place.index(reach)] = value;
        }
        decode_all(&bytes);
        seal(&mut bytes);
        decode_all(&bytes);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        decode_all(&bytes);
    }
}
