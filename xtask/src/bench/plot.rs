//! Bars in panels, drawn as SVG by hand.

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

/// One comparison.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) bars: Vec<Bar>,
}

/// One subject in it.
pub(super) struct Bar {
    pub(super) name: &'static str,
    pub(super) is_ours: bool,
    /// How long the bar is, and what stands at its end.
    pub(super) value: Option<(f64, String)>,
}

/// The whole plot.
pub(super) fn draw(panels: &[Panel]) -> String {
    let bars = panels.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
    let panel_height = TITLE_HEIGHT + bars * BAR_HEIGHT;
    let rows = panels.len().div_ceil(COLUMNS);
    let width = COLUMNS * (PANEL_WIDTH + GAP) + GAP;
    let height = rows * (panel_height + GAP) + GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (index, panel) in panels.iter().enumerate() {
        let x = GAP + index % COLUMNS * (PANEL_WIDTH + GAP);
        let y = GAP + index / COLUMNS * (panel_height + GAP);
        draw_panel(&mut svg, (x, y), panel);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, (x, y): (usize, usize), panel: &Panel) {
    let title = escape(&panel.title);
    let base = y + TITLE_HEIGHT / 2;
    add(svg, format_args!("<text x=\"{x}\" y=\"{base}\" font-weight=\"bold\">{title}</text>\n"));
    let values = panel.bars.iter().filter_map(|bar| bar.value.as_ref());
    let most = values.map(|(value, _)| *value).fold(f64::MIN_POSITIVE, f64::max);
    for (row, bar) in panel.bars.iter().enumerate() {
        draw_bar(svg, (x, y + TITLE_HEIGHT + row * BAR_HEIGHT), bar, most);
    }
}

fn draw_bar(svg: &mut String, (x, y): (usize, usize), bar: &Bar, most: f64) {
    let base = y + BAR_HEIGHT - 5;
    add(svg, format_args!("<text x=\"{x}\" y=\"{base}\">{}</text>\n", escape(bar.name)));
    let left = x + NAME_WIDTH;
    let Some((value, shown)) = &bar.value else {
        return add(svg, format_args!("<text x=\"{left}\" y=\"{base}\" fill=\"gray\">-</text>\n"));
    };
    let room = (PANEL_WIDTH - NAME_WIDTH - VALUE_WIDTH) as f64;
    let length = (value / most * room).max(1.0);
    let colour = if bar.is_ours { OURS } else { PEER };
    let (top, height) = (y + 2, BAR_HEIGHT - 5);
    add(
        svg,
        format_args!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{length:.1}\" height=\"{height}\" \
             fill=\"{colour}\"/>\n"
        ),
    );
    let end = left as f64 + length + 6.0;
    add(svg, format_args!("<text x=\"{end:.1}\" y=\"{base}\">{}</text>\n", escape(shown)));
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
        let bar = |name, value: Option<f64>| Bar {
            name,
            is_ours: name == "ours",
            value: value.map(|value| (value, format!("{value} s"))),
        };
        let bars = vec![bar("ours", Some(5.0)), bar("theirs", Some(10.0)), bar("none", None)];
        let svg = draw(&[Panel { title: "unpack".to_owned(), bars }]);
        assert!(svg.contains("width=\"134.0\"") && svg.contains("width=\"268.0\""), "{svg}");
        assert!(svg.contains(">-</text>"), "{svg}");
    }
}
