//! Images of ext4 as `mke2fs` makes them, which are only read: extents, checksums, indexes,
//! attributes and journals, beside the folders that they were made from and another reader.

use crate::images::{name, open_bytes, program};
use crate::journal::{BLOCK, FREE, replayed_by_e2fsck, run, transactions, with_journal_of};
use crate::view;
use marram_device::{Device, MemoryDevice};
use marram_ext2::{Ext2, Ext2Options, ImageError};
use marram_sim::Random;
use marram_vfs::{FileSystem, Ino, Kind, Result, Timestamp};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Names in one directory: enough for an index of two levels in blocks of 1 KiB.
const NAMES: usize = 3_000;
/// Extents of one file: a tree of two levels in blocks of 1 KiB.
const EXTENTS: u64 = 600;
/// What fills the blocks of that file.
const FILL: u8 = 0xd5;

/// What there is at a path: its kind and permissions, its content or target, its attributes.
#[derive(Debug, PartialEq, Eq)]
struct Thing {
    kind: Kind,
    permissions: u32,
    links: u32,
    modified: Timestamp,
    content: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

type Tree = BTreeMap<String, Thing>;

/// Reads all that there is, by whatever way leads to it.
fn tree(files: &Ext2) -> Result<Tree> {
    let (mut tree, mut left) = (Tree::new(), vec![(String::new(), Ino::ROOT)]);
    while let Some((above, directory)) = left.pop() {
        let mut found = Vec::new();
        files.read_directory(directory, 0, false, &mut |entry| {
            found.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })?;
        for text in found {
            let about = files.lookup(directory, name(&text))?;
            let mut content = Vec::new();
            match about.kind {
                Kind::Regular => files.read(about.ino, 0, about.size as usize, &mut content)?,
                Kind::Symlink => content = files.read_link(about.ino)?,
                _ => {}
            }
            let mut attributes = Vec::new();
            for tag in files.list_xattrs(about.ino)? {
                attributes.push((tag.clone(), files.xattr(about.ino, &tag)?));
            }
            let path = format!("{above}/{text}");
            if about.kind == Kind::Directory {
                left.push((path.clone(), about.ino));
            }
            let thing = Thing {
                kind: about.kind,
                permissions: about.permissions,
                links: about.links,
                modified: about.modified,
                content,
                attributes,
            };
            tree.insert(path, thing);
        }
    }
    Ok(tree)
}

fn read_only(bytes: Vec<u8>) -> std::result::Result<Ext2, ImageError> {
    let options = Ext2Options { writable: false, ..Ext2Options::default() };
    Ext2::open(Arc::new(MemoryDevice::from_bytes(bytes)), options)
}

/// A folder with some of everything that an image holds.
fn fill(folder: &Path) {
    let many = folder.join("many");
    std::fs::create_dir(&many).unwrap();
    for which in 0..NAMES {
        std::fs::write(many.join(format!("a name of some length {which}")), "").unwrap();
    }
    std::fs::write(folder.join("whole"), marram_sim::pattern(1, 300_000)).unwrap();
    std::fs::set_permissions(folder.join("whole"), PermissionsExt::from_mode(0o751)).unwrap();
    std::fs::hard_link(folder.join("whole"), many.join("again")).unwrap();
    let holes = std::fs::File::create(folder.join("holes")).unwrap();
    for which in 0..EXTENTS {
        holes.write_all_at(&[FILL; 4096], which * 8192 + 4096).unwrap();
    }
    std::os::unix::fs::symlink("short", folder.join("short")).unwrap();
    std::os::unix::fs::symlink("l/".repeat(150), folder.join("long")).unwrap();
}

/// An image of a folder; `words` go to `mke2fs`.
fn image_of(folder: &Path, words: &[&str], mib: u32) -> Vec<u8> {
    let work = tempfile::tempdir().unwrap();
    let at = work.path().join("image");
    let made = Command::new(program("mke2fs"))
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .arg(folder)
        .args(words)
        .arg(&at)
        .arg(format!("{mib}m"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::write(work.path().join("large"), [7; 700]).unwrap();
    for (attribute, file) in [("user.small -", "whole"), ("user.large -f large", "many")] {
        let request = match attribute.strip_suffix(" -") {
            Some(tag) => format!("ea_set {file} {tag} value"),
            None => format!("ea_set -f large {file} user.large"),
        };
        run("debugfs", &["-w", "-R", &request, "image"], work.path());
    }
    // Directories get their indexes.
    run("e2fsck", &["-fyD", "image"], work.path());
    std::fs::read(at).unwrap()
}

/// Compares all that is in the folder with what is at its path in an image.
fn compare(folder: &Path, below: &str, tree: &Tree) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(folder.join(below.trim_start_matches('/'))).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}/{}", entry.file_name().to_string_lossy());
        let at = folder.join(path.trim_start_matches('/'));
        let (about, thing) = (std::fs::symlink_metadata(&at).unwrap(), &tree[&path]);
        assert_eq!(about.permissions().mode() & 0o7777, thing.permissions, "{path}");
        match thing.kind {
            Kind::Directory => count += compare(folder, &path, tree),
            Kind::Symlink => {
                let target = std::fs::read_link(&at).unwrap();
                assert_eq!(target.as_os_str().as_encoded_bytes(), thing.content, "{path}");
            }
            _ => assert!(std::fs::read(&at).unwrap() == thing.content, "{path}"),
        }
        count += 1;
    }
    count
}

