//! `cargo xtask bench --workloads pmem`: the pmem home in the library. Figure 3.8 of the thesis row
//! by row: bytes of store instructions, of the thesis, of ours, and of ours right after a snapshot.
//! Then what snapshots, mounts and operations take, on tmpfs, beside system calls there.
//!
//! The program is an example of the crate `pmem`. A row above the thesis is a failure; a goal that
//! is missed is printed as a loss.

use super::plot::{Bar, Panel};
use super::{Arguments, machine, plot, write_files};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{require, text};
use marram_lab::project;
use std::fmt::Write;

/// Rows of the figure.
const ROWS: usize = 32;
/// How much of the time of system calls on tmpfs the library may take.
const RATIO_MAX: f64 = 0.5;
/// The most microseconds of an overwrite of eight bytes.
const OVERWRITE: (&str, f64) = ("8 B overwrite", 0.5);

/// Builds and runs it, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    require(&[("cc", "gcc"), ("ld.bfd", "binutils"), ("strace", "strace")])?;
    let words = ["run", "--release", "--quiet", "--package", "marram-pmem", "--example", "figures"];
    let mut program = project::cargo(&words);
    if arguments.quick {
        program.args(["--", "--files", "1000,10000", "--snapshots", "500"]);
    }
    let figures = Figures::read(&text(&mut program)?)?;
    let mut header = machine()?;
    header.push(("command".to_owned(), "cargo xtask bench --workloads pmem".to_owned()));
    let page = figures.page(&header);
    println!("{page}");
    if !arguments.dry {
        let (json, plots) = (figures.json(&header)?, plot::draw(&figures.panels()));
        write_files(&arguments.name_or("pmem"), &page, &json, &plots)?;
    }
    figures.judge()
}

/// An operation of the figure: bytes stored, and what is flushed and fenced.
#[derive(Debug, PartialEq)]
struct Row {
    operation: String,
    thesis: u64,
    goal: u64,
    ours: u64,
    held: u64,
    lines: u64,
    fences: u64,
}

/// A figure of the engine, and the most that it may be.
#[derive(Debug, PartialEq)]
struct Engine {
    what: String,
    beside: String,
    figure: f64,
    unit: String,
    most: f64,
}

/// An operation in microseconds, in the library and by system calls.
#[derive(Debug, PartialEq)]
struct Beside {
    operation: String,
    ours: f64,
    tmpfs: f64,
}

#[derive(Debug, Default, PartialEq)]
struct Figures {
    rows: Vec<Row>,
    engine: Vec<Engine>,
    beside: Vec<Beside>,
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

impl Row {
    fn shown(&self) -> String {
        let Row { operation, thesis, goal, ours, held, lines, fences } = self;
        let verdict = match (ours > thesis, ours > goal) {
            (true, _) => "ABOVE THE THESIS",
            (false, is_missed) => verdict(!is_missed),
        };
        format!(
            "| {operation} | {thesis} | {goal} | {ours} | {held} | {lines} | {fences} | {verdict} |"
        )
    }
}

impl Engine {
    fn is_met(&self) -> bool {
        self.figure <= self.most
    }

    fn shown(&self) -> String {
        let (most, verdict) = match self.most.is_finite() {
            true => (self.most.to_string(), verdict(self.is_met())),
            false => (String::new(), ""),
        };
        let Engine { what, beside, figure, unit, .. } = self;
        format!("| {what} | {beside} | {figure:.2} {unit} | {most} | {verdict} |")
    }
}

impl Beside {
    fn is_met(&self) -> bool {
        match self.operation == OVERWRITE.0 {
            true => self.ours <= OVERWRITE.1,
            false => self.ours / self.tmpfs <= RATIO_MAX,
        }
    }

