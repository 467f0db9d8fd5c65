//! Programs that watch directories see what merges, updates, rollbacks and undo change there.

use crate::workbench;
use crate::workbench::Workbench;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// A watch on one directory, of what the usual watchers ask for.
struct Watch(OwnedFd);

impl Watch {
    /// A watch on one file, of its end.
    fn on_file(bench: &Workbench, path: &str) -> Watch {
        let watch = init(CreateFlags::NONBLOCK).expect("inotify");
        add_watch(&watch, bench.path(path), WatchFlags::DELETE_SELF).expect("a watch");
        Watch(watch)
    }

    fn on(bench: &Workbench, path: &str) -> Watch {
        let watch = init(CreateFlags::NONBLOCK).expect("inotify");
        let kinds = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE;
        add_watch(&watch, bench.path(path), kinds).expect("a watch");
        Watch(watch)
    }

    /// What has been reported since the last time.
    fn seen(&self) -> BTreeSet<String> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.0, &mut space);
        let mut seen = BTreeSet::new();
        while let Ok(event) = events.next() {
            let kinds: ReadFlags = event.events();
            let kinds: Vec<_> = kinds.iter_names().map(|(name, _)| name).collect();
            let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
            seen.insert(format!("{} {}", kinds.join(" "), name.unwrap_or_default()));
        }
        seen
    }
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// A mounted pool with a few files, and a fork `try` of `mnt/src` where all kinds of changes were
/// made.
fn forked() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/old");
    for file in ["edited", "replaced", "removed", "moved", "marked", "same"] {
        fs::write(bench.path("mnt/src").join(file), "before\n").expect("written");
    }
    bench.run("fork mnt/src try").good();
    let fork = bench.path("mnt/.marram/forks/try");
    fs::write(fork.join("edited"), "edited in place\n").expect("written");
    fs::write(fork.join("part"), "replaced as a whole\n").expect("written");
    fs::rename(fork.join("part"), fork.join("replaced")).expect("renamed");
    fs::remove_file(fork.join("removed")).expect("removed");
    fs::rename(fork.join("moved"), fork.join("elsewhere")).expect("renamed");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(fork.join("marked"), closed).expect("marked");
    fs::remove_dir(fork.join("old")).expect("removed");
    fs::create_dir(fork.join("new")).expect("made");
    fs::write(fork.join("new/inside"), "new\n").expect("written");
    std::os::unix::fs::symlink("new", fork.join("link")).expect("linked");
    Some(bench)
}

/// What a watcher sees of those changes.
const CHANGED: [&str; 9] = [
    "MODIFY edited",
    "CREATE replaced",
    "DELETE removed",
    "DELETE moved",
    "CREATE elsewhere",
    "ATTRIB marked",
    "DELETE ISDIR old",
    "CREATE ISDIR new",
    "CREATE link",
];

/// What it sees when they are taken back.
const TAKEN_BACK: [&str; 9] = [
    "MODIFY edited",
    "CREATE replaced",
    "CREATE removed",
    "CREATE moved",
    "DELETE elsewhere",
    "ATTRIB marked",
    "CREATE ISDIR old",
    "DELETE ISDIR new",
    "DELETE link",
];

