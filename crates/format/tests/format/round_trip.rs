//! What was encoded decodes to the same.

use crate::strategy;
use marram_format::dataset::DatasetRecord;
use marram_format::group::Group;
use marram_format::node::{NODE_HEADER_BYTES, branch_entry_bytes, leaf_entry_bytes};
use marram_format::node::{Node, encode_branch, encode_leaf};
use marram_format::operation::{OperationRecord, limit_of, limit_text};
use marram_format::pointer::{POINTER_BYTES_MAX, Place, Pointer};
use marram_format::record::Limit;
use marram_format::signature::Signature;
use marram_format::space::{DeadChunk, OwnersRecord, ReclaimRecord, ReferenceRecord, Tail};
use marram_format::superblock::{SUPERBLOCK_BYTES, Superblock};
use marram_format::transaction::{TransactionDataset, TransactionRecord, TransactionState};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pointers(pointer in strategy::pointer()) {
        let bytes = pointer.encode();
        prop_assert!(bytes.len() <= POINTER_BYTES_MAX);
        prop_assert_eq!(Pointer::decode(&bytes), Ok(pointer.clone()));
        let grains = pointer.extents().map(|extent| u64::from(extent.grains)).sum::<u64>();
        prop_assert_eq!(pointer.grains(), grains);
        let stored = matches!(pointer.place, Place::Stored { .. });
        prop_assert_eq!(pointer.address().is_some(), stored);
        let identity = pointer.address().map(|address| (pointer.birth, address));
        prop_assert_eq!(Pointer::peek_identity(&pointer.encode()), identity);
    }

    #[test]
    fn leaves(tree: u64, entries in strategy::leaf()) {
        let bytes = encode_leaf(tree, &entries);
        let entry_len = |entry: &marram_format::node::LeafEntry| {
            leaf_entry_bytes(entry.value.len(), entry.pointer.as_ref().map_or(0, |p| p.len()))
        };
        let total: usize = entries.iter().map(entry_len).sum();
        prop_assert_eq!(bytes.len(), NODE_HEADER_BYTES + total);
        let node = Node::decode(bytes).unwrap();
        prop_assert_eq!((node.tree(), node.level()), (tree, 0));
        let Node::Leaf(leaf) = node else { panic!("a leaf became a branch") };
        prop_assert_eq!(leaf.len(), entries.len());
        for (index, entry) in entries.iter().enumerate() {
            prop_assert_eq!(leaf.key(index), entry.key);
            prop_assert_eq!(leaf.value(index), &entry.value);
            prop_assert_eq!(leaf.pointer(index), entry.pointer.clone());
            let pointer = entry.pointer.as_deref().unwrap_or_default();
            prop_assert_eq!(leaf.parts(index), (&entry.key.encode(), &entry.value[..], pointer));
            prop_assert_eq!(leaf.search(&entry.key), Ok(index));
        }
    }

    #[test]
    fn branches(tree: u64, level in 1..=31u8, entries in strategy::branch()) {
        let bytes = encode_branch(tree, level, &entries);
        let total: usize = entries.iter().map(|e| branch_entry_bytes(e.pointer.len())).sum();
        prop_assert_eq!(bytes.len(), NODE_HEADER_BYTES + total);
        let node = Node::decode(bytes).unwrap();
        prop_assert_eq!((node.tree(), node.level()), (tree, level));
        let Node::Branch(branch) = node else { panic!("a branch became a leaf") };
        prop_assert_eq!(branch.len(), entries.len());
        for (index, entry) in entries.iter().enumerate() {
            prop_assert_eq!(branch.key(index), entry.key);
            prop_assert_eq!(branch.pointer(index), &entry.pointer);
            prop_assert_eq!(branch.pointer_bytes(index), &entry.pointer[..]);
        }
    }

    #[test]
    fn superblocks(superblock in strategy::superblock()) {
        let bytes = superblock.encode();
        prop_assert_eq!(bytes.len(), SUPERBLOCK_BYTES);
        prop_assert_eq!(Superblock::decode(&bytes), Ok(superblock.clone()));
        let signature = Signature {
            version: superblock.version,
            pool_id: superblock.pool_id,
            label: superblock.label,
            created_seconds: superblock.created_seconds,
        };
        prop_assert_eq!(Signature::decode(&signature.encode()), Ok(signature));
    }

    #[test]
    fn datasets(record in strategy::dataset()) {
        let bytes = record.encode();
        prop_assert_eq!(bytes.len(), record.encoded_len());
        prop_assert_eq!(DatasetRecord::decode(&bytes), Ok(record));
    }

    #[test]
    fn space(tail in strategy::tail(), chunk in strategy::dead_chunk(), count in 0..1u64 << 62) {
        prop_assert_eq!(Tail::decode(&tail.encode()), Ok(tail));
        prop_assert_eq!(chunk.encode().len(), chunk.encoded_len());
        prop_assert_eq!(DeadChunk::decode(&chunk.encode()), Ok(chunk));
        let record = ReferenceRecord { count, used_bytes: !count };
        prop_assert_eq!(ReferenceRecord::decode(&record.encode()), Ok(record));
        let owners = OwnersRecord { count };
        prop_assert_eq!(OwnersRecord::decode(&owners.encode()).ok(), (count > 1).then_some(owners));
        let reclaim = ReclaimRecord { threshold: Group(count >> 22), destination: count };
        prop_assert_eq!(ReclaimRecord::decode(&reclaim.encode()), Ok(reclaim));
    }
    #[test]
    fn transactions(
        state in 0..4_usize,
        seed: [u8; 16],
        datasets in 1..65_u64,
        len in 0..2049_usize,
    ) {
        let states = [
            TransactionState::Prepared,
            TransactionState::Decided,
            TransactionState::CommittedByHand,
            TransactionState::AbortedByHand,
        ];
        let of = |dataset| TransactionDataset { dataset, before: dataset << 20 };
        let datasets = (1..=datasets).map(of);
        let record = TransactionRecord {
            state: states[state],
            id: seed,
            other_pool: seed.map(|byte| !byte),
            other_path: "p".repeat(len),
            datasets: datasets.collect(),
        };
        prop_assert_eq!(TransactionRecord::decode(&record.encode()), Ok(record));
    }
    #[test]
    fn operations(record in strategy::operation()) {
        let bytes = record.encode();
        prop_assert_eq!(OperationRecord::decode(&bytes), Ok(record));
    }
    #[test]
    fn limits_of_operations(bytes in 0..=i64::MAX, inodes in 0..=i64::MAX) {
        for limit in [Limit { bytes, inodes }, Limit { inodes, ..Limit::NONE }, Limit::NONE] {
            prop_assert_eq!(limit_of(&limit_text(limit)), Some(limit));
        }
        for text in [format!("{bytes}"), format!("{bytes} -1"), format!("none {inodes} ")] {
            prop_assert_eq!(limit_of(&text), None);
        }
    }
}
