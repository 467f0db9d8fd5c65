//! `cargo xtask bench --workloads kabi`: what a snapshot of a file takes after a range was
//! overwritten or inserted, as in tables 5.2 to 5.4 of the thesis Kabi, beside its figures and
//! beside other ways of finding what is the same.
//!
//! The program is an example of the crate `cluster`; this runs the peers, and holds the figures
//! against the bars. What is above a bar is printed as a loss, and none is a failure of the run.

mod peers;
mod thesis;

use super::plot::{Bar, Panel};
use super::{Arguments, machine, plot, work_folder, write_files};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::text;
use marram_lab::{project, setup};
use peers::Peers;
use serde_json::json;
use std::fmt::Write;
use thesis::{Printed, TABLES};

/// Rounds of a row.
const ROUNDS: usize = 10_000;
/// The same when quick.
const ROUNDS_QUICK: usize = 60;
/// By how much the figures of table 5.4 may differ.
const FLAT: f64 = 0.03;

/// A row: parts of the file's size.
#[derive(Debug, PartialEq)]
struct Row {
    printed: &'static Printed,
    /// What is new.
    new: f64,
    overwrite: f64,
    /// In place, anew, renamed.
    inserts: [f64; 3],
    /// Of all four, with all rows of the database.
    in_rows: [f64; 4],
    peers: Option<Peers>,
}

/// Builds and runs it, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    setup::install(&setup::DELTA_PACKAGES)?;
    let rounds = match (arguments.repetitions, arguments.quick) {
        (Some(rounds), _) => rounds,
        (None, true) => ROUNDS_QUICK,
        (None, false) => ROUNDS,
    };
    let mut program = project::example("marram-cluster", "kabi", "release");
    program.args(["--rounds", &rounds.to_string()]);
    let mut rows = rows(&text(&mut program)?)?;
    let folder = tempfile::Builder::new().prefix("kabi").tempdir_in(work_folder(arguments)?)?;
    for row in &mut rows {
        row.peers = Some(peers::measure(folder.path(), row.printed.blocks, rounds)?);
        super::interruption::check()?;
    }
    let mut header = machine()?;
    header.push(("rounds of a row".to_owned(), rounds.to_string()));
    let page = page(&header, &rows);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    write_files(
        &arguments.name_or("kabi"),
        &page,
        &json(&header, &rows)?,
        &plot::draw(&panels(&rows)),
    )
}

/// Lines with tabs between their parts.
fn rows(said: &str) -> Result<Vec<Row>> {
    let number = |word: &&str| word.parse::<f64>().context(|| format!("no number: {word}"));
    let mut rows = Vec::new();
    for (line, printed) in said.lines().zip(&TABLES) {
        let ["row", table, parts @ ..] = &line.split('\t').collect::<Vec<_>>()[..] else {
            return fail(format!("not understood: {line}"));
        };
        let parts: Vec<f64> = parts.iter().map(number).collect::<Result<_>>()?;
        let [blocks, truncated, new, overwrite, a, b, c, rows_a, rows_b, rows_c, rows_d] =
            parts[..]
        else {
            return fail(format!("not understood: {line}"));
        };
        let is_it =
            *table == printed.table && blocks == printed.blocks && truncated == printed.truncated;
        if !is_it {
            return fail(format!("another row: {line}"));
        }
        let (inserts, in_rows) = ([a, b, c], [rows_a, rows_b, rows_c, rows_d]);
        rows.push(Row { printed, new, overwrite, inserts, in_rows, peers: None });
    }
    match rows.len() == TABLES.len() {
        true => Ok(rows),
        false => fail(format!("{} rows, not {}", rows.len(), TABLES.len())),
    }
}

fn judged(figure: f64, most: f64) -> String {
    match figure <= most {
        true => format!("{figure:.4}"),
        false => format!("**{figure:.4} LOST**"),
    }
}

impl Row {
    fn shown(&self) -> [String; 2] {
        let Printed { table, blocks, truncated, .. } = self.printed;
        let (overwrite, insert) = (&self.printed.overwrite, &self.printed.insert);
        let ours = judged(self.overwrite, overwrite.most());
        let ways = self.inserts.map(|figure| judged(figure, insert.most()));
        let [cdc, rdiff, xdelta] = match &self.peers {
            None => ["", "", ""].map(String::from),
            Some(peers) => peers.shown(),
        };
        let case = format!("| {table} | {blocks} | {truncated:.2} | {:.4} |", self.new);
        let rows = self.in_rows.map(|part| format!("{part:.4}"));
        [
            format!(
                "{case} {:.4} | {:.4} | {:.4} | {ours} | {} |",
                overwrite.classic,
                overwrite.kabi,
                overwrite.most(),
                rows[0]
            ),
            format!(
                "{case} {:.4} | {:.4} | {:.4} | {} | {} | {cdc} | {rdiff} | {xdelta} |",
                insert.classic,
                insert.kabi,
                insert.most(),
                ways.join(" | "),
                rows[1..].join(" | ")
            ),
        ]
    }
}

