//! A campaign of faults: a fixed run is repeated with one fault at each position at which it
//! touches the device, and each repetition is judged.
//!
//! What is here knows nothing of pools: the names of faults ([`FaultId`]), the places where one
//! can be put ([`positions`]), the work that is done ([`Act`], [`workload`]), and the comparison
//! with the model that lets a damaged range of a file be an error, but never be wrong
//! ([`compare_with_damage`]). The runs themselves are in `tests/faults`.

mod damage;
mod id;
mod position;
mod work;

pub use damage::{Damaged, compare_with_damage};
pub use id::{FaultId, NotAFaultId};
pub use position::{Nature, nature, positions};
pub use work::{Act, Dataset, workload};
