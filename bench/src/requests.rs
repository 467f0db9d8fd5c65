//! `cargo xtask bench --workloads requests`: what each use of the kernel's caches saves.
//!
//! Counted are the requests that the kernel sends, by its own trace point, while everyday work is
//! done on a pass-through: once with everything that a mount takes, and once without each. The
//! pass-through stands for every engine, since what the kernel may keep is decided above them.

mod trace;

use super::plot::{Bar, Panel};
use super::{Arguments, GIB, interruption, machine, plot, work_folder, write_files};
use marram_lab::failure::{Result, fail};
use marram_lab::inputs::linux_tree;
use marram_lab::process::{command, output, run};
use marram_lab::subject::{Making, Passthrough, Subject};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use trace::Trace;

/// What is left out, as the pass-through calls it, and in words.
const CHOICES: [(&str, &str); 10] = [
    ("", "nothing"),
    ("names", "names stay known for an hour"),
    ("absences", "that there is no such name stays known"),
    ("attributes", "attributes stay known for an hour"),
    ("opens", "files are opened without a request, their pages stay"),
    ("directories", "directories are opened without a request, listings stay"),
    ("listings", "listings bring attributes"),
    ("symlinks", "targets of symbolic links stay"),
    ("large-writes", "a request carries 1 MiB, not 128 KiB"),
    ("read-ahead", "1 MiB is read ahead, not 128 KiB"),
];

/// Requests by kind, for each work.
type Counts = BTreeMap<String, u64>;

/// What was counted without one of the choices.
struct Column {
    choice: &'static str,
    words: &'static str,
    counts: Vec<Counts>,
}

/// Work that is counted.
struct Work {
    name: &'static str,
    script: &'static str,
    /// After a fresh mount.
    is_cold: bool,
}

/// Run one after the other in a folder with the tree in `tree`. `$1` is the archive.
const WORKS: [Work; 11] = [
    Work { name: "unpack", script: "mkdir tree && tar -xPf \"$1\" -C tree", is_cold: false },
    Work { name: "read, cold", script: READ, is_cold: true },
    Work { name: "read again", script: READ, is_cold: false },
    Work { name: "find -size, cold", script: FIND, is_cold: true },
    Work { name: "find -size again", script: FIND, is_cold: false },
    Work {
        name: "grep -r, names known",
        script: "grep -r kmalloc tree > /dev/null",
        is_cold: false,
    },
    Work {
        name: "40 lookups of what is not there",
        script: "for i in $(seq 40); do [ ! -e tree/absent ]; done",
        is_cold: false,
    },
    Work {
        name: "symbolic links read twice",
        script: "ln -s x link; sync; readlink link; readlink link; readlink link",
        is_cold: false,
    },
    Work {
        name: "write of 64 MiB",
        script: "dd if=/dev/zero of=large bs=1M count=64 status=none",
        is_cold: false,
    },
    Work { name: "read of 64 MiB, cold", script: "cat large > /dev/null", is_cold: true },
    Work { name: "rm -rf", script: "rm -rf tree", is_cold: true },
];

const READ: &str = "find tree -type f -print0 | xargs -0 cat > /dev/null";
const FIND: &str = "find tree -size +1000000k";

/// Counts all, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let linux = linux_tree(true)?;
    let mut columns = Vec::new();
    for (choice, words) in CHOICES {
        println!("without {words}");
        let folder =
            tempfile::Builder::new().prefix("requests").tempdir_in(work_folder(arguments)?)?;
        let counts = count(folder.path(), choice, &linux.archive)?;
        columns.push(Column { choice, words, counts });
    }
    check(&columns)?;
    let page = page(&machine()?, &columns);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    let json = json(&columns)?;
    write_files(&arguments.name_or("requests"), &page, &json, &plot::draw(&panels(&columns)))
}