    fn shown(&self) -> String {
        let (ratio, verdict) = (self.ours / self.tmpfs, verdict(self.is_met()));
        let Beside { operation, ours, tmpfs } = self;
        format!("| {operation} | {ours:.2} | {tmpfs:.2} | {ratio:.2} | {verdict} |")
    }
}

impl Figures {
    /// Reads lines with tabs between their parts.
    fn read(said: &str) -> Result<Figures> {
        let float = |word: &str| word.parse::<f64>().context(|| format!("no number: {word}"));
        let count = |word: &str| word.parse::<u64>().context(|| format!("no number: {word}"));
        let mut figures = Figures::default();
        for line in said.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["row", operation, thesis, goal, ours, held, lines, fences] => {
                    figures.rows.push(Row {
                        operation: operation.to_owned(),
                        thesis: count(thesis)?,
                        goal: count(goal)?,
                        ours: count(ours)?,
                        held: count(held)?,
                        lines: count(lines)?,
                        fences: count(fences)?,
                    });
                }
                ["engine", what, beside, figure, unit, most] => figures.engine.push(Engine {
                    what: what.to_owned(),
                    beside: beside.to_owned(),
                    figure: float(figure)?,
                    unit: unit.to_owned(),
                    most: float(most)?,
                }),
                ["beside", operation, ours, tmpfs] => figures.beside.push(Beside {
                    operation: operation.to_owned(),
                    ours: float(ours)?,
                    tmpfs: float(tmpfs)?,
                }),
                _ => return fail(format!("not understood: {line}")),
            }
        }
        match figures.rows.len() {
            ROWS => Ok(figures),
            found => fail(format!("{found} rows, not {ROWS}")),
        }
    }

    /// Fails if a row is above the thesis.
    fn judge(&self) -> Result<()> {
        let above: Vec<&str> = self
            .rows
            .iter()
            .filter(|row| row.ours > row.thesis)
            .map(|row| row.operation.as_str())
            .collect();
        match above.is_empty() {
            true => Ok(()),
            false => fail(format!("above the thesis: {}", above.join(", "))),
        }
    }

    fn page(&self, header: &[(String, String)]) -> String {
        let mut page = String::from("# The pmem home in the library\n\n");
        let mut put = |line: &str| writeln!(page, "{line}").expect("a string takes all");
        for (name, value) in header {
            put(&format!("- {name}: {value}"));
        }
        put("\n## Figure 3.8 of the thesis\n");
        put("Bytes of store instructions; lines flushed and fences are of ours. Right after a \
             snapshot an operation copies the pages on its way, once.\n");
        put("| operation | thesis | goal | ours | after a snapshot | lines | fences | |");
        put("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |");
        self.rows.iter().for_each(|row| put(&row.shown()));
        put("\n## The engine\n");
        put("Medians of 101, on an image on tmpfs, where nothing has to be flushed.\n");
        put("| what | beside | | at most | |\n| --- | --- | ---: | ---: | --- |");
        self.engine.iter().for_each(|row| put(&row.shown()));
        put("\n## Beside system calls on tmpfs\n");
        put("Microseconds for each. At most half is the goal, and 0.5 us of an overwrite.\n");
        put("| operation | library, us | tmpfs, us | ratio | |");
        put("| --- | ---: | ---: | ---: | --- |");
        self.beside.iter().for_each(|row| put(&row.shown()));
        page
    }

    fn json(&self, header: &[(String, String)]) -> Result<String> {
        use serde_json::{Map, Value, json};
        let header: Map<String, Value> =
            header.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let row = |row: &Row| {
            json!({
                "operation": row.operation, "thesis": row.thesis, "goal": row.goal,
                "ours": row.ours, "after_snapshot": row.held, "lines": row.lines,
                "fences": row.fences,
            })
        };
        let engine = |row: &Engine| {
            let most = row.most.is_finite().then_some(row.most);
            json!({
                "what": row.what, "beside": row.beside, "figure": row.figure, "unit": row.unit,
                "most": most,
            })
        };
        let beside = |row: &Beside| {
            let (operation, ours, tmpfs) = (&row.operation, row.ours, row.tmpfs);
            json!({ "operation": operation, "library_us": ours, "tmpfs_us": tmpfs })
        };
        let all = json!({
            "run": header,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "engine": self.engine.iter().map(engine).collect::<Vec<_>>(),
            "beside": self.beside.iter().map(beside).collect::<Vec<_>>(),
        });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }

    /// A panel an operation.
    fn panels(&self) -> Vec<Panel> {
        let bar =
            |name, is_ours, us: f64| Bar { name, is_ours, value: Some((us, format!("{us:.2}"))) };
        let panel = |row: &Beside| Panel {
            title: format!("{}, us", row.operation),
            bars: vec![bar("library", true, row.ours), bar("tmpfs", false, row.tmpfs)],
        };
        self.beside.iter().map(panel).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ours: u64) -> String {
        let row = format!("row\tappend\t28\t28\t{ours}\t4132\t4\t3\n").repeat(ROWS);
        let engine = "engine\tsnapshot\t1000 files\t21.50\tus\t20\nengine\topen\tall\t5\tms\tinf\n";
        row + engine + "beside\tcreate\t2.000\t9.000\nbeside\t8 B overwrite\t0.600\t2.000\n"
    }

    #[test]
    fn goals_that_are_missed_are_said_and_rows_above_the_thesis_fail() {
        let met = Figures::read(&said(28)).expect("all parts are there");
        assert!(met.judge().is_ok());
        let page = met.page(&[]);
        for line in [
            "| append | 28 | 28 | 28 | 4132 | 4 | 3 | met |",
            "| snapshot | 1000 files | 21.50 us | 20 | MISSED |",
            "| open | all | 5.00 ms |  |  |",
            "| create | 2.00 | 9.00 | 0.22 | met |",
            "| 8 B overwrite | 0.60 | 2.00 | 0.30 | MISSED |",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line}\n{page}");
        }
        let above = Figures::read(&said(29)).expect("all parts are there");
        assert!(above.judge().is_err() && above.page(&[]).contains("ABOVE THE THESIS"));
    }

    #[test]
    fn a_program_that_tells_less_has_failed() {
        assert!(Figures::read("row\tappend\t28\t28\t28\t4132\t4\t3\n").is_err());
        assert!(Figures::read(&said(28).replace("9.000", "fast")).is_err());
        assert!(Figures::read(&(said(28) + "more\n")).is_err());
    }
}
