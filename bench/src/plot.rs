//! Bars in panels.

use marram_lab::svg::{OURS, PEERS, add, escape, plots};

const PANEL_WIDTH: usize = 460;
const BAR_HEIGHT: usize = 18;
const NAME_WIDTH: usize = 96;
const VALUE_WIDTH: usize = 96;
const TITLE_HEIGHT: usize = 30;

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
    let size = (PANEL_WIDTH as f64, (TITLE_HEIGHT + bars * BAR_HEIGHT) as f64);
    plots(panels.len(), size, 12, &|svg, index| draw_panel(svg, &panels[index]))
}

fn draw_panel(svg: &mut String, panel: &Panel) {
    let title = escape(&panel.title);
    let base = TITLE_HEIGHT / 2;
    add(svg, format_args!("<text y=\"{base}\" font-weight=\"bold\">{title}</text>\n"));
    let values = panel.bars.iter().filter_map(|bar| bar.value.as_ref());
    let most = values.map(|(value, _)| *value).fold(f64::MIN_POSITIVE, f64::max);
    for (row, bar) in panel.bars.iter().enumerate() {
        draw_bar(svg, TITLE_HEIGHT + row * BAR_HEIGHT, bar, most);
    }
}

fn draw_bar(svg: &mut String, y: usize, bar: &Bar, most: f64) {
    let base = y + BAR_HEIGHT - 5;
    add(svg, format_args!("<text y=\"{base}\">{}</text>\n", escape(bar.name)));
    let left = NAME_WIDTH;
    let Some((value, shown)) = &bar.value else {
        return add(svg, format_args!("<text x=\"{left}\" y=\"{base}\" fill=\"gray\">-</text>\n"));
    };
    let room = (PANEL_WIDTH - NAME_WIDTH - VALUE_WIDTH) as f64;
    let length = (value / most * room).max(1.0);
    let colour = if bar.is_ours { OURS } else { PEERS[0] };
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
