//! Tree nodes: a node that decodes can be read and searched everywhere without a panic.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use marram_format::node::Node;
use marram_format::pointer::Pointer;
use std::hint::black_box;

fuzz_target!(|bytes: &[u8]| {
    match Node::decode(Bytes::copy_from_slice(bytes)) {
        Err(_) => {}
        Ok(Node::Leaf(leaf)) => {
            for index in 0..leaf.len() {
                let key = leaf.key(index);
                assert_eq!(leaf.search(&key), Ok(index));
                black_box(leaf.value(index));
                black_box(leaf.pointer(index).map(|pointer| Pointer::decode(&pointer).is_ok()));
            }
        }
        Ok(Node::Branch(branch)) => {
            for index in 0..branch.len() {
                let child = branch.child_for(&branch.key(index));
                assert_eq!(child, index);
                black_box(Pointer::decode(&branch.pointer(index)).is_ok());
            }
        }
    }
});
