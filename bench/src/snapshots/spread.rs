//! How far numbers lie from each other.

use serde_json::{Value, json};

/// Half of the numbers lie between the outer two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Spread {
    /// Of none there is none.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let (low, median, high) = (last / 4, last / 2, last - last / 4);
        Some(Self { low: values[low], median: values[median], high: values[high] })
    }

    /// With so many digits.
    pub(super) fn shown(&self, digits: usize) -> String {
        let Self { low, median, high } = self;
        format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
    }

    /// As a report's JSON has it.
    pub(super) fn json(self) -> Value {
        json!({ "low": self.low, "median": self.median, "high": self.high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_far_away_moves_nothing() {
        let spread = Spread::of(vec![5.0, 1.0, 900.0, 4.0, 3.0]).expect("numbers");
        assert_eq!(spread, Spread { low: 3.0, median: 4.0, high: 5.0 });
        assert_eq!(spread.shown(1), "4.0 (3.0 to 5.0)");
        let few = Spread::of(vec![2.0, 1.0, 3.0]).expect("numbers");
        assert_eq!(few, Spread { low: 1.0, median: 2.0, high: 3.0 });
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
