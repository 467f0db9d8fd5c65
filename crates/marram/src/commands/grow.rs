//! `marram grow`: a pool takes into use what its file or device has grown by.

use crate::arguments::GrowArguments;
use crate::commands::answers::unexpected;
use crate::control::protocol::{Answer, Operation};
use crate::error::Result;
use crate::output::{Output, size_text};
use crate::sizes::parse_size;
use crate::target::Target;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Grown {
    pool: PathBuf,
    size_bytes: u64,
}

pub(super) fn run(arguments: &GrowArguments, output: &Output) -> Result<()> {
    let size_bytes = arguments.size.as_deref().map(parse_size).transpose()?;
    let target = Target::find(&arguments.target)?;
    match target.perform(&Operation::Grow { size_bytes })? {
        Answer::Grown { size_bytes } => {
            let grown = Grown { pool: target.pool, size_bytes };
            output.print(&grown, || {
                format!("{} has {} now\n", grown.pool.display(), size_text(size_bytes, false))
            });
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}
