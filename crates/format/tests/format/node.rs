//! Searches in nodes, and what is wrong with bad ones.

use crate::example;
use bytes::Bytes;
use marram_format::FormatError;
use marram_format::key::Key;
use marram_format::node::{BranchEntry, LeafEntry, NODE_BYTES_MAX, Node};
use marram_format::node::{NODE_HEADER_BYTES, encode_branch, encode_leaf, leaf_entry_bytes};

fn item(object: u64) -> LeafEntry {
    LeafEntry { key: Key::new(object, 1, 0), value: Bytes::from_static(b"v"), pointer: None }
}

#[test]
fn a_search_says_where_a_missing_key_would_stand() {
    let entries: Vec<_> = [10, 20, 30].map(item).into();
    let Ok(Node::Leaf(leaf)) = Node::decode(encode_leaf(1, &entries)) else {
        panic!("a leaf decodes");
    };
    let search = |object| leaf.search(&Key::new(object, 1, 0));
    assert_eq!([5, 10, 15, 30, 31].map(search), [Err(0), Ok(0), Err(1), Ok(2), Err(3)]);
}

#[test]
fn a_child_holds_the_keys_from_its_own_to_the_next() {
    let entries: Vec<_> = [10, 20, 30]
        .map(|object| BranchEntry {
            key: Key::new(object, 0, 0),
            pointer: Bytes::from_static(b"p"),
        })
        .into();
    let Ok(Node::Branch(branch)) = Node::decode(encode_branch(1, 1, &entries)) else {
        panic!("a branch decodes");
    };
    let child = |object| branch.child_for(&Key::new(object, 0, 0));
    assert_eq!([0, 9, 10, 19, 20, 30, 99].map(child), [0, 0, 0, 0, 1, 2, 2]);
}

#[test]
fn an_empty_leaf_is_a_leaf() {
    let bytes = encode_leaf(1, &[]);
    assert_eq!(bytes.len(), NODE_HEADER_BYTES);
    let Ok(Node::Leaf(leaf)) = Node::decode(bytes) else {
        panic!("a leaf decodes");
    };
    assert!(leaf.is_empty());
    assert_eq!(leaf.search(&Key::MIN), Err(0));
}

#[test]
fn a_leaf_may_be_full_to_the_last_byte() {
    let mut entry = item(1);
    let value_len = NODE_BYTES_MAX - NODE_HEADER_BYTES - leaf_entry_bytes(0, 0);
    entry.value = vec![7; value_len].into();
    let bytes = encode_leaf(1, std::slice::from_ref(&entry));
    assert_eq!(bytes.len(), NODE_BYTES_MAX);
    let Ok(Node::Leaf(leaf)) = Node::decode(bytes) else {
        panic!("a leaf decodes");
    };
    assert_eq!(leaf.value(0), entry.value);
}

#[test]
fn keys_out_of_order_are_named() {
    let mut bytes = encode_leaf(1, &[item(10), item(20)]).to_vec();
    bytes[NODE_HEADER_BYTES + 7] = 20;
    let error = Node::decode(bytes.into()).unwrap_err();
    assert!(matches!(error, FormatError::Order { index: 1, .. }), "{error}");
    assert_eq!(error.to_string(), "tree node: key 1 at byte 45 is not greater than the one before");
}

#[test]
fn a_node_of_another_length_is_refused() {
    let mut bytes = encode_leaf(1, &example::leaf()).to_vec();
    bytes.push(0);
    let error = Node::decode(bytes.into()).unwrap_err();
    assert!(matches!(error, FormatError::Unexpected { field: "length", .. }), "{error}");
}

#[test]
fn what_is_no_node_is_called_foreign() {
    let error = Node::decode(Bytes::from_static(&[0x55; 4096])).unwrap_err();
    assert_eq!(error.to_string(), "not a Marram tree node: it starts with [55, 55, 55, 55]");
}
