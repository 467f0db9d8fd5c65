//! Records that are not true, as a damaged or forged pool may have them: what works on files in
//! their presence goes on, or says what is wrong, and changes nothing that can be read.

use crate::root_files::{allocated, file, mount, open, read, write};
use crate::small_pool;
use marram_device::MemoryDevice;
use marram_format::record::{Inode, Section};
use marram_posix::{DefragmentOptions, PassPlace, defragment};
use marram_sim::pattern;
use marram_store::{Batch, Item, Key, Store, View, kind};
use marram_vfs::{Allocate, Ino, Ranges};
use std::sync::Arc;

/// Seed of a pattern of noise.
const NOISE: u64 = 2;
const RECORD_BYTES: u64 = 131_072;

fn put(view: &dyn View, key: Key, value: Vec<u8>) {
    let mut batch = Batch::new();
    batch.put(key, Item::plain(value));
    view.apply(batch).unwrap();
}

#[test]
fn a_file_with_a_wrong_sum_is_rewritten_all_the_same() {
    let pool = open(Arc::new(MemoryDevice::from_bytes(small_pool::empty("wrong"))));
    let files = mount(&pool, "root");
    let ino = file(&files, "crumbled");
    let mut content = pattern(NOISE, 4 * RECORD_BYTES as usize);
    write(&files, ino, 0, &content);
    pool.commit().unwrap();
    for page in (0..content.len()).step_by(8192) {
        content[page..page + 4096].fill(1);
        write(&files, ino, page as u64, &content[page..page + 4096]);
    }
    pool.commit().unwrap();
    drop(files);
    let view = pool.open(&"root".parse().unwrap()).unwrap();
    let key = Key::new(ino.0, kind::INODE, 0);
    let mut inode = Inode::decode(&view.get(key).unwrap().unwrap().value).unwrap();
    inode.data_bytes = u64::MAX;
    put(&*view, key, inode.encode().to_vec());
    pool.commit().unwrap();
    let before = allocated(&pool);

    let files = mount(&pool, "root");
    let place = PassPlace { files: Arc::clone(&files), directory: Ino::ROOT };
    let report = defragment(&[place], DefragmentOptions::default(), &mut || Some(()));
    assert_eq!((report.failure, report.skipped), (None, 0));
    assert!(report.totals.rewritten_bytes > 0);
    assert_eq!(read(&files, ino), content);
    assert!(allocated(&pool) < before, "what was overwritten comes back");
}

#[test]
fn space_for_a_range_with_overlapping_sections_can_be_asked_for() {
    const LEN: u64 = 1 << 40;
    let pool = open(Arc::new(MemoryDevice::from_bytes(small_pool::empty("wrong"))));
    let files = mount(&pool, "root");
    let ino = file(&files, "overlapping");
    let view = pool.open(&"root".parse().unwrap()).unwrap();
    for at in [0, 1] {
        let section = Section { len_bytes: LEN, block_start: 0 };
        put(&*view, Key::new(ino.0, kind::SECTION, at), section.encode().to_vec());
    }
    // All of it is reserved, and more than there is.
    files.allocate(ino, Allocate::ReserveKeepSize, 0, LEN).unwrap();
    assert_eq!(read(&files, ino), b"");
    drop(files);
    assert!(allocated(&pool) < 16 << 20);
}
