//! Where the mounts of a daemon are seen: by this process, or by others.

use crate::control::daemons::is_of;
use crate::control::protocol::MountReport;
use crate::error::Result;
use crate::mountinfo::{self, MountEntry, Sight};

/// Notes of each mount whether this process sees it where it was made, and else where it is seen.
///
/// # Errors
/// When `/proc` cannot be read.
pub(super) fn note_sight(mounts: &mut [MountReport]) -> Result<()> {
    let entries = mountinfo::mounts()?;
    for mount in mounts {
        let is_there =
            |entry: &MountEntry| entry.directory == mount.directory && is_of(entry, mount);
        let in_sight = entries.iter().any(is_there);
        mount.in_sight = Some(in_sight);
        if let Some(device) = mount.device.filter(|_| !in_sight) {
            let here = entries.iter().filter(|entry| entry.device == device);
            let here = here.map(|entry| Sight::here(&entry.directory));
            mount.elsewhere = here.chain(mountinfo::sights_elsewhere(device)).collect();
        }
    }
    Ok(())
}

/// Where a mount is, in words.
pub(super) fn place_of(mount: &MountReport) -> String {
    let made = mount.directory.display();
    match (mount.in_sight, mount.elsewhere.first()) {
        (Some(false), None) => format!("out of sight (was {made})"),
        (Some(false), Some(seen)) => format!("not here (was {made}); {seen}"),
        _ => made.to_string(),
    }
}
