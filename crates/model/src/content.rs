//! The content of regular files, symbolic links and extended attributes.
//!
//! What POSIX leaves open is decided so: promised space is a hole until it is written (as on ext4
//! and XFS); zeroing a range makes it a hole; copying a range copies its holes; every `allocate`
//! that succeeds counts as a change of content.

use crate::sparse::SparseBytes;
use crate::state::{Content, State};
use marram_vfs::{
    Allocate, Error, FILE_BYTES_MAX, Ino, Result, SeekTarget, Timestamp, WriteOptions,
    XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrMode,
};

/// The end of a range, if it lies within the largest file.
fn range_end(offset: u64, len: u64) -> Result<u64> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(end),
        _ => Err(Error::FileTooLarge),
    }
}

impl State {
    /// Size and bytes of a regular file.
    fn bytes(&self, ino: Ino) -> Result<(u64, &SparseBytes)> {
        let node = self.node(ino)?;
        match &node.content {
            Content::Bytes(bytes) => Ok((node.attributes.size, bytes)),
            Content::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }

    /// The bytes of an inode that a check before has shown to be a regular file.
    fn bytes_mut(&mut self, ino: Ino) -> &mut SparseBytes {
        match &mut self.known(ino).content {
            Content::Bytes(bytes) => bytes,
            _ => unreachable!("inode {} was checked to be a regular file", ino.0),
        }
    }

    pub(crate) fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.node(ino)?.content {
            Content::Target(target) => Ok(target.clone()),
            _ => Err(Error::InvalidArgument("not a symbolic link")),
        }
    }

    pub(crate) fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let (size, bytes) = self.bytes(ino)?;
        let rest = size.saturating_sub(offset).min(len as u64);
        bytes.read(offset, rest as usize, out);
        Ok(())
    }

    /// The size of a regular file.
    pub(crate) fn size(&mut self, ino: Ino) -> Result<u64> {
        self.bytes(ino).map(|(size, _)| size)
    }

    pub(crate) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
        now: Timestamp,
    ) -> Result<()> {
        let (size, _) = self.bytes(ino)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = range_end(offset, data.len() as u64)?;
        self.bytes_mut(ino).write(offset, data);
        let node = self.known(ino);
        node.attributes.size = size.max(end);
        node.drop_capability();
        if options.clear_privileges {
            node.clear_privileges();
        }
        if !options.keep_times {
            node.touch_content(now);
        }
        Ok(())
    }

    /// Cuts a regular file, or extends it by a hole.
    pub(crate) fn set_size(&mut self, ino: Ino, size: u64, now: Timestamp) -> Result<()> {
        self.bytes(ino)?;
        range_end(size, 0)?;
        self.bytes_mut(ino).punch(size, u64::MAX);
        let node = self.known(ino);
        node.attributes.size = size;
        node.touch_content(now);
        Ok(())
    }

    pub(crate) fn allocate(
        &mut self,
        ino: Ino,
        how: Allocate,
        offset: u64,
        len: u64,
        now: Timestamp,
    ) -> Result<()> {
        let (size, _) = self.bytes(ino)?;
        if len == 0 {
            return Err(Error::InvalidArgument("length"));
        }
        let end = range_end(offset, len)?;
        if matches!(how, Allocate::Collapse | Allocate::Insert) {
            self.shift(ino, how, offset, len, size)?;
        }
        let clears = matches!(how, Allocate::PunchHole | Allocate::Zero | Allocate::ZeroKeepSize);
        if clears {
            self.bytes_mut(ino).punch(offset, end);
        }
        let node = self.known(ino);
        node.drop_capability();
        if how.extends() {
            node.attributes.size = node.attributes.size.max(end);
        }
        node.touch_content(now);
        Ok(())
    }

    /// Takes a range out of a file of `size` bytes, or puts a hole into it.
    fn shift(&mut self, ino: Ino, how: Allocate, offset: u64, len: u64, size: u64) -> Result<()> {
        let collapse = how == Allocate::Collapse;
        let first_moved = if collapse { offset + len } else { offset };
        if first_moved >= size {
            return Err(Error::InvalidArgument("the range reaches the end of the file"));
        }
        let new_size = if collapse { size - len } else { range_end(size, len)? };
        let bytes = self.bytes_mut(ino);
        let moved = bytes.runs_between(first_moved, size);
        bytes.punch(offset, u64::MAX);
        for (at, run) in moved {
            bytes.write(if collapse { at - len } else { at + len }, &run);
        }
        self.known(ino).attributes.size = new_size;
        Ok(())
    }

    pub(crate) fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        let (size, bytes) = self.bytes(ino)?;
        if offset >= size {
            return Err(Error::NoSuchOffset);
        }
        match target {
            SeekTarget::Data => bytes.next_data(offset),
            SeekTarget::Hole => Ok(bytes.next_hole(offset)),
        }
    }

    pub(crate) fn copy_range(
        &mut self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        now: Timestamp,
    ) -> Result<u64> {
        let (source_size, source) = self.bytes(from.0)?;
        let (size, _) = self.bytes(to.0)?;
        let len = len.min(source_size.saturating_sub(from.1));
        if len == 0 {
            return Ok(0);
        }
        let end = range_end(to.1, len)?;
        if from.0 == to.0 && from.1 < end && to.1 < from.1 + len {
            return Err(Error::InvalidArgument("overlapping ranges"));
        }
        let runs = source.runs_between(from.1, from.1 + len);
        let bytes = self.bytes_mut(to.0);
        bytes.punch(to.1, end);
        for (at, run) in runs {
            bytes.write(at - from.1 + to.1, &run);
        }
        let node = self.known(to.0);
        node.drop_capability();
        node.attributes.size = size.max(end);
        node.touch_content(now);
        Ok(len)
    }

    /// No read tells a block that is shared from one that was copied.
    pub(crate) fn share_range(
        &mut self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        now: Timestamp,
    ) -> Result<u64> {
        let (source_size, _) = self.bytes(from.0)?;
        self.bytes(to.0)?;
        if len > source_size.saturating_sub(from.1) {
            return Err(Error::InvalidArgument("the range ends after the source"));
        }
        self.copy_range(from, to, len, now)
    }

    pub(crate) fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let value = self.node(ino)?.xattrs.get(name);
        value.cloned().ok_or(Error::NoAttribute)
    }

    pub(crate) fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now: Timestamp,
    ) -> Result<()> {
        let node = self.node_mut(ino)?;
        if name.is_empty() {
            return Err(Error::InvalidArgument("attribute name"));
        }
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge);
        }
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoAttribute),
            _ => (),
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        node.attributes.changed = now;
        Ok(())
    }

    pub(crate) fn remove_xattr(&mut self, ino: Ino, name: &[u8], now: Timestamp) -> Result<()> {
        let node = self.node_mut(ino)?;
        node.xattrs.remove(name).ok_or(Error::NoAttribute)?;
        node.attributes.changed = now;
        Ok(())
    }
}
