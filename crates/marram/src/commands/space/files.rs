//! `marram space --files`: what files and directories take, in the manner of `du`, and what
//! deleting them would give back.

use crate::arguments::SpaceArguments;
use crate::control::protocol::{
    Answer, FootprintReport, FootprintRequest, FootprintRow, Operation,
};
use crate::error::{Error, Result};
use crate::names::{bytes, quoted};
use crate::output::{Align, Output, Table, size_text};
use crate::target::{Target, with_optional_snapshot};
use marram_store::Source;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(in crate::commands) fn run(arguments: &SpaceArguments, output: &Output) -> Result<()> {
    let [path] = &arguments.targets[..] else {
        return Err(Error::usage("--files is about one directory at a time"));
    };
    let (path, snapshot) = with_optional_snapshot(path)?;
    let target = Target::find(&path)?;
    let named = arguments.dataset.as_deref();
    let dataset = target.dataset(named)?;
    let of_target = target.mounted.as_ref().filter(|_| named.is_none());
    let snapshot = snapshot.or_else(|| of_target.and_then(|source| source.snapshot.clone()));
    let directory = of_target.and(target.ino);
    if directory == Some(0) {
        return Err(Error::usage(format!("{} is no directory", path.display()))
            .hint("name the directory that it is in: each of its files is told"));
    }
    super::write_back(&target, &path)?;
    let request = FootprintRequest {
        source: Source { dataset, snapshot }.to_string(),
        directory,
        depth: arguments.depth.unwrap_or(if arguments.top.is_some() { usize::MAX } else { 1 }),
        top: arguments.top,
    };
    match target.perform(&Operation::Footprints(request))? {
        Answer::Footprints(report) => {
            output.print(&report, || table(&report, &path, arguments, output));
            Ok(())
        }
        other => Err(super::unexpected(&other)),
    }
}

fn table(
    report: &FootprintReport,
    path: &Path,
    arguments: &SpaceArguments,
    output: &Output,
) -> String {
    let mut table = Table::new(&[
        ("REFERENCED", Align::Right),
        ("UNIQUE", Align::Right),
        ("PATH", Align::Left),
    ]);
    // Of a pool that nobody has mounted there is no path to what is in it.
    let above = if path.is_dir() { path } else { Path::new("/") };
    for row in &report.files {
        table.row(vec![
            size_text(row.referenced_bytes, arguments.format.exact),
            size_text(row.unique_bytes, arguments.format.exact),
            place(above, row),
        ]);
    }
    match arguments.format.no_header {
        true => table.tab_separated(),
        false => table.columns(output.colour),
    }
}

fn place(above: &Path, row: &FootprintRow) -> String {
    let below = bytes(&row.path, row.path_bytes.as_ref());
    let path =
        if below.is_empty() { above.to_owned() } else { above.join(OsStr::from_bytes(&below)) };
    let is_bare = row.kind == "directory" && !path.as_os_str().as_bytes().ends_with(b"/");
    let slash = if is_bare { "/" } else { "" };
    format!("{}{slash}", quoted(path.as_os_str().as_bytes()))
}
