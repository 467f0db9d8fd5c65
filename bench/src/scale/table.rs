//! What was measured, as a page, as data, and as curves.

use super::super::contender::{Measured, Way};
use super::super::curves::{Curve, Plot};
use super::asking::Operation;
use marram_lab::failure::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// All of it.
#[derive(Default)]
pub(super) struct Table {
    cells: BTreeMap<(Operation, Way, u64), Measured>,
    /// Bytes that a second tree takes until it is written to.
    taken: BTreeMap<(Way, u64), u64>,
    /// Lines of a table of their own: what, by which way.
    large: Vec<(&'static str, Way, Measured)>,
    pub(super) failures: Vec<String>,
}

const LEGEND: &str = "\
Milliseconds of the whole command, as a user would type it, the median of up to 11 within three \
seconds; in brackets those of the engine alone, where it tells. Each file system is on a loop \
device with direct I/O, its caches warm. One file of eight has content. What has no number has no \
means for it, or was not asked: copies of trees of more than 200,000 files, worktrees of more than \
20,000. `cp --reflink` compares and brings back by rsync, which looks at sizes and times; zfs-fuse \
and Btrfs tell what differs by an incremental stream. Of all of these only marram and git check \
what they bring back for conflicts, and only marram does it as one step. What is written to the \
device is counted until a sync after the last of the rounds came back, and divided by them; what \
a sync itself writes is in it.\n";
/// Titles of what is reported in bytes.
const TAKEN: &str = "a second tree until it is written to, KiB that it takes";
const WRITTEN: &str = "KiB written to the device";

impl Table {
    pub(super) fn add(&mut self, way: Way, files: u64, operation: Operation, measured: Measured) {
        self.cells.insert((operation, way, files), measured);
    }

    /// What a second tree takes until it is written to.
    pub(super) fn add_taken(&mut self, way: Way, files: u64, bytes: u64) {
        self.taken.insert((way, files), bytes);
    }

    pub(super) fn add_large(&mut self, what: &'static str, way: Way, measured: Measured) {
        println!("  {what}: {:.2} ms", milliseconds(measured.command));
        self.large.push((what, way, measured));
    }

    fn sizes(&self) -> Vec<u64> {
        let sizes: std::collections::BTreeSet<u64> =
            self.cells.keys().map(|(_, _, files)| *files).collect();
        sizes.into_iter().collect()
    }

    /// The report in Markdown.
    pub(super) fn page(&self, header: &[(String, String)]) -> String {
        let mut page = String::from("# Fork, diff and merge as a tree grows\n\n");
        for (name, value) in header {
            add(&mut page, format_args!("- {name}: {value}\n"));
        }
        if !self.failures.is_empty() {
            page.push_str("\n## Failures\n\n");
        }
        for failure in &self.failures {
            add(&mut page, format_args!("- {}\n", failure.lines().next().unwrap_or_default()));
        }
        add(&mut page, format_args!("\n{LEGEND}"));
        for operation in Operation::ALL {
            self.section(&mut page, operation);
        }
        self.bytes(&mut page);
        self.large_file(&mut page);
        page
    }

    fn section(&self, page: &mut String, operation: Operation) {
        self.grid(page, &operation.title(), |way, files| {
            self.cells.get(&(operation, way, files)).map(Self::times)
        });
    }

    fn times(measured: &Measured) -> String {
        let command = figure(milliseconds(measured.command));
        match measured.engine {
            Some(engine) => format!("{command} ({})", figure(milliseconds(engine))),
            None => command,
        }
    }

    fn bytes(&self, page: &mut String) {
        self.grid(page, TAKEN, |way, files| Some(kibibytes(*self.taken.get(&(way, files))?)));
        for operation in Operation::ALL {
            let title = format!("{}: {WRITTEN}", operation.title());
            self.grid(page, &title, |way, files| {
                self.cells.get(&(operation, way, files))?.written_bytes.map(kibibytes)
            });
        }
    }

