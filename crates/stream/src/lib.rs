//! Snapshots on their way between homes: sent as a stream, and received from one.
//!
//! A stream speaks of items and blocks, as a [`marram_store::Store`] has them; `docs/stream.md` has
//! its bytes. So what one home sends, any other can receive.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`mod@writer`] | a stream as it is written |
//! | [`reader`] | a stream as it is read, each record verified before anybody uses it |
//! | [`apply`] | what a stream says, put into a dataset that nobody sees yet |
//! | [`accessed`] | whether only access times have moved |
//! | [`transfers`] | what a store gives so that its snapshots can be sent, and others received |
//! | [`mod@send`], [`receive`] | both, for any such store |
//! | [`conformance`] | tests of that contract |
//!
//! A pool has ways of its own to walk and to show a dataset, and shares the first three modules.

pub mod accessed;
pub mod apply;
pub mod conformance;
mod error;
pub mod reader;
pub mod receive;
pub mod send;
mod totals;
pub mod transfers;
pub mod writer;

pub use error::Error;
pub use marram_format::stream::{ResumeToken, is_stream};
pub use reader::{StreamReport, peek_begin, verify_stream};
pub use receive::{Incoming, ReceiveRequest, Received};
pub use send::SendRequest;
pub use totals::{Progress, StreamTotals};
pub use transfers::{Arrival, Since, Transfers};
