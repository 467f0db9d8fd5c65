//! Two states of the store in memory merged, and a directory taken back, without any file system
//! that serves them: the parent is a plain implementation of the trait on a view.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_format::record::{
    Counters, Entry, Inode, InodeKind, NameRule, OwnerClass, OwnerId, Time, Usage,
};
use marram_history::{
    Choice, ConflictKind, DirectoryRollback, HeldParent, MergeOptions, MergeReport, MergeSides,
    Parent, ParentChange, merge, roll_back_directory,
};
use marram_records::counters::{put_count, put_counters, read_counters, visit_counts};
use marram_records::directory::{entry_key, probe_entry};
use marram_records::inode::{inode_key, new_inode, read_inode};
use marram_records::section_edits::SectionEdits;
use marram_records::sections::{Section, section_key, sections};
use marram_records::usage::{Share, UsageChange, read_usage};
use marram_store::memory::MemoryStore;
use marram_store::{Batch, Block, Counter, DatasetName, Item, Source, Store, View};
use marram_vfs::{Ino, Result};
use std::cell::Cell;
use std::sync::Arc;

const SEED: u64 = 7;
const ROOT: u64 = Ino::ROOT.0;

/// A dataset that holds a file system, changed by nothing but this.
struct Dataset {
    view: Arc<dyn View>,
    seconds: Cell<i64>,
}

impl Dataset {
    fn open(store: &MemoryStore, name: &str) -> Dataset {
        Dataset { view: store.open(&source(name)).unwrap(), seconds: Cell::new(100) }
    }

    /// A later time at each call.
    fn tick(&self) -> Time {
        self.seconds.set(self.seconds.get() + 1);
        Time { seconds: self.seconds.get(), nanoseconds: 0 }
    }

    /// An empty root directory, and the counters of a new file system.
    fn format(&self) {
        let mut root = new_inode(InodeKind::Directory, 0o755, ROOT, self.tick());
        root.links = 2;
        let mut batch = Batch::new();
        put_counters(
            &mut batch,
            &Counters { next_inode: ROOT + 1, name_seed: SEED, names: NameRule::Exact },
        );
        put_count(&mut batch, 0, 1);
        self.put_inode(&mut batch, ROOT, (None, Some(&root)));
        self.view.apply(batch).unwrap();
    }

    fn put_inode(&self, batch: &mut Batch<'_>, ino: u64, of: (Option<&Inode>, Option<&Inode>)) {
        let mut usage = UsageChange::default();
        usage.note(of.0.map(Share::of), of.1.map(Share::of));
        usage.put(batch, |_, _| Counter::UNLIMITED);
        match of.1 {
            Some(inode) => batch.put(inode_key(ino), Item::plain(inode.encode().to_vec())),
            None => batch.remove(inode_key(ino)),
        };
    }

    fn find(&self, name: &str) -> Option<u64> {
        let hashing = (NameRule::Exact, SEED);
        let probe = probe_entry(&*self.view, hashing, ROOT, name.as_bytes()).unwrap();
        probe.found.map(|found| found.ino)
    }

    /// Makes a file in the root directory, with content.
    fn create(&self, name: &str, content: &str) {
        let counters = read_counters(&*self.view).unwrap().unwrap();
        let ino = counters.next_inode;
        let now = self.tick();
        let mut file = new_inode(InodeKind::Regular, 0o644, ROOT, now);
        let mut batch = Batch::new();
        put_counters(&mut batch, &Counters { next_inode: ino + 1, ..counters });
        put_count(&mut batch, 0, self.count() + 1);
        put_content(&mut batch, ino, &mut file, content);
        let probe =
            probe_entry(&*self.view, (NameRule::Exact, SEED), ROOT, name.as_bytes()).unwrap();
        file.name_place = probe.free().unwrap();
        file.links = 1;
        let entry = Entry { ino, kind: InodeKind::Regular, name: name.as_bytes() };
        batch.put(entry_key(ROOT, file.name_place), Item::plain(entry.encode()));
        self.put_inode(&mut batch, ino, (None, Some(&file)));
        let before = read_inode(&*self.view, ROOT).unwrap().unwrap();
        let root = Inode { size: before.size + 1, modified: now, changed: now, ..before.clone() };
        self.put_inode(&mut batch, ROOT, (Some(&before), Some(&root)));
        self.view.apply(batch).unwrap();
    }

