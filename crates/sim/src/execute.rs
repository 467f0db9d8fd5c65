//! Runs one operation on one file system.

use crate::operation::{New, Operation, Place, Slot, name_bytes, xattr_name_bytes};
use crate::random::pattern;
use marram_vfs::{
    Attributes, Error, FileSystem, Ino, Kind, Name, NewNode, Result, SpaceReport, WriteOptions,
};

/// What an operation returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing but success.
    Nothing,
    /// An inode.
    Attributes(Attributes),
    /// Bytes read.
    Bytes(Vec<u8>),
    /// An offset or a count.
    Number(u64),
    /// Entries of a directory, in order of their names.
    Entries(Vec<Entry>),
    /// Names, in order.
    Names(Vec<Vec<u8>>),
    /// How much space there is.
    Space(SpaceReport),
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its inode.
    pub ino: Ino,
    /// The kind of its inode.
    pub kind: Kind,
    /// Its attributes, if they were asked for.
    pub attributes: Option<Attributes>,
}

/// Finds which inode a slot holds in the file system at hand.
pub type Resolve<'a> = &'a dyn Fn(Slot) -> Ino;

/// Runs `operation` on `files`, with inodes by `resolve`. Forgetting is not done here: the caller
/// knows how many pins a slot holds.
///
/// # Errors
/// What the file system answers.
pub fn execute(
    files: &dyn FileSystem,
    operation: &Operation,
    resolve: Resolve<'_>,
) -> Result<Value> {
    match *operation {
        Operation::Read { .. }
        | Operation::Write { .. }
        | Operation::Append { .. }
        | Operation::Allocate { .. }
        | Operation::Seek { .. }
        | Operation::CopyRange { .. } => on_content(files, operation, resolve),
        Operation::Xattr { .. }
        | Operation::SetXattr { .. }
        | Operation::ListXattrs { .. }
        | Operation::RemoveXattr { .. } => on_xattrs(files, operation, resolve),
        Operation::Attributes { subject } => {
            files.attributes(resolve(subject)).map(Value::Attributes)
        }
        Operation::Pin { subject } => files.pin(resolve(subject)).map(Value::Attributes),
        Operation::SetAttributes { caller, subject, ref set } => {
            files.set_attributes(caller, resolve(subject), set).map(Value::Attributes)
        }
        Operation::Sync { subject, scope } => done(files.sync(resolve(subject), scope)),
        Operation::SyncAll => done(files.sync_all()),
        Operation::Space => files.space().map(Value::Space),
        Operation::Forget { .. } => Ok(Value::Nothing),
        _ => on_names(files, operation, resolve),
    }
}

fn done(result: Result<()>) -> Result<Value> {
    result.map(|()| Value::Nothing)
}

fn on_names(files: &dyn FileSystem, operation: &Operation, resolve: Resolve<'_>) -> Result<Value> {
    let found = match *operation {
        Operation::Lookup { place, .. } => {
            with_name(place, |name| files.lookup(resolve(place.directory), name))
        }
        Operation::Parent { directory, .. } => files.parent(resolve(directory)),
        Operation::Create { caller, place, new, .. } => with_name(place, |name| {
            let target = pattern(4, new.target_len());
            files.create(caller, resolve(place.directory), name, new.as_node(&target))
        }),
        Operation::CreateAnonymous { caller, directory, permissions, .. } => {
            files.create_anonymous(caller, resolve(directory), permissions)
        }
        Operation::Link { subject, place } => {
            with_name(place, |name| files.link(resolve(subject), resolve(place.directory), name))
        }
        Operation::ReadLink { subject } => {
            return files.read_link(resolve(subject)).map(Value::Bytes);
        }
        Operation::Unlink { place } => {
            return with_name(place, |name| done(files.unlink(resolve(place.directory), name)));
        }
        Operation::RemoveDirectory { place } => {
            return with_name(place, |name| {
                done(files.remove_directory(resolve(place.directory), name))
            });
        }
        Operation::Rename { caller, from, to, mode } => {
            let (parent, new_parent) = (resolve(from.directory), resolve(to.directory));
            return with_name(from, |name| {
                with_name(to, |new_name| {
                    done(files.rename(caller, parent, name, new_parent, new_name, mode))
                })
            });
        }
        Operation::ReadDirectory { directory, with_attributes, entries_per_call } => {
            let directory = resolve(directory);
            return read_directory(files, directory, with_attributes, entries_per_call)
                .map(Value::Entries);
        }
        _ => unreachable!("{operation:?} is not about names"),
    };
    found.map(Value::Attributes)
}

