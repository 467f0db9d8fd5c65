//! Text files in a merge.

use crate::conflict::ConflictTexts;
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
    /// The texts; the one of both has marks around lines that both changed.
    pub(crate) texts: ConflictTexts,
    /// There are no marks.
    pub(crate) is_clean: bool,
}

/// The text with both sides' changes; `None` where one of the three is no text.
pub(crate) fn merged_text(
    base: File<'_>,
    ours: File<'_>,
    theirs: File<'_>,
    names: [&str; 2],
) -> Result<Option<MergedText>> {
    let (Some(base), Some(ours), Some(theirs)) = (text(base)?, text(ours)?, text(theirs)?) else {
        return Ok(None);
    };
    let (mut marked, mut is_clean) = (Vec::new(), true);
    for piece in merge_lines(&base, &ours, &theirs) {
        match piece {
            TextPiece::Merged(text) => marked.extend(text),
            TextPiece::Conflict { base, ours, theirs } => {
                is_clean = false;
                mark(&mut marked, (&base, &ours, &theirs), names);
            }
        }
    }
    Ok(Some(MergedText { texts: ConflictTexts { base, ours, theirs, marked }, is_clean }))
}

/// Adds lines of all three, each mark on a line of its own.
fn mark(
    text: &mut Vec<u8>,
    (base, ours, theirs): (&[u8], &[u8], &[u8]),
    [ours_name, theirs_name]: [&str; 2],
) {
    text.extend(format!("<<<<<<< {ours_name}\n").bytes());
    add_lines(text, ours);
    text.extend(b"||||||| base\n");
    add_lines(text, base);
    text.extend(b"=======\n");
    add_lines(text, theirs);
    text.extend(format!(">>>>>>> {theirs_name}\n").bytes());
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
