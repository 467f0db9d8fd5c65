//! `cargo xtask bench --workloads library`: operations on small files in the library, without FUSE,
//! beside the same through system calls on ext4. The program is an example of the crate `sim`; this
//! gives it a file system to run beside, and holds the figures against the target.

use super::plot::{Bar, Panel};
use super::{Arguments, GIB, machine, plot, work_folder, write_files};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::text;
use marram_lab::project;
use marram_lab::subject::{self, Kind, Making};
use std::fmt::Write;

/// How much of ext4's time the library may take.
const RATIO_MAX: f64 = 0.5;

/// What the target is for.
const TARGETS: [&str; 4] = ["create", "lookup", "rename", "unlink"];

/// Builds and runs it, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("library").tempdir_in(work_folder(arguments)?)?;
    let making = Making { preallocate: true, on_direct_loop: true, ..Making::sized(4 * GIB) };
    let mut ext4 = subject::make(Kind::Ext4, folder.path(), &making)?;
    let files = if arguments.quick { "5000" } else { "100000" };
    let words = ["run", "--release", "--quiet", "--package", "marram-sim", "--example"];
    let mut program = project::cargo(&words);
    program.args(["library_path", "--", "--files", files, "--beside"]).arg(ext4.root());
    let rows = rows(&text(&mut program)?)?;
    ext4.unmount()?;
    ext4.check()?;
    let mut header = machine()?;
    header.push(("files".to_owned(), format!("{files}, in 100 directories")));
    let page = page(&header, &rows);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    let json = json(&header, &rows)?;
    write_files(&arguments.name_or("library"), &page, &json, &plot::draw(&panels(&rows)))
}

fn page(header: &[(String, String)], rows: &[Row]) -> String {
    let mut page = String::from("# The library without a mount, beside ext4\n\n");
    for (name, value) in header {
        writeln!(page, "- {name}: {value}").expect("a string takes all that is written");
    }
    page.push_str(
        "\nMicroseconds for each: `marram-posix` on a pool in memory, and system calls on ext4 on \
         a loop device with direct I/O. What a target is for takes at most half of ext4's \
         time.\n\n\
         | operation | library, us | ext4, us | ratio | |\n| --- | ---: | ---: | ---: | --- |\n",
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
            "operation": row.operation,
            "library_us": row.library_us,
            "ext4_us": row.beside_us,
        })
    };
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    Ok(serde_json::to_string_pretty(&serde_json::json!({ "run": header, "rows": rows }))? + "\n")
}

/// A panel an operation.
fn panels(rows: &[Row]) -> Vec<Panel> {
    let bar = |name, is_ours, us: f64| Bar { name, is_ours, value: Some((us, format!("{us:.2}"))) };
    let panel = |row: &Row| Panel {
        title: format!("{}, us", row.operation),
        bars: vec![bar("library", true, row.library_us), bar("ext4", false, row.beside_us)],
    };
    rows.iter().map(panel).collect()
}

/// An operation and its two figures, in microseconds.
#[derive(Debug, PartialEq)]
struct Row {
    operation: String,
    library_us: f64,
    beside_us: f64,
}

impl Row {
    fn shown(&self) -> String {
        let ratio = self.library_us / self.beside_us;
        let verdict = match (TARGETS.contains(&self.operation.as_str()), ratio <= RATIO_MAX) {
            (false, _) => "",
            (true, true) => "met",
            (true, false) => "MISSED",
        };
        let (name, ours, theirs) = (&self.operation, self.library_us, self.beside_us);
        format!("| {name} | {ours:.2} | {theirs:.2} | {ratio:.2} | {verdict} |")
    }
}

/// Lines of a name and two numbers, with tabs between them.
fn rows(said: &str) -> Result<Vec<Row>> {
    let number = |word: &str| word.parse::<f64>().context(|| format!("not a number: {word}"));
    let mut rows = Vec::new();
    for line in said.lines() {
        if let [operation, library, beside] = line.split('\t').collect::<Vec<_>>()[..] {
            let (library_us, beside_us) = (number(library)?, number(beside)?);
            rows.push(Row { operation: operation.to_owned(), library_us, beside_us });
        }
    }
    if rows.is_empty() { fail(format!("no figures: {said}")) } else { Ok(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_a_target_is_judged() {
        let rows = rows("create\t6.00\t150.00\nlookup\t4.90\t3.40\nsync\t9.00\t1.00\n");
        let shown: Vec<String> = rows.expect("three rows").iter().map(Row::shown).collect();
        assert_eq!(shown[0], "| create | 6.00 | 150.00 | 0.04 | met |");
        assert_eq!(shown[1], "| lookup | 4.90 | 3.40 | 1.44 | MISSED |");
        assert_eq!(shown[2], "| sync | 9.00 | 1.00 | 9.00 |  |");
    }

    #[test]
    fn a_program_that_tells_nothing_has_failed() {
        assert!(rows("0.50 us a file\n").is_err());
        assert!(rows("create\tfast\t1.0\n").is_err());
    }
}
