//! The entries in a page of a directory.

use super::PAGE_BYTES;
use super::memory::{Problem, number};
use crate::finding::FindingKind as Kind;

/// Words of a page.
const WORDS: usize = PAGE_BYTES / 8;
/// The state of an entry that is there.
const IS_THERE: u64 = 1;

/// An entry that is there.
pub(super) struct Entry<'b> {
    /// Its address.
    pub(super) at: u64,
    pub(super) name: &'b [u8],
    pub(super) kind: u64,
    pub(super) ino: u64,
}

/// Goes through a page that lies at an address. What makes no sense is handed to `tell`; where no
/// more entry can be found, that is the end.
pub(super) fn entries<'b>(
    bytes: &'b [u8; PAGE_BYTES],
    address: u64,
    tell: &mut dyn FnMut(Problem),
) -> Vec<Entry<'b>> {
    let (mut found, mut unit) = (Vec::new(), 0);
    while unit < WORDS {
        let at = address + unit as u64 * 8;
        let word = number(bytes, unit * 8, 8);
        let (units, name_len) = ((word & 0xff) as usize, (word >> 8 & 0xff) as usize);
        if units == 0 {
            break;
        }
        let mut bad = |what: String| tell(Problem::new(Kind::EntryMalformed, at, what));
        if unit + units > WORDS {
            bad(format!("an entry of {units} words at the end of its page"));
            break;
        }
        let state = word >> 20 & 0xf;
        let is_short = 1 + name_len.div_ceil(8) > units;
        if state > IS_THERE || state == IS_THERE && (name_len == 0 || is_short) {
            bad(format!("an entry begins with {word:#018x}"));
        } else if state == IS_THERE {
            let start = unit * 8 + 8;
            let name = &bytes[start..start + name_len];
            found.push(Entry { at, name, kind: word >> 16 & 0xf, ino: word >> 24 });
        }
        unit += units;
    }
    found
}
