//! Names looked up in directories, by the rule of the file system.

use crate::volume::Volume;
use marram_records::directory;
use marram_records::directory::{FoundEntry, Probe};
use marram_records::inode::check_directory;
use marram_vfs::{Error, Name, Result};

pub(crate) fn probe_entry(
    volume: &Volume,
    directory: u64,
    name: Name<'_>,
) -> Result<Probe<FoundEntry>> {
    let hashing = (volume.counters.names(), volume.counters.seed());
    directory::probe_entry(&*volume.view, hashing, directory, name.as_bytes())
}

/// The entry of a name, if it is there; fails where there is no directory.
pub(crate) fn find_entry(
    volume: &Volume,
    directory: u64,
    name: Name<'_>,
) -> Result<Option<FoundEntry>> {
    let found = probe_entry(volume, directory, name)?.found;
    if found.is_none() {
        check_directory(&volume.load_inode(directory)?)?;
    }
    Ok(found)
}

/// The entry of a name that has to be there.
pub(crate) fn entry(volume: &Volume, directory: u64, name: Name<'_>) -> Result<FoundEntry> {
    find_entry(volume, directory, name)?.ok_or(Error::NotFound)
}