    /// Gives a file other content of the same length.
    fn write(&self, name: &str, content: &str) {
        let ino = self.find(name).unwrap();
        let before = read_inode(&*self.view, ino).unwrap().unwrap();
        let mut file = before.clone();
        (file.data_bytes, file.modified) = (0, self.tick());
        file.changed = file.modified;
        let mut batch = Batch::new();
        put_content(&mut batch, ino, &mut file, content);
        self.put_inode(&mut batch, ino, (Some(&before), Some(&file)));
        self.view.apply(batch).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        let ino = self.find(name)?;
        let size = read_inode(&*self.view, ino).unwrap().unwrap().size;
        let mut text = Vec::new();
        for section in sections(&*self.view, ino, 0, size, usize::MAX).unwrap() {
            let content = self.view.read_block(&section.block.unwrap()).unwrap();
            let start = section.block_start as usize;
            text.extend_from_slice(&content[start..start + usize::try_from(section.len).unwrap()]);
        }
        Some(String::from_utf8(text).unwrap())
    }

    fn count(&self) -> i64 {
        let mut sum = 0;
        visit_counts(&*self.view, &mut |_, count| sum += count).unwrap();
        sum
    }

    /// Inodes that user 0 has, by the sum of the file system.
    fn usage(&self) -> Usage {
        read_usage(&*self.view, OwnerId { class: OwnerClass::User, id: 0 }).unwrap()
    }
}

fn put_content(batch: &mut Batch<'_>, ino: u64, file: &mut Inode, content: &str) {
    let mut edits = SectionEdits::default();
    edits.put(Section {
        at: 0,
        len: content.len() as u64,
        block_start: 0,
        block: Some(Block::fresh(content.as_bytes().to_vec())),
    });
    for (offset, section) in edits.settle(file) {
        batch.put(section_key(ino, offset), section.unwrap().into_item());
    }
    file.size = content.len() as u64;
}

impl Parent for Dataset {
    fn view(&self) -> &dyn View {
        &*self.view
    }

    fn root(&self) -> Ino {
        Ino::ROOT
    }

    fn check_running(&self) -> Result<()> {
        Ok(())
    }

    fn hold_still(&self) -> Result<Box<dyn HeldParent + '_>> {
        Ok(Box::new(Alone(self)))
    }

    fn with_space(&self, attempt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        attempt()
    }

    fn free_removed(&self) -> Result<()> {
        Ok(())
    }

    fn give_back(&self, ino: u64) {
        panic!("inode {ino} is small enough to go at once");
    }
}

/// A dataset that nothing else changes is still anyway.
struct Alone<'a>(&'a Dataset);

impl Alone<'_> {
    fn whole_batch(&self, change: &mut ParentChange<'_>) -> Batch<'static> {
        let mut batch = std::mem::take(&mut change.batch);
        let (inodes, next_number) = (change.inodes, change.next_number);
        std::mem::take(&mut change.usage).put(&mut batch, |_, _| Counter::UNLIMITED);
        put_count(&mut batch, 0, self.0.count() + inodes);
        if let Some(next_inode) = next_number {
            let counters = read_counters(&*self.0.view).unwrap().unwrap();
            put_counters(&mut batch, &Counters { next_inode, ..counters });
        }
        batch
    }
}