#[test]
fn an_image_has_what_it_was_made_from() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let shapes: [&[&str]; 4] = [
        &["-b", "1024"],
        &["-b", "4096", "-O", "metadata_csum_seed", "-I", "512"],
        &["-b", "2048", "-O", "^metadata_csum,uninit_bg"],
        &["-b", "1024", "-O", "^64bit,^has_journal", "-I", "128"],
    ];
    for words in shapes {
        let image = image_of(folder.path(), words, 32);
        let device = Arc::new(MemoryDevice::from_bytes(image.clone()));
        let options = Ext2Options { writable: false, ..Ext2Options::default() };
        let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
        let tree = tree(&files).unwrap();
        assert_eq!(compare(folder.path(), "", &tree), NAMES + 6, "{words:?}");
        assert_eq!(tree["/whole"].links, 2);
        assert_eq!(tree["/whole"].attributes, [(b"user.small".to_vec(), b"value".to_vec())]);
        assert_eq!(tree["/many"].attributes, [(b"user.large".to_vec(), vec![7; 700])]);
        if view::is_taken(&image) {
            assert_eq!(view::compared(&image, &files), Ok(tree.len()), "{words:?}");
        }
        files.close().unwrap();
        assert!(device.snapshot() == image, "nothing is written");
        let refused = open_bytes(image).map(drop).unwrap_err().to_string();
        assert!(refused.contains("extents") && refused.contains("mount it with `ro`"), "{refused}");
    }
}

#[test]
fn metadata_that_is_not_as_it_was_written_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    // What no checksum covers: content, and a target that has a block of its own.
    for content in ["whole", "many/again", "long"] {
        std::fs::remove_file(folder.path().join(content)).unwrap();
    }
    std::fs::write(folder.path().join("whole"), "").unwrap();
    let good = image_of(folder.path(), &["-b", "1024", "-O", "^has_journal"], 16);
    let truth = tree(&read_only(good.clone()).unwrap()).unwrap();
    let is_content = |at: usize| good[at / BLOCK * BLOCK..][..BLOCK].iter().all(|it| *it == FILL);
    let used: Vec<usize> =
        (0..good.len()).filter(|at| good[*at] != 0 && !is_content(*at)).collect();
    let (mut random, mut found) = (Random::new(5), 0);
    for _ in 0..100 {
        let at = used[random.below(used.len() as u64) as usize];
        let mut bad = good.clone();
        bad[at] ^= 1 << random.below(8);
        match read_only(bad).map(|files| tree(&files)) {
            Ok(Ok(shown)) => assert!(shown == truth, "byte {at}"),
            _ => found += 1,
        }
    }
    assert!(found > 30, "{found}");
}

