//! Flags of inodes: what they forbid, what passes on, and what is no flag.

use crate::{Bench, PLAIN, USER, name};
use marram_posix::AccessTimes;
use marram_store::{Block, Key, kind};
use marram_vfs::{
    Allocate, Copying, Error, FileSystem, Ino, InodeFlags, Kind, Marked, Marks, NewNode, Ranges,
    RenameMode, Result, SetAttributes, SetMarks, SetTime, Timestamp, WriteOptions, XattrMode,
};

const ROOT: Ino = Ino::ROOT;
const REFUSED: Result<()> = Err(Error::NotPermitted);

fn mark(bench: &Bench, ino: Ino, flags: InodeFlags) {
    let set = SetMarks { flags: Some(flags), project: None };
    bench.files.set_marks(ino, set).unwrap();
}

fn attributes(bench: &Bench, ino: Ino, set: SetAttributes) -> Result<()> {
    bench.files.set_attributes(USER, ino, &set).map(drop)
}

fn rename(bench: &Bench, from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Result<()> {
    bench.files.rename(USER, from.0, name(from.1), to.0, name(to.1), mode)
}

/// All changes of a file's content and attributes, in the order of [`NAMES`].
fn changes(bench: &Bench, ino: Ino) -> Vec<bool> {
    let files = &bench.files;
    let plain = SetAttributes::default();
    let at = SetTime::At(Timestamp::default());
    let now = Some(SetTime::Now);
    let cached = WriteOptions { accepted: true, ..PLAIN };
    let other = bench.file("source of a copy");
    bench.write(other, 0, b"copied");
    let results = [
        files.write(ino, 0, b"over", PLAIN),
        files.write(ino, 7, b"more", PLAIN),
        files.write(ino, 0, b"CONTENTmore and more", cached),
        attributes(bench, ino, SetAttributes { size: Some(3), ..plain }),
        attributes(bench, ino, SetAttributes { permissions: Some(0o600), ..plain }),
        attributes(bench, ino, SetAttributes { uid: Some(3), ..plain }),
        attributes(bench, ino, SetAttributes { accessed: now, modified: now, ..plain }),
        attributes(bench, ino, SetAttributes { modified: Some(at), ..plain }),
        attributes(bench, ino, SetAttributes { clear_privileges: true, ..plain }),
        files.allocate(ino, Allocate::ReserveKeepSize, 0, 4096),
        files.allocate(ino, Allocate::PunchHole, 0, 1),
        files.copy_range(other, 0, ino, 0, 6).map(drop),
        files.set_xattr(ino, b"user.a", b"x", XattrMode::Any),
        files.remove_xattr(ino, b"user.there"),
        files.link(ino, ROOT, name("another name")).map(drop),
    ];
    bench.files.unlink(ROOT, name("source of a copy")).unwrap();
    for result in &results {
        assert!(matches!(result, Ok(()) | Err(Error::NotPermitted)), "{result:?}");
    }
    results.iter().map(Result::is_ok).collect()
}

const NAMES: [&str; 15] = [
    "overwrite",
    "append",
    "repeat and append",
    "cut",
    "chmod",
    "chown",
    "touch",
    "set time",
    "clear privileges",
    "reserve",
    "punch",
    "copy",
    "set xattr",
    "remove xattr",
    "link",
];

fn allowed(flags: InodeFlags) -> Vec<&'static str> {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 0, b"CONTENT");
    bench.files.set_xattr(ino, b"user.there", b"x", XattrMode::Any).unwrap();
    mark(&bench, ino, flags);
    let results = changes(&bench, ino);
    NAMES.into_iter().zip(results).filter(|(_, ok)| *ok).map(|(name, _)| name).collect()
}

#[test]
fn immutable_files_take_nothing_and_append_only_files_only_more() {
    assert_eq!(allowed(InodeFlags::default()), NAMES);
    assert_eq!(allowed(InodeFlags::IMMUTABLE), [""; 0]);
    let more = ["append", "repeat and append", "touch", "clear privileges", "reserve"];
    assert_eq!(allowed(InodeFlags::APPEND_ONLY), more);
}

#[test]
fn a_page_that_changes_what_an_append_only_file_has_is_refused() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 0, b"line 1\n");
    mark(&bench, ino, InodeFlags::APPEND_ONLY);
    let cached = WriteOptions { accepted: true, ..PLAIN };
    assert_eq!(bench.files.write(ino, 0, b"LINE 1\nline 2\n", cached), REFUSED);
    bench.files.write(ino, 0, b"line 1\nline 2\n", cached).unwrap();
    assert_eq!(bench.read(ino, 0, 99), b"line 1\nline 2\n");
}

