//! Mail delivery into a folder of the maildir kind: written under `tmp`, synced, moved into `new`,
//! and the folder synced. Every second mail is moved by a link and an unlink, as some programs do.

use super::{Load, Place, content, names, sync_folder};
use marram_lab::failure::{Context, Result, fail};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const MAIL_BYTES_MAX: usize = 20_000;

/// Delivers one mail a time.
pub(super) struct Delivery;

impl Load for Delivery {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn work(&self, place: &Place, is_over: &AtomicBool) -> Result<()> {
        for folder in ["tmp", "new"] {
            std::fs::create_dir(place.folder.join(folder))?;
        }
        for number in 1_u64.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            deliver(place, number)?;
            place.journal.note(&number.to_string())?;
        }
        Ok(())
    }

    fn judge(&self, place: &Place) -> Result<String> {
        let acknowledged = place.journal.last_number()?;
        let survived = expect_one_moment(&place.folder, place.seed)?;
        if survived < acknowledged {
            return fail(format!("{survived} mails survived of {acknowledged} acknowledged"));
        }
        Ok(format!("{survived} mails, {acknowledged} acknowledged"))
    }
}

fn path(folder: &Path, box_name: &str, number: u64) -> PathBuf {
    folder.join(box_name).join(format!("{number:08}"))
}

fn mail(seed: u64, number: u64) -> Vec<u8> {
    let length = usize::try_from(number * 7_919).unwrap_or(0) % MAIL_BYTES_MAX;
    content(seed, number, length)
}

fn is_linked(number: u64) -> bool {
    number.is_multiple_of(2)
}

fn deliver(place: &Place, number: u64) -> Result<()> {
    let temporary = path(&place.folder, "tmp", number);
    let delivered = path(&place.folder, "new", number);
    let mut file = File::create_new(&temporary)?;
    file.write_all(&mail(place.seed, number))?;
    file.sync_all()?;
    if is_linked(number) {
        std::fs::hard_link(&temporary, &delivered)?;
        std::fs::remove_file(&temporary)?;
    } else {
        std::fs::rename(&temporary, &delivered)?;
    }
    sync_folder(&place.folder.join("new"))
}

/// How many mails were delivered; fails when the folders are in no state of that one after another.
fn expect_one_moment(folder: &Path, seed: u64) -> Result<u64> {
    let there = names(folder)?;
    if there.len() < 2 {
        return if there.is_empty() || there == ["tmp"] { Ok(0) } else { fail("new before tmp") };
    }
    let delivered = names(&folder.join("new"))?;
    let survived = delivered.len() as u64;
    for (name, number) in delivered.iter().zip(1..) {
        if *name != format!("{number:08}") {
            return fail(format!("mail {number} is missing: {name} is in its place"));
        }
        let found = std::fs::read(path(folder, "new", number)).context(|| name.clone())?;
        if found != mail(seed, number) {
            return fail(format!("mail {number} has {} bytes, and other ones", found.len()));
        }
    }
    expect_temporary(folder, seed, survived)?;
    Ok(survived)
}

/// What may lie under `tmp`: the mail that was linked last, or the next one, empty or whole.
fn expect_temporary(folder: &Path, seed: u64, survived: u64) -> Result<()> {
    let left = names(&folder.join("tmp"))?;
    let Some(name) = left.first() else { return Ok(()) };
    let number: u64 = name.parse().context(|| name.clone())?;
    let found = std::fs::read(path(folder, "tmp", number))?;
    let is_next = number == survived + 1 && (found.is_empty() || found == mail(seed, number));
    let is_last = number == survived && is_linked(number) && found == mail(seed, number);
    if left.len() == 1 && (is_next || is_last) {
        return Ok(());
    }
    fail(format!("{survived} mails are in new, and in tmp {left:?}, of {} bytes", found.len()))
}

#[cfg(test)]
mod tests {
    use super::super::journal::Journal;
    use super::*;

    fn delivered(count: u64) -> (tempfile::TempDir, Place) {
        let kept = tempfile::tempdir().expect("a folder");
        let journal = Journal::make(kept.path().join("journal")).expect("a journal");
        let place = Place { folder: kept.path().join("mail"), journal, seed: 3 };
        std::fs::create_dir_all(place.folder.join("tmp")).expect("a folder");
        std::fs::create_dir(place.folder.join("new")).expect("a folder");
        (1..=count).for_each(|number| deliver(&place, number).expect("delivered"));
        (kept, place)
    }

    #[test]
    fn a_whole_delivery_and_a_begun_one_are_accepted() {
        let (_kept, place) = delivered(4);
        assert_eq!(expect_one_moment(&place.folder, 3).expect("four mails"), 4);
        std::fs::write(path(&place.folder, "tmp", 5), "").expect("written");
        assert_eq!(expect_one_moment(&place.folder, 3).expect("a begun fifth"), 4);
    }

    #[test]
    fn what_no_moment_could_leave_is_refused() {
        let (_kept, place) = delivered(4);
        std::fs::write(path(&place.folder, "tmp", 6), "").expect("written");
        expect_one_moment(&place.folder, 3).expect_err("the sixth before the fifth");
        std::fs::remove_file(path(&place.folder, "tmp", 6)).expect("removed");
        std::fs::write(path(&place.folder, "new", 4), "").expect("written");
        expect_one_moment(&place.folder, 3).expect_err("a name without its content");
        std::fs::remove_file(path(&place.folder, "new", 2)).expect("removed");
        expect_one_moment(&place.folder, 3).expect_err("a hole in the order");
        let empty = place.folder.join("tmp");
        std::fs::remove_dir_all(empty).expect("removed");
        expect_one_moment(&place.folder, 3).expect_err("new before tmp");
    }
}
