//! `cargo xtask bench --workloads transactions-in-library`: what transactions cost in the library,
//! without FUSE, beside the way in which programs replace files on the kernel's file systems. The
//! program is an example of the crate `sim`; this gives it a device and file systems to run beside,
//! and holds the figures against the goals.

use super::plot::{Bar, Panel};
use super::{Arguments, GIB, machine, plot, work_folder, write_files};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::text;
use marram_lab::project;
use marram_lab::subject::{self, Kind, Making, Subject};
use std::fmt::Write;

/// The peers.
const PEERS: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];
/// Goals in flushes: the beginning of a figure's name, and how many there may be.
const FLUSHES_MAX: [(&str, f64); 4] = [
    ("begin and abort", 0.0),
    ("commit of 10 files, 1 process", 1.0),
    ("commit of 10 files, 8 processes", 0.3),
    ("commit of 10 files, 32 processes", 0.1),
];
/// Goals in microseconds.
const TIME_MAX_US: [(&str, f64); 2] =
    [("begin and abort", 100.0), ("a write beside commits of 1000 files, the longest", 10_000.0)];

/// Builds and runs it, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let folder =
        tempfile::Builder::new().prefix("in-library").tempdir_in(work_folder(arguments)?)?;
    let making = Making { preallocate: true, on_direct_loop: true, ..Making::sized(4 * GIB) };
    let mut peers: Vec<Box<dyn Subject>> = Vec::new();
    for kind in PEERS {
        peers.push(subject::make(kind, &folder.path().join(kind.name()), &making)?);
    }
    let files: &[&str] = if arguments.quick { &["1000"] } else { &["1000", "2000000"] };
    let words = ["run", "--release", "--quiet", "--package", "marram-sim", "--example"];
    let mut program = project::cargo(&words);
    program.args(["transactions", "--", "--device"]).arg(folder.path().join("pool"));
    files.iter().for_each(|count| {
        program.args(["--files", count]);
    });
    for (kind, peer) in PEERS.iter().zip(&peers) {
        let root = peer.root().join(kind.name());
        std::fs::create_dir(&root)?;
        program.arg("--beside").arg(root);
    }
    let rows = rows(&text(&mut program)?)?;
    for peer in &mut peers {
        peer.unmount()?;
    }
    let header = machine()?;
    let page = page(&header, &rows);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    let json = json(&header, &rows)?;
    let svg = plot::draw(&panels(&rows));
    write_files(&arguments.name_or("transactions-in-library"), &page, &json, &svg)
}

/// A figure of a subject.
#[derive(Debug, PartialEq)]
struct Row {
    figure: String,
    subject: String,
    time_us: Option<f64>,
    flushes: Option<f64>,
}

impl Row {
    /// Whether it is within the goals that it has; nothing if it has none.
    fn is_met(&self) -> Option<bool> {
        if self.subject != "marram" {
            return None;
        }
        let held = |goals: &[(&str, f64)], value: Option<f64>| {
            let goal = goals.iter().find(|(name, _)| self.figure.starts_with(name));
            Some(value? <= goal?.1)
        };
        let both = [held(&FLUSHES_MAX, self.flushes), held(&TIME_MAX_US, self.time_us)];
        both.into_iter().flatten().reduce(|one, other| one && other)
    }

    fn shown(&self) -> String {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let verdict = match self.is_met() {
            None => "",
            Some(true) => "met",
            Some(false) => "MISSED",
        };
        let (time, flushes) = (number(self.time_us, 1), number(self.flushes, 2));
        format!("| {} | {} | {time} | {flushes} | {verdict} |", self.figure, self.subject)
    }
}

/// Lines of a figure, a subject and two numbers, with tabs between them.
fn rows(said: &str) -> Result<Vec<Row>> {
    let number = |word: &str| match word {
        "-" => Ok(None),
        _ => word.parse::<f64>().map(Some).context(|| format!("not a number: {word}")),
    };
    let mut rows = Vec::new();
    for line in said.lines() {
        if let [figure, subject, time, flushes] = line.split('\t').collect::<Vec<_>>()[..] {
            let (time_us, flushes) = (number(time)?, number(flushes)?);
            let (figure, subject) = (figure.to_owned(), subject.to_owned());
            rows.push(Row { figure, subject, time_us, flushes });
        }
    }
    if rows.is_empty() { fail(format!("no figures: {said}")) } else { Ok(rows) }
}

fn page(header: &[(String, String)], rows: &[Row]) -> String {
    let mut page = String::from("# What transactions cost in the library\n\n");
    for (name, value) in header {
        writeln!(page, "- {name}: {value}").expect("a string takes all that is written");
    }
    page.push_str(
        "\n`marram-posix` on a pool in a file, opened as by a mount, no FUSE; medians. A \
         transaction is counted from its begin to its end. Files have 4 KiB. The peers are mounted \
         on loop devices with direct I/O; they replace each file by a temporary one, `fsync` and a \
         rename, with one `fsync` of the directory at the end. Flushes are those of the device, \
         for each.\n\n\
         | figure | subject | us | flushes | |\n| --- | --- | ---: | ---: | --- |\n",
    );
    for row in rows {
        page.push_str(&row.shown());
        page.push('\n');
    }
    page
}

fn json(header: &[(String, String)], rows: &[Row]) -> Result<String> {
    let header: serde_json::Map<String, serde_json::Value> =
        header.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let row = |row: &Row| {
        serde_json::json!({
            "figure": row.figure,
            "subject": row.subject,
            "us": row.time_us,
            "flushes": row.flushes,
        })
    };
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    Ok(serde_json::to_string_pretty(&serde_json::json!({ "run": header, "rows": rows }))? + "\n")
}

/// A panel for each count of replaced files.
fn panels(rows: &[Row]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in rows.iter().filter(|row| row.figure.ends_with("files replaced")) {
        let title = format!("{}, us", row.figure);
        let peer = PEERS.iter().map(|kind| kind.name()).find(|name| *name == row.subject);
        let bar = Bar {
            name: peer.unwrap_or("marram"),
            is_ours: row.subject == "marram",
            value: row.time_us.map(|us| (us, format!("{us:.0}"))),
        };
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.bars.push(bar),
            None => panels.push(Panel { title, bars: vec![bar] }),
        }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_held_against_each_of_its_goals() {
        let said = "begin and abort, 1000 files\tmarram\t8.2\t0.000\n\
                    begin and abort, 1000 files\tmarram\t800.0\t0.000\n\
                    commit of 10 files, 8 processes\tmarram\t900.0\t2.000\n\
                    10 files replaced\text4\t900.0\t20.000\n";
        let rows = rows(said).expect("four rows");
        let met: Vec<Option<bool>> = rows.iter().map(Row::is_met).collect();
        assert_eq!(met, [Some(true), Some(false), Some(false), None]);
        assert_eq!(rows[3].shown(), "| 10 files replaced | ext4 | 900.0 | 20.00 |  |");
    }

    #[test]
    fn a_program_that_tells_nothing_has_failed() {
        assert!(rows("0.50 us a file\n").is_err());
        assert!(rows("create\tmarram\tfast\t1.0\n").is_err());
    }
}