#[test]
fn marked_files_keep_their_names() {
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY] {
        let bench = Bench::new();
        let ino = bench.file("f");
        bench.file("g");
        mark(&bench, ino, flag);
        assert_eq!(bench.files.unlink(ROOT, name("f")), REFUSED);
        assert_eq!(rename(&bench, (ROOT, "f"), (ROOT, "h"), RenameMode::Replace), REFUSED);
        assert_eq!(rename(&bench, (ROOT, "g"), (ROOT, "f"), RenameMode::Replace), REFUSED);
        assert_eq!(rename(&bench, (ROOT, "g"), (ROOT, "f"), RenameMode::Exchange), REFUSED);
        mark(&bench, ino, InodeFlags::default());
        bench.files.unlink(ROOT, name("f")).unwrap();
    }
}

#[test]
fn marked_directories_keep_their_names_and_append_only_ones_take_more() {
    for (flag, takes) in [(InodeFlags::IMMUTABLE, false), (InodeFlags::APPEND_ONLY, true)] {
        let bench = Bench::new();
        let d = bench.directory(ROOT, "d");
        let sub = bench.directory(d, "sub");
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        bench.files.create(USER, d, name("f"), node).unwrap();
        let (outside, other) = (bench.file("outside"), bench.file("other"));
        mark(&bench, d, flag);
        let expected = if takes { Ok(()) } else { REFUSED };
        let create = |text| bench.files.create(USER, d, name(text), node).map(drop);
        assert_eq!(create("new"), expected);
        assert_eq!(bench.files.create_anonymous(USER, d, 0o600).map(drop), expected);
        assert_eq!(bench.files.link(outside, d, name("link")).map(drop), expected);
        assert_eq!(rename(&bench, (ROOT, "other"), (d, "in"), RenameMode::Replace), expected);
        assert_eq!(rename(&bench, (ROOT, "outside"), (d, "f"), RenameMode::Replace), REFUSED);
        assert_eq!(rename(&bench, (d, "f"), (ROOT, "out"), RenameMode::Replace), REFUSED);
        assert_eq!(rename(&bench, (d, "f"), (d, "renamed"), RenameMode::Replace), REFUSED);
        assert_eq!(bench.files.unlink(d, name("f")), REFUSED);
        assert_eq!(bench.files.remove_directory(d, name("sub")), REFUSED);
        assert_eq!(create("f"), Err(Error::Exists));
        assert_eq!(bench.attributes(sub).links, 2);
        assert_eq!(bench.attributes(other).links, 1);
    }
}

#[test]
fn flags_and_projects_pass_on_as_far_as_they_fit() {
    let mut bench = Bench::new();
    let d = bench.directory(ROOT, "d");
    let passed = InodeFlags::NO_DUMP
        | InodeFlags::NO_ACCESS_TIME
        | InodeFlags::SYNC
        | InodeFlags::NO_COMPRESSION;
    let all =
        passed | InodeFlags::SYNC_DIRECTORY | InodeFlags::INHERIT_PROJECT | InodeFlags::APPEND_ONLY;
    bench.files.set_marks(d, SetMarks { flags: Some(all), project: Some(7) }).unwrap();
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let file = bench.files.create(USER, d, name("f"), node).unwrap().ino;
    let sub = bench.directory(d, "sub");
    let symlink = NewNode::Symlink { target: b"f" };
    let link = bench.files.create(USER, d, name("l"), symlink).unwrap().ino;
    bench.crash();
    let marks = |ino| bench.files.marks(ino).unwrap();
    assert_eq!(marks(d), Marks { flags: all, project: 7 });
    assert_eq!(marks(file), Marks { flags: passed, project: 7 });
    let in_directories = InodeFlags::SYNC_DIRECTORY | InodeFlags::INHERIT_PROJECT;
    assert_eq!(marks(sub), Marks { flags: passed | in_directories, project: 7 });
    let everywhere = InodeFlags::NO_DUMP | InodeFlags::NO_ACCESS_TIME;
    assert_eq!(marks(link), Marks { flags: everywhere, project: 7 });
    mark(&bench, d, InodeFlags::default());
    let plain = bench.files.create(USER, d, name("plain"), node).unwrap().ino;
    assert_eq!(marks(plain), Marks::default());
}

#[test]
fn an_immutable_inode_keeps_its_other_marks() {
    let bench = Bench::new();
    let ino = bench.file("f");
    mark(&bench, ino, InodeFlags::IMMUTABLE);
    let set = |flags, project| bench.files.set_marks(ino, SetMarks { flags, project });
    let more = InodeFlags::IMMUTABLE | InodeFlags::NO_DUMP;
    assert_eq!(set(Some(more), None), REFUSED);
    assert_eq!(set(None, Some(3)), REFUSED);
    set(Some(InodeFlags::IMMUTABLE), Some(0)).unwrap();
    set(Some(InodeFlags::NO_DUMP), Some(3)).unwrap();
    let marks = Marks { flags: InodeFlags::NO_DUMP, project: 3 };
    assert_eq!(bench.files.marks(ino).unwrap(), marks);
}

