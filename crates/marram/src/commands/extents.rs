//! `marram extents`: where the content of a file lies. It stands for `filefrag` and `FIEMAP`, which
//! FUSE does not carry.

use super::range::size_of;
use crate::arguments::ExtentsArguments;
use crate::error::{Error, Result};
use crate::output::{Align, Output, Table, size_text};
use marram_fuse::{FileCallError, extents};
use marram_vfs::{Extent, ExtentPlace};
use serde::Serialize;
use std::fs::File;
use std::path::Path;

/// A piece of the file; what a kind does not have is left out.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    offset: u64,
    length: u64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<BlockRow>,
}

/// The block that the piece is a part of.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct BlockRow {
    device: u16,
    address: u64,
    stored_bytes: u64,
    block_bytes: u64,
    block_start: u64,
    shared: bool,
}

pub(super) fn run(arguments: &ExtentsArguments, output: &Output) -> Result<()> {
    let path = &arguments.file;
    let file = File::open(path).map_err(|error| Error::system("open", path, error))?;
    let size = size_of(&file, path)?;
    let found = all_extents(&file, path)?;
    let rows = with_holes(&found, size);
    output.print(&rows, || text(&rows, arguments, output));
    Ok(())
}

/// Asks until there are no more. Each answer goes on after the one before, so it comes to an end
/// also when somebody writes to the file meanwhile.
fn all_extents(file: &File, path: &Path) -> Result<Vec<Extent>> {
    let mut all: Vec<Extent> = Vec::new();
    loop {
        let from = all.last().map_or(0, |last| last.offset.saturating_add(last.len));
        let more = extents(file, from).map_err(|error| told(path, &error))?;
        let more: Vec<Extent> = more.into_iter().filter(|extent| extent.offset >= from).collect();
        if more.is_empty() {
            return Ok(all);
        }
        all.extend(more);
    }
}

fn told(path: &Path, error: &FileCallError) -> Error {
    Error::failed(format!("cannot tell where {} lies: {error}", path.display()))
}

/// The extents of a file of `size` bytes, and what is between them and after them.
fn with_holes(extents: &[Extent], size: u64) -> Vec<Row> {
    let hole =
        |offset: u64, end: u64| Row { offset, length: end - offset, kind: "hole", block: None };
    let mut rows = Vec::new();
    let mut at = 0;
    for extent in extents {
        let end_of_hole = extent.offset.min(size.max(at));
        if end_of_hole > at {
            rows.push(hole(at, end_of_hole));
        }
        rows.push(row(extent));
        at = extent.offset.saturating_add(extent.len);
    }
    if at < size {
        rows.push(hole(at, size));
    }
    rows
}

fn row(extent: &Extent) -> Row {
    let (kind, block) = match extent.place {
        ExtentPlace::Reserved => ("reserved", None),
        ExtentPlace::Waiting => ("waiting", None),
        ExtentPlace::Beside => ("beside", None),
        ExtentPlace::Stored { device, address, stored_bytes, block_bytes, block_start, shared } => {
            let block =
                BlockRow { device, address, stored_bytes, block_bytes, block_start, shared };
            ("data", Some(block))
        }
    };
    Row { offset: extent.offset, length: extent.len, kind, block }
}

fn text(rows: &[Row], arguments: &ExtentsArguments, output: &Output) -> String {
    let format = arguments.format;
    let mut table = Table::new(&[
        ("OFFSET", Align::Right),
        ("LENGTH", Align::Right),
        ("KIND", Align::Left),
        ("DEVICE", Align::Right),
        ("ADDRESS", Align::Right),
        ("STORED", Align::Right),
        ("OF", Align::Right),
        ("FROM", Align::Right),
        ("SHARED", Align::Left),
    ]);
    let size = |bytes: u64| size_text(bytes, format.exact);
    for row in rows {
        let mut cells = vec![row.offset.to_string(), row.length.to_string(), row.kind.to_owned()];
        cells.extend(match &row.block {
            None => ["-"; 6].map(str::to_owned),
            Some(block) => [
                block.device.to_string(),
                block.address.to_string(),
                size(block.stored_bytes),
                size(block.block_bytes),
                block.block_start.to_string(),
                if block.shared { "yes" } else { "no" }.to_owned(),
            ],
        });
        table.row(cells);
    }
    if format.no_header { table.tab_separated() } else { table.columns(output.colour) }
}

#[cfg(test)]
mod tests {
    use super::with_holes;
    use marram_vfs::{Extent, ExtentPlace};

    #[test]
    fn holes_are_what_is_between_and_end_with_the_file() {
        let extent = |offset, len| Extent { offset, len, place: ExtentPlace::Reserved };
        let rows = |extents: &[Extent], size| -> Vec<(u64, u64, &str)> {
            let rows = with_holes(extents, size);
            rows.iter().map(|row| (row.offset, row.length, row.kind)).collect()
        };
        assert_eq!(rows(&[], 0), []);
        assert_eq!(rows(&[], 9), [(0, 9, "hole")]);
        assert_eq!(
            rows(&[extent(5, 5), extent(10, 1), extent(20, 5)], 30),
            [
                (0, 5, "hole"),
                (5, 5, "reserved"),
                (10, 1, "reserved"),
                (11, 9, "hole"),
                (20, 5, "reserved"),
                (25, 5, "hole"),
            ]
        );
        assert_eq!(
            rows(&[extent(100, 5)], 30),
            [(0, 30, "hole"), (100, 5, "reserved")],
            "past the end there is no hole"
        );
    }
}
