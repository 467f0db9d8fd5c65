//! The lines of text in which two states of a file differ, as `diff -u` tells them.

use crate::control::protocol::DifferenceRow;
use crate::error::Result;
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
            came.patch = patch_of(&came.path, texts, (true, true));
            return Ok(());
        }
        rows.iter_mut().try_for_each(|(row, numbers)| self.add_to_one(row, *numbers))
    }

    fn add_to_one(&self, row: &mut DifferenceRow, (old_ino, ino): (Ino, Ino)) -> Result<()> {
        let (old, new) = match row.change.as_str() {
            _ if row.kind != "file" => return Ok(()),
            "content" => (text_of(&self.before, old_ino)?, text_of(&self.after, ino)?),
            "created" => (Some(String::new()), text_of(&self.after, ino)?),
            "removed" => (text_of(&self.before, old_ino)?, Some(String::new())),
            _ => return Ok(()),
        };
        let is_there = (row.change != "created", row.change != "removed");
        row.patch = patch_of(&row.path, (old, new), is_there);
        Ok(())
    }
}

fn is_file(row: &DifferenceRow, change: &str) -> bool {
    row.kind == "file" && row.change == change
}

/// The lines in which two texts differ, if both are; `is_there` says of each whether it is a file.
fn patch_of(
    path: &str,
    (old, new): (Option<String>, Option<String>),
    is_there: (bool, bool),
) -> Option<String> {
    let path = path.trim_start_matches('/');
    let name = |of: &str, is_there: bool| match is_there {
        true => format!("{of}/{path}"),
        false => "/dev/null".to_owned(),
    };
    let (old, new) = (old?, new?);
    (old != new).then(|| unified(&old, &new, &name("a", is_there.0), &name("b", is_there.1)))
}

fn unified(old: &str, new: &str, from: &str, to: &str) -> String {
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(from.to_owned()).set_modified_filename(to.to_owned());
    options.create_patch(old, new).to_string()
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
    use super::unified;

    #[test]
    fn lines_that_differ_are_told_as_patch_reads_them() {
        let text = unified("a\nb\nc\n", "a\nB\nc\n", "a/f", "b/f");
        assert_eq!(text, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        let text = unified("", "new\n", "/dev/null", "b/f");
        assert!(text.ends_with("@@ -0,0 +1 @@\n+new\n"), "{text}");
    }
}
