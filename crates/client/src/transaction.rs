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
use std::path::{Path, PathBuf};

/// A transaction that is open. It is aborted when this is dropped, and when the process ends,
/// however it does. A child made by `fork` shares it, and ends it by a commit alone.
///
/// Others can be begun inside of it, several at a time: see [`Transaction::begin_inside`].
///
/// Descriptors that were opened in it answer `ESTALE` once it has ended.
#[derive(Debug)]
pub struct Transaction {
    id: String,
    /// The directories, at least one, in the order in which they were named.
    directories: Vec<Directory>,
    /// Of the files in each view.
    devices: Vec<DeviceNumber>,
    conversation: Conversation,
    /// The process that has begun it.
    process: u32,
    has_ended: bool,
}

/// A directory of a transaction.
#[derive(Debug)]
struct Directory {
    place: Inner,
    /// Which of the views it is in.
    view: usize,
    opened: OwnedFd,
}

/// Where directories are: each with the number of the mount that it is in.
type Places = Vec<(Inner, usize)>;

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
        Transaction::begin_several_at(&[directory])
    }

    /// Begins one transaction on several directories, of one dataset or several of one pool. It
    /// sees all of them as they were at one moment, and its commit makes all that was done in them
    /// happen at one moment. [`Transaction::directories`] has one descriptor of each.
    ///
    /// # Errors
    /// As [`Transaction::begin`]; they are in different pools; there are more than 8 datasets, or
    /// no directory.
    pub fn begin_several<P: AsRef<Path>>(directories: &[P]) -> Result<Transaction> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |directory: &P| openat(CWD, directory.as_ref(), flags, Mode::empty());
        let opened: Vec<OwnedFd> =
            directories.iter().map(open).collect::<rustix::io::Result<_>>()?;
        Transaction::begin_several_at(&opened)
    }

    /// The same on directories that are open in any way.
    ///
    /// # Errors
    /// As [`Transaction::begin_several`].
    pub fn begin_several_at<F: AsFd>(directories: &[F]) -> Result<Transaction> {
        let (mut first, mut mounts): (Option<Conversation>, Vec<PathBuf>) = (None, Vec::new());
        let mut places = Places::new();
        for directory in directories {
            let place = Place::of(directory.as_fd())?;
            let (conversation, mount) = daemon::behind(&place.mount)?;
            match &first {
                None => first = Some(conversation),
                Some(first) if first.is_with(&conversation) => (),
                Some(_) => return Err(place.inner.elsewhere()),
            }
            let known = mounts.iter().position(|known| *known == mount);
            places.push((place.inner, known.unwrap_or(mounts.len())));
            if known.is_none() {
                mounts.push(mount);
            }
        }
        let (Some(conversation), Some((mount, also))) = (first, mounts.split_first()) else {
            return Err(io::Error::from(ErrorKind::InvalidInput).into());
        };
        Transaction::begin_by(conversation, (mount, also, None), places)
    }

    /// Begins a transaction inside of this one, on the same directories. It sees what this one has
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
        let place = |it: &Directory| (it.place.clone(), it.view);
        let places = self.directories.iter().map(place).collect();
        let inside = Some(self.id.as_str());
        Transaction::begin_by(conversation, (Path::new(""), &[], inside), places)
    }

    fn begin_by(
        mut conversation: Conversation,
        (directory, also, inside): (&Path, &[PathBuf], Option<&str>),
        places: Places,
    ) -> Result<Transaction> {
        let author = Author { user: own_uid(), command: command_line() };
        let order = BeginOrder { directory, also, inside, author, descriptor: true };
        conversation.put(&Request::Begin(order))?;
        let (response, roots) = conversation.answer()?;
        let Answer::Begun(Begun { id, device, also }) = response? else {
            return Err(unexpected().into());
        };
        let also = also.into_iter().map(|view| view.device);
        let devices: Vec<DeviceNumber> = std::iter::once(device).chain(also).collect();
        // The end of the conversation aborts it if this fails. A daemon of an older version knows
        // one dataset only.
        let mut directories = Vec::with_capacity(places.len());
        for (place, view) in places {
            let root = roots.get(view).filter(|_| roots.len() == devices.len());
            let opened = place.open_in(root.ok_or_else(unexpected)?)?;
            directories.push(Directory { place, view, opened });
        }
        let process = std::process::id();
        Ok(Transaction { id, directories, devices, conversation, process, has_ended: false })
    }

    /// The directory in the view of the transaction: an `O_PATH` descriptor, for `openat` and all
    /// other calls that take the descriptor of a directory. To list it, open `.` in it.
    /// Of one on several directories it is the first.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directories[0].opened.as_fd()
    }

    /// The same of all directories, in the order in which they were named.
    pub fn directories(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.directories.iter().map(|directory| directory.opened.as_fd())
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
        let mut mapped = Vec::new();
        for device in &self.devices {
            mapped.extend(maps::shared_of(*device)?);
        }
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
        for view in 0..self.devices.len() {
            let Some(first) = self.directories.iter().find(|it| it.view == view) else { continue };
            match openat(&first.opened, ".", flags, Mode::empty()) {
                Ok(opened) => syncfs(opened)?,
                // A directory that may be entered and not be listed.
                Err(Errno::ACCESS) => rustix::fs::sync(),
                Err(error) => return Err(error.into()),
            }
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
