//! Both sides' changes of lines of one text file, put together by the library `diffy`.

use super::state::State;
use marram_format::record::Inode;
use marram_vfs::Result;

/// Larger files are not looked at as text, in bytes.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// A file in a state.
type File<'a> = (&'a State, &'a Inode, u64);

/// The text with both sides' changes; `None` where one of the three is no text, or both changed the
/// same lines.
pub(super) fn merged_text(
    base: File<'_>,
    ours: File<'_>,
    theirs: File<'_>,
) -> Result<Option<Vec<u8>>> {
    let (Some(base), Some(ours), Some(theirs)) = (text(base)?, text(ours)?, text(theirs)?) else {
        return Ok(None);
    };
    Ok(diffy::merge_bytes(&base, &ours, &theirs).ok())
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
