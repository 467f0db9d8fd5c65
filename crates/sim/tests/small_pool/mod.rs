//! The pool that power cuts are tried on: small, always the same, and with nothing in it.

use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, create};
use marram_store::Properties;
use std::sync::Arc;

const POOL_BYTES: usize = 32 << 20;

/// The bytes of its device.
pub(crate) fn empty(label: &str) -> Vec<u8> {
    let memory = Arc::new(MemoryDevice::new(POOL_BYTES));
    let device: Arc<dyn Device> = memory.clone();
    let options = CreateOptions {
        label: label.to_owned(),
        properties: Properties::default(),
        pool_id: [9; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(&[device], &options).expect("memory makes a pool");
    memory.snapshot()
}
