//! A store that has the core of the contract and no capability keeps the contract.

use marram_store::conformance;
use marram_store::minimal::MinimalStore;
use std::sync::Arc;

#[test]
fn a_store_without_any_capability_is_a_store() {
    conformance::all(&|| Arc::new(MinimalStore::default()));
}
