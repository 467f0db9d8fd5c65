//! The lines of text in which two states of a file differ, as `diff -u` tells them, below heads as
//! git tells them: patch(1) and `git apply` take a file without one for a part of the file before.

use crate::control::protocol::DifferenceRow;
use crate::error::Result;
use crate::names;
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::{Source, Store};
use marram_vfs::{FileSystem, Ino, Kind};
use std::collections::BTreeMap;

/// Largest file of which lines are compared, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A file with a zero in its first bytes is no text; so many are looked at.
const LOOK_BYTES: usize = 8000;
/// The bits of a mode that let somebody run the file.
const RUN_BITS: u32 = 0o111;

/// The row of a file, with the numbers that it has in both states.
pub(super) type Numbered = (DifferenceRow, (Ino, Ino));

/// Two states whose texts are compared.
pub(super) struct Texts {
    before: Posix,
    after: Posix,
    /// Where the directories were that are elsewhere now, of all rows so far.
    moved: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A text in one of the two states.
struct Text<'p> {
    path: &'p [u8],
    /// Somebody may run it.
    is_program: bool,
    content: String,
}

impl Texts {
    pub(super) fn open(store: &dyn Store, of: (&Source, &Source)) -> Result<Texts> {
        let (before, after) = (open(store, of.0)?, open(store, of.1)?);
        Ok(Texts { before, after, moved: BTreeMap::new() })
    }

    /// Adds to the rows of one path which lines differ. Paths come sorted, so that of a
    /// directory before those of what is in it. Of a file in a directory that another one took the
    /// place of, those are the lines in which it and the one of that name there differ.
    pub(super) fn add_to(&mut self, rows: &mut [Numbered]) -> Result<()> {
        self.note_moved(rows);
        if let [(gone, (old, _)), (came, (_, new))] = rows
            && is_file(gone, "removed")
            && is_file(came, "created")
        {
            let path = came.path_in_bytes();
            came.patch = self.of_both((*old, &path), (*new, &path))?;
            return Ok(());
        }
        let find = |change| rows.iter().position(|(row, _)| is_file(row, change));
        let (renamed, linked, changed) = (find("renamed"), find("linked"), find("content"));
        for (row, numbers) in rows.iter_mut().filter(|(row, _)| row.kind == "file") {
            // Under a name that a file has got there is nothing that could be changed.
            if row.change != "content" || (renamed.is_none() && linked.is_none()) {
                row.patch = self.of_one(row, *numbers)?;
            }
        }
        renamed.map_or(Ok(()), |at| self.add_rename(rows, at, changed))
    }

    fn note_moved(&mut self, rows: &[Numbered]) {
        let directories = rows.iter().filter(|(row, _)| row.kind == "directory");
        for (row, _) in directories {
            if let Some(old_path) = row.old_path_in_bytes() {
                self.moved.insert(row.path_in_bytes(), old_path);
            }
        }
    }

    /// Where a file was that has not been moved itself: the nearest directory above it that has
    /// been tells.
    fn old_path(&self, path: &[u8]) -> Vec<u8> {
        let ends = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let above = ends.map(|(end, _)| path.split_at(end));
        let mut old = above.filter_map(|(directory, rest)| {
            self.moved.get(directory).map(|old| [old.as_slice(), rest].concat())
        });
        old.next().unwrap_or_else(|| path.to_vec())
    }

    fn of_one(&self, row: &DifferenceRow, (old_ino, ino): (Ino, Ino)) -> Result<Option<String>> {
        let path = row.path_in_bytes();
        Ok(match row.change.as_str() {
            "content" => self.of_both((old_ino, &self.old_path(&path)), (ino, &path))?,
            "created" => text_of(&self.after, ino, &path)?.map(|new| created(&new)),
            "removed" => text_of(&self.before, old_ino, &path)?.and_then(|old| removed(&old)),
            _ => None,
        })
    }

    fn of_both(&self, old: (Ino, &[u8]), new: (Ino, &[u8])) -> Result<Option<String>> {
        let old = text_of(&self.before, old.0, old.1)?;
        let new = text_of(&self.after, new.0, new.1)?;
        Ok(old.zip(new).and_then(|(old, new)| changed(&old, &new)))
    }

