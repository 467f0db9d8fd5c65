//! The pool keeps the contract of a store.

use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_store::{Properties, Store, conformance};
use std::sync::Arc;

#[test]
fn the_pool_is_a_store() {
    conformance::all(&|| {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let options = CreateOptions {
            label: String::new(),
            properties: Properties::default(),
            pool_id: [7; 16],
            secret: 7,
            now_seconds: 1,
        };
        create(std::slice::from_ref(&device), &options).unwrap();
        let pool: Arc<dyn Store> = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
        pool
    });
}