    /// A row a way, a column a size.
    fn grid(&self, page: &mut String, title: &str, cell: impl Fn(Way, u64) -> Option<String>) {
        let sizes = self.sizes();
        let row = |way: Way| -> Vec<Option<String>> {
            sizes.iter().map(|files| cell(way, *files)).collect()
        };
        let rows: Vec<(Way, Vec<Option<String>>)> = Way::ALL
            .into_iter()
            .map(|way| (way, row(way)))
            .filter(|(_, cells)| cells.iter().any(Option::is_some))
            .collect();
        if rows.is_empty() {
            return;
        }
        add(page, format_args!("\n## {title}\n\n| files |"));
        sizes.iter().for_each(|files| add(page, format_args!(" {files} |")));
        add(page, format_args!("\n| --- |{}\n", " ---: |".repeat(sizes.len())));
        for (way, cells) in rows {
            let cells: Vec<String> =
                cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned())).collect();
            add(page, format_args!("| {} | {} |\n", way.name(), cells.join(" | ")));
        }
    }

    fn large_file(&self, page: &mut String) {
        if self.large.is_empty() {
            return;
        }
        page.push_str("\n## 4 KiB changed in one large file\n\n");
        page.push_str("| | way | ms (engine) | bytes reported |\n| --- | --- | ---: | ---: |\n");
        for (what, way, measured) in &self.large {
            let bytes = measured.bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
            let times = Self::times(measured);
            add(page, format_args!("| {what} | {} | {times} | {bytes} |\n", way.name()));
        }
    }

    /// Of each operation its time over the size of the tree, and beside it what it has written.
    pub(super) fn plots(&self) -> Vec<Plot> {
        let of = |operation: Operation| {
            let title = operation.title();
            let cell = move |way, files| self.cells.get(&(operation, way, files));
            let time = self.plot(format!("{title}, ms"), |way, files| {
                Some(milliseconds(cell(way, files)?.command))
            });
            let bytes = self.plot(format!("{title}: {WRITTEN}"), |way, files| {
                cell(way, files)?.written_bytes.map(drawn)
            });
            [time, bytes]
        };
        let taken = |way, files| self.taken.get(&(way, files)).copied().map(drawn);
        let mut plots: Vec<Plot> = Operation::ALL.into_iter().flat_map(of).collect();
        plots.push(self.plot(TAKEN.to_owned(), taken));
        plots.retain(|plot| !plot.curves.is_empty());
        plots
    }

    fn plot(&self, title: String, value: impl Fn(Way, u64) -> Option<f64>) -> Plot {
        let sizes = self.sizes();
        let curve = |way: Way| {
            let point = |files: &u64| Some((*files as f64, value(way, *files)?));
            let points = sizes.iter().filter_map(point).collect();
            Curve { name: way.name(), is_ours: way == Way::Marram, points }
        };
        let curves = Way::ALL.into_iter().map(curve).filter(|curve| !curve.points.is_empty());
        Plot { title: format!("{title}, over files"), curves: curves.collect() }
    }

    /// All numbers, for other programs.
    pub(super) fn json(&self) -> Result<String> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cells = self.cells.iter().map(|((operation, way, files), measured)| {
            json!({
                "operation": operation.title(),
                "way": way.name(),
                "files": files,
                "command_nanoseconds": nanoseconds(measured.command),
                "engine_nanoseconds": measured.engine.map(nanoseconds),
                "written_bytes": measured.written_bytes,
            })
        });
        let taken = self.taken.iter().map(
            |((way, files), bytes)| json!({ "way": way.name(), "files": files, "bytes": bytes }),
        );
        let large = self.large.iter().map(|(what, way, measured)| {
            json!({
                "operation": what,
                "way": way.name(),
                "command_nanoseconds": nanoseconds(measured.command),
                "engine_nanoseconds": measured.engine.map(nanoseconds),
                "bytes": measured.bytes,
            })
        });
        let all = json!({
            "trees": cells.collect::<Vec<_>>(),
            "taken_by_a_second_tree": taken.collect::<Vec<_>>(),
            "large_file": large.collect::<Vec<_>>(),
            "failures": self.failures,
        });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn kibibytes(bytes: u64) -> String {
    figure(bytes as f64 / 1024.0)
}

/// KiB as they are drawn: nothing has no place on an axis of logarithms, and stands at 100 bytes.
fn drawn(bytes: u64) -> f64 {
    bytes.max(100) as f64 / 1024.0
}

/// Three digits that count.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn add(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words).expect("a string takes all that is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_dash_where_a_way_was_not_asked() {
        let mut table = Table::default();
        let took = Measured::command(Duration::from_millis(7));
        table.add(Way::Marram, 10, Operation::Fork, took);
        table.add(Way::Marram, 100, Operation::Fork, took);
        table.add(Way::Overlay, 10, Operation::Fork, took);
        let page = table.page(&[]);
        assert!(page.contains("| marram | 7.00 | 7.00 |"), "{page}");
        assert!(page.contains("| overlayfs | 7.00 | - |"), "{page}");
        assert!(!page.contains("git worktree |"), "{page}");
        let plots = table.plots();
        assert_eq!(plots.len(), 1, "of what was not asked nothing is drawn");
        assert_eq!(plots[0].curves.len(), 2);
    }

    #[test]
    fn bytes_are_told_and_drawn_beside_times() {
        let mut table = Table::default();
        let took = Measured::command(Duration::from_millis(7));
        let took = Measured { written_bytes: Some(12 << 10), ..took };
        table.add(Way::Marram, 10, Operation::Fork, took);
        table.add_taken(Way::Marram, 10, 0);
        let page = table.page(&[]);
        assert!(page.contains(&format!("{WRITTEN}\n\n| files | 10 |")), "{page}");
        assert!(page.contains("| marram | 12.0 |"), "{page}");
        assert!(page.contains(&format!("## {TAKEN}")), "{page}");
        let titles: Vec<String> = table.plots().into_iter().map(|plot| plot.title).collect();
        assert_eq!(titles.len(), 3, "{titles:?}");
        assert!(titles[0].contains("ms") && titles[1].contains(WRITTEN), "{titles:?}");
    }
}