#[test]
fn a_watcher_sees_a_merge_and_its_undo() {
    let Some(bench) = forked() else { return };
    // As watchers do, it looks at everything first.
    for entry in fs::read_dir(bench.path("mnt/src")).unwrap() {
        entry.unwrap().metadata().unwrap();
    }
    let watch = Watch::on(&bench, "mnt/src");
    let [removed, moved] =
        ["removed", "moved"].map(|name| Watch::on_file(&bench, &format!("mnt/src/{name}")));
    bench.run("merge mnt/src --fork try").good();
    assert_eq!(watch.seen(), set(&CHANGED));
    assert!(removed.seen().contains("DELETE_SELF "), "a file that is gone");
    assert_eq!(moved.seen(), set(&[]), "one that lives on");
    assert_eq!(fs::read_to_string(bench.path("mnt/src/new/inside")).unwrap(), "new\n");
    assert_eq!(
        fs::read_to_string(bench.path("mnt/src/replaced")).unwrap(),
        "replaced as a whole\n"
    );
    assert_eq!(fs::read_link(bench.path("mnt/src/link")).unwrap(), std::path::Path::new("new"));
    assert!(!bench.path("mnt/src/removed").exists());
    assert_eq!(watch.seen(), set(&[]), "reading changes nothing");

    bench.run("undo mnt/src").good();
    assert_eq!(watch.seen(), set(&TAKEN_BACK));
    assert!(!bench.path("mnt/src/new").exists());
    assert_eq!(fs::read_to_string(bench.path("mnt/src/edited")).unwrap(), "before\n");
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn a_watcher_of_a_fork_sees_an_update() {
    let Some(bench) = forked() else { return };
    fs::write(bench.path("mnt/src/same"), "other\n").unwrap();
    fs::write(bench.path("mnt/src/fresh"), "fresh\n").unwrap();
    let fork = "mnt/.marram/forks/try";
    fs::metadata(bench.path(fork).join("same")).unwrap();
    let watch = Watch::on(&bench, fork);
    bench.run(&format!("update {fork}")).good();
    assert_eq!(watch.seen(), set(&["MODIFY same", "CREATE fresh"]));
    assert_eq!(fs::read_to_string(bench.path(fork).join("fresh")).unwrap(), "fresh\n");
    bench.run("unmount work.pool").good();
}

#[test]
fn a_watcher_sees_a_rollback_of_the_whole_and_of_a_directory() {
    let Some(bench) = forked() else { return };
    bench.run("snapshot mnt@s").good();
    let change = || {
        fs::write(bench.path("mnt/src/same"), "longer than before\n").unwrap();
        fs::write(bench.path("mnt/src/more"), "more\n").unwrap();
        fs::remove_file(bench.path("mnt/src/edited")).unwrap();
    };
    let back = set(&["MODIFY same", "DELETE more", "CREATE edited"]);
    for command in ["rollback mnt@s", "rollback mnt/src@s"] {
        change();
        let watch = Watch::on(&bench, "mnt/src");
        bench.run(command).good();
        assert_eq!(watch.seen(), back, "{command}");
        assert_eq!(fs::read_to_string(bench.path("mnt/src/same")).unwrap(), "before\n");
    }
    bench.run("unmount work.pool").good();
}

#[test]
fn what_a_merge_has_moved_is_shown_and_goes_on_as_before() {
    let Some(bench) = workbench::mounted() else { return };
    bench.make_folder("mnt/src/moved");
    fs::write(bench.path("mnt/src/moved/inside"), "inside\n").unwrap();
    fs::write(bench.path("mnt/src/file"), "file\n").unwrap();
    bench.run("fork mnt/src try").good();
    let fork = bench.path("mnt/.marram/forks/try");
    fs::rename(fork.join("moved"), fork.join("named")).unwrap();
    fs::rename(fork.join("file"), fork.join("called")).unwrap();
    // Known, and in use.
    let open = fs::File::open(bench.path("mnt/src/moved")).unwrap();
    fs::metadata(bench.path("mnt/src/moved/inside")).unwrap();
    fs::metadata(bench.path("mnt/src/file")).unwrap();
    let watch = Watch::on(&bench, "mnt/src");
    let moves = |from: [&str; 2], to: [&str; 2]| {
        let lines = [
            format!("DELETE ISDIR {}", from[0]),
            format!("CREATE ISDIR {}", to[0]),
            format!("DELETE {}", from[1]),
            format!("CREATE {}", to[1]),
        ];
        assert_eq!(watch.seen(), BTreeSet::from(lines));
        let (directory, file) =
            (bench.path("mnt/src").join(to[0]), bench.path("mnt/src").join(to[1]));
        assert_eq!(fs::read_to_string(directory.join("inside")).unwrap(), "inside\n");
        fs::write(directory.join("more"), "more\n").unwrap();
        fs::remove_file(directory.join("more")).unwrap();
        fs::hard_link(&file, directory.join("linked")).unwrap();
        fs::remove_file(directory.join("linked")).unwrap();
        let made = rustix::fs::mkdirat(&open, "by-descriptor", rustix::fs::Mode::RWXU);
        assert_eq!(made, Ok(()), "the open directory is the same");
        fs::remove_dir(directory.join("by-descriptor")).unwrap();
        watch.seen();
    };
    bench.run("merge mnt/src --fork try").good();
    moves(["moved", "file"], ["named", "called"]);
    bench.run("undo mnt/src").good();
    moves(["named", "called"], ["moved", "file"]);
    drop(open);
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}