fn on_content(
    files: &dyn FileSystem,
    operation: &Operation,
    resolve: Resolve<'_>,
) -> Result<Value> {
    match *operation {
        Operation::Read { subject, offset, len } => {
            let mut out = b"kept".to_vec();
            files.read(resolve(subject), offset, len, &mut out)?;
            Ok(Value::Bytes(out))
        }
        Operation::Write { subject, offset, len, seed, options } => {
            done(files.write(resolve(subject), offset, &pattern(seed, len), options))
        }
        Operation::Append { subject, len, seed } => {
            let options = WriteOptions::default();
            files.append(resolve(subject), &pattern(seed, len), options).map(Value::Number)
        }
        Operation::Allocate { subject, how, offset, len } => {
            done(files.allocate(resolve(subject), how, offset, len))
        }
        Operation::Seek { subject, offset, target } => {
            files.seek(resolve(subject), offset, target).map(Value::Number)
        }
        Operation::CopyRange { from, from_offset, to, to_offset, len, share } => {
            let (from, to) = (resolve(from), resolve(to));
            let done = match share {
                true => files.share_range(from, from_offset, to, to_offset, len),
                false => files.copy_range(from, from_offset, to, to_offset, len),
            };
            done.map(Value::Number)
        }
        _ => unreachable!("{operation:?} is not about content"),
    }
}

fn on_xattrs(files: &dyn FileSystem, operation: &Operation, resolve: Resolve<'_>) -> Result<Value> {
    match *operation {
        Operation::Xattr { subject, name } => {
            files.xattr(resolve(subject), &xattr_name_bytes(name)).map(Value::Bytes)
        }
        Operation::SetXattr { subject, name, len, seed, mode } => done(files.set_xattr(
            resolve(subject),
            &xattr_name_bytes(name),
            &pattern(seed, len),
            mode,
        )),
        Operation::ListXattrs { subject } => {
            let mut names = files.list_xattrs(resolve(subject))?;
            names.sort();
            Ok(Value::Names(names))
        }
        Operation::RemoveXattr { subject, name } => {
            done(files.remove_xattr(resolve(subject), &xattr_name_bytes(name)))
        }
        _ => unreachable!("{operation:?} is not about extended attributes"),
    }
}

fn with_name<T>(place: Place, call: impl FnOnce(Name<'_>) -> Result<T>) -> Result<T> {
    let bytes = name_bytes(place.name);
    call(Name::new(&bytes).expect("the names of operations are valid"))
}

/// Reads a whole directory, at most `entries_per_call` entries at a time, and sorts it by name.
/// Takes back the pins that came with attributes.
///
/// # Errors
/// What the file system answers; [`Error::Io`] if it breaks the order of cookies.
pub fn read_directory(
    files: &dyn FileSystem,
    directory: Ino,
    with_attributes: bool,
    entries_per_call: usize,
) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut after = 0;
    loop {
        let before = entries.len();
        let mut cookies = Vec::new();
        files.read_directory(directory, after, with_attributes, &mut |entry| {
            if entries.len() - before == entries_per_call {
                return false;
            }
            cookies.push(entry.cookie);
            entries.push(Entry {
                name: entry.name.to_vec(),
                ino: entry.ino,
                kind: entry.kind,
                attributes: entry.attributes,
            });
            true
        })?;
        for cookie in cookies {
            if cookie <= after || cookie > i64::MAX as u64 {
                return Err(Error::Io(format!("cookie {cookie} came after {after}")));
            }
            after = cookie;
        }
        if entries.len() == before {
            break;
        }
    }
    for entry in entries.iter().filter(|_| with_attributes) {
        files.forget(entry.ino, 1);
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

impl New {
    fn target_len(self) -> usize {
        match self {
            New::Symlink { target_len } => target_len,
            _ => 0,
        }
    }

    fn as_node(self, target: &[u8]) -> NewNode<'_> {
        match self {
            New::Node { kind, permissions, device } => NewNode::Node { kind, permissions, device },
            New::Directory { permissions } => NewNode::Directory { permissions },
            New::Symlink { .. } => NewNode::Symlink { target },
        }
    }
}
