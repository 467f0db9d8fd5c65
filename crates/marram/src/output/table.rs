//! Tables without lines around them, as `zfs list` prints them.

use crate::names::printable;

/// To which side a column leans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a header.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    header: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(header: &[(&'static str, Align)]) -> Table {
        Table { header: header.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with as many cells as there are columns. What would end a row or a cell, or
    /// moves the cursor, becomes an escape.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.header.len(), "a row fills its columns");
        self.rows.push(cells.into_iter().map(printable).collect());
    }

    /// The table for people, in columns; bold header with `colour`.
    pub(crate) fn columns(&self, colour: bool) -> String {
        let widths: Vec<usize> = (0..self.header.len()).map(|at| self.width(at)).collect();
        let titles: Vec<String> = self.header.iter().map(|(name, _)| (*name).into()).collect();
        let header = self.line(&titles, &widths);
        let mut text =
            if colour { format!("\x1b[1m{header}\x1b[0m\n") } else { format!("{header}\n") };
        for row in &self.rows {
            text.push_str(&self.line(row, &widths));
            text.push('\n');
        }
        text
    }

    /// The rows for scripts: cells with tabs between them, no header.
    pub(crate) fn tab_separated(&self) -> String {
        self.rows.iter().map(|row| row.join("\t") + "\n").collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(self.header[column].0.len())
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let columns = cells.iter().zip(&self.header).zip(widths);
        let padded: Vec<String> = columns
            .map(|((cell, (_, align)), width)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        padded.join("  ").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Align, Table};

    #[test]
    fn columns_line_up_and_scripts_get_tabs() {
        let mut table = Table::new(&[("NAME", Align::Left), ("USED", Align::Right)]);
        table.row(vec!["root".into(), "1.00K".into()]);
        table.row(vec!["root@before".into(), "0B".into()]);
        let text = "NAME          USED\nroot         1.00K\nroot@before     0B\n";
        assert_eq!(table.columns(false), text);
        assert_eq!(table.tab_separated(), "root\t1.00K\nroot@before\t0B\n");
        assert!(table.columns(true).starts_with("\x1b[1mNAME"));
    }

    #[test]
    fn what_is_in_a_cell_stays_in_it() {
        let mut table = Table::new(&[("NAME", Align::Left), ("USED", Align::Right)]);
        table.row(vec!["a\tb\nc\x1b[2K".into(), "0B".into()]);
        assert_eq!(table.tab_separated(), "a\\tb\\nc\\033[2K\t0B\n");
    }
}
