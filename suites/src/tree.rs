//! Two trees, compared file by file: kind, content, mode, owner, time, link target, hard links.

use marram_lab::failure::{Context, Result, fail};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How many differences are worth printing.
const DIFFERENCES_SHOWN: usize = 20;

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Entries of all kinds.
    pub(crate) entries: u64,
    /// Bytes of file content.
    pub(crate) bytes: u64,
}

/// Fails unless the trees below the two folders are the same.
pub(crate) fn compare(expected: &Path, actual: &Path) -> Result<Compared> {
    let left = entries(expected)?;
    let right = entries(actual)?;
    let mut differences = missing(&left, &right);
    let mut compared = Compared::default();
    for (path, entry) in &left {
        let Some(other) = right.get(path) else { continue };
        compared.entries += 1;
        compared.bytes += entry.metadata.len() * u64::from(entry.metadata.is_file());
        if let Some(difference) =
            difference((&expected.join(path), entry), (&actual.join(path), other))?
        {
            differences.push(format!("{}: {difference}", path.display()));
        }
    }
    if differences.is_empty() {
        return Ok(compared);
    }
    let count = differences.len();
    differences.truncate(DIFFERENCES_SHOWN);
    fail(format!("{count} differences to {}:\n{}", expected.display(), differences.join("\n")))
}

struct Entry {
    metadata: Metadata,
    /// The first path, in order, with the same inode: equal for hard links of one file.
    first_name: PathBuf,
    /// How many paths of the tree have this inode.
    names: u64,
}

type Entries = BTreeMap<PathBuf, Entry>;

fn entries(root: &Path) -> Result<Entries> {
    let mut entries = Entries::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let place = root.join(&folder);
        let listing =
            std::fs::read_dir(&place).context(|| format!("cannot list {}", place.display()))?;
        for item in listing {
            let path = folder.join(item?.file_name());
            let place = root.join(&path);
            let metadata = std::fs::symlink_metadata(&place)
                .context(|| format!("cannot stat {}", place.display()))?;
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            let entry = Entry { metadata, first_name: path.clone(), names: 1 };
            if entries.insert(path, entry).is_some() {
                return fail(format!("{} is listed twice", place.display()));
            }
        }
    }
    name_hard_links(&mut entries);
    Ok(entries)
}

fn name_hard_links(entries: &mut Entries) {
    let mut links: HashMap<u64, (PathBuf, u64)> = HashMap::new();
    for (path, entry) in entries.iter().filter(|(_, entry)| !entry.metadata.is_dir()) {
        links.entry(entry.metadata.ino()).or_insert_with(|| (path.clone(), 0)).1 += 1;
    }
    for entry in entries.values_mut().filter(|entry| !entry.metadata.is_dir()) {
        if let Some((first_name, names)) = links.get(&entry.metadata.ino()) {
            (entry.first_name, entry.names) = (first_name.clone(), *names);
        }
    }
}

fn missing(left: &Entries, right: &Entries) -> Vec<String> {
    let gone = left.keys().filter(|path| !right.contains_key(*path));
    let extra = right.keys().filter(|path| !left.contains_key(*path));
    gone.map(|path| format!("{}: missing", path.display()))
        .chain(extra.map(|path| format!("{}: not expected", path.display())))
        .collect()
}

/// What differs between two entries of the same path.
fn difference(left: (&Path, &Entry), right: (&Path, &Entry)) -> Result<Option<String>> {
    let (a, b) = (&left.1.metadata, &right.1.metadata);
    let differs = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
        Ok(Some(format!("{what} {a:?}, here {b:?}")))
    };
    if a.mode() != b.mode() {
        return differs("mode", &format!("{:o}", a.mode()), &format!("{:o}", b.mode()));
    }
    if (a.uid(), a.gid()) != (b.uid(), b.gid()) {
        return differs("owner", &(a.uid(), a.gid()), &(b.uid(), b.gid()));
    }
    if (a.mtime(), a.mtime_nsec()) != (b.mtime(), b.mtime_nsec()) {
        return differs("mtime", &(a.mtime(), a.mtime_nsec()), &(b.mtime(), b.mtime_nsec()));
    }
    if left.1.first_name != right.1.first_name {
        return differs("hard link of", &left.1.first_name, &right.1.first_name);
    }
    // Names that the original has outside of its tree are not copied.
    if !a.is_dir() && left.1.names != b.nlink() {
        return differs("links", &left.1.names, &b.nlink());
    }
    if a.file_type().is_symlink() {
        let (a, b) = (std::fs::read_link(left.0)?, std::fs::read_link(right.0)?);
        return if a == b { Ok(None) } else { differs("target", &a, &b) };
    }
    if a.file_type().is_char_device() || a.file_type().is_block_device() {
        return if a.rdev() == b.rdev() {
            Ok(None)
        } else {
            differs("device", &a.rdev(), &b.rdev())
        };
    }
    if !a.is_file() {
        return Ok(None);
    }
    if a.len() != b.len() {
        return differs("size", &a.len(), &b.len());
    }
    content_difference(left.0, right.0)
}

