//! Curves over sizes, both axes logarithmic.

use marram_lab::svg::{OURS, PEERS, add, escape, plots};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 24.0;
/// Room for the names at the ends of the curves.
const RIGHT: f64 = 120.0;
/// Names closer than this are moved apart.
const NAME_HEIGHT: f64 = 12.0;

/// One comparison.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) curves: Vec<Curve>,
}

/// One contender in it.
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) is_ours: bool,
    /// Sizes and values, all above 0.
    pub(super) points: Vec<(f64, f64)>,
}

/// The powers of ten that enclose all values.
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64> + Clone) -> Self {
        let logarithm = |value: f64| value.max(f64::MIN_POSITIVE).log10();
        let least = values.clone().map(logarithm).fold(f64::INFINITY, f64::min).floor();
        let most = values.map(logarithm).fold(f64::NEG_INFINITY, f64::max).ceil();
        Self { least, most: most.max(least + 1.0) }
    }

    /// Where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.max(f64::MIN_POSITIVE).log10() - self.least) / (self.most - self.least)
    }

    fn powers(&self) -> impl Iterator<Item = f64> + use<> {
        let mut power = self.least;
        let most = self.most;
        std::iter::from_fn(move || {
            let now = power;
            power += 1.0;
            (now <= most).then(|| 10_f64.powf(now))
        })
    }
}

/// All plots in one picture. One without a point has no axes, and is left out.
pub(super) fn draw(comparisons: &[Plot]) -> String {
    let has_points = |plot: &&Plot| plot.curves.iter().any(|curve| !curve.points.is_empty());
    let comparisons: Vec<&Plot> = comparisons.iter().filter(has_points).collect();
    let draw = |svg: &mut String, index: usize| draw_plot(svg, comparisons[index]);
    plots(comparisons.len(), (WIDTH, HEIGHT), 11, &draw)
}

fn draw_plot(svg: &mut String, plot: &Plot) {
    let points = plot.curves.iter().flat_map(|curve| &curve.points);
    let (sizes, values) =
        (Axis::around(points.clone().map(|point| point.0)), Axis::around(points.map(|p| p.1)));
    let place = |point: (f64, f64)| {
        let x = LEFT + sizes.place(point.0) * (WIDTH - LEFT - RIGHT);
        (x, HEIGHT - BOTTOM - values.place(point.1) * (HEIGHT - TOP - BOTTOM))
    };
    add(svg, format_args!("<text y=\"12\" font-weight=\"bold\">{}</text>\n", escape(&plot.title)));
    draw_grid(svg, &sizes, &values, place);
    let mut ends: Vec<(f64, &Curve, &str)> = Vec::new();
    let mut colours = PEERS.iter().cycle();
    for curve in &plot.curves {
        let colour = if curve.is_ours { OURS } else { colours.next().unwrap_or(&PEERS[0]) };
        let places: Vec<(f64, f64)> = curve.points.iter().map(|point| place(*point)).collect();
        draw_curve(svg, &places, colour);
        ends.extend(places.last().map(|(_, y)| (*y, curve, colour)));
    }
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = TOP;
    for (y, curve, colour) in ends {
        let y = y.max(free);
        free = y + NAME_HEIGHT;
        let (x, name) = (WIDTH - RIGHT + 8.0, escape(curve.name));
        add(
            svg,
            format_args!("<text x=\"{x}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>\n", y + 4.0),
        );
    }
}

fn draw_grid(
    svg: &mut String,
    sizes: &Axis,
    values: &Axis,
    place: impl Fn((f64, f64)) -> (f64, f64),
) {
    let (first_size, first_value) = (10_f64.powf(sizes.least), 10_f64.powf(values.least));
    let line = |svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)| {
        add(
            svg,
            format_args!(
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
                 stroke=\"#ddd\"/>\n"
            ),
        );
    };
    for size in sizes.powers() {
        let (x, y) = place((size, first_value));
        line(svg, (x, y), (x, TOP));
        add(
            svg,
            format_args!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{size}</text>\n",
                y + 14.0
            ),
        );
    }
    for value in values.powers() {
        let (x, y) = place((first_size, value));
        line(svg, (x, y), (WIDTH - RIGHT, y));
        add(
            svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>\n",
                x - 4.0,
                y + 4.0
            ),
        );
    }
}

fn draw_curve(svg: &mut String, places: &[(f64, f64)], colour: &str) {
    let words: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    add(
        svg,
        format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
            words.join(" ")
        ),
    );
    for (x, y) in places {
        add(svg, format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_as_much_is_one_step_of_the_grid() {
        let axis = Axis::around([1.0, 20.0, 1000.0].into_iter());
        assert_eq!(axis.powers().collect::<Vec<_>>(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((axis.place(10.0) - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn what_has_no_points_is_left_out() {
        let curve = Curve { name: "ours", is_ours: true, points: Vec::new() };
        let svg = draw(&[Plot { title: "nothing".to_owned(), curves: vec![curve] }]);
        assert!(!svg.contains("nothing"), "{svg}");
    }

    #[test]
    fn names_of_equal_curves_do_not_lie_on_each_other() {
        let curve = |name| Curve { name, is_ours: name == "ours", points: vec![(10.0, 5.0)] };
        let plot = Plot { title: "fork".to_owned(), curves: vec![curve("ours"), curve("theirs")] };
        let svg = draw(&[plot]);
        let place = |name: &str| {
            let before = svg.split(&format!(">{name}</text>")).next().expect("it is there");
            let place = before.rsplit("y=\"").next().and_then(|rest| rest.split('"').next());
            place.expect("a place").parse::<f64>().expect("a number")
        };
        assert!((place("theirs") - place("ours")).abs() >= NAME_HEIGHT, "{svg}");
    }
}