impl HeldParent for Alone<'_> {
    fn now(&self) -> Time {
        self.0.tick()
    }

    fn first_number(&self) -> u64 {
        read_counters(&*self.0.view).unwrap().unwrap().next_inode
    }

    fn is_in_use(&self, _ino: u64) -> bool {
        false
    }

    fn complete(&self, _ino: u64, _inode: &mut Inode) {}

    fn dry_run(&self, change: ParentChange<'_>) -> Result<()> {
        let mut change = change;
        let batch = self.whole_batch(&mut change);
        self.0.view.dry_run(batch).map_err(marram_records::failure::from_store)
    }

    fn complete_batch(&mut self, change: &mut ParentChange<'_>) -> Result<Batch<'static>> {
        Ok(self.whole_batch(change))
    }

    fn applied(&mut self, _change: &ParentChange<'_>) {}
}

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

/// A parent with two files and a fork of it.
fn family() -> (MemoryStore, Dataset, Dataset) {
    let store = MemoryStore::new();
    let parent = Dataset::open(&store, "root");
    parent.format();
    parent.create("one", "one of the base");
    parent.create("two", "two of the base");
    store.commit();
    store.fork(&DatasetName::root(), &"fork".parse().unwrap(), ROOT).unwrap();
    let fork = Dataset::open(&store, "fork");
    (store, parent, fork)
}

fn merge_family(store: &MemoryStore, parent: &Dataset, options: &MergeOptions<'_>) -> MergeReport {
    let (dataset, base, fork) = (DatasetName::root(), source("root@fork:fork"), source("fork"));
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
    merge(parent, store, sides, options).unwrap()
}

#[test]
fn what_both_changed_apart_comes_together() {
    let (store, parent, fork) = family();
    fork.write("one", "one of the fork");
    fork.create("new", "made in the fork");
    parent.write("two", "two of parents!");
    parent.create("own", "made in the parent");
    let preview =
        merge_family(&store, &parent, &MergeOptions { preview: true, ..MergeOptions::default() });
    assert!(!preview.applied && preview.obstacle.is_none() && preview.conflicts.is_empty());
    assert_eq!(parent.read("new"), None, "a preview changes nothing");
    let report = merge_family(&store, &parent, &MergeOptions::default());
    assert!(report.applied);
    assert_eq!(parent.read("one").as_deref(), Some("one of the fork"));
    assert_eq!(parent.read("two").as_deref(), Some("two of parents!"));
    assert_eq!(parent.read("new").as_deref(), Some("made in the fork"));
    assert_eq!(parent.read("own").as_deref(), Some("made in the parent"));
    assert_ne!(parent.find("new"), parent.find("own"), "each inode has a number of its own");
    let next = read_counters(&*parent.view).unwrap().unwrap().next_inode;
    assert!(parent.find("new").unwrap() < next);
    assert_eq!((parent.count(), parent.usage().inodes), (5, 5));
}

#[test]
fn what_both_changed_alike_is_a_conflict_that_changes_nothing() {
    let (store, parent, fork) = family();
    fork.write("one", "one of the fork");
    parent.write("one", "one of parents!");
    let report = merge_family(&store, &parent, &MergeOptions::default());
    assert!(!report.applied);
    let kinds: Vec<ConflictKind> = report.conflicts.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [ConflictKind::Content]);
    assert_eq!(parent.read("one").as_deref(), Some("one of parents!"));
    let choose = |_: &marram_history::Conflict| Choice::Theirs;
    let options = MergeOptions { choose: &choose, ..MergeOptions::default() };
    assert!(merge_family(&store, &parent, &options).applied);
    assert_eq!(parent.read("one").as_deref(), Some("one of the fork"));
}

#[test]
fn the_root_goes_back_to_a_snapshot() {
    let (store, parent, _) = family();
    let before = (parent.count(), parent.usage());
    store.snapshot(&DatasetName::root(), "then").unwrap();
    parent.write("one", "one of later on");
    parent.create("new", "made later");
    let (dataset, to) = (DatasetName::root(), source("root@then"));
    let rollback =
        DirectoryRollback { dataset: &dataset, to: &to, directory: Ino::ROOT, keep: None };
    assert!(roll_back_directory(&parent, &store, rollback).unwrap().is_some());
    assert_eq!(parent.read("one").as_deref(), Some("one of the base"));
    assert_eq!(parent.read("new"), None);
    assert_eq!((parent.count(), parent.usage()), before);
    assert!(roll_back_directory(&parent, &store, rollback).unwrap().is_none(), "it is as it was");
}
