//! Damage that an operation met, as it is reported.

use crate::control::protocol::DamageRow;
use crate::names;
use marram_posix::DamagedRange;

/// A place in a file of a dataset, or of another source, such that no two paths read alike.
pub(super) fn row(source: &str, range: &DamagedRange) -> DamageRow {
    let file = match &range.path {
        Some(path) => names::quoted(path),
        None => format!("inode {}", range.ino.0),
    };
    DamageRow {
        place: format!("{source}:{file}"),
        source: Some(source.to_owned()),
        inode: Some(range.ino.0),
        offset: Some(range.offset),
        len: Some(range.len),
        reason: range.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::row;
    use marram_posix::DamagedRange;
    use marram_vfs::Ino;

    #[test]
    fn names_that_differ_in_bytes_only_are_two_places() {
        let place = |path: &[u8]| {
            let (ino, path, reason) = (Ino(2), Some(path.to_vec()), "checksum".to_owned());
            row("root", &DamagedRange { ino, path, offset: 0, len: 1, reason }).place
        };
        let places = [b"/\xfe".as_slice(), b"/\xff", b"/a\x1b\n"].map(place);
        assert_eq!(places, [r#"root:"/\376""#, r#"root:"/\377""#, r#"root:"/a\033\n""#]);
    }
}
