//! The label of the store.

use crate::volume::Volume;
use marram_records::failure::from_store;
use marram_store::Labelled;
use marram_vfs::{Caller, Error, Result};

/// The label.
pub(crate) fn label(volume: &Volume) -> Result<String> {
    labelled(volume).map(|it| it.label())
}

/// Sets the label.
pub(crate) fn set_label(volume: &Volume, caller: Caller, label: &str) -> Result<()> {
    let labelled = labelled(volume)?;
    volume.check_writable()?;
    labelled.set_label(label, caller.uid).map_err(|error| match error {
        marram_store::Error::Invalid(_) => Error::InvalidArgument("label"),
        other => from_store(other),
    })
}

fn labelled(volume: &Volume) -> Result<&dyn Labelled> {
    volume.view.capabilities().label.ok_or(Error::NotSupported)
}
