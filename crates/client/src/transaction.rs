//! A transaction of this process.

use crate::conversation::Conversation;
use crate::daemon::Found;
use crate::device::DeviceNumber;
use crate::directory::{Inner, Place};
use crate::error::{Error, Result};
use crate::folders::own_uid;
use crate::protocol::{
    Answer, Author, BeginOrder, Begun, ConflictRow, Joint, JointConclusion, Pool, Request,
};
use crate::{daemon, maps};
use rustix::fs::{CWD, Mode, OFlags, openat, syncfs};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most pools of a transaction.
const POOLS_MAX: usize = 2;
/// How long a daemon may take to abort: it does so with the end of the conversation at the latest.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// What it has in each of the pools that it works in: one, or two.
    halves: Vec<Half>,
    /// The process that has begun it.
    process: u32,
    has_ended: bool,
}

/// A transaction in one pool.
#[derive(Debug)]
struct Half {
    pool: Pool,
    conversation: Conversation,
    /// Of the files in each view.
    devices: Vec<DeviceNumber>,
}

/// A directory of a transaction.
#[derive(Debug)]
struct Directory {
    place: Inner,
    view: ViewNumber,
    opened: OwnedFd,
}

/// A view: which pool it is of, and which of the views there it is.
type ViewNumber = (usize, usize);

/// Where directories are, and where they are seen.
type Places = Vec<(Inner, ViewNumber)>;

/// A pool in which one is to begin, with the mounts of its datasets.
struct Beginning {
    found: Found,
    mounts: Vec<PathBuf>,
}

