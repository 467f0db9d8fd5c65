//! `cargo xtask bench --workloads scale`: what a fork, a snapshot, a rollback, a diff and a merge
//! cost as a tree grows, here and by the means that people have otherwise.
//!
//! Each way has a fresh file system for each size of tree. What is timed is the command that a user
//! would type, from its start to its end; of Marram also what its engine says of itself; and what
//! reaches the device until all of it is durable. A way that copies is not asked for trees that it
//! would copy for minutes.

mod asking;
mod large_file;
mod table;
pub(super) mod tree;

use super::contender::Way;
use super::{Arguments, curves, interruption, machine, work_folder, write_files};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, run};
use table::Table;

/// Trees of so many files, whole and quick.
const SIZES: [u64; 4] = [1_000, 20_000, 200_000, 2_000_000];
const QUICK_SIZES: [u64; 2] = [100, 1_000];

/// Measures every way at every size, smallest trees first, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let sizes: &[u64] = if arguments.quick { &QUICK_SIZES } else { &SIZES };
    let work = work_folder(arguments)?;
    let mut table = Table::default();
    for files in sizes {
        for way in Way::ALL.into_iter().filter(|way| *files <= asking::files_max(*way)) {
            println!("{} of {files} files", way.name());
            let folder = tempfile::Builder::new().prefix("scale").tempdir_in(&work)?;
            if let Err(failure) = asking::measure(way, folder.path(), *files, &mut table) {
                println!("  FAILED: {failure}");
                table.failures.push(format!("{} of {files} files: {failure}", way.name()));
            }
            drop(folder);
            run(&mut command(&["sync"]))?;
            interruption::check()?;
        }
        write(arguments, &table)?;
    }
    large_file::measure(&work, arguments.quick, &mut table)?;
    write(arguments, &table)?;
    println!("{}", table.page(&machine()?));
    match table.failures.len() {
        0 => Ok(()),
        count => fail(format!("{count} failures, listed at the head of the report")),
    }
}

fn write(arguments: &Arguments, table: &Table) -> Result<()> {
    if arguments.dry {
        return Ok(());
    }
    let page = table.page(&machine()?);
    write_files(&arguments.name_or("scale"), &page, &table.json()?, &curves::draw(&table.plots()))
}
