//! Drawing by hand, as SVG.

use std::fmt::Write;

/// Plots beside each other.
const COLUMNS: usize = 2;
/// Between plots, and around them.
const GAP: f64 = 24.0;

/// Our own colour. All stay apart with the usual kinds of colour blindness (Okabe, Ito 2008).
pub const OURS: &str = "#D55E00";
/// The colours of peers, in their order.
pub const PEERS: [&str; 6] = ["#56B4E9", "#009E73", "#0072B2", "#CC79A7", "#E69F00", "#666666"];

/// A picture of plots that are all of one size. Each is drawn from its own corner.
pub fn plots(
    count: usize,
    (width, height): (f64, f64),
    font_size: u32,
    draw: &dyn Fn(&mut String, usize),
) -> String {
    let all = |count: usize, size: f64| count as f64 * (size + GAP) + GAP;
    let (all_width, all_height) = (all(COLUMNS, width), all(count.div_ceil(COLUMNS), height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all_width}\" height=\"{all_height}\" \
         font-family=\"sans-serif\" font-size=\"{font_size}\">\n\
         <rect width=\"{all_width}\" height=\"{all_height}\" fill=\"white\"/>\n"
    );
    for index in 0..count {
        let x = GAP + (index % COLUMNS) as f64 * (width + GAP);
        let y = GAP + (index / COLUMNS) as f64 * (height + GAP);
        add(&mut svg, format_args!("<g transform=\"translate({x},{y})\">\n"));
        draw(&mut svg, index);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Adds words to a picture.
pub fn add(svg: &mut String, words: std::fmt::Arguments<'_>) {
    svg.write_fmt(words).expect("a string takes all that is written");
}

/// Words that stand in a picture as they are, and are no marks of it.
pub fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_lie_beside_and_below_each_other() {
        let svg = plots(3, (100.0, 50.0), 12, &|svg, index| add(svg, format_args!("{index};")));
        for place in ["(24,24)\">\n0;", "(148,24)\">\n1;", "(24,98)\">\n2;"] {
            assert!(svg.contains(&format!("translate{place}")), "{place} is missing: {svg}");
        }
        assert!(svg.contains("width=\"272\" height=\"172\""), "{svg}");
    }

    #[test]
    fn names_cannot_be_taken_for_marks() {
        assert_eq!(escape("a<b> & c"), "a&lt;b&gt; &amp; c");
    }
}
