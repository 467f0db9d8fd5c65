//! The lines of text in which two states of a file differ, as `diff -u` tells them.

use crate::control::protocol::DifferenceRow;
use crate::error::Result;
use crate::names;
use marram_pool::Pool;
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::{Source, Store};
use marram_vfs::{FileSystem, Ino, Kind};

/// Largest file of which lines are compared, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A file with a zero in its first bytes is no text; so many are looked at.
const LOOK_BYTES: usize = 8000;

/// What is told of a file, with the numbers that it has in both states.
pub(super) type Numbered = (DifferenceRow, (Ino, Ino));

/// Two states whose texts are compared.
pub(super) struct Texts {
    before: Posix,
    after: Posix,
}

impl Texts {
    pub(super) fn open(pool: &Pool, of: (&Source, &Source)) -> Result<Texts> {
        let open = |source| -> Result<Posix> {
            let access_times = AccessTimes::Never;
            let root = Ino(pool.report(source)?.root_object);
            let options = PosixOptions { access_times, root, ..PosixOptions::default() };
            Ok(Posix::new(pool.open(source)?, options)?)
        };
        Ok(Texts { before: open(of.0)?, after: open(of.1)? })
    }

    /// Adds to what is told of one path which lines differ. Where a file has taken the name of
    /// one that went, as editors save, those are the lines in which the two differ.
    pub(super) fn add_to(&self, rows: &mut [Numbered]) -> Result<()> {
        if let [(gone, (old, _)), (came, (_, new))] = rows
            && is_file(gone, "removed")
            && is_file(came, "created")
        {
            let texts = (text_of(&self.before, *old)?, text_of(&self.after, *new)?);
            let path = came.path_in_bytes();
            came.patch = patch_of((Some(&path), Some(&path)), texts);
            return Ok(());
        }
        let renamed = rows.iter().position(|(row, _)| is_file(row, "renamed"));
        rows.iter_mut().try_for_each(|(row, numbers)| self.add_to_one(row, *numbers))?;
        renamed.map_or(Ok(()), |at| self.add_rename(rows, at))
    }

    fn add_to_one(&self, row: &mut DifferenceRow, (old_ino, ino): (Ino, Ino)) -> Result<()> {
        if row.kind != "file" {
            return Ok(());
        }
        let path = row.path_in_bytes();
        row.patch = match row.change.as_str() {
            "content" => {
                let texts = (text_of(&self.before, old_ino)?, text_of(&self.after, ino)?);
                patch_of((Some(&path), Some(&path)), texts)
            }
            "created" => {
                let texts = (Some(String::new()), text_of(&self.after, ino)?);
                patch_of((None, Some(&path)), texts)
            }
            "removed" => {
                let texts = (text_of(&self.before, old_ino)?, Some(String::new()));
                patch_of((Some(&path), None), texts)
            }
            _ => None,
        };
        Ok(())
    }

    /// Tells where a file was that is elsewhere now, with the lines that differ, if any do.
    fn add_rename(&self, rows: &mut [Numbered], renamed: usize) -> Result<()> {
        let (row, numbers) = &rows[renamed];
        let (numbers, path) = (*numbers, row.path_in_bytes());
        let Some(old_path) = row.old_path_in_bytes() else { return Ok(()) };
        let is_changed = |(row, of): &Numbered| *of == numbers && is_file(row, "content");
        let changed = rows.iter().position(is_changed);
        let lines = match changed {
            Some(_) => {
                let texts = (text_of(&self.before, numbers.0)?, text_of(&self.after, numbers.1)?);
                patch_of((Some(&old_path), Some(&path)), texts)
            }
            None => None,
        };
        let at = changed.filter(|_| lines.is_some()).unwrap_or(renamed);
        rows[at].0.patch = Some(rename_of(&old_path, &path, lines));
        Ok(())
    }
}

fn is_file(row: &DifferenceRow, change: &str) -> bool {
    row.kind == "file" && row.change == change
}

