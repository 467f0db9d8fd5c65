//! What programs that watch a directory see of changes behind the kernel's back.

use crate::fixture::{Mounted, can_mount, model};
use marram_fuse::{Reenactment, SessionHandle, Shown};
use marram_model::Model;
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const ROOT: Caller = Caller { uid: 0, gid: 0 };

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn file() -> NewNode<'static> {
    NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 }
}

/// The kinds of an event, as they are called.
fn kinds(events: ReadFlags) -> String {
    events.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

/// A mounted model with a watch on its root.
struct Watched {
    files: Arc<Model>,
    mounted: Mounted,
    watch: OwnedFd,
}

impl Watched {
    fn begin(prepare: impl FnOnce(&Mounted)) -> Option<Watched> {
        can_mount().then(|| {
            let files = model();
            let mounted = Mounted::with(files.clone(), |_| ());
            prepare(&mounted);
            let watch = init(CreateFlags::NONBLOCK).unwrap();
            let kinds = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO;
            add_watch(&watch, mounted.root(), kinds).unwrap();
            Watched { files, mounted, watch }
        })
    }

    fn handle(&self) -> SessionHandle {
        self.mounted.session.as_ref().unwrap().handle()
    }

    fn show(&self, text: &str, shown: Shown) {
        self.in_directory(Ino::ROOT, |root| root.show(name(text), shown).unwrap());
    }

    /// Shows changes in the root of the mount, taken for the directory of that number.
    fn in_directory(&self, number: Ino, work: impl FnOnce(&Reenactment<'_>) + Send) {
        let root = self.mounted.root();
        let shown = self.handle().reenact(|reenactor| {
            work(&reenactor.directory(number, &root).unwrap());
        });
        shown.unwrap();
    }

    /// What the watch has reported since the last time.
    fn seen(&self) -> Vec<String> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.watch, &mut space);
        let mut seen = Vec::new();
        while let Ok(event) = events.next() {
            let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
            seen.push(format!("{} {}", kinds(event.events()), name.unwrap_or_default()));
        }
        seen
    }

    fn end(self) {
        drop(self.watch);
        self.mounted.end();
    }
}

#[test]
fn made_removed_and_changed_names_are_seen_by_a_watcher() {
    let prepare = |mounted: &Mounted| {
        fs::write(mounted.path("known"), b"one").unwrap();
        fs::create_dir(mounted.path("folder")).unwrap();
    };
    let Some(watched) = Watched::begin(prepare) else { return };
    let (files, handle) = (&watched.files, watched.handle());

    files.create(ROOT, Ino::ROOT, name("new"), file()).unwrap();
    handle.notify_entry(Ino::ROOT, name("new"));
    watched.show("new", Shown::Made(Kind::Regular));
    assert_eq!(watched.seen(), ["CREATE new"]);

    files.create(ROOT, Ino::ROOT, name("dir"), NewNode::Directory { permissions: 0o755 }).unwrap();
    watched.show("dir", Shown::Made(Kind::Directory));
    assert_eq!(watched.seen(), ["CREATE ISDIR dir"]);
    assert!(fs::metadata(watched.mounted.path("dir")).unwrap().is_dir());

    let known = files.lookup(Ino::ROOT, name("known")).unwrap().ino;
    files.write(known, 0, b"two!", Default::default()).unwrap();
    handle.notify_inode(known, &(0..u64::MAX));
    let before = files.attributes(known).unwrap();
    watched.show("known", Shown::Modified(known));
    assert_eq!(watched.seen(), ["MODIFY known"]);
    watched.show("known", Shown::Attributes(known));
    assert_eq!(watched.seen(), ["ATTRIB known"]);
    assert_eq!(files.attributes(known).unwrap(), before, "nothing is changed by that");
    assert_eq!(fs::read(watched.mounted.path("known")).unwrap(), b"two!");

    for (text, seen) in [("known", "DELETE known"), ("folder", "DELETE ISDIR folder")] {
        match text {
            "known" => files.unlink(Ino::ROOT, name(text)).unwrap(),
            _ => files.remove_directory(Ino::ROOT, name(text)).unwrap(),
        }
        watched.show(text, Shown::Removed);
        handle.notify_entry(Ino::ROOT, name(text));
        assert_eq!(watched.seen(), [seen]);
        assert!(!watched.mounted.path(text).exists());
    }
    watched.end();
}

#[test]
fn a_name_that_the_kernel_did_not_remember_is_seen_to_go() {
    let Some(watched) = Watched::begin(|_| ()) else { return };
    for text in ["a", "b"] {
        watched.show(text, Shown::Removed);
        assert_eq!(watched.seen(), [format!("DELETE {text}")]);
    }
    fs::write(watched.mounted.path("a"), b"new").unwrap();
    assert_eq!(fs::read(watched.mounted.path("a")).unwrap(), b"new");
    watched.end();
}

#[test]
fn what_is_not_there_is_never_made_and_what_is_there_is_never_removed() {
    let prepare = |mounted: &Mounted| {
        fs::write(mounted.path("kept"), b"kept").unwrap();
    };
    let Some(watched) = Watched::begin(prepare) else { return };
    let handle = watched.handle();
    watched.in_directory(Ino::ROOT, |root| {
        assert!(root.show(name("absent"), Shown::Made(Kind::Regular)).is_err());
        assert!(root.show(name("kept"), Shown::Made(Kind::Directory)).is_err());
        root.show(name("kept"), Shown::Removed).unwrap();
    });
    assert!(!watched.mounted.path("absent").exists());
    handle.notify_entry(Ino::ROOT, name("kept"));
    assert_eq!(fs::read(watched.mounted.path("kept")).unwrap(), b"kept");
    // A directory of another number than the path leads to gets nothing.
    watched.in_directory(Ino(77), |root| {
        assert!(root.show(name("kept"), Shown::Removed).is_err());
    });
    assert_eq!(fs::read(watched.mounted.path("kept")).unwrap(), b"kept");
    watched.end();
}
