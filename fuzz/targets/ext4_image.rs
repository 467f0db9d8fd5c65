//! Whole ext4 images, which are only read: a small one with a tree of extents and a directory of
//! many blocks, changed by the input, then opened and walked. One without checksums too, for nearly
//! every change would end at one: what makes no sense is a typed error, no panic, no endless walk.

#![no_main]

mod images;

use images::{BLOCK_BYTES, Changed, block_of, make, open_and_use};
use libfuzzer_sys::fuzz_target;
use marram_ext2::Ext2Options;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

/// Extents of a file: more than the inode has room for.
const EXTENTS: u64 = 40;

fn fill(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder.join("d"))?;
    for which in 0..30 {
        std::fs::write(folder.join("d").join(format!("{which:0>90}")), "")?;
    }
    std::os::unix::fs::symlink("l/".repeat(200), folder.join("long"))?;
    let holes = std::fs::File::create(folder.join("holes"))?;
    (0..EXTENTS).try_for_each(|which| holes.write_all_at(&[5; 1024], which * 8192 + 4096))
}

/// An image and its blocks that are not all zeros.
type Base = (Vec<u8>, Vec<usize>);

/// One with checksums, and one without.
fn bases() -> &'static [Base; 2] {
    static BASES: OnceLock<[Base; 2]> = OnceLock::new();
    BASES.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("marram-fuzz-from-{}", std::process::id()));
        fill(&folder).expect("there is room");
        let from = folder.to_str().expect("a name of letters");
        let bases = ["^metadata_csum,^has_journal", "metadata_csum,^has_journal"].map(|features| {
            let image = make("ext4", 512, &["-O", features, "-d", from]);
            let is_used = |block: &usize| block_of(&image, *block).iter().any(|byte| *byte != 0);
            let used = (0..image.len() / BLOCK_BYTES).filter(is_used).collect();
            (image, used)
        });
        std::fs::remove_dir_all(&folder).expect("it is there");
        bases
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((mode, changes)) = bytes.split_first() else { return };
    let (image, used) = &bases()[usize::from(mode & 1)];
    let options = Ext2Options { writable: false, ..Ext2Options::default() };
    open_and_use(Changed::new(image, used, changes), options);
});
