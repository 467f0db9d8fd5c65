//! The engines, behind one seam for the daemon and the commands.

mod pool;

pub(crate) use pool::*;
