//! The example bytes of `docs/format.md` are those of the code: each block fenced as
//! `hex NAME` decodes to the example of that name.

use crate::example::{self, POOL_ID, POSITION, SECRET};
use crate::hex;
use bytes::Bytes;
use marram_format::FormatError;
use marram_format::dataset::DatasetRecord;
use marram_format::key::Key;
use marram_format::log::{LogHead, decode_frame};
use marram_format::node::Node;
use marram_format::operation::OperationRecord;
use marram_format::pointer::Pointer;
use marram_format::signature::Signature;
use marram_format::space::{DeadChunk, OwnersRecord, ReclaimRecord, ReferenceRecord, Tail};
use marram_format::superblock::Superblock;
use marram_format::transaction::TransactionRecord;
use std::collections::BTreeMap;

/// The examples of the specification by name.
fn blocks() -> BTreeMap<String, Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    let text = std::fs::read_to_string(path).expect("docs/format.md is there");
    let mut blocks = BTreeMap::new();
    for part in text.split("```hex ").skip(1) {
        let (name, rest) = part.split_once('\n').expect("a block has a first line");
        let (dump, _) = rest.split_once("```").expect("a block has an end");
        assert!(
            blocks.insert(name.to_owned(), hex::parse(dump)).is_none(),
            "{name} is there twice"
        );
    }
    blocks
}

/// Decodes an example and encodes it again.
pub(crate) fn again(name: &str, bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    Ok(match name {
        "key" => Key::decode(bytes.try_into().expect("17 bytes")).encode().to_vec(),
        "signature" => Signature::decode(bytes)?.encode(),
        "superblock" => Superblock::decode(bytes)?.encode(),
        "dataset" => DatasetRecord::decode(bytes)?.encode().to_vec(),
        "tail" => Tail::decode(bytes)?.encode().to_vec(),
        "dead-chunk" => DeadChunk::decode(bytes)?.encode().to_vec(),
        "references" => ReferenceRecord::decode(bytes)?.encode().to_vec(),
        "owners" => OwnersRecord::decode(bytes)?.encode().to_vec(),
        "reclaim" => ReclaimRecord::decode(bytes)?.encode().to_vec(),
        "transaction" => TransactionRecord::decode(bytes)?.encode().to_vec(),
        "operation" | "operation-limit" => OperationRecord::decode(bytes)?.encode().to_vec(),
        "leaf" | "branch" => Node::decode(Bytes::copy_from_slice(bytes))?.bytes().to_vec(),
        "log-head" => {
            let pointer = Pointer::decode(bytes)?;
            LogHead::from_pointer(&pointer)?.to_pointer(pointer.birth).encode().to_vec()
        }
        "log-frame" | "log-merge" => {
            let parts = decode_frame(bytes, &POOL_ID, SECRET, POSITION).expect("a frame");
            example::encode_frame(&parts?)
        }
        _ => Pointer::decode(bytes)?.encode().to_vec(),
    })
}

#[test]
fn the_examples_of_the_specification_decode_and_are_complete() {
    let mut blocks = blocks();
    for (name, expected) in example::all() {
        let found = blocks
            .remove(name)
            .unwrap_or_else(|| panic!("docs/format.md has no example of {name}"));
        assert_eq!(again(name, &found).unwrap(), expected, "{name}");
    }
    assert!(blocks.is_empty(), "examples of nothing: {blocks:?}");
}
