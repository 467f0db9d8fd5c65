//! A system that has no thread to give: commits do all of their work on the thread that they have.

use crate::support::{content, create_on, noise, put, root, section};
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use std::process::Command;
use std::sync::Arc;

/// Set for the process that is given no threads.
const IS_WITHOUT: &str = "MARRAM_TEST_WITHOUT_THREADS";
/// Stacks of this many bytes fit into no address space, so that no thread can be started.
const STACK_BYTES: &str = "1125899906842624";
/// As much as makes a commit write beside what it prepares.
const BLOCKS: u64 = 200;
const BLOCK_BYTES: usize = 128 << 10;

#[test]
fn a_commit_needs_no_other_threads() {
    if std::env::var_os(IS_WITHOUT).is_some() {
        return commit_without_threads();
    }
    let this = std::env::current_exe().expect("a test has a program");
    let mut child = Command::new(this);
    child.args(["--exact", "without_threads::a_commit_needs_no_other_threads"]);
    child.arg("--test-threads=1");
    let ended = child.env(IS_WITHOUT, "1").env("RUST_MIN_STACK", STACK_BYTES).output();
    let ended = ended.expect("it starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

fn commit_without_threads() {
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "there are threads");
    let memory = Arc::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = memory.clone();
    create_on(&device, &[]);
    let options = || OpenOptions { threads: 4, ..OpenOptions::new(|| 0) };
    let pool = Pool::open(vec![device], options()).expect("it opens");
    for object in 0..BLOCKS {
        put(&*root(&pool), section(object, 0), noise(object, BLOCK_BYTES)).expect("there is space");
    }
    pool.commit().expect("nothing fails");
    let crashed: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    let again = Pool::open(vec![crashed], options()).expect("it opens");
    for object in 0..BLOCKS {
        let expected = Some(noise(object, BLOCK_BYTES));
        assert!(content(&*root(&again), section(object, 0)) == expected, "object {object}");
    }
}
