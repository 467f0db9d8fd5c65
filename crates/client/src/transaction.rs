//! A transaction of this process.

use crate::conversation::Conversation;
use crate::device::DeviceNumber;
use crate::directory::{Inner, Place};
use crate::error::{Error, Result};
use crate::folders::own_uid;
use crate::protocol::{Answer, Author, BeginOrder, Begun, Request};
use crate::{daemon, maps};
use rustix::fs::{CWD, Mode, OFlags, openat, syncfs};
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A transaction that is open. It is aborted when this is dropped, and when the process ends,
/// however it does. A child made by `fork` shares it, and ends it by a commit alone.
///
/// Others can be begun inside of it, several at a time: see [`Transaction::begin_inside`].
///
/// Descriptors that were opened in it answer `ESTALE` once it has ended.
#[derive(Debug)]
pub struct Transaction {
    id: String,
    place: Inner,
    directory: OwnedFd,
    /// Of the files in the view.
    device: DeviceNumber,
    conversation: Conversation,
    /// The process that has begun it.
    process: u32,
    has_ended: bool,
}

/// What a commit has made of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The id of the transaction, which `marram tx show` knows.
    pub id: String,
}

impl Transaction {
    /// Begins a transaction on the directory of this path, in a mounted Marram file system.
    ///
    /// # Errors
    /// There is no such directory; none can be had there; the daemon says why not.
    pub fn begin(directory: impl AsRef<Path>) -> Result<Transaction> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Transaction::begin_at(openat(CWD, directory.as_ref(), flags, Mode::empty())?)
    }

    /// The same on a directory that is open in any way, also with `O_PATH`.
    ///
    /// # Errors
    /// As [`Transaction::begin`].
    pub fn begin_at(directory: impl AsFd) -> Result<Transaction> {
        let place = Place::of(directory.as_fd())?;
        let (conversation, mount) = daemon::behind(&place.mount)?;
        Transaction::begin_by(conversation, (mount.as_path(), None), place.inner)
    }

    /// Begins a transaction inside of this one, on the same directory. It sees what this one has
    /// done so far, and this one sees what it has done when it has committed. It is refused if
    /// anything that it has read or written has been changed in this one meanwhile. What it has
    /// read counts as read by this one, however it ends. Nothing is durable before this one
    /// commits, which fails as long as any is open inside of it; if it is aborted, so are they.
    ///
    /// # Errors
    /// This one has ended; too many are open, or inside of each other; its directory was renamed
    /// or removed in it.
    pub fn begin_inside(&self) -> Result<Transaction> {
        let conversation = self.conversation.another()?;
        Transaction::begin_by(
            conversation,
            (Path::new(""), Some(self.id.as_str())),
            self.place.clone(),
        )
    }

    fn begin_by(
        mut conversation: Conversation,
        (directory, inside): (&Path, Option<&str>),
        place: Inner,
    ) -> Result<Transaction> {
        let author = Author { user: own_uid(), command: command_line() };
        let order = BeginOrder { directory, inside, author, descriptor: true };
        conversation.put(&Request::Begin(order))?;
        let (response, descriptors) = conversation.answer()?;
        let (Answer::Begun(begun), Some(root)) = (response?, descriptors.into_iter().next()) else {
            return Err(unexpected().into());
        };
        // The end of the conversation aborts it if this fails.
        let directory = place.open_in(&root)?;
        let process = std::process::id();
        let Begun { id, device } = begun;
        Ok(Transaction { id, place, directory, device, conversation, process, has_ended: false })
    }

    /// The directory in the view of the transaction: an `O_PATH` descriptor, for `openat` and all
    /// other calls that take the descriptor of a directory. To list it, open `.` in it.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Its id: 32 digits of base 16.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Commits: all that was done in it is there at once, and survives a crash, when this returns.
    /// What was written through shared maps is in it; such maps have to be gone from this process.
    ///
    /// # Errors
    /// [`Error::Refused`] if others have changed what it has read or written, [`Error::Mapped`],
    /// and with [`Error::Unknown`] it may have been done. Otherwise nothing of it is there.
    pub fn commit(mut self) -> Result<Committed> {
        let mapped = maps::shared_of(self.device)?;
        if !mapped.is_empty() {
            return Err(Error::Mapped(mapped));
        }
        self.write_back()?;
        // A request that no daemon has taken was not done.
        self.conversation.put(&Request::Commit(&self.id))?;
        self.has_ended = true;
        let id = self.id.clone();
        let (response, _) = match self.conversation.answer() {
            Ok(answer) => answer,
            Err(reason) => return Err(Error::Unknown { id, reason }),
        };
        match response? {
            Answer::Concluded(done) if done.committed => Ok(Committed { id }),
            Answer::Concluded(done) => {
                Err(Error::Refused(done.conflicts.into_iter().map(Into::into).collect()))
            }
            _ => Err(Error::Unknown { id, reason: unexpected() }),
        }
    }

    /// Aborts: nothing that was done in it has happened. Dropping it does the same. In a child made
    /// by `fork`, which shares it, both only let go of it.
    pub fn abort(mut self) {
        self.say_abort();
    }

    fn say_abort(&mut self) {
        let has_ended = std::mem::replace(&mut self.has_ended, true);
        let is_own = self.process == std::process::id();
        if is_own && !has_ended && self.conversation.put(&Request::Abort(&self.id)).is_ok() {
            let _aborted_with_the_conversation_at_worst = self.conversation.answer();
        }
    }

    /// Has the kernel hand over what was written through maps.
    fn write_back(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(&self.directory, ".", flags, Mode::empty()) {
            Ok(opened) => syncfs(opened)?,
            // A directory that may be entered and not be listed.
            Err(Errno::ACCESS) => rustix::fs::sync(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.say_abort();
    }
}

fn unexpected() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the daemon's answer is not one to what was asked")
}

fn command_line() -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    [program].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}