/// The name of a file in a patch, below `a` or `b`; in quotes where it could be misread.
fn name_in_patch(side: &str, path: &[u8]) -> String {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    names::quoted(&[side.as_bytes(), b"/", path].concat())
}

/// As git tells a rename. Where no lines follow, patch(1) knows its end by the head of another.
fn rename_of(old: &[u8], new: &[u8], lines: Option<String>) -> String {
    let bare = |path: &[u8]| names::quoted(path.strip_prefix(b"/").unwrap_or(path));
    let name = |side: &str, path: &[u8]| name_in_patch(side, path);
    let head = format!("diff --git {} {}\n", name("a", old), name("b", new));
    let end = || format!("diff --git {} {}\n", name("a", new), name("b", new));
    let rest = lines.unwrap_or_else(end);
    format!("{head}rename from {}\nrename to {}\n{rest}", bare(old), bare(new))
}

/// The lines in which two texts differ, if both are; where one is no file it has no path.
fn patch_of(
    (before, after): (Option<&[u8]>, Option<&[u8]>),
    (old, new): (Option<String>, Option<String>),
) -> Option<String> {
    let name = |side: &str, path: Option<&[u8]>| {
        let name = path.map_or("/dev/null".to_owned(), |path| name_in_patch(side, path));
        // patch(1) takes a name with a space in it for one only if a tab ends it.
        let end = if name.contains(' ') && !name.starts_with('"') { "\t" } else { "" };
        format!("{name}{end}")
    };
    let (old, new) = (old?, new?);
    (old != new).then(|| unified(&old, &new, &name("a", before), &name("b", after)))
}

fn unified(old: &str, new: &str, from: &str, to: &str) -> String {
    let hunks = diffy::DiffOptions::new().create_patch(old, new).to_string();
    let hunks = hunks.find("@@ ").map_or("", |at| &hunks[at..]);
    format!("--- {from}\n+++ {to}\n{hunks}")
}

/// The content of a file that is short enough, and text.
fn text_of(files: &Posix, ino: Ino) -> Result<Option<String>> {
    let attributes = files.attributes(ino)?;
    if attributes.kind != Kind::Regular || attributes.size > FILE_BYTES_MAX {
        return Ok(None);
    }
    let mut content = Vec::new();
    files.read(ino, 0, usize::try_from(attributes.size).unwrap_or(0), &mut content)?;
    if content.iter().take(LOOK_BYTES).any(|byte| *byte == 0) {
        return Ok(None);
    }
    Ok(String::from_utf8(content).ok())
}

#[cfg(test)]
mod tests {
    use super::{patch_of, rename_of, unified};

    #[test]
    fn lines_that_differ_are_told_as_patch_reads_them() {
        let text = unified("a\nb\nc\n", "a\nB\nc\n", "a/f", "b/f");
        assert_eq!(text, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        let text = unified("", "new\n", "/dev/null", "b/f");
        assert!(text.ends_with("@@ -0,0 +1 @@\n+new\n"), "{text}");
    }
    #[test]
    fn names_are_told_as_patch_reads_them() {
        let told = |path: &[u8]| {
            let texts = (Some("a\n".to_owned()), Some("b\n".to_owned()));
            patch_of((None, Some(path)), texts).expect("lines that differ")
        };
        assert!(told(b"/d/f").starts_with("--- /dev/null\n+++ b/d/f\n@@ "));
        assert!(told(b"/a b").starts_with("--- /dev/null\n+++ b/a b\t\n@@ "));
        assert!(told(b"/\xff \n").starts_with("--- /dev/null\n+++ \"b/\\377 \\n\"\n@@ "));
        let renamed = "diff --git a/x b/y\nrename from x\nrename to y\n";
        let end = "diff --git a/y b/y\n";
        assert_eq!(rename_of(b"/x", b"/y", None), format!("{renamed}{end}"));
        assert_eq!(rename_of(b"/x", b"/y", Some("-a\n".to_owned())), format!("{renamed}-a\n"));
    }
}