/// By how much the figures of table 5.4 differ, of each way.
fn spreads(rows: &[Row]) -> [(&'static str, f64); 4] {
    let spread = |figure: &dyn Fn(&Row) -> f64| {
        let figures = rows.iter().filter(|row| row.printed.table == "5.4").map(figure);
        let (least, most) = figures.fold((f64::MAX, f64::MIN), |(least, most), figure| {
            (least.min(figure), most.max(figure))
        });
        most - least
    };
    [
        ("overwrite", spread(&|row| row.overwrite)),
        ("insert in place", spread(&|row| row.inserts[0])),
        ("insert, written anew", spread(&|row| row.inserts[1])),
        ("insert, renamed over", spread(&|row| row.inserts[2])),
    ]
}

fn page(header: &[(String, String)], rows: &[Row]) -> String {
    let mut page =
        String::from("# What a snapshot takes: tables 5.2 to 5.4 of the thesis Kabi\n\n");
    let mut put = |line: &str| writeln!(page, "{line}").expect("a string takes all");
    for (name, value) in header {
        put(&format!("- {name}: {value}"));
    }
    put(
        "\nAll figures are parts of the file's size. Blocks have 4 KiB, and files have as many of \
         them as in the thesis, where blocks have 128 bytes. Offset and length of what is written \
         are uniform, so a quarter of the file is new: that is the floor, without any metadata.\n",
    );
    put("A snapshot takes its new blocks with their ids, and its new sections with the ids of \
         their blocks. Whole-block copy and Kabi are as printed in the thesis. \"All rows\" counts \
         what the database grows by: keys, indexes, seals, and what keeps the state before \
         readable.\n");
    put(
        "The bar is Kabi's figure, and at most 0.30; where Kabi's lies at the floor it is 0.265.\n",
    );
    put("## Overwritten\n");
    put("| table | blocks | truncated | new | whole blocks | Kabi | bar | Marram | all rows |");
    put("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    rows.iter().for_each(|row| put(&row.shown()[0]));
    put("\n## Inserted\n");
    put(
        "In three ways: the tail is written anew in place, the file is cut and written anew, a new \
         file is renamed over it. Peers: blocks by `fastcdc` of the same mean with their ids, and \
         the deltas of `rdiff` (without its signature) and `xdelta3`, which need the old file.\n",
    );
    put("| table | blocks | truncated | new | whole blocks | Kabi | bar | in place | anew | \
         renamed | all rows: in place | anew | renamed | fastcdc | rdiff | xdelta3 |");
    put(&format!("|{}", " ---: |".repeat(16)));
    rows.iter().for_each(|row| put(&row.shown()[1]));
    put("\n## Beside more truncated sections\n");
    put("| table 5.4 | most less least | at most | |\n| --- | ---: | ---: | --- |");
    for (what, spread) in spreads(rows) {
        let word = if spread <= FLAT { "met" } else { "LOST" };
        put(&format!("| {what} | {spread:.4} | {FLAT} | {word} |"));
    }
    page
}

fn json(header: &[(String, String)], rows: &[Row]) -> Result<String> {
    let header: serde_json::Map<String, serde_json::Value> =
        header.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let row = |row: &Row| {
        let Printed { table, blocks, truncated, overwrite, insert } = row.printed;
        json!({
            "table": table, "blocks": blocks, "truncated": truncated, "new": row.new,
            "overwrite": { "classic": overwrite.classic, "kabi": overwrite.kabi,
                "marram": row.overwrite, "all_rows": row.in_rows[0] },
            "insert": { "classic": insert.classic, "kabi": insert.kabi, "in_place": row.inserts[0],
                "anew": row.inserts[1], "renamed": row.inserts[2], "all_rows": row.in_rows[1..],
                "peers": row.peers.as_ref().map(Peers::json) },
        })
    };
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    Ok(serde_json::to_string_pretty(&json!({ "run": header, "rows": rows }))? + "\n")
}

/// A panel a row.
fn panels(rows: &[Row]) -> Vec<Panel> {
    let bar =
        |name, is_ours, part: f64| Bar { name, is_ours, value: Some((part, format!("{part:.3}"))) };
    let panel = |row: &Row| Panel {
        title: format!(
            "{}: insert, {} blocks, {:.2} cut",
            row.printed.table, row.printed.blocks, row.printed.truncated
        ),
        bars: vec![
            bar("whole blocks", false, row.printed.insert.classic),
            bar("Kabi", false, row.printed.insert.kabi),
            bar("in place", true, row.inserts[0]),
            bar("anew", true, row.inserts[1]),
            bar("renamed", true, row.inserts[2]),
        ],
    };
    rows.iter().map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(first: &str) -> String {
        let line = |printed: &Printed| {
            let Printed { table, blocks, truncated, .. } = printed;
            let parts = format!("0.25\t{first}\t0.26\t0.262\t0.31\t0.3\t0.3\t0.3\t0.3");
            format!("row\t{table}\t{blocks}\t{truncated}\t{parts}\n")
        };
        TABLES.iter().map(line).collect()
    }

    #[test]
    fn what_is_above_its_bar_is_a_loss() {
        let rows = rows(&said("0.2600")).expect("all rows");
        let [overwrite, insert] = rows[0].shown();
        assert_eq!(
            overwrite,
            "| 5.2 | 98.5 | 0.03 | 0.2500 | 0.2608 | 0.2690 | 0.2690 | 0.2600 | 0.3000 |"
        );
        assert!(insert.contains("| 0.2650 | 0.2600 | 0.2620 | **0.3100 LOST** |"), "{insert}");
        assert!(page(&[], &rows).contains("| overwrite | 0.0000 | 0.03 | met |"));
    }

    #[test]
    fn a_program_that_tells_less_has_failed() {
        assert!(rows("").is_err());
        assert!(rows(&said("much")).is_err());
        assert!(rows(&said("0.26").replace("5.4", "5.5")).is_err());
    }
}
