//! What owners use is counted exactly, and their limits are kept.

use crate::{Bench, PLAIN, USER, name, pattern};
use marram_posix::{Limit, OwnerClass, OwnerId, OwnerReport, Usage};
use marram_store::{Source, Store};
use marram_vfs::{
    Allocate, Attributes, Caller, Copying, Error, FileSystem, Ino, Kind, Marked, NewNode, Ranges,
    RenameMode, SetAttributes, SetMarks, WriteOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const OTHER: Caller = Caller { uid: 1001, gid: 1001 };
const KIB: i64 = 1024;

fn user(id: u32) -> OwnerId {
    OwnerId { class: OwnerClass::User, id }
}

fn group(id: u32) -> OwnerId {
    OwnerId { class: OwnerClass::Group, id }
}

fn project(id: u32) -> OwnerId {
    OwnerId { class: OwnerClass::Project, id }
}

fn bytes(bytes: i64) -> Limit {
    Limit { bytes, ..Limit::NONE }
}

impl Bench {
    fn usage(&self, owner: OwnerId) -> (i64, i64) {
        let Usage { bytes, inodes } = self.files.owner(owner).unwrap().usage;
        (bytes, inodes)
    }

    fn file_of(&self, caller: Caller, text: &str) -> Result<Ino, Error> {
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        self.files.create(caller, Ino::ROOT, name(text), node).map(|made| made.ino)
    }

    fn give(&self, caller: Caller, ino: Ino, uid: u32, gid: u32) -> Result<Attributes, Error> {
        let set = SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
        self.files.set_attributes(caller, ino, &set)
    }

    fn set_project(&self, ino: Ino, project: u32) {
        let set = SetMarks { project: Some(project), ..SetMarks::default() };
        self.files.set_marks(ino, set).unwrap();
    }

    /// Fails unless what is kept is what a walk over the given inodes adds up to.
    fn recount(&self, inos: impl IntoIterator<Item = Ino>) {
        let mut sums: BTreeMap<OwnerId, Usage> = BTreeMap::new();
        for ino in inos {
            let found = self.attributes(ino);
            let project = self.files.marks(ino).unwrap().project;
            let owners = [user(found.uid), group(found.gid), self::project(project)];
            let owners = owners.into_iter().filter(|owner| *owner != self::project(0));
            for owner in owners {
                let sum = sums.entry(owner).or_default();
                sum.bytes += i64::try_from(found.blocks_512 * 512).unwrap();
                sum.inodes += 1;
            }
        }
        let kept: BTreeMap<OwnerId, Usage> = self
            .files
            .owners()
            .unwrap()
            .into_iter()
            .map(|OwnerReport { owner, usage, .. }| (owner, usage))
            .filter(|(_, usage)| *usage != Usage::default())
            .collect();
        assert_eq!(kept, sums);
    }
}

#[test]
fn usage_follows_every_change_of_a_file() {
    let bench = Bench::new();
    assert_eq!(bench.usage(user(0)), (0, 1), "the root directory");
    let file = bench.file("a");
    assert_eq!(bench.usage(user(1000)), (0, 1));
    bench.write(file, 0, b"x");
    assert_eq!(bench.usage(user(1000)), (4 * KIB, 1), "as du says");
    bench.write(file, 1 << 20, &pattern(1, 100_000));
    assert_eq!(bench.usage(group(1000)), (100 * KIB, 1), "a hole is not counted");
    bench.files.allocate(file, Allocate::Reserve, 0, 1 << 20).unwrap();
    assert_eq!(bench.usage(user(1000)).0, (1024 + 100) * KIB, "what is reserved is counted");
    bench.set_size(file, 4097);
    assert_eq!(bench.usage(user(1000)), (8 * KIB, 1));
    bench.files.allocate(file, Allocate::PunchHole, 0, 4096).unwrap();
    assert_eq!(bench.usage(user(1000)), (4 * KIB, 1));
    bench.files.copy_range(file, 4096, file, 8192, 1).unwrap();
    assert_eq!(bench.attributes(file).blocks_512, 8);
    bench.recount([Ino::ROOT, file]);
}

#[test]
fn names_do_not_count_and_a_file_counts_until_it_is_gone() {
    let bench = Bench::new();
    let file = bench.file("a");
    bench.write(file, 0, &pattern(1, 10_000));
    bench.files.link(file, Ino::ROOT, name("b")).unwrap();
    assert_eq!(bench.usage(user(1000)), (12 * KIB, 1), "another name is no other file");
    bench.files.unlink(Ino::ROOT, name("a")).unwrap();
    bench.files.unlink(Ino::ROOT, name("b")).unwrap();
    assert_eq!(bench.usage(user(1000)), (12 * KIB, 1), "it is still open");
    bench.files.forget(file, 9);
    bench.reclaim(10);
    assert_eq!(bench.usage(user(1000)), (0, 0));
    let (one, two) = (bench.file("one"), bench.file("two"));
    bench.write(one, 0, &pattern(1, 5000));
    bench.write(two, 0, &pattern(1, 50_000));
    bench.files.forget_all();
    let mode = RenameMode::Replace;
    bench.files.rename(USER, Ino::ROOT, name("one"), Ino::ROOT, name("two"), mode).unwrap();
    assert_eq!(bench.usage(user(1000)), (8 * KIB, 1), "what a rename replaces is gone");
    bench.recount([Ino::ROOT, one]);
}

#[test]
fn a_change_of_owner_moves_what_a_file_uses() {
    let bench = Bench::new();
    let file = bench.file("a");
    bench.write(file, 0, &pattern(1, 5000));
    bench.give(ROOT, file, 1001, 100).unwrap();
    assert_eq!((bench.usage(user(1000)), bench.usage(group(1000))), ((0, 0), (0, 0)));
    assert_eq!((bench.usage(user(1001)), bench.usage(group(100))), ((8192, 1), (8192, 1)));
    bench.set_project(file, 7);
    assert_eq!(bench.usage(project(7)), (8192, 1));
    bench.set_project(file, 8);
    assert_eq!((bench.usage(project(7)), bench.usage(project(8))), ((0, 0), (8192, 1)));
    bench.set_project(file, 0);
    assert_eq!((bench.usage(project(8)), bench.usage(project(0))), ((0, 0), (0, 0)));
    bench.recount([Ino::ROOT, file]);
}

#[test]
fn usage_survives_a_crash_and_belongs_to_the_snapshot_that_kept_it() {
    let mut bench = Bench::new();
    let file = bench.file("a");
    bench.write(file, 0, &pattern(1, 100_000));
    bench.files.unlink(Ino::ROOT, name("a")).unwrap();
    bench.crash();
    assert_eq!(bench.usage(user(1000)), (100 * KIB, 1), "the orphan is still there");
    bench.reclaim(10);
    assert_eq!(bench.usage(user(1000)), (0, 0));
    let file = bench.file("b");
    bench.write(file, 0, &pattern(1, 20_000));
    bench.store.snapshot(&"root".parse().unwrap(), "kept").unwrap();
    bench.set_size(file, 0);
    let open = |source: &str| {
        let source: Source = source.parse().unwrap();
        crate::open(&bench.store.open(&source).unwrap(), Default::default(), &bench.damage)
    };
    assert_eq!(bench.usage(user(1000)), (0, 1));
    assert_eq!(open("root@kept").owner(user(1000)).unwrap().usage.bytes, 20 * KIB);
    bench.store.clone_snapshot(&"root@kept".parse().unwrap(), &"c".parse().unwrap()).unwrap();
    let clone = open("c");
    clone.write(file, 0, &pattern(1, 30_000), PLAIN).unwrap();
    assert_eq!(clone.owner(user(1000)).unwrap().usage.bytes, 32 * KIB);
    assert_eq!(bench.usage(user(1000)), (0, 1));
}

#[test]
fn a_limit_on_bytes_refuses_growth_and_nothing_else() {
    let bench = Bench::new();
    let file = bench.file("a");
    bench.files.set_limit(user(1000), bytes(64 * KIB)).unwrap();
    bench.write(file, 0, &pattern(1, 60_000));
    let full = bench.files.write(file, 60_000, &pattern(2, 10_000), PLAIN);
    assert_eq!(full, Err(Error::QuotaExceeded));
    assert_eq!(bench.attributes(file).size, 60_000, "nothing of it was written");
    bench.write(file, 60_000, &pattern(2, 5_000));
    bench.write(file, 0, &pattern(3, 65_000));
    let reserve = bench.files.allocate(file, Allocate::Reserve, 0, 1 << 20);
    assert_eq!(reserve, Err(Error::QuotaExceeded));
    let more = bench.file("b");
    assert_eq!(bench.files.write(more, 0, b"x", PLAIN), Err(Error::QuotaExceeded));
    assert_eq!(
        bench.files.copy_range(file, 0, more, 0, 8192),
        Err(Error::QuotaExceeded),
        "shared blocks count for each file"
    );
    bench.files.set_limit(user(1000), bytes(KIB)).unwrap();
    bench.write(file, 0, &pattern(4, 65_000));
    bench.files.unlink(Ino::ROOT, name("b")).unwrap();
    bench.set_size(file, 0);
    bench.files.set_limit(user(1000), Limit::NONE).unwrap();
    bench.write(file, 0, &pattern(1, 1 << 20));
}

#[test]
fn space_that_waits_to_be_freed_is_in_nobodys_way() {
    let bench = Bench::with(Default::default(), 4096);
    bench.files.set_limit(user(1000), bytes(1024 * KIB)).unwrap();
    let file = bench.file("a");
    bench.write(file, 0, &pattern(1, 1 << 20));
    bench.files.unlink(Ino::ROOT, name("a")).unwrap();
    bench.files.forget_all();
    assert_eq!(bench.usage(user(1000)).0, 1024 * KIB, "so large a file goes piece by piece");
    let next = bench.file("b");
    bench.write(next, 0, &pattern(2, 1 << 20));
    assert_eq!(bench.usage(user(1000)), (1024 * KIB, 1));
}

#[test]
fn a_limit_on_inodes_refuses_new_ones() {
    let bench = Bench::new();
    bench.files.set_limit(group(1000), Limit { inodes: 2, ..Limit::NONE }).unwrap();
    let (file, _) = (bench.file("a"), bench.file("b"));
    assert_eq!(bench.file_of(USER, "c"), Err(Error::QuotaExceeded));
    let anonymous = bench.files.create_anonymous(USER, Ino::ROOT, 0o600);
    assert_eq!(anonymous.unwrap_err(), Error::QuotaExceeded);
    assert_eq!(bench.files.lookup(Ino::ROOT, name("c")).unwrap_err(), Error::NotFound);
    bench.files.link(file, Ino::ROOT, name("c")).unwrap();
    bench.file_of(OTHER, "d").unwrap();
    bench.files.unlink(Ino::ROOT, name("b")).unwrap();
    bench.files.forget_all();
    bench.reclaim(10);
    bench.file("e");
}

#[test]
fn a_file_comes_to_a_user_at_its_limit_and_not_to_a_group() {
    let bench = Bench::new();
    bench.files.set_limit(user(1001), bytes(4 * KIB)).unwrap();
    bench.files.set_limit(group(50), bytes(4 * KIB)).unwrap();
    let file = bench.file("a");
    bench.write(file, 0, &pattern(1, 10_000));
    assert_eq!(bench.give(USER, file, 1000, 50).unwrap_err(), Error::QuotaExceeded);
    assert_eq!(bench.usage(user(1000)), (12 * KIB, 1));
    bench.give(ROOT, file, 1001, 1001).unwrap();
    assert_eq!(bench.usage(user(1001)), (12 * KIB, 1));
    let write = bench.files.write(file, 20_000, &pattern(1, 5000), PLAIN);
    assert_eq!(write, Err(Error::QuotaExceeded), "whoever writes");
    let root = bench.file_of(ROOT, "root's").unwrap();
    bench.write(root, 0, &pattern(1, 1 << 20));
    let refused = bench.files.set_limit(user(0), bytes(0));
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
}

#[test]
fn accepted_pages_pass_a_limit_but_not_without_end() {
    let bench = Bench::new();
    bench.files.set_limit(user(1000), bytes(1024 * KIB)).unwrap();
    let file = bench.file("a");
    let accepted = WriteOptions { accepted: true, ..PLAIN };
    let page = pattern(1, 1 << 20);
    let mut written = 0;
    while bench.files.write(file, written, &page, accepted).is_ok() {
        written += 1 << 20;
        assert!(written < 100 << 20, "it never ends");
    }
    assert_eq!(written, 17 << 20);
    assert_eq!(bench.usage(user(1000)).0, 17 * 1024 * KIB, "what passed is counted");
}

#[test]
fn limits_are_there_again_after_a_crash_and_are_told() {
    let mut bench = Bench::new();
    bench.file("a");
    bench.files.set_limit(user(1000), bytes(KIB)).unwrap();
    bench.files.set_limit(project(9), bytes(KIB)).unwrap();
    bench.crash();
    let limits: Vec<_> = bench
        .files
        .owners()
        .unwrap()
        .into_iter()
        .map(|report| (report.owner, report.limit, report.usage.inodes))
        .collect();
    let expected = [
        (user(0), Limit::NONE, 1),
        (user(1000), bytes(KIB), 1),
        (group(0), Limit::NONE, 1),
        (group(1000), Limit::NONE, 1),
        (project(9), bytes(KIB), 0),
    ];
    assert_eq!(limits, expected);
    let file = bench.file("b");
    assert_eq!(bench.files.write(file, 0, b"x", PLAIN), Err(Error::QuotaExceeded));
}

#[test]
fn a_dataset_without_sums_gets_them_when_it_is_opened() {
    let mut bench = Bench::new();
    let file = bench.file("a");
    bench.write(file, 0, &pattern(1, 10_000));
    bench.set_project(file, 3);
    let mut batch = marram_store::Batch::new();
    for key in bench.keys(0).into_iter().filter(|key| key.kind == marram_store::kind::USAGE) {
        batch.remove(key);
    }
    bench.view.apply(batch).unwrap();
    assert_eq!(bench.files.owners().unwrap(), []);
    bench.crash();
    bench.recount([Ino::ROOT, file]);
}

#[test]
fn threads_pass_a_limit_by_not_one_byte() {
    let bench = Arc::new(Bench::new());
    bench.files.set_limit(user(1000), bytes(400 * KIB)).unwrap();
    let files: Vec<Ino> = (0..4).map(|number| bench.file(&number.to_string())).collect();
    let refused: usize = std::thread::scope(|scope| {
        let write = |ino: Ino| {
            let bench = Arc::clone(&bench);
            scope.spawn(move || {
                let page = pattern(1, 4096);
                let write = |at: u64| bench.files.write(ino, at * 4096, &page, PLAIN);
                (0..100).filter(|at| write(*at) == Err(Error::QuotaExceeded)).count()
            })
        };
        let threads: Vec<_> = files.iter().map(|ino| write(*ino)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(refused, 300);
    assert_eq!(bench.usage(user(1000)), (400 * KIB, 4));
}