#[test]
fn journals_of_every_form_are_replayed_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = (0..7_000_u64).flat_map(|which| [which.to_le_bytes(); BLOCK / 8]).flatten();
    std::fs::write(folder.path().join("whole"), blocks.collect::<Vec<u8>>()).unwrap();
    std::fs::create_dir(folder.path().join("many")).unwrap();
    let forms = [
        ("", "journal_open"),
        ("", "journal_open -c"),
        ("", "journal_open -c -v 2"),
        ("", "journal_open -c -v 3"),
        ("^64bit", "journal_open -c -v 2"),
        ("^64bit", "journal_open -c -v 3"),
    ];
    let (mut random, mut changed, mut cut) = (Random::new(7), 0, 0);
    for (features, opening) in forms {
        let words: &[&str] =
            if features.is_empty() { &["-b", "1024"] } else { &["-b", "1024", "-O", features] };
        let base = image_of(folder.path(), words, 16);
        for round in 0..3 {
            let written = transactions(&mut random);
            let image = with_journal_of(opening, &base, &written);
            let theirs = replayed_by_e2fsck(&image);
            let files = read_only(image.clone()).unwrap();
            let file = files.lookup(Ino::ROOT, name("whole")).unwrap().ino;
            for block in FREE.start..FREE.start + 12 {
                let at = block as usize * BLOCK;
                let which = u64::from_le_bytes(base[at..at + 8].try_into().unwrap());
                let mut shown = Vec::new();
                files.read(file, which * BLOCK as u64, BLOCK, &mut shown).unwrap();
                assert!(shown == theirs[at..at + BLOCK], "{opening}, {features}, round {round}");
                changed += usize::from(shown != base[at..at + BLOCK]);
            }
            if !opening.contains("-c") {
                continue;
            }
            // A copy of a block that has changed is refused, if it is one that is taken.
            let copy = &written[0].blocks[0].1[8..];
            let at = image.windows(copy.len()).position(|it| it == copy).unwrap();
            let mut bad = image;
            bad[at + 500] ^= 1;
            let refused = read_only(bad).map(drop).err().map(|it| it.to_string());
            cut += usize::from(refused.is_some_and(|it| it.contains("journal's copy of block")));
        }
    }
    assert!(changed > 30 && cut > 3, "{changed} changed, {cut} refused");
}

#[test]
fn a_damaged_block_before_a_committed_transaction_is_no_end_of_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    for directory in ["whole", "many"] {
        std::fs::create_dir(folder.path().join(directory)).unwrap();
    }
    let base = image_of(folder.path(), &["-b", "1024"], 16);
    let mut random = Random::new(2);
    let mut written = transactions(&mut random);
    while written.len() < 2 {
        written.extend(transactions(&mut random));
    }
    // `debugfs` does not commit a transaction with revokes.
    written.iter_mut().for_each(|it| it.revoked.clear());
    let image = with_journal_of("journal_open -c -v 3", &base, &written);
    let head = |kind: u8| [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind];
    let heads = |kind: u8| -> Vec<usize> {
        (0..image.len()).step_by(BLOCK).filter(|at| image[*at..].starts_with(&head(kind))).collect()
    };
    let (descriptors, commits) = (heads(1), heads(2));
    let with = |at: usize| {
        let mut bad = image.clone();
        bad[at + 600] ^= 4;
        read_only(bad).map(drop)
    };
    for at in [descriptors[0], commits[0]] {
        let refused = with(at).unwrap_err().to_string();
        assert!(refused.contains("journal's transaction"), "{refused}");
    }
    with(*commits.last().unwrap()).unwrap();
}
