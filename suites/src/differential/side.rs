//! One of the two file systems, and the thread that performs calls on it.
//!
//! The thread has a root folder and a mask of its own, and credentials of its own: the kernel keeps
//! all of these per thread. So `..` and absolute links stay inside the folder under test, and a
//! call is made as another user without another process.

use super::call::{Bytes, SLOTS, Step, User};
use super::observe::{self, Attributes, Leaf, Nanoseconds};
use super::perform::{self, Outcome};
use marram_lab::failure::{Context, Failure, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::thread as threads;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What is seen of one inode that a call is about: attributes before and after, if it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Before the call.
    pub(super) before: std::result::Result<Attributes, Errno>,
    /// After it.
    pub(super) after: std::result::Result<Attributes, Errno>,
}

/// What one file system made of one call.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// When the call began.
    pub(super) at: Nanoseconds,
    /// What the call returned.
    pub(super) outcome: Outcome,
    /// The attributes of its subjects, in the order of [`super::call::Call::subjects`].
    pub(super) seen: Vec<Seen>,
}

enum Request {
    Perform(Arc<[Step]>),
    Survey,
}

enum Answer {
    Reports(Vec<Report>),
    Tree(rustix::io::Result<Vec<Leaf>>),
}

/// A thread whose root is a folder of the file system under test.
pub(super) struct Side {
    requests: Option<Sender<Request>>,
    answers: Receiver<Answer>,
    thread: Option<std::thread::JoinHandle<Result<()>>>,
}

impl Side {
    /// Starts the thread.
    pub(super) fn start(root: &Path) -> Result<Self> {
        let (requests, received) = channel();
        let (sender, answers) = channel();
        let root = root.to_owned();
        let work = move || serve(&root, &received, &sender);
        let thread = std::thread::Builder::new().spawn(work)?;
        Ok(Self { requests: Some(requests), answers, thread: Some(thread) })
    }

    /// Begins with these steps; [`Self::reports`] waits for them.
    pub(super) fn begin(&self, steps: &Arc<[Step]>) {
        self.ask(Request::Perform(Arc::clone(steps)));
    }

    /// What became of the steps.
    pub(super) fn reports(&mut self) -> Result<Vec<Report>> {
        match self.answers.recv() {
            Ok(Answer::Reports(reports)) => Ok(reports),
            _ => self.end(),
        }
    }

    /// The whole tree.
    pub(super) fn tree(&mut self) -> Result<Vec<Leaf>> {
        self.ask(Request::Survey);
        match self.answers.recv() {
            Ok(Answer::Tree(tree)) => tree.context(|| "cannot walk the tree"),
            _ => self.end(),
        }
    }

    /// A thread that is gone is noticed when its answer is missing.
    fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            requests.send(request).ok();
        }
    }

    /// Why the thread ended too early.
    fn end<T>(&mut self) -> Result<T> {
        match self.thread.take().map(std::thread::JoinHandle::join) {
            Some(Ok(Err(failure))) => Err(failure),
            _ => Err(Failure::new("the thread of a file system under test ended too early")),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// The open files of a side.
pub(super) struct Slots(Vec<Option<OwnedFd>>);

impl Slots {
    /// An open file; `EBADF` where nothing is open.
    pub(super) fn get(&self, slot: usize) -> rustix::io::Result<&OwnedFd> {
        self.0[slot].as_ref().ok_or(Errno::BADF)
    }

    /// Puts a file into a slot; what was there is closed. Returns whether there was something.
    pub(super) fn put(&mut self, slot: usize, file: Option<OwnedFd>) -> bool {
        std::mem::replace(&mut self.0[slot], file).is_some()
    }
}

fn serve(root: &Path, requests: &Receiver<Request>, answers: &Sender<Answer>) -> Result<()> {
    enter(root).context(|| format!("cannot enter {}", root.display()))?;
    let mut slots = Slots(std::iter::repeat_with(|| None).take(SLOTS).collect());
    for request in requests {
        let answer = match request {
            Request::Perform(steps) => {
                let reports = steps.iter().map(|step| report(step, &mut slots));
                Answer::Reports(reports.collect::<rustix::io::Result<_>>()?)
            }
            Request::Survey => Answer::Tree(observe::tree()),
        };
        if answers.send(answer).is_err() {
            break;
        }
    }
    Ok(())
}

fn enter(root: &Path) -> std::io::Result<()> {
    // Deprecated because a table of descriptors that is no longer shared breaks what others hold;
    // here only the root folder and the mask become the thread's own.
    #[expect(deprecated)]
    threads::unshare(threads::UnshareFlags::FS)?;
    std::os::unix::fs::chroot(root)?;
    rustix::process::chdir("/")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(())
}

fn report(step: &Step, slots: &mut Slots) -> rustix::io::Result<Report> {
    let subjects = step.call.subjects();
    let before: Vec<_> = subjects.iter().map(|subject| look(subject, slots)).collect();
    let at = observe::now();
    become_user(step.user)?;
    let outcome = perform::perform(&step.call, slots);
    become_user(User::Root)?;
    let pairs = subjects.iter().zip(before);
    let seen = pairs.map(|(subject, before)| Seen { before, after: look(subject, slots) });
    Ok(Report { at, outcome, seen: seen.collect() })
}

fn look(object: &super::call::Object, slots: &Slots) -> rustix::io::Result<Attributes> {
    use super::call::Object;
    let stat = |path: &Bytes, flags| rustix::fs::statat(CWD, &path.0[..], flags);
    let stat = match object {
        Object::Path(path) => stat(path, AtFlags::empty()),
        Object::Link(path) => stat(path, AtFlags::SYMLINK_NOFOLLOW),
        Object::Open(slot) => rustix::fs::fstat(slots.get(*slot)?),
    }?;
    let attributes = Attributes::of(&stat);
    // The null device and the like are not of the file system under test once they are open.
    let is_device = attributes.kind() == FileType::CharacterDevice;
    if is_device && matches!(object, Object::Open(_)) { Err(Errno::NODEV) } else { Ok(attributes) }
}

/// Changes the credentials of this thread. The saved user stays root, which is the way back.
fn become_user(user: User) -> rustix::io::Result<()> {
    use rustix::process::{Gid, Uid};
    let (id, groups) = match user {
        User::Root => (0, vec![]),
        User::First => (super::FIRST, vec![]),
        User::Second => (super::SECOND, vec![Gid::from_raw(super::FIRST)]),
    };
    let change_user =
        || threads::set_thread_res_uid(Uid::from_raw(id), Uid::from_raw(id), Uid::ROOT);
    if user == User::Root {
        change_user()?;
    }
    threads::set_thread_groups(&groups)?;
    threads::set_thread_res_gid(Gid::from_raw(id), Gid::from_raw(id), Gid::ROOT)?;
    if user == User::Root { Ok(()) } else { change_user() }
}
