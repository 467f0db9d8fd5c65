//! A log: lines of many lengths appended, `fdatasync` after each, as a database's own log does.
//!
//! The kernel sends a write in two parts when it begins in the middle of a page that its cache does
//! not hold whole, as an append to a file mostly does: the first part ends with that page. A kill
//! between them leaves the first part, which is what the interrupted `write` tells its caller too.

use super::{Load, Place};
use marram_lab::failure::{Result, fail};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

const LINE_BYTES_MAX: u64 = 9_000;

const PAGE_BYTES: usize = 4096;

/// Appends one line a time.
pub(super) struct Appends;

impl Load for Appends {
    fn name(&self) -> &'static str {
        "append"
    }

    fn work(&self, place: &Place, is_over: &AtomicBool) -> Result<()> {
        let mut log = File::create_new(place.folder.join("log"))?;
        for number in 1_u64.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            log.write_all(&line(place.seed, number))?;
            log.sync_data()?;
            place.journal.note(&number.to_string())?;
        }
        Ok(())
    }

    /// The log is a number of whole lines, but for a last one that ends with a page.
    fn judge(&self, place: &Place) -> Result<String> {
        let acknowledged = place.journal.last_number()?;
        let log = place.folder.join("log");
        let found = if log.exists() { std::fs::read(log)? } else { Vec::new() };
        let survived = whole_lines(place.seed, &found)?;
        if survived < acknowledged {
            return fail(format!("{survived} lines survived of {acknowledged} acknowledged"));
        }
        Ok(format!("{survived} lines, {acknowledged} acknowledged"))
    }
}

/// Letters, so that a person can read the log.
fn line(seed: u64, number: u64) -> Vec<u8> {
    let length = super::content(seed, number, 8)
        .into_iter()
        .fold(0, |sum, byte| (sum * 251 + u64::from(byte)) % LINE_BYTES_MAX);
    let letter = b'a' + u8::try_from(number % 26).expect("below 26");
    let mut line = format!("{number} ").into_bytes();
    line.resize(line.len() + usize::try_from(length).expect("a short line"), letter);
    line.push(b'\n');
    line
}

/// How many lines `found` holds; fails when it is not the first so many, and at most a part of the
/// next that ends with a page.
fn whole_lines(seed: u64, found: &[u8]) -> Result<u64> {
    let mut rest = found;
    let mut count = 0;
    while !rest.is_empty() {
        let wanted = line(seed, count + 1);
        match rest.strip_prefix(wanted.as_slice()) {
            Some(after) => rest = after,
            None if wanted.starts_with(rest) && found.len().is_multiple_of(PAGE_BYTES) => break,
            None => {
                let at = found.len() - rest.len();
                return fail(format!("line {} is not as written, at byte {at}", count + 1));
            }
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_or_changed_line_is_found() {
        let whole = [line(7, 1), line(7, 2)].concat();
        assert_eq!(whole_lines(7, &whole).expect("two lines"), 2);
        whole_lines(7, &whole[..whole.len() - 1]).expect_err("the end of a line is missing");
        whole_lines(8, &whole).expect_err("the lines of another seed");
    }

    #[test]
    fn a_line_may_end_with_a_page_if_it_is_the_last() {
        let mut lines = Vec::new();
        let mut count = 0;
        while lines.len() < PAGE_BYTES {
            count += 1;
            lines.extend(line(7, count));
        }
        let cut = lines.len() / PAGE_BYTES * PAGE_BYTES;
        whole_lines(7, &lines[..cut]).expect("a part that ends with a page");
        let after = [&lines[..cut], &line(7, count + 1)].concat();
        whole_lines(7, &after).expect_err("a line after a part");
    }
}