/// Where the content of two files of the same size differs.
fn content_difference(left: &Path, right: &Path) -> Result<Option<String>> {
    const CHUNK_BYTES: usize = 256 << 10;
    let open = |path: &Path| File::open(path).context(|| format!("cannot open {}", path.display()));
    let (mut left_file, mut right_file) = (open(left)?, open(right)?);
    let (mut a, mut b) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut offset = 0_u64;
    loop {
        let count = read_full(&mut left_file, &mut a).context(|| left.display())?;
        let other = read_full(&mut right_file, &mut b).context(|| right.display())?;
        if count != other || a[..count] != b[..other] {
            let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            return Ok(Some(format!("content differs at byte {}", offset + same as u64)));
        }
        if count == 0 {
            return Ok(None);
        }
        offset += count as u64;
    }
}

fn read_full(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Files of odd kinds that no source archive has: hard links, holes, fifos, odd modes and names.
pub(crate) fn make_oddities(folder: &Path) -> Result<()> {
    use marram_lab::process::{command, run};
    std::fs::create_dir_all(folder)?;
    let script = "set -e; umask 022; mkdir -p deep/er; printf one > one; ln one deep/two; \
        ln one deep/er/three; ln -s ../nowhere dangling; ln -s one soft; mkfifo fifo; \
        truncate -s 1M hole; printf end >> hole; : > empty; chmod 4711 empty; \
        printf 'x' > \"$(printf 'na me\\n\\001')\"; mkdir sticky; chmod 1777 sticky; \
        touch -h -d '1969-12-31 23:59:58.123456789Z' soft; touch -d '2106-02-08Z' one; \
        find . -depth -type d -exec touch -d '2001-02-03 04:05:06.789Z' {} +";
    run(command(&["sh", "-c", script]).current_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use marram_lab::process::{command, run};

    fn pair() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let (left, right) = (folder.path().join("left"), folder.path().join("right"));
        make_oddities(&left).expect("the left tree");
        run(command(&["cp", "-a"]).arg(&left).arg(&right)).expect("the right tree");
        (folder, left, right)
    }

    fn found(change: &str) -> String {
        let (_folder, left, right) = pair();
        run(command(&["sh", "-c", change]).current_dir(&right)).expect("the change");
        compare(&left, &right).expect_err("the change is a difference").to_string()
    }

    #[test]
    fn a_faithful_copy_has_no_differences() {
        let (_folder, left, right) = pair();
        let compared = compare(&left, &right).expect("a copy is the same");
        assert!(compared.entries >= 12, "{compared:?}");
    }

    #[test]
    fn names_of_the_original_outside_of_its_tree_do_not_count() {
        let (_folder, left, right) = pair();
        let outside = "ln left/one outside; touch -r right left";
        let folder = left.parent().expect("a folder");
        run(command(&["sh", "-c", outside]).current_dir(folder)).expect("a link outside");
        compare(&left, &right).expect("the copy is the same");
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        assert!(found("rm empty").contains("empty: missing"));
        assert!(found("touch new").contains("new: not expected"));
        assert!(found("chmod 4710 empty").contains("mode"));
        assert!(found("touch -d 2020-01-01 empty").contains("mtime"));
        assert!(found("ln -sf two soft; touch -hr ../left/soft soft").contains("target"));
        let unlinked = "cp -p one new; mv new one; touch -r ../left/deep deep";
        assert!(found(unlinked).contains("hard link of"));
        assert!(found("ln empty ../empty; touch -r ../left .").contains("links"));
        let byte = "printf Y | dd of=hole bs=1 seek=1000 conv=notrunc status=none; \
                    touch -r ../left/hole hole";
        assert!(found(byte).contains("content differs at byte 1000"));
    }
}
