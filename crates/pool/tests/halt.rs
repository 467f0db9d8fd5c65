//! A pool that is halted on demand: as after a power cut.

use crate::support::{content, new_pool, noise, open, put, root, section};
use marram_device::{Device, MemoryDevice};
use marram_store::{Error, Store};
use std::sync::Arc;

#[test]
fn a_halted_pool_writes_nothing_more() {
    let (memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    put(&*live, section(5, 0), b"durable".to_vec()).unwrap();
    live.sync().unwrap();
    put(&*live, section(6, 0), noise(1, 100_000)).unwrap();
    live.capabilities().halting.unwrap().halt();
    let halted = memory.snapshot();
    assert!(pool.is_halted() && !live.writable());
    assert!(matches!(put(&*live, section(7, 0), vec![1]), Err(Error::ReadOnly(_))));
    assert!(matches!(live.sync(), Err(Error::Io(_))));
    let snapshot = pool.snapshot(&"root".parse().unwrap(), "late");
    assert!(matches!(snapshot, Err(Error::ReadOnly(_))), "{snapshot:?}");
    assert!(pool.commit().is_err() && pool.close().is_err());
    assert_eq!(content(&*live, section(6, 0)), Some(noise(1, 100_000)), "reads go on");
    drop((live, pool));
    assert!(memory.snapshot() == halted, "something was written");
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(halted));
    let again = open(&device);
    assert!(!again.is_halted());
    assert_eq!(content(&*root(&again), section(5, 0)), Some(b"durable".to_vec()));
    assert_eq!(content(&*root(&again), section(6, 0)), None);
    again.close().unwrap();
}

#[test]
fn halting_waits_for_what_is_being_written() {
    let (memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0.. {
                let written = put(&*live, section(round % 50, 0), noise(round, 50_000));
                if written.and_then(|()| live.sync()).is_err() {
                    return;
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        live.capabilities().halting.unwrap().halt();
        let halted = memory.snapshot();
        writer.join().unwrap();
        assert!(memory.snapshot() == halted, "something was written");
    });
}
