//! Permissions where every caller counts as the superuser (`fakeroot`): files get the owners that
//! they have where the image is used.

use crate::Ext2;
use marram_vfs::{
    AccessControl, Action, Error, FileSystem, Identity, Ino, Kind, Opened, Opening, Result,
    SetAttributes,
};

/// Execute permission of anybody.
const EXECUTE: u32 = 0o111;

/// A file that nobody may run is not run by the superuser either.
fn check_execution(files: &Ext2, ino: Ino) -> Result<()> {
    let attributes = files.attributes(ino)?;
    let is_file = attributes.kind == Kind::Regular;
    if is_file && attributes.permissions & EXECUTE == 0 {
        return Err(Error::AccessDenied);
    }
    Ok(())
}

impl AccessControl for Ext2 {
    fn authorize(&self, _caller: &dyn Identity, action: Action<'_>) -> Result<()> {
        match action {
            Action::Probe { ino, execute: true, .. } => check_execution(self, ino),
            _ => Ok(()),
        }
    }

    fn authorize_open(&self, _caller: &dyn Identity, ino: Ino, how: Opening) -> Result<Opened> {
        if how.execute {
            check_execution(self, ino)?;
        }
        Ok(Opened::AsAsked)
    }

    fn authorize_change(
        &self,
        _caller: &dyn Identity,
        _ino: Ino,
        _set: &mut SetAttributes,
    ) -> Result<()> {
        Ok(())
    }
}
