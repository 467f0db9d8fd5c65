//! The tables as the thesis prints them, as parts of the file's size.

/// Figures of one kind of change.
#[derive(Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) classic: f64,
    pub(super) kabi: f64,
}

/// A row of a table.
#[derive(Debug, PartialEq)]
pub(super) struct Printed {
    pub(super) table: &'static str,
    /// Blocks of the file.
    pub(super) blocks: f64,
    /// Part of the sections that are truncated.
    pub(super) truncated: f64,
    pub(super) overwrite: Figures,
    pub(super) insert: Figures,
}

/// Up to here a figure lies at the floor of a quarter, which leaves no room for metadata.
const FLOOR_MAX: f64 = 0.2585;
/// The bar there.
const AT_THE_FLOOR: f64 = 0.265;
/// The bar everywhere.
const MOST: f64 = 0.30;

impl Figures {
    /// The most that we may take.
    pub(super) fn most(&self) -> f64 {
        if self.kabi <= FLOOR_MAX { AT_THE_FLOOR } else { self.kabi.min(MOST) }
    }
}

const fn row(
    table: &'static str,
    (blocks, truncated): (f64, f64),
    overwrite: (f64, f64),
    insert: (f64, f64),
) -> Printed {
    Printed {
        table,
        blocks,
        truncated,
        overwrite: Figures { classic: overwrite.0, kabi: overwrite.1 },
        insert: Figures { classic: insert.0, kabi: insert.1 },
    }
}

/// All rows, in the order of the thesis.
pub(super) static TABLES: [Printed; 18] = [
    row("5.2", (98.5, 0.03), (0.2608, 0.2690), (0.7559, 0.2582)),
    row("5.2", (985.0, 0.03), (0.2516, 0.2554), (0.7524, 0.2582)),
    row("5.3", (5.5, 0.17), (0.4531, 0.5127), (0.8338, 0.2983)),
    row("5.3", (11.0, 0.17), (0.3514, 0.3934), (0.7933, 0.2962)),
    row("5.3", (16.5, 0.17), (0.3129, 0.3532), (0.7789, 0.2964)),
    row("5.3", (27.5, 0.17), (0.2884, 0.3213), (0.7702, 0.2972)),
    row("5.3", (55.0, 0.17), (0.2681, 0.2949), (0.7589, 0.2955)),
    row("5.3", (109.4375, 0.17), (0.2593, 0.2828), (0.7545, 0.2957)),
    row("5.4", (100.0, 0.0), (0.2596, 0.2645), (0.7547, 0.2495)),
    row("5.4", (100.0, 0.10), (0.2600, 0.2752), (0.7558, 0.2750)),
    row("5.4", (100.0, 0.18), (0.2599, 0.2856), (0.7557, 0.3002)),
    row("5.4", (100.0, 0.33), (0.2606, 0.3071), (0.7569, 0.3513)),
    row("5.4", (100.0, 0.46), (0.2616, 0.3290), (0.7579, 0.4026)),
    row("5.4", (100.0, 0.57), (0.2616, 0.3500), (0.7583, 0.4532)),
    row("5.4", (100.0, 0.71), (0.2596, 0.3792), (0.7530, 0.5252)),
    row("5.4", (100.0, 0.82), (0.2579, 0.4089), (0.7505, 0.5980)),
    row("5.4", (100.0, 0.91), (0.2593, 0.4417), (0.7536, 0.6758)),
    row("5.4", (100.0, 1.0), (0.2601, 0.4737), (0.7561, 0.7536)),
];
