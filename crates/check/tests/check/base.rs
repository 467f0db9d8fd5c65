//! The pool that all tampering begins with.

use crate::fixture::{new_home, noise};
use crate::tamper::Image;
use marram_vfs::{FileSystem, Ino, NewNode, XattrMode};
use std::sync::OnceLock;

const CHUNK_BYTES: usize = 16 << 10;

/// A pool and the inodes of its root dataset.
pub(crate) struct Base {
    len: usize,
    /// What is not zero, by offset: so a copy touches little memory.
    chunks: Vec<(usize, Vec<u8>)>,
    pub(crate) directory: u64,
    pub(crate) nested: u64,
    pub(crate) small: u64,
    /// A file of several sections, one block of which they share.
    pub(crate) large: u64,
    pub(crate) link: u64,
    /// A file of one block that does not compress.
    pub(crate) plain: u64,
}

/// The pool: the dataset `root` with files and no snapshots; `other` with two snapshots, `one` and
/// `two`, each with blocks that the next has no more, and `clone`, which began as the first.
pub(crate) fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(make)
}

fn make() -> Base {
    let home = new_home(32, &[]);
    let files = home.mount("root");
    let directory = files.directory(1, "directory");
    let nested = files.directory(directory, "nested");
    let small = files.file(nested, "small", b"a few bytes");
    let large = files.file(nested, "large", &noise(1, 400_000));
    let link = files.make(1, "link", NewNode::Symlink { target: b"directory/nested" });
    let plain = files.file(1, "plain", &noise(2, 30_000));
    let set = |name: &[u8], value: &[u8]| {
        files.posix.set_xattr(Ino(small), name, value, XattrMode::Any).unwrap();
    };
    set(b"user.short", b"value");
    set(b"user.long", &noise(3, 5000));
    set(b"security.capability", b"capable");
    files.commit();
    files.write(large, 50_000, &noise(4, 10_000));
    for number in 0..100 {
        files.file(directory, &format!("file {number}"), b"content");
    }
    files.commit();
    make_others(&home);
    home.assert_clean();
    let bytes = home.bytes();
    let chunks = bytes.chunks(CHUNK_BYTES).enumerate();
    let chunks = chunks.filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0));
    let chunks = chunks.map(|(index, chunk)| (index * CHUNK_BYTES, chunk.to_vec())).collect();
    Base { len: bytes.len(), chunks, directory, nested, small, large, link, plain }
}

fn make_others(home: &crate::fixture::Home) {
    let name = "other".parse().unwrap();
    marram_store::Store::create(&*home.pool, &name, &Default::default()).unwrap();
    let other = home.mount("other");
    let file = other.file(1, "file", &noise(5, 200_000));
    other.file(1, "second", &noise(6, 20_000));
    home.snapshot("other", "one");
    home.clone_of("other@one", "clone");
    other.write(file, 0, &noise(7, 150_000));
    home.snapshot("other", "two");
    other.write(file, 100_000, &noise(8, 100_000));
    other.commit();
    let clone = home.mount("clone");
    clone.write(file, 0, &noise(9, 130_000));
    clone.commit();
}

impl Base {
    pub(crate) fn image(&self) -> Image {
        let mut bytes = vec![0; self.len];
        for (at, chunk) in &self.chunks {
            bytes[*at..at + chunk.len()].copy_from_slice(chunk);
        }
        Image::new(bytes)
    }
}

/// The tools of these tests leave a pool in order that they only rewrite.
#[test]
fn a_pool_that_is_rewritten_without_a_change_is_in_order() {
    let mut image = base().image();
    image.edit_pool(|_, _| {});
    image.assert_found(&[]);
    image.edit_dataset("root", |_, _| {});
    image.edit_dataset("clone", |_, _| {});
    image.assert_found(&[]);
}
