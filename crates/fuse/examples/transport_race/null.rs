//! A file system that does nothing and keeps nothing: what is left is the way to it and back.
//!
//! The root has a file of the name `N` for each number; whatever is written is thrown away, and
//! every sync is done at once.

use marram_vfs::{
    AccessRules, Attributes, Caller, Capabilities, DirectoryEntry, Error, FileSystem, Ino, Kind,
    Name, NewNode, RenameMode, Result, SetAttributes, SpaceReport, SyncScope, Timestamp,
    WriteOptions, XattrMode,
};

/// Inode of the file `0`.
const FIRST_FILE: u64 = 2;
/// Size of every file, in bytes.
const FILE_BYTES: u64 = 1 << 30;

pub(crate) struct NullFileSystem;

fn attributes_of(ino: Ino) -> Attributes {
    let is_root = ino == Ino::ROOT;
    let never = Timestamp::default();
    Attributes {
        ino,
        generation: 0,
        kind: if is_root { Kind::Directory } else { Kind::Regular },
        permissions: 0o777,
        links: if is_root { 2 } else { 1 },
        uid: 0,
        gid: 0,
        device: 0,
        size: if is_root { 0 } else { FILE_BYTES },
        blocks_512: 0,
        accessed: never,
        modified: never,
        changed: never,
        created: never,
    }
}

impl FileSystem for NullFileSystem {
    fn space(&self) -> Result<SpaceReport> {
        Ok(SpaceReport::default())
    }

    fn lookup(&self, _parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let number = std::str::from_utf8(name.as_bytes()).ok().and_then(|name| name.parse().ok());
        let number: u32 = number.ok_or(Error::NotFound)?;
        Ok(attributes_of(Ino(FIRST_FILE + u64::from(number))))
    }

    fn parent(&self, _ino: Ino) -> Result<Attributes> {
        Ok(attributes_of(Ino::ROOT))
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        Ok(attributes_of(ino))
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        Ok(attributes_of(ino))
    }

    fn forget(&self, _ino: Ino, _count: u64) {}

    fn forget_all(&self) {}

    fn set_attributes(
        &self,
        _caller: Caller,
        ino: Ino,
        _set: &SetAttributes,
    ) -> Result<Attributes> {
        Ok(attributes_of(ino))
    }

    fn read_link(&self, _ino: Ino) -> Result<Vec<u8>> {
        Err(Error::NotSupported)
    }

    fn create(&self, _: Caller, _: Ino, _: Name<'_>, _: NewNode<'_>) -> Result<Attributes> {
        Err(Error::NotSupported)
    }

    fn create_anonymous(&self, _: Caller, _: Ino, _: u32) -> Result<Attributes> {
        Err(Error::NotSupported)
    }

    fn link(&self, _: Ino, _: Ino, _: Name<'_>) -> Result<Attributes> {
        Err(Error::NotSupported)
    }

    fn unlink(&self, _: Ino, _: Name<'_>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn remove_directory(&self, _: Ino, _: Name<'_>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn rename(
        &self,
        _: Caller,
        _: Ino,
        _: Name<'_>,
        _: Ino,
        _: Name<'_>,
        _: RenameMode,
    ) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn read(&self, _ino: Ino, _offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        out.resize(out.len() + len, 0);
        Ok(())
    }

    fn write(&self, _: Ino, _: u64, _: &[u8], _: WriteOptions<'_>) -> Result<()> {
        Ok(())
    }

    fn append(&self, _: Ino, _: &[u8], _: WriteOptions<'_>) -> Result<u64> {
        Ok(0)
    }

    fn read_directory(
        &self,
        _: Ino,
        _: u64,
        _: bool,
        _: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        Ok(())
    }

    fn xattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>> {
        Err(Error::NotSupported)
    }

    fn set_xattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn list_xattrs(&self, _: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn remove_xattr(&self, _: Ino, _: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn sync(&self, _: Ino, _: SyncScope) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }

    fn access_rules(&self) -> AccessRules<'_> {
        AccessRules::ModeBits
    }
}
