//! `marram label`: what a pool is called, for people and for `blkid`-like tools; the same that
//! programs read and set by `FS_IOC_GETFSLABEL` and `FS_IOC_SETFSLABEL` on a mount.

use crate::arguments::LabelArguments;
use crate::commands::answers::unexpected;
use crate::control::protocol::{Answer, Operation};
use crate::error::Result;
use crate::output::Output;
use crate::target::Target;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Labelled {
    pool: PathBuf,
    label: String,
}

pub(super) fn run(arguments: &LabelArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    if let Some(label) = &arguments.label {
        target.perform(&Operation::Label { label: label.clone() })?;
    }
    let label = match target.perform(&Operation::Status)? {
        Answer::Status(status) => status.label,
        other => return Err(unexpected(&other)),
    };
    let told = Labelled { pool: target.pool, label };
    output.print(&told, || match &arguments.label {
        None if !told.label.is_empty() => format!("{}\n", told.label),
        _ => String::new(),
    });
    Ok(())
}
