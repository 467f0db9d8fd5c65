//! The author of an operation, for the log.

use crate::control::credentials::Credentials;
use crate::paths::own_uid;
use serde::{Deserialize, Serialize};

/// The author of an operation. The word of the client counts if that is root or the daemon's own
/// user; else the daemon puts in what the kernel says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Author {
    /// The user.
    pub(crate) user: u32,
    /// The command line.
    pub(crate) command: String,
    /// The rights that bound what is done; none if all may be. A daemon sets them from what the
    /// kernel says of its client, whatever that sends.
    #[serde(skip)]
    pub(crate) bound: Option<Credentials>,
}

impl Author {
    /// The user and the command line of this process.
    pub(crate) fn of_this_process() -> Author {
        let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let program = words.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        let command = [program].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        Author { user: own_uid(), command, bound: None }
    }
}