    /// Tells where a file was that is elsewhere now, with the lines that differ, if any do. What
    /// has changed and is no text would keep its old content: such a rename is left out.
    fn add_rename(
        &self,
        rows: &mut [Numbered],
        renamed: usize,
        changed: Option<usize>,
    ) -> Result<()> {
        let row = &rows[renamed].0;
        let Some(old_path) = row.old_path_in_bytes() else { return Ok(()) };
        let path = row.path_in_bytes();
        match changed {
            Some(at) => {
                let (old, new) = rows[at].1;
                rows[at].0.patch = self.of_both((old, &old_path), (new, &path))?;
            }
            None => rows[renamed].0.patch = Some(rename_of(&old_path, &path)),
        }
        Ok(())
    }
}

/// A state as a file system that is only read.
///
/// # Errors
/// It is not there, or cannot be read.
pub(super) fn open(store: &dyn Store, source: &Source) -> Result<Posix> {
    let access_times = AccessTimes::Never;
    let root = Ino(store.report(source)?.root_object);
    let options = PosixOptions { access_times, root, ..PosixOptions::default() };
    Ok(Posix::new(store.open(source)?, options)?)
}

fn is_file(row: &DifferenceRow, change: &str) -> bool {
    row.kind == "file" && row.change == change
}

/// A path below the root, on one side of a patch.
fn on_side(side: &str, path: &[u8]) -> Vec<u8> {
    [side.as_bytes(), path.strip_prefix(b"/").unwrap_or(path)].concat()
}

/// A name in the head of a file, in quotes where it could be misread: also if it has a space.
fn name_in_head(name: &[u8]) -> String {
    let told = names::quoted(name);
    if told.contains(' ') && !told.starts_with('"') { format!("\"{told}\"") } else { told }
}

fn head_of(old: &[u8], new: &[u8]) -> String {
    let (old, new) = (name_in_head(&on_side("a/", old)), name_in_head(&on_side("b/", new)));
    format!("diff --git {old} {new}\n")
}

fn rename_of(old: &[u8], new: &[u8]) -> String {
    let name = |path: &[u8]| name_in_head(&on_side("", path));
    format!("{}rename from {}\nrename to {}\n", head_of(old, new), name(old), name(new))
}

/// What makes a file. Of an empty one the head alone does.
fn created(new: &Text<'_>) -> String {
    let head = head_of(new.path, new.path);
    format!("{head}new file mode {}\n{}", mode_of(new), lines_of(None, Some(new)))
}

/// What removes a file, unless it is empty: patch(1) refuses that.
fn removed(old: &Text<'_>) -> Option<String> {
    let head = head_of(old.path, old.path);
    let lines = lines_of(Some(old), None);
    (!lines.is_empty()).then(|| format!("{head}deleted file mode {}\n{lines}", mode_of(old)))
}

/// What makes one text of the other, if anything differs.
fn changed(old: &Text<'_>, new: &Text<'_>) -> Option<String> {
    let lines = lines_of(Some(old), Some(new));
    match (old.path == new.path, lines.is_empty()) {
        (true, true) => None,
        (true, false) => Some(format!("{}{lines}", head_of(old.path, new.path))),
        (false, _) => Some(format!("{}{lines}", rename_of(old.path, new.path))),
    }
}

/// The mode as git knows modes.
fn mode_of(text: &Text<'_>) -> &'static str {
    if text.is_program { "100755" } else { "100644" }
}

/// The lines in which two texts differ; nothing if none do.
fn lines_of(old: Option<&Text<'_>>, new: Option<&Text<'_>>) -> String {
    let name = |side: &str, text: Option<&Text<'_>>| {
        let name =
            text.map_or("/dev/null".to_owned(), |text| names::quoted(&on_side(side, text.path)));
        // patch(1) takes a name with a space in it for one only if a tab ends it.
        let end = if name.contains(' ') && !name.starts_with('"') { "\t" } else { "" };
        format!("{name}{end}")
    };
    let content = |text: Option<&Text<'_>>| text.map_or(String::new(), |text| text.content.clone());
    let (from, to) = (name("a/", old), name("b/", new));
    match (content(old), content(new)) {
        (old, new) if old == new => String::new(),
        (old, new) => unified(&old, &new, &from, &to),
    }
}