#[test]
fn what_is_no_flag_is_refused_and_changes_nothing() {
    let bench = Bench::new();
    let ino = bench.file("f");
    for bit in 0..32 {
        mark(&bench, ino, InodeFlags::default());
        let flags = InodeFlags(1 << bit);
        let kept = 0x2001_04f8 & flags.0 != 0;
        let set = SetMarks { flags: Some(flags), project: Some(bit) };
        let outcome = bench.files.set_marks(ino, set);
        assert_eq!(outcome, if kept { Ok(()) } else { Err(Error::NotSupported) }, "{flags:?}");
    }
    let before = bench.attributes(ino).changed;
    bench.files.set_marks(ino, SetMarks::default()).unwrap();
    assert!(bench.attributes(ino).changed > before);
    assert_eq!(bench.files.marks(ino).unwrap().project, 29);
}

#[test]
fn a_project_that_passes_on_takes_nothing_of_another() {
    let bench = Bench::new();
    let d = bench.directory(ROOT, "d");
    let flags = Some(InodeFlags::INHERIT_PROJECT);
    bench.files.set_marks(d, SetMarks { flags, project: Some(7) }).unwrap();
    let (same, other) = (bench.file("same"), bench.file("other"));
    bench.files.set_marks(same, SetMarks { flags: None, project: Some(7) }).unwrap();
    assert_eq!(bench.files.link(other, d, name("l")), Err(Error::CrossDevice));
    bench.files.link(same, d, name("l")).unwrap();
    let to = (d, "moved");
    let crossed = rename(&bench, (ROOT, "other"), to, RenameMode::Replace);
    assert_eq!(crossed, Err(Error::CrossDevice));
    rename(&bench, (ROOT, "same"), to, RenameMode::Replace).unwrap();
    let crossed = rename(&bench, to, (ROOT, "other"), RenameMode::Exchange);
    assert_eq!(crossed, Err(Error::CrossDevice));
    rename(&bench, to, (ROOT, "out again"), RenameMode::Replace).unwrap();
}

#[test]
fn files_marked_so_keep_their_access_times() {
    let bench = Bench::with(AccessTimes::Strict, 131_072);
    let ino = bench.file("f");
    bench.write(ino, 0, b"content");
    mark(&bench, ino, InodeFlags::NO_ACCESS_TIME);
    let before = bench.attributes(ino).accessed;
    bench.read(ino, 0, 10);
    assert_eq!(bench.attributes(ino).accessed, before);
    mark(&bench, ino, InodeFlags::default());
    bench.read(ino, 0, 10);
    assert!(bench.attributes(ino).accessed > before);
}

#[test]
fn changes_of_inodes_marked_so_are_durable_when_they_return() {
    let bench = Bench::new();
    let (d, ino) = (bench.directory(ROOT, "d"), bench.file("f"));
    mark(&bench, d, InodeFlags::SYNC_DIRECTORY);
    mark(&bench, ino, InodeFlags::SYNC);
    let witness = bench.file("witness");
    let synced = |operation: &dyn Fn()| {
        bench.set_size(witness, 0);
        bench.write(witness, 0, b"a block that no commit has written");
        let before = is_written(&bench, witness);
        operation();
        (before, is_written(&bench, witness))
    };
    assert_eq!(
        synced(&|| {
            bench.file("elsewhere");
        }),
        (false, false)
    );
    assert_eq!(synced(&|| drop(bench.read(ino, 0, 9))), (false, false));
    assert_eq!(synced(&|| bench.write(ino, 0, b"content")), (false, true));
    assert_eq!(synced(&|| bench.set_size(ino, 3)), (false, true));
    assert_eq!(
        synced(&|| {
            bench.directory(d, "sub");
        }),
        (false, true)
    );
    let remove = || bench.files.remove_directory(d, name("sub")).unwrap();
    assert_eq!(synced(&remove), (false, true));
}

/// Whether a commit has written the only section of a file.
fn is_written(bench: &Bench, ino: Ino) -> bool {
    let item = bench.view.get(Key::new(ino.0, kind::SECTION, 0)).unwrap().unwrap();
    match item.block.unwrap() {
        Block::Fresh(fresh) => fresh.stored().is_some(),
        Block::Stored(_) => true,
    }
}

#[test]
fn what_is_written_to_a_file_marked_so_is_not_compressed() {
    let bench = Bench::new();
    let ino = bench.file("f");
    let is_as_is = |at: u64| {
        let item = bench.view.get(Key::new(ino.0, kind::SECTION, at)).unwrap().unwrap();
        let Some(Block::Fresh(fresh)) = item.block else { panic!("nothing is written yet") };
        fresh.is_as_is()
    };
    bench.write(ino, 0, &[0; 4096]);
    assert!(!is_as_is(0));
    mark(&bench, ino, InodeFlags::NO_COMPRESSION);
    bench.write(ino, 1 << 20, &[0; 4096]);
    bench.write(ino, (1 << 20) + 4096, &[0; 4096]);
    assert!(!is_as_is(0) && is_as_is(1 << 20), "also when the block has been written on to");
    mark(&bench, ino, InodeFlags::default());
    bench.write(ino, 2 << 20, &[0; 4096]);
    assert!(!is_as_is(2 << 20));
}
