//! The damage that was met since the pool was opened, by file, for `marram status`.

use crate::control::protocol::DamageRow;
use crate::names;
use marram_posix::DamagedRange;
use parking_lot::Mutex;

/// Most places that are remembered; the log has them all.
const ROWS_MAX: usize = 1000;

/// A bounded list of damaged places, each once.
#[derive(Debug, Default)]
pub(crate) struct DamageList(Mutex<Vec<DamageRow>>);

impl DamageList {
    /// Adds a place; returns whether it is new, and so worth a line in the log.
    pub(crate) fn add(&self, row: DamageRow) -> bool {
        let mut rows = self.0.lock();
        let same = |known: &DamageRow| (&known.place, known.offset) == (&row.place, row.offset);
        if rows.len() >= ROWS_MAX || rows.iter().any(same) {
            return false;
        }
        rows.push(row);
        true
    }

    /// All places, in the order in which they were met.
    pub(crate) fn rows(&self) -> Vec<DamageRow> {
        self.0.lock().clone()
    }
}

/// A place in a file of a dataset, or of another source, such that no two paths are told alike.
pub(super) fn row(source: &str, range: &DamagedRange) -> DamageRow {
    let file = match &range.path {
        Some(path) => names::quoted(path),
        None => format!("inode {}", range.ino.0),
    };
    DamageRow {
        place: format!("{source}:{file}"),
        offset: Some(range.offset),
        len: Some(range.len),
        reason: range.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{DamageList, row};
    use crate::control::protocol::DamageRow;
    use marram_posix::DamagedRange;
    use marram_vfs::Ino;

    #[test]
    fn a_place_is_told_once() {
        let row = |offset| DamageRow {
            place: "root:/a".to_owned(),
            offset: Some(offset),
            len: Some(1),
            reason: "checksum".to_owned(),
        };
        let list = DamageList::default();
        assert!(list.add(row(0)) && list.add(row(1)) && !list.add(row(0)));
        assert_eq!(list.rows().len(), 2);
    }

    #[test]
    fn names_that_differ_in_bytes_only_are_two_places() {
        let place = |path: &[u8]| {
            let (ino, path, reason) = (Ino(2), Some(path.to_vec()), "checksum".to_owned());
            row("root", &DamagedRange { ino, path, offset: 0, len: 1, reason })
        };
        let list = DamageList::default();
        assert!(list.add(place(b"/\xfe")) && list.add(place(b"/\xff")));
        assert!(list.add(place(b"/a\x1b\n")) && !list.add(place(b"/\xff")));
        let places: Vec<String> = list.rows().into_iter().map(|row| row.place).collect();
        assert_eq!(places, [r#"root:"/\376""#, r#"root:"/\377""#, r#"root:"/a\033\n""#]);
    }
}