fn unified(old: &str, new: &str, from: &str, to: &str) -> String {
    let hunks = diffy::DiffOptions::new().create_patch(old, new).to_string();
    let hunks = hunks.find("@@ ").map_or("", |at| &hunks[at..]);
    format!("--- {from}\n+++ {to}\n{hunks}")
}

/// A file that is short enough, and text.
fn text_of<'p>(files: &Posix, ino: Ino, path: &'p [u8]) -> Result<Option<Text<'p>>> {
    let attributes = files.attributes(ino)?;
    if attributes.kind != Kind::Regular || attributes.size > FILE_BYTES_MAX {
        return Ok(None);
    }
    let mut content = Vec::new();
    files.read(ino, 0, usize::try_from(attributes.size).unwrap_or(0), &mut content)?;
    if content.iter().take(LOOK_BYTES).any(|byte| *byte == 0) {
        return Ok(None);
    }
    let is_program = attributes.permissions & RUN_BITS != 0;
    Ok(String::from_utf8(content).ok().map(|content| Text { path, is_program, content }))
}

#[cfg(test)]
mod tests {
    use super::{Text, changed, created, removed, rename_of, unified};

    fn text<'p>(path: &'p [u8], content: &str) -> Text<'p> {
        Text { path, is_program: false, content: content.to_owned() }
    }

    #[test]
    fn lines_that_differ_are_told_as_patch_reads_them() {
        let text = unified("a\nb\nc\n", "a\nB\nc\n", "a/f", "b/f");
        assert_eq!(text, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        let text = unified("", "new\n", "/dev/null", "b/f");
        assert!(text.ends_with("@@ -0,0 +1 @@\n+new\n"), "{text}");
    }

    #[test]
    fn each_file_has_a_head() {
        let program = Text { is_program: true, ..text(b"/d/f", "a\n") };
        let told = created(&program);
        let head = "diff --git a/d/f b/d/f\n";
        let lines = "--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+a\n";
        assert_eq!(told, format!("{head}new file mode 100755\n{lines}"));
        let told = removed(&program).expect("it has lines");
        assert!(told.starts_with(&format!("{head}deleted file mode 100755\n--- a/d/f\n")));
        let told = changed(&text(b"/f", "a\n"), &text(b"/f", "b\n")).expect("lines that differ");
        assert!(told.starts_with("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ "), "{told}");
    }

    #[test]
    fn what_is_empty_has_no_lines() {
        let empty = text(b"/f", "");
        assert_eq!(created(&empty), "diff --git a/f b/f\nnew file mode 100644\n");
        assert_eq!(removed(&empty), None);
        assert_eq!(changed(&empty, &empty), None);
    }

    #[test]
    fn names_are_told_as_patch_reads_them() {
        let told = |path: &[u8]| created(&text(path, "b\n"));
        let mode = "new file mode 100644\n--- /dev/null\n+++";
        let spaced = format!("diff --git \"a/a b\" \"b/a b\"\n{mode} b/a b\t\n@@ ");
        assert!(told(b"/a b").starts_with(&spaced), "{}", told(b"/a b"));
        assert!(told(b"/\xff \n").contains("\n+++ \"b/\\377 \\n\"\n@@ "));
        let renamed = "diff --git a/x b/y\nrename from x\nrename to y\n";
        assert_eq!(rename_of(b"/x", b"/y"), renamed);
        let told = changed(&text(b"/x", "a\n"), &text(b"/y", "b\n")).expect("another name");
        assert!(told.starts_with(&format!("{renamed}--- a/x\n+++ b/y\n")), "{told}");
        let unchanged = changed(&text(b"/x", "a\n"), &text(b"/y", "a\n"));
        assert_eq!(unchanged.as_deref(), Some(renamed));
    }
}
