//! A pool with files of several kinds, a snapshot, a clone, shared blocks, and frames in its intent
//! log.

use super::packed::PART_BYTES;
use super::{CALLER, content, directory, empty_pool, file, mounted, name, open, root};
use marram_device::Device;
use marram_pool::Pool;
use marram_sim::pattern;
use marram_store::Store;
use marram_vfs::{Copying, FileSystem, Ino, NewNode, WriteOptions, XattrMode};
use std::sync::Arc;

pub(crate) fn new_image() -> Vec<u8> {
    let memory = empty_pool("golden");
    let device: Arc<dyn Device> = memory.clone();
    fill(&open(&device));
    log(&open(&device));
    memory.snapshot()
}

fn fill(pool: &Pool) {
    let files = mounted(pool, "root");
    let folder = directory(&files, "folder");
    file(&files, folder, "tiny", b"tiny");
    file(&files, folder, "noise", &pattern(1, 300_000));
    let zeros = file(&files, Ino::ROOT, "zeros", &vec![0; 2 * PART_BYTES]);
    files.set_xattr(zeros, b"user.colour", b"green", XattrMode::Any).expect("an attribute");
    let target = NewNode::Symlink { target: b"folder/tiny" };
    files.create(CALLER, Ino::ROOT, name("link"), target).expect("a link");
    files.sync_all().expect("memory takes it");
    pool.snapshot(&root(), "before").expect("a snapshot");
    let noise = files.lookup(folder, name("noise")).expect("it is there").ino;
    files.write(noise, 100_000, &pattern(2, 5000), WriteOptions::default()).expect("written");
    files.copy_range(noise, 0, zeros, 1 << 20, 200_000).expect("blocks are shared");
    files.unlink(Ino::ROOT, name("link")).expect("the link goes");
    files.sync_all().expect("memory takes it");
    let origin = "root@before".parse().expect("a name");
    pool.clone_snapshot(&origin, &"copy".parse().expect("a name")).expect("a clone");
    file(&mounted(pool, "copy"), Ino::ROOT, "only-in-copy", b"copy");
    pool.close().expect("memory takes it");
}

/// Leaves two frames in the intent log that no commit has. The first sync after an opening is a
/// commit.
fn log(pool: &Pool) {
    let files = mounted(pool, "root");
    let ino = file(&files, Ino::ROOT, "synced", &pattern(3, 10_000));
    files.sync_all().expect("memory takes it");
    for len in [100, 200] {
        files.write(ino, 5000, &pattern(4, len), WriteOptions::default()).expect("written");
        files.sync_all().expect("memory takes it");
    }
}

pub(crate) fn assert_logged(pool: &Pool) {
    let mut expected = pattern(3, 10_000);
    expected[5000..5200].copy_from_slice(&pattern(4, 200));
    assert_eq!(content(&mounted(pool, "root"), "synced"), expected);
}

pub(crate) fn assert_filled(pool: &Pool) {
    let changed = [&pattern(1, 300_000)[..100_000], &pattern(2, 5000)].concat();
    let noise = [&changed[..], &pattern(1, 300_000)[105_000..]].concat();
    let live = mounted(pool, "root");
    assert_eq!(content(&live, "folder/tiny"), b"tiny");
    assert_eq!(content(&live, "folder/noise"), noise);
    let zeros = content(&live, "zeros");
    assert_eq!(zeros.len(), 2 << 20);
    assert_eq!(&zeros[1 << 20..(1 << 20) + 200_000], &noise[..200_000]);
    let before = mounted(pool, "root@before");
    assert_eq!(content(&before, "folder/noise"), pattern(1, 300_000));
    let link = before.lookup(Ino::ROOT, name("link")).expect("the snapshot kept it").ino;
    assert_eq!(before.read_link(link).expect("a target"), b"folder/tiny");
    assert_eq!(content(&mounted(pool, "copy"), "only-in-copy"), b"copy");
}
