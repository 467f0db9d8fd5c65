//! The vocabulary: the calls that both file systems are asked to perform.
//!
//! A call is plain data and says everything about itself, so that a list of calls can be replayed,
//! cut down and printed. Nothing here depends on how an earlier call came out.

use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags};
use std::fmt;

/// How many files are open at once.
pub(super) const SLOTS: usize = 6;

/// A path, a name of an attribute, or its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl fmt::Debug for Bytes {
    /// As a string with escapes; what is long shows its beginning and its length.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 40;
        let shown = &self.0[..self.0.len().min(SHOWN)];
        write!(out, "\"{}\"", shown.escape_ascii())?;
        if self.0.len() > SHOWN {
            write!(out, "...({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

/// The user of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// Root, with every capability.
    Root,
    /// An ordinary user.
    First,
    /// Another one, in the first one's group too.
    Second,
}

/// What a call about attributes is about.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// What a path leads to, through a symbolic link at its end.
    Path(Bytes),
    /// What a path names, be it a symbolic link.
    Link(Bytes),
    /// An open file.
    Open(usize),
}

/// A time to be set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Time {
    /// The present.
    Now,
    /// As it is.
    Keep,
    /// Seconds since 1970, and nanoseconds.
    At(i64, u32),
}

/// From where a position counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whence {
    /// The beginning.
    Start,
    /// The position as it is.
    Current,
    /// The end.
    End,
    /// The next byte that is not in a hole.
    Data,
    /// The next hole.
    Hole,
}

/// A slice of an open file; no offset means the file's own position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The open file.
    pub(super) slot: usize,
    /// Where in it.
    pub(super) offset: Option<u64>,
}

/// One call. Names follow what it does, not how the C library spells it.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Open { slot: usize, path: Bytes, flags: OFlags, mode: u32 },
    Close { slot: usize },
    Read { place: Place, count: usize },
    Write { place: Place, count: usize, letter: u8 },
    Cut { slot: usize, size: u64 },
    Allocate { slot: usize, mode: FallocateFlags, offset: u64, length: u64 },
    Seek { slot: usize, whence: Whence, offset: i64 },
    Copy { from: Place, to: Place, count: usize },
    Sync { slot: usize },
    Stat { object: Object },
    Access { path: Bytes, mode: u32, flags: AtFlags },
    List { path: Bytes },
    ListOpen { slot: usize },
    ReadLink { path: Bytes },
    MakeFolder { path: Bytes, mode: u32 },
    MakeNode { path: Bytes, kind: FileType, mode: u32, device: u64 },
    MakeLink { target: Bytes, path: Bytes },
    Link { from: Bytes, to: Bytes, flags: AtFlags },
    LinkOpen { slot: usize, to: Bytes },
    Unlink { path: Bytes },
    RemoveFolder { path: Bytes },
    Rename { from: Bytes, to: Bytes, flags: RenameFlags },
    SetMode { object: Object, mode: u32 },
    SetOwner { object: Object, user: Option<u32>, group: Option<u32> },
    SetTimes { object: Object, access: Time, modification: Time },
    SetAttribute { object: Object, name: Bytes, value: Bytes, flags: XattrFlags },
    GetAttribute { object: Object, name: Bytes, room: usize },
    ListAttributes { object: Object, room: usize },
    RemoveAttribute { object: Object, name: Bytes },
    Mask { mode: u32 },
}

/// A call and its user.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The user.
    pub(super) user: User,
    /// What.
    pub(super) call: Call,
}

impl Call {
    /// The paths and open files whose attributes the call may change or show.
    pub(super) fn subjects(&self) -> Vec<Object> {
        let mut subjects = Vec::new();
        for path in self.paths() {
            subjects.push(Object::Link(path.clone()));
            subjects.push(Object::Path(path.clone()));
            subjects.push(Object::Path(parent(path)));
        }
        subjects.extend(self.slots().into_iter().map(Object::Open));
        subjects
    }

    fn paths(&self) -> Vec<&Bytes> {
        match self {
            Call::Link { from, to, .. } | Call::Rename { from, to, .. } => vec![from, to],
            Call::Open { path, .. }
            | Call::Access { path, .. }
            | Call::List { path }
            | Call::ReadLink { path }
            | Call::MakeFolder { path, .. }
            | Call::MakeNode { path, .. }
            | Call::MakeLink { path, .. }
            | Call::LinkOpen { to: path, .. }
            | Call::Unlink { path }
            | Call::RemoveFolder { path } => vec![path],
            _ => match self.object() {
                Some(Object::Path(path) | Object::Link(path)) => vec![path],
                _ => Vec::new(),
            },
        }
    }

    fn slots(&self) -> Vec<usize> {
        match self {
            Call::Copy { from, to, .. } => vec![from.slot, to.slot],
            Call::Read { place, .. } | Call::Write { place, .. } => vec![place.slot],
            Call::Open { slot, .. }
            | Call::Close { slot }
            | Call::Cut { slot, .. }
            | Call::Allocate { slot, .. }
            | Call::Seek { slot, .. }
            | Call::Sync { slot }
            | Call::ListOpen { slot }
            | Call::LinkOpen { slot, .. } => vec![*slot],
            _ => match self.object() {
                Some(Object::Open(slot)) => vec![*slot],
                _ => Vec::new(),
            },
        }
    }

    fn object(&self) -> Option<&Object> {
        match self {
            Call::Stat { object }
            | Call::SetMode { object, .. }
            | Call::SetOwner { object, .. }
            | Call::SetTimes { object, .. }
            | Call::SetAttribute { object, .. }
            | Call::GetAttribute { object, .. }
            | Call::ListAttributes { object, .. }
            | Call::RemoveAttribute { object, .. } => Some(object),
            _ => None,
        }
    }
}

/// The path of the folder that holds the last name of `path`.
fn parent(path: &Bytes) -> Bytes {
    let trimmed = path.0.len() - path.0.iter().rev().take_while(|byte| **byte == b'/').count();
    match path.0[..trimmed].iter().rposition(|byte| *byte == b'/') {
        Some(0) => Bytes::from("/"),
        Some(slash) => Bytes(path.0[..slash].to_vec()),
        None => Bytes::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_path_is_what_holds_its_last_name() {
        for (path, folder) in
            [("a", "."), ("a/b", "a"), ("a/b//", "a"), ("/a", "/"), ("a/..", "a"), ("", ".")]
        {
            assert_eq!(parent(&path.into()), folder.into(), "{path}");
        }
    }
}
