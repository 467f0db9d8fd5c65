//! Text files in a merge.

use crate::line_merge::{TextPiece, merge_lines};
use marram_format::record::Inode;
use marram_records::state::State;
use marram_vfs::Result;

/// Larger files are not looked at as text, in bytes.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// A file in a state.
type File<'a> = (&'a State, &'a Inode, u64);

/// A text with the changes of both sides.
pub(crate) struct MergedText {
    /// With marks around lines that both changed.
    pub(crate) bytes: Vec<u8>,
    /// There are no marks.
    pub(crate) is_clean: bool,
}

/// The text with both sides' changes; `None` where one of the three is no text.
pub(crate) fn merged_text(
    base: File<'_>,
    ours: File<'_>,
    theirs: File<'_>,
) -> Result<Option<MergedText>> {
    let (Some(base), Some(ours), Some(theirs)) = (text(base)?, text(ours)?, text(theirs)?) else {
        return Ok(None);
    };
    let mut merged = MergedText { bytes: Vec::new(), is_clean: true };
    for piece in merge_lines(&base, &ours, &theirs) {
        match piece {
            TextPiece::Merged(text) => merged.bytes.extend(text),
            TextPiece::Conflict { ours, theirs } => {
                merged.is_clean = false;
                mark(&mut merged.bytes, &ours, &theirs);
            }
        }
    }
    Ok(Some(merged))
}

/// Adds lines of both, each mark on a line of its own.
fn mark(text: &mut Vec<u8>, ours: &[u8], theirs: &[u8]) {
    text.extend(b"<<<<<<< parent\n");
    add_lines(text, ours);
    text.extend(b"=======\n");
    add_lines(text, theirs);
    text.extend(b">>>>>>> fork\n");
}

fn add_lines(text: &mut Vec<u8>, lines: &[u8]) {
    text.extend(lines);
    if lines.last().is_some_and(|byte| *byte != b'\n') {
        text.push(b'\n');
    }
}

/// The content of a file that is text: it is not large and has no byte 0.
fn text((state, inode, ino): File<'_>) -> Result<Option<Vec<u8>>> {
    if inode.size > TEXT_BYTES_MAX {
        return Ok(None);
    }
    let sections = state.sections(ino, inode.size)?;
    let bytes = state.read_range(&sections, 0, inode.size)?;
    Ok((!bytes.contains(&0)).then_some(bytes))
}