/// How one begins in a pool.
struct Terms<'a> {
    /// The mounts of its datasets.
    mounts: &'a [PathBuf],
    inside: Option<&'a str>,
    /// Its id and the other pool, if it has begun there.
    id: Option<&'a str>,
    other: Option<&'a Pool>,
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
        Transaction::begin_several_at(&[directory])
    }

    /// Begins one transaction on several directories, of one dataset or several, in one pool or
    /// two. It sees all of them of one pool as they were at one moment, and its commit makes all
    /// that was done in them happen at one moment; in two pools, in both or in neither.
    /// [`Transaction::directories`] has one descriptor of each.
    ///
    /// # Errors
    /// As [`Transaction::begin`]; they are in more than two pools, or in two that two users have
    /// mounted; there are more than 8 datasets in a pool, or no directory.
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
        let mut beginnings: Vec<Beginning> = Vec::new();
        let mut places = Places::new();
        for directory in directories {
            let place = Place::of(directory.as_fd())?;
            let found = daemon::behind(&place.mount)?;
            let half = half_of(&mut beginnings, found, &place.inner)?;
            places.push((place.inner, half));
        }
        let pools: Vec<Pool> = beginnings.iter().map(|it| it.found.pool.clone()).collect();
        let mut transaction = Transaction::new();
        for (at, Beginning { found, mounts }) in beginnings.into_iter().enumerate() {
            let other = pools.iter().enumerate().find(|(other, _)| *other != at);
            let id = transaction.id.clone();
            let terms = Terms {
                mounts: &mounts,
                inside: None,
                id: (at > 0).then_some(&*id),
                other: other.map(|(_, pool)| pool),
            };
            transaction.begin_in(found.conversation, found.pool, (terms, &places))?;
        }
        match transaction.halves.is_empty() {
            true => Err(io::Error::from(ErrorKind::InvalidInput).into()),
            false => Ok(transaction.in_order(&places)),
        }
    }

    /// Begins a transaction inside of this one, on the same directories. It sees what this one has
    /// done so far, and this one sees what it has done when it has committed. It is refused if
    /// anything that it has read or written has been changed in this one meanwhile. What it has
    /// read counts as read by this one, however it ends. Nothing is durable before this one
    /// commits, which fails as long as any is open inside of it; if it is aborted, so are they.
    ///
    /// # Errors
    /// This one has ended, or works in two pools; too many are open, or inside of each other; its
    /// directory was renamed or removed in it.
    pub fn begin_inside(&self) -> Result<Transaction> {
        let [half] = &*self.halves else {
            let reason =
                "it is seen by a transaction over two pools, and none begins inside of that";
            return Err(self.directories[0].place.unsuitable(reason));
        };
        let places: Places =
            self.directories.iter().map(|it| (it.place.clone(), it.view)).collect();
        let terms = Terms { mounts: &[], inside: Some(&self.id), id: None, other: None };
        let mut inner = Transaction::new();
        inner.begin_in(half.conversation.another()?, half.pool.clone(), (terms, &places))?;
        Ok(inner.in_order(&places))
    }

    /// One that has begun in no pool yet. What has begun of it is aborted when it is dropped.
    fn new() -> Transaction {
        let (process, has_ended) = (std::process::id(), false);
        let (directories, halves) = (Vec::new(), Vec::new());
        Transaction { id: String::new(), directories, halves, process, has_ended }
    }

    /// Begins it in one more pool, and opens the directories there.
    fn begin_in(
        &mut self,
        mut conversation: Conversation,
        pool: Pool,
        (terms, places): (Terms<'_>, &Places),
    ) -> Result<()> {
        let author = Author { user: own_uid(), command: command_line() };
        let (directory, also) = match terms.mounts {
            [] => (Path::new(""), &[][..]),
            [first, also @ ..] => (first.as_path(), also),
        };
        conversation.put(&Request::Begin(BeginOrder {
            directory,
            also,
            inside: terms.inside,
            id: terms.id,
            other: terms.other.map(Pool::as_other),
            author,
            descriptor: true,
        }))?;
        let (response, roots) = conversation.answer()?;
        let Answer::Begun(Begun { id, device, also }) = response? else {
            return Err(unexpected().into());
        };
        let also = also.into_iter().map(|view| view.device);
        let devices: Vec<DeviceNumber> = std::iter::once(device).chain(also).collect();
        let has_all = roots.len() == devices.len() && terms.id.is_none_or(|told| told == id);
        let half = self.halves.len();
        self.id = id;
        self.halves.push(Half { pool, conversation, devices });
        // A daemon of an older version knows one dataset only.
        for (place, view) in places.iter().filter(|(_, view)| view.0 == half) {
            let root = roots.get(view.1).filter(|_| has_all);
            let opened = place.open_in(root.ok_or_else(unexpected)?)?;
            self.directories.push(Directory { place: place.clone(), view: *view, opened });
        }
        Ok(())
    }

    /// The same, with its directories in the order of their places: they were opened pool by pool.
    fn in_order(mut self, places: &Places) -> Transaction {
        let mut opened = std::mem::take(&mut self.directories);
        for (_, view) in places {
            if let Some(at) = opened.iter().position(|directory| directory.view.0 == view.0) {
                self.directories.push(opened.remove(at));
            }
        }
        self
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
        for device in self.halves.iter().flat_map(|half| &half.devices) {
            mapped.extend(maps::shared_of(*device)?);
        }
        if !mapped.is_empty() {
            return Err(Error::Mapped(mapped));
        }
        self.write_back()?;
        let id = self.id.clone();
        // Of two pools the one with the smaller id decides, and the other one is asked.
        let asked = match &*self.halves {
            [first, second] if first.pool.id < second.pool.id => 1,
            _ => 0,
        };
        let decider = self.halves.get(1 - asked).map(|half| half.pool.clone());
        let request = match &decider {
            Some(pool) => Request::Prepare(Joint { id: &id, other: pool.as_other() }),
            None => Request::Commit(&id),
        };
        // A request that no daemon has taken was not done.
        self.halves[asked].conversation.put(&request)?;
        self.has_ended = true;
        let answer = self.halves[asked].conversation.answer();
        if let Some(half) = decider.and_then(|_| self.halves.get_mut(1 - asked)) {
            // Until here it was open there, too. Its view ends before this returns, if its
            // daemon is not stuck.
            half.abort(&id);
        }
        let (response, _) = match answer {
            Ok(answer) => answer,
            Err(reason) => return Err(Error::Unknown { id, reason }),
        };
        let refused = |rows: Vec<ConflictRow>| {
            Err(Error::Refused(rows.into_iter().map(Into::into).collect()))
        };
        match response? {
            Answer::Concluded(done) if done.committed => Ok(Committed { id }),
            Answer::Concluded(done) => match done.unknown {
                Some(why) => Err(Error::Unknown { id, reason: io::Error::other(why.message) }),
                None => refused(done.conflicts),
            },
            Answer::Joint(JointConclusion::Committed) => Ok(Committed { id }),
            Answer::Joint(JointConclusion::Refused(conflicts)) => refused(conflicts),
            Answer::Joint(JointConclusion::InDoubt(why)) => {
                Err(Error::Unknown { id, reason: io::Error::other(why.message) })
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
        if is_own && !has_ended {
            self.halves.iter_mut().for_each(|half| half.abort(&self.id));
        }
    }

    /// Has the kernel hand over what was written through maps.
    fn write_back(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let views: BTreeSet<ViewNumber> = self.directories.iter().map(|it| it.view).collect();
        for view in views {
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

impl Half {
    /// Ends what there is in its pool, if it is open. It is not waited for longer than
    /// [`ABORT_TIMEOUT`].
    fn abort(&mut self, id: &str) {
        if self.conversation.put(&Request::Abort(id)).is_ok() {
            let answer = self.conversation.answer_within(ABORT_TIMEOUT);
            let _aborted_with_the_conversation_at_worst = answer;
        }
    }
}

/// Which view a directory is in, of those that are to be; one more, if it is in none of them.
fn half_of(beginnings: &mut Vec<Beginning>, found: Found, place: &Inner) -> Result<ViewNumber> {
    let known = beginnings.iter().position(|it| it.found.conversation.is_with(&found.conversation));
    let half = match known {
        Some(half) => half,
        None if beginnings.len() == POOLS_MAX => {
            return Err(place.unsuitable("it is in a third pool, and a transaction works in two"));
        }
        None if beginnings.iter().any(|it| it.found.owner != found.owner) => {
            let reason = "its pool is mounted by another user than that of the first directory";
            return Err(place.unsuitable(reason));
        }
        None => beginnings.len(),
    };
    let directory = found.directory.clone();
    if known.is_none() {
        beginnings.push(Beginning { found, mounts: Vec::new() });
    }
    let mounts = &mut beginnings[half].mounts;
    let view = mounts.iter().position(|mount| *mount == directory).unwrap_or(mounts.len());
    if view == mounts.len() {
        mounts.push(directory);
    }
    Ok((half, view))
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
