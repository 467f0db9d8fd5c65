//! `cargo xtask picture [EXAMPLE]...`: the terminal pictures of the documents, recorded from runs
//! of the examples; `examples/day-in-the-life` on the whole Linux tree.

use crate::examples;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::project;
use marram_lab::svg::escape;
use std::fmt::Write;
use std::path::Path;

/// Runs an example in a folder; what it prints.
type Tell = fn(&Path) -> Result<String>;

/// The examples that are drawn, by name.
const EXAMPLES: [(&str, Tell); 4] = [
    ("let-it-loose", examples::tell_loose),
    ("all-or-nothing", examples::tell_nothing),
    ("twenty-clones", examples::tell_clones),
    ("day-in-the-life", |folder| examples::tell(folder, false)),
];

const COLUMNS: usize = 100;
const COLUMN_WIDTH: usize = 8;
const LINE_HEIGHT: usize = 17;
const MARGIN: usize = 16;
const PAPER: &str = "#1c1f24";
const INK: &str = "#d7dae0";
const COMMAND_INK: &str = "#e5b567";
const TIME_INK: &str = "#7f8c98";

/// Runs the named examples, or all, and draws what they print.
pub(crate) fn record(wanted: &[String]) -> Result<()> {
    let is_known = |name: &&String| EXAMPLES.iter().any(|(example, _)| example == *name);
    if let Some(unknown) = wanted.iter().find(|name| !is_known(name)) {
        let names = EXAMPLES.map(|(name, _)| name).join(", ");
        return fail(format!("no example `{unknown}` is drawn; there are {names}"));
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    for (name, tell) in EXAMPLES.into_iter().filter(|(name, _)| is_wanted(name)) {
        let folder = tempfile::tempdir_in(project::target())?;
        let told = tell(folder.path())?;
        let picture = project::root().join("docs").join(name).with_extension("svg");
        std::fs::write(&picture, draw(&told)).context(|| picture.display())?;
        println!("{told}\n\nwritten to {}", picture.display());
    }
    Ok(())
}

fn draw(told: &str) -> String {
    let width = COLUMNS * COLUMN_WIDTH + 2 * MARGIN;
    let height = (told.lines().count() + 1) * LINE_HEIGHT + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{PAPER}\"/>\n"
    );
    for (number, line) in told.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let y = MARGIN + (number + 1) * LINE_HEIGHT;
        let text = escape(&line.chars().take(COLUMNS).collect::<String>());
        let ink = ink(line);
        let _infallible = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{ink}\" xml:space=\"preserve\">{text}</text>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn ink(line: &str) -> &'static str {
    if line.starts_with("$ ") {
        COMMAND_INK
    } else if line.starts_with("  (") {
        TIME_INK
    } else {
        INK
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMAND_INK, draw};

    #[test]
    fn each_line_is_drawn_and_nothing_in_it_is_markup() {
        let svg = draw("$ ls <tree>\n\na & b");
        assert!(svg.contains("$ ls &lt;tree&gt;</text>") && svg.contains("a &amp; b</text>"));
        assert_eq!(svg.matches("<text").count(), 2);
        assert_eq!(svg.matches(COMMAND_INK).count(), 1);
    }
}
