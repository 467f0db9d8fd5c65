//! The medians as a plot: a panel a measure, a bar a subject, drawn as SVG by hand.

use super::sample::{Measure, Samples};
use crate::subject::Kind;
use std::fmt::Write;

const COLUMNS: usize = 2;
const PANEL_WIDTH: usize = 460;
const BAR_HEIGHT: usize = 18;
const NAME_WIDTH: usize = 96;
const VALUE_WIDTH: usize = 96;
const TITLE_HEIGHT: usize = 30;
const GAP: usize = 24;

/// Colours that people with the usual kinds of colour blindness tell apart (Okabe, Ito 2008).
const OURS: &str = "#D55E00";
const PEER: &str = "#56B4E9";

/// The whole plot.
pub(super) fn draw(kinds: &[Kind], samples: &Samples) -> String {
    let panel_height = TITLE_HEIGHT + kinds.len() * BAR_HEIGHT;
    let rows = Measure::ALL.len().div_ceil(COLUMNS);
    let width = COLUMNS * (PANEL_WIDTH + GAP) + GAP;
    let height = rows * (panel_height + GAP) + GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (index, measure) in Measure::ALL.into_iter().enumerate() {
        let x = GAP + index % COLUMNS * (PANEL_WIDTH + GAP);
        let y = GAP + index / COLUMNS * (panel_height + GAP);
        panel(&mut svg, (x, y), kinds, samples, measure);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(
    svg: &mut String,
    (x, y): (usize, usize),
    kinds: &[Kind],
    samples: &Samples,
    measure: Measure,
) {
    let better = if measure.more_is_better() { "more is better" } else { "less is better" };
    let title = escape(&format!("{} ({better})", measure.title()));
    let base = y + TITLE_HEIGHT / 2;
    add(svg, format_args!("<text x=\"{x}\" y=\"{base}\" font-weight=\"bold\">{title}</text>\n"));
    let medians: Vec<Option<f64>> = kinds
        .iter()
        .map(|kind| samples.spread(*kind, measure).map(|spread| spread.median))
        .collect();
    let most = medians.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    for (row, (kind, median)) in kinds.iter().zip(medians).enumerate() {
        let top = y + TITLE_HEIGHT + row * BAR_HEIGHT;
        bar(svg, (x, top), *kind, measure, median, most);
    }
}

fn bar(
    svg: &mut String,
    (x, y): (usize, usize),
    kind: Kind,
    measure: Measure,
    median: Option<f64>,
    most: f64,
) {
    let base = y + BAR_HEIGHT - 5;
    add(svg, format_args!("<text x=\"{x}\" y=\"{base}\">{}</text>\n", escape(kind.name())));
    let left = x + NAME_WIDTH;
    let Some(median) = median else {
        return add(svg, format_args!("<text x=\"{left}\" y=\"{base}\" fill=\"gray\">-</text>\n"));
    };
    let room = (PANEL_WIDTH - NAME_WIDTH - VALUE_WIDTH) as f64;
    let length = (median / most * room).max(1.0);
    let colour = if kind == Kind::Marram { OURS } else { PEER };
    let (top, height) = (y + 2, BAR_HEIGHT - 5);
    add(
        svg,
        format_args!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{length:.1}\" height=\"{height}\" \
             fill=\"{colour}\"/>\n"
        ),
    );
    let end = left as f64 + length + 6.0;
    let value = escape(&measure.shown(median));
    add(svg, format_args!("<text x=\"{end:.1}\" y=\"{base}\">{value}</text>\n"));
}

fn add(svg: &mut String, words: std::fmt::Arguments<'_>) {
    svg.write_fmt(words).expect("a string takes all that is written");
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_value_and_a_missing_one_is_a_dash() {
        let mut samples = Samples::default();
        samples.add(Kind::Marram, Measure::Unpack, 5.0);
        samples.add(Kind::Ext4, Measure::Unpack, 10.0);
        let svg = draw(&[Kind::Marram, Kind::Ext4, Kind::Xfs], &samples);
        assert!(svg.contains("width=\"134.0\"") && svg.contains("width=\"268.0\""), "{svg}");
        assert!(svg.contains(">-</text>"), "{svg}");
    }
}
