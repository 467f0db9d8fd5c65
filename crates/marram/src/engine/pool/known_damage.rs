//! Damage that is known of a pool, remembered from one opening to the next.
//!
//! The pool itself has no place for it: it may be open for reading only when damage is found, and
//! a commit would have to read what is damaged. So what was found is a file in the folder for the
//! state of this user's programs, named by the pool's id, a line for each place. Without that file
//! damage is found again when it is read.
//!
//! Invariant: no file is named that can be read again, or is gone. Each opening looks
//! again at what is known. What is known of no file stays until `check --data` finds all in order.

use crate::control::protocol::DamageRow;
use crate::paths;
use marram_pool::Pool;
use marram_records::sections::section_at;
use marram_store::{Error, Source, Store};
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most places that are remembered.
const ROWS_MAX: usize = 1000;
/// Longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How long to look again at what is known. A device that fails takes seconds for each read.
const PATIENCE: Duration = Duration::from_secs(1);

/// The known damage of one pool.
#[derive(Debug)]
pub(super) struct KnownDamage {
    file: Option<PathBuf>,
    rows: Mutex<Vec<DamageRow>>,
}

impl KnownDamage {
    /// What is remembered of the pool with this id, in hexadecimal.
    pub(super) fn of(id: &str) -> KnownDamage {
        KnownDamage::in_file(file_of(id))
    }

    fn in_file(file: Option<PathBuf>) -> KnownDamage {
        let size = |file: &PathBuf| fs::metadata(file).map_or(0, |found| found.len());
        let readable = file.as_ref().filter(|file| size(file) <= FILE_BYTES_MAX);
        let text = readable.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let known = KnownDamage { file, rows: Mutex::default() };
        for row in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            let _is_new = known.note(row);
        }
        known
    }

    /// Takes a place into the list; tells whether it is new.
    fn note(&self, row: DamageRow) -> bool {
        let mut rows = self.rows.lock();
        match rows.iter().position(|known| known.is_same(&row)) {
            Some(place) if rows[place].inode.is_none() && row.inode.is_some() => rows[place] = row,
            None if rows.len() < ROWS_MAX => rows.push(row),
            _ => return false,
        }
        true
    }

    /// Remembers a place.
    pub(super) fn add(&self, row: DamageRow) {
        if !self.note(row.clone()) {
            return;
        }
        let Some(file) = &self.file else { return };
        let appended = file.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let mut file = made(OpenOptions::new().append(true), file)?;
            file.write_all((serde_json::to_string(&row)? + "\n").as_bytes())
        });
        let _found_again_when_it_is_read = appended;
    }

    /// Looks again at what is known, as `pool` has it now. What is noted meanwhile stays as it is:
    /// reading may take long, and nobody waits for it.
    pub(super) fn look_again(&self, pool: &Pool) {
        let began = Instant::now();
        let looked = self.rows().into_iter().map(|row| {
            let now = match began.elapsed() < PATIENCE {
                true => found_again(pool, &row),
                false => Some(row.clone()),
            };
            (row, now)
        });
        self.take_in(looked.collect());
    }

    /// Takes in how places are now: of each how it was known, and how it is, if it is damaged.
    fn take_in(&self, looked: Vec<(DamageRow, Option<DamageRow>)>) {
        let mut rows = self.rows.lock();
        let before = std::mem::take(&mut *rows);
        let now = |row: &DamageRow| match looked.iter().find(|(known, _)| known == row) {
            Some((_, now)) => now.clone(),
            None => Some(row.clone()),
        };
        rows.extend(before.iter().filter_map(now));
        if *rows != before {
            let lines = rows.iter().filter_map(|row| serde_json::to_string(row).ok());
            self.rewrite(&lines.map(|line| line + "\n").collect::<String>());
        }
    }

    fn rewrite(&self, text: &str) {
        let Some(file) = &self.file else { return };
        let _looked_at_again_next_time = match text.is_empty() {
            true => fs::remove_file(file),
            false => {
                let new = file.with_extension("new");
                made(OpenOptions::new().write(true).truncate(true), &new)
                    .and_then(|mut made| made.write_all(text.as_bytes()))
                    .and_then(|()| fs::rename(&new, file))
            }
        };
    }

    /// All that is known, in the order in which it was found.
    pub(super) fn rows(&self) -> Vec<DamageRow> {
        self.rows.lock().clone()
    }
}

/// Opens a file, or makes it: names of files of the pool are in it, which others need not see.
fn made(options: &mut OpenOptions, file: &Path) -> std::io::Result<File> {
    options.create(true).mode(0o600).open(file)
}

/// Forgets what is known of the pool with this id: all of it was found in order.
pub(crate) fn forget(id: &str) {
    if let Some(file) = file_of(id) {
        let _there_is_none_mostly = fs::remove_file(file);
    }
}

fn file_of(id: &str) -> Option<PathBuf> {
    paths::state_folder().ok().map(|folder| folder.join(format!("{id}.damage")))
}

/// The same place, if it is damaged still.
fn found_again(pool: &Pool, row: &DamageRow) -> Option<DamageRow> {
    let (Some(source), Some(ino), Some(offset)) = (&row.source, row.inode, row.offset) else {
        return Some(row.clone());
    };
    let view = match source.parse::<Source>().and_then(|source| pool.open(&source)) {
        Ok(view) => view,
        Err(Error::NoDataset(_) | Error::Invalid(_)) => return None,
        Err(_) => return Some(row.clone()),
    };
    let section = match section_at(&*view, ino, offset) {
        Ok(section) => section.filter(|section| section.end() > offset),
        Err(_) => return Some(row.clone()),
    };
    match view.read_block(&section?.block?) {
        Ok(_) => None,
        Err(Error::Damaged(damage)) => {
            Some(DamageRow { reason: damage.to_string(), ..row.clone() })
        }
        Err(_) => Some(row.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::{DamageRow, KnownDamage, ROWS_MAX};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_noted_is_known_again_whatever_else_the_file_has() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("below/1.damage");
        let row = |place: &str| DamageRow::of_no_file(place.to_owned(), format!("at {place}"));
        let known = KnownDamage::in_file(Some(file.clone()));
        for place in ["a", "b", "a"] {
            known.add(row(place));
        }
        let mut text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 2);
        known.rewrite(&text);
        let permissions = std::fs::metadata(&file).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
        text.push_str("half a li");
        std::fs::write(&file, text).unwrap();
        assert_eq!(KnownDamage::in_file(Some(file)).rows(), [row("a"), row("b")]);
        // What is noted while others are looked at again stays.
        let known = KnownDamage::in_file(Some(folder.path().join("2.damage")));
        known.add(row("gone"));
        let looked = known.rows().into_iter().map(|row| (row, None)).collect();
        known.add(row("new"));
        known.take_in(looked);
        assert_eq!(known.rows(), [row("new")]);
        assert_eq!(KnownDamage::in_file(known.file.clone()).rows(), [row("new")]);
        let without = KnownDamage::in_file(None);
        (0..2 * ROWS_MAX).for_each(|number| without.add(row(&number.to_string())));
        assert_eq!(without.rows().len(), ROWS_MAX);
    }
}
