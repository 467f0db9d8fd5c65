//! The author of an operation, for the log.

use crate::paths::own_uid;
use serde::{Deserialize, Serialize};

/// The author of an operation. The word of the client counts: the socket is its user's own, or the
/// client is root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Author {
    /// The user.
    pub(crate) user: u32,
    /// The command line.
    pub(crate) command: String,
}

impl Author {
    /// The user and the command line of this process.
    pub(crate) fn of_this_process() -> Author {
        let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let program = words.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        let command = [program].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        Author { user: own_uid(), command }
    }
}
