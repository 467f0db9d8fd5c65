//! Trees of many small files, and changes to them.
//!
//! One file of eight has content, so that a tree of two million fits where every file with content
//! takes a block.

use super::super::interruption;
use marram_lab::failure::Result;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files in a directory, and directories in a directory.
const FILES_EACH: u64 = 100;
const DIRECTORIES_EACH: u64 = 100;

const WITH_CONTENT_EACH: u64 = 8;

fn directory(top: &Path, number: u64) -> PathBuf {
    let directory = number / FILES_EACH;
    top.join(format!("{}/{directory}", directory / DIRECTORIES_EACH))
}

fn file(top: &Path, number: u64) -> PathBuf {
    directory(top, number).join(format!("file-{number}"))
}

/// Makes a tree of `files` files.
pub(crate) fn make(top: &Path, files: u64) -> Result<()> {
    for number in 0..files {
        if number % FILES_EACH == 0 {
            interruption::check()?;
            std::fs::create_dir_all(directory(top, number))?;
        }
        let mut made = File::create_new(file(top, number))?;
        if number % WITH_CONTENT_EACH == 0 {
            made.write_all(format!("file {number} of a tree\n").as_bytes())?;
        }
    }
    Ok(())
}

/// Gives `changed` of the `files` files, spread evenly, other content.
pub(crate) fn change(top: &Path, files: u64, changed: u64) -> Result<()> {
    for index in 0..changed {
        let number = index * files / changed;
        std::fs::write(file(top, number), format!("file {number} is changed\n{changed}\n"))?;
    }
    Ok(())
}

/// How many of the changed files say so.
pub(super) fn count_changed(top: &Path, files: u64, changed: u64) -> Result<u64> {
    let mut count = 0;
    for index in 0..changed {
        let number = index * files / changed;
        let content = std::fs::read_to_string(file(top, number))?;
        count += u64::from(content.ends_with(&format!("is changed\n{changed}\n")));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reaches_as_many_files_as_it_says() {
        let folder = tempfile::tempdir().expect("a folder");
        make(folder.path(), 250).expect("made");
        change(folder.path(), 250, 25).expect("changed");
        assert_eq!(count_changed(folder.path(), 250, 25).expect("read"), 25);
        assert_eq!(count_changed(folder.path(), 250, 50).expect("read"), 0);
    }
}
