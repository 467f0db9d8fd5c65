//! What is put into the images that are written here.

use crate::images::{FILE, USER, name};
use marram_ext2::Ext2;
use marram_vfs::{FileSystem, Ino, NewNode, WriteOptions, XattrMode};

const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };

/// Puts some of everything into an image.
pub(crate) fn fill(files: &Ext2) -> marram_vfs::Result<()> {
    let below = files.create(USER, Ino::ROOT, name("d"), DIRECTORY)?.ino;
    let file = files.create(USER, below, name("file"), FILE)?.ino;
    files.write(file, 300_000, &[5; 40_000], WriteOptions::default())?;
    files.link(file, Ino::ROOT, name("again"))?;
    files.set_xattr(file, b"user.small", b"value", XattrMode::Any)?;
    files.set_xattr(file, b"security.large", &[4; 600], XattrMode::Any)?;
    for (text, target) in [("short", &b"short"[..]), ("long", &[b'l'; 400])] {
        files.create(USER, below, name(text), NewNode::Symlink { target })?;
    }
    (0..20).try_for_each(|which| {
        files.create(USER, below, name(&format!("{which:0>90}")), FILE).map(drop)
    })
}
