//! The damage that was met since the pool was opened, by file, for `marram status`.

use crate::control::protocol::DamageRow;
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
        if rows.len() >= ROWS_MAX || rows.iter().any(|known| known.is_same(&row)) {
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

#[cfg(test)]
mod tests {
    use super::DamageList;
    use crate::control::protocol::DamageRow;

    #[test]
    fn a_place_is_told_once() {
        let row = |offset| DamageRow {
            place: "root:/a".to_owned(),
            source: Some("root".to_owned()),
            inode: Some(2),
            offset: Some(offset),
            len: Some(1),
            reason: "checksum".to_owned(),
        };
        let list = DamageList::default();
        assert!(list.add(row(0)) && list.add(row(1)) && !list.add(row(0)));
        assert_eq!(list.rows().len(), 2);
    }
}
