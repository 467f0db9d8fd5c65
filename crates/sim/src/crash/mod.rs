//! The crash explorer: short workloads, and every image that a power cut could leave of them.
//!
//! **What is proved.** What survives a crash is the state at *one moment*: the whole pool (every
//! dataset and snapshot: names, kinds, sizes, content, holes, attributes, times, links) is as
//! the model was after exactly `j` actions of the workload, for a `j` that is not smaller than the
//! number of actions that were acknowledged as durable before the cut, and not larger than
//! the number that had begun. Whatever else there could be - a name without its inode, half
//! a write, a rename without the data, a lost fsync - is no state of the model.
//!
//! **How.** A [`Workload`] runs on the real file system, on a device that records, and on the model
//! beside it ([`Recording`]); marks in the trace say when an action begins and when durability is
//! acknowledged. From the trace come the states ([`states`]): each prefix, each subset of the
//! writes between two flushes up to a bound, torn writes, seeded samples. Each image is verified
//! offline, mounted, read and compared ([`Explorer`]); where the mount wrote something, what it
//! wrote is cut short too.
//!
//! **Beside each other.** A commit, a sync or an administrative operation can be begun in a thread
//! of its own and held before one of its writes or flushes ([`Action::Begin`]) while others go
//! on. Then there are two lines of moments: with the administrative operation and without it.
//!
//! **Transactions.** One, on the root dataset or on that and the clone, may be open beside all of
//! that. What it has changed is in no moment until its commit, and wholly in each that comes after:
//! a state that holds a part of it is the state at no moment, and one that lacks it after its
//! acknowledgement has lost something durable. After one, commits and syncs are held, and
//! administrative operations are not.
//!
//! **Counting.** States with equal images count once. What an image recovers to does not depend
//! on how it came about, so it is mounted once; but each state that leads to it is compared with
//! what *it* allows: the image just before an fsync is acknowledged and just after may be the
//! same, and only the latter shows that something was lost.
//!
//! The bounded workloads follow CrashMonkey's ACE (Mohan and others, OSDI 2018).

mod action;
mod archive;
mod campaign;
mod digest;
mod explorer;
mod idiom;
mod images;
mod minimize;
mod pause;
mod recording;
mod states;
mod table;
mod target;
mod transaction;
mod twin;
mod workload;

pub use action::{Action, Administration, Change, File, Transaction, Turn};
pub use archive::{decode_trace, encode_trace};
pub use campaign::{Campaign, Outcome, Plan};
pub use digest::{Digest, tree_digest};
pub use explorer::{Explorer, StateId, Violation};
pub use images::Images;
pub use recording::Recording;
pub use states::{Bounds, states};
pub use target::{Committed, Mounted, Target};
pub use workload::{Part, Workload};