/// Each choice must save something, or it was not left out.
fn check(columns: &[Column]) -> Result<()> {
    let Some((all, without)) = columns.split_first() else { return Ok(()) };
    let saves = |column: &&Column| {
        let more = |(counts, all): (&Counts, &Counts)| total(counts) > total(all) + 1;
        column.counts.iter().zip(&all.counts).any(more)
    };
    match without.iter().find(|column| !saves(column)) {
        None => Ok(()),
        Some(column) => fail(format!("nothing is asked more often without {:?}", column.words)),
    }
}

fn count(folder: &Path, choice: &'static str, archive: &Path) -> Result<Vec<Counts>> {
    let making = Making { on_direct_loop: true, ..Making::sized(2 * GIB) };
    let mut subject = Passthrough::without(choice, folder, &making)?;
    let mut all = Vec::new();
    for work in &WORKS {
        interruption::check()?;
        if work.is_cold {
            subject.remount()?;
            drop_caches()?;
        }
        let trace = Trace::of_mount(subject.root())?;
        let mut script = command(&["bash", "-e", "-o", "pipefail", "-c", work.script, "work"]);
        output(script.arg(archive).current_dir(subject.root()))?;
        all.push(trace.counts()?);
    }
    subject.unmount()?;
    Ok(all)
}

fn drop_caches() -> Result<()> {
    run(&mut command(&["sync"]))?;
    Ok(std::fs::write("/proc/sys/vm/drop_caches", "3")?)
}

fn total(counts: &Counts) -> u64 {
    counts.values().sum()
}

const LEGEND: &str = "\
Requests that the kernel sent to a pass-through over ext4 (`fuse:fuse_request_send`), the classic \
device, 10,000 files of the Linux source: with all that a mount takes, and without each. What is \
forgotten without an answer is not counted.\n";

fn page(header: &[(String, String)], columns: &[Column]) -> String {
    let mut page = String::from("# What each use of the kernel's caches saves\n\n");
    for (name, value) in header {
        add(&mut page, format_args!("- {name}: {value}\n"));
    }
    add(&mut page, format_args!("\n{LEGEND}\n| left out |"));
    WORKS.iter().for_each(|work| add(&mut page, format_args!(" {} |", work.name)));
    add(&mut page, format_args!("\n| --- |{}\n", " ---: |".repeat(WORKS.len())));
    for column in columns {
        let cells: Vec<String> =
            column.counts.iter().map(|counts| total(counts).to_string()).collect();
        add(&mut page, format_args!("| {} | {} |\n", column.words, cells.join(" | ")));
    }
    page.push_str("\n## By kind\n\n| left out | work | requests |\n| --- | --- | --- |\n");
    for column in columns {
        for (work, counts) in WORKS.iter().zip(&column.counts) {
            let kinds: Vec<String> =
                counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            let (left_out, kinds) = (column.words, kinds.join(", "));
            add(&mut page, format_args!("| {left_out} | {} | {kinds} |\n", work.name));
        }
    }
    page
}

fn add(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words).expect("a string takes all that is written");
}

/// A panel for each work, a bar for each choice.
fn panels(columns: &[Column]) -> Vec<Panel> {
    let panel = |(index, work): (usize, &Work)| {
        let bar = |column: &Column| {
            let count = column.counts.get(index).map(total)?;
            let name = if column.choice.is_empty() { "all taken" } else { column.choice };
            let is_ours = column.choice.is_empty();
            Some(Bar { name, is_ours, value: Some((count as f64, count.to_string())) })
        };
        let title = format!("{}: requests without", work.name);
        Panel { title, bars: columns.iter().filter_map(bar).collect() }
    };
    WORKS.iter().enumerate().map(panel).collect()
}

fn json(columns: &[Column]) -> Result<String> {
    let all: Vec<serde_json::Value> = columns
        .iter()
        .map(|column| {
            let works: serde_json::Map<String, serde_json::Value> = WORKS
                .iter()
                .zip(&column.counts)
                .map(|(work, counts)| (work.name.to_owned(), serde_json::json!(counts)))
                .collect();
            serde_json::json!({ "without": column.choice, "requests": works })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
