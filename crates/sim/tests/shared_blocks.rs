//! A block that came to be shared in a commit is shared for views, too, that had read of it before.

use marram_check::{CheckOptions, check};
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_store::{Batch, Block, Item, Key, Properties, Store, View, kind};
use std::sync::Arc;

const POOL_BYTES: usize = 32 << 20;
const BLOCK_BYTES: usize = 4096;

fn key(offset: u64) -> Key {
    Key::new(9, kind::SECTION, offset)
}

fn put(view: &dyn View, block: &Block, offsets: &[u64]) {
    let mut batch = Batch::new();
    for offset in offsets {
        batch.put(key(*offset), Item::with_block(vec![1], block.clone()));
    }
    view.apply(batch).unwrap();
}

fn remove(view: &dyn View, offsets: &[u64]) {
    let mut batch = Batch::new();
    for offset in offsets {
        batch.remove(key(*offset));
    }
    view.apply(batch).unwrap();
}

/// Whether the verifier has something to say of references or space.
fn is_sound(device: &dyn Device) -> bool {
    let mut sound = true;
    check(device, &CheckOptions::default(), &mut |finding| {
        let about = finding.code().to_lowercase();
        sound &= !["reference", "space", "leak", "grains"].iter().any(|word| about.contains(word));
    })
    .unwrap();
    sound
}

#[test]
fn a_reference_read_before_the_block_was_shared_is_counted() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(POOL_BYTES));
    let options = CreateOptions {
        label: "shared".to_owned(),
        properties: Properties::default(),
        pool_id: [1; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(&[Arc::clone(&device)], &options).unwrap();
    let pool = Pool::open(vec![Arc::clone(&device)], OpenOptions::new(|| 0)).unwrap();
    let view = pool.open(&"root".parse().unwrap()).unwrap();

    put(&*view, &Block::fresh(marram_sim::pattern(2, BLOCK_BYTES)), &[0]);
    pool.commit().unwrap();
    let unshared = view.get(key(0)).unwrap().unwrap().block.unwrap();
    put(&*view, &unshared, &[0, 100]);
    pool.commit().unwrap();
    put(&*view, &unshared, &[100, 200]);
    pool.commit().unwrap();
    assert!(is_sound(&*device), "three items refer to the block");

    remove(&*view, &[0, 100]);
    pool.commit().unwrap();
    assert!(is_sound(&*device), "one item refers to the block");
    let left = view.get(key(200)).unwrap().unwrap().block.unwrap();
    assert_eq!(view.read_block(&left).unwrap(), marram_sim::pattern(2, BLOCK_BYTES));

    remove(&*view, &[200]);
    pool.commit().unwrap();
    assert!(is_sound(&*device), "no item refers to the block");
}
