//! Tests of the tester: a model beside a model agrees, and a bug planted in one of them is caught
//! and made small.

use marram_model::{Change, Difference, Model};
use marram_sim::{
    Answer, Failure, HistoryClock, Home, HomeCapabilities, HomeResult, MakeHome, ModelHome, Moment,
    Options, Report, run_history,
};
use marram_vfs::{
    AccessRules, Allocate, Attributes, Caller, Capabilities, Copying, DirectoryEntry, FileSystem,
    Ino, Name, NewNode, Ranges, RenameMode, Result, SeekTarget, SetAttributes, Sharing,
    SpaceReport, SyncScope, WriteOptions, XattrMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is wrong with a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// Nothing is.
    Nothing,
    /// A write that ends in the second record loses its last byte.
    LosesByte,
    /// A punched hole stays as it was.
    KeepsHole,
    /// A rename that exchanges two names replaces the second.
    ExchangesNothing,
    /// Forgetting frees nothing.
    LeaksOrphans,
    /// Writing 0 bytes moves the times.
    TouchesTimes,
    /// Reading far out panics.
    Panics,
    /// A snapshot goes on with the live file system.
    SharesSnapshots,
    /// Going back to a snapshot does nothing.
    StaysWhereItIs,
    /// A diff does not report what was renamed.
    ForgetsRenames,
    /// It says that it cannot go back to a snapshot, and does.
    GoesBackUnasked,
    /// It says that it cannot diff, and answers as if nothing differed.
    DiffsUnasked,
}

/// A model with a bug.
struct Buggy {
    model: Model,
    bug: Bug,
    /// It has no capability.
    is_bare: bool,
}

/// A home with a buggy file system.
struct BuggyHome {
    live: Arc<Buggy>,
    kept: BTreeMap<String, Model>,
}

impl Home for BuggyHome {
    fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.live) as Arc<dyn FileSystem>
    }
    fn capabilities(&self) -> HomeCapabilities {
        let bug = self.live.bug;
        HomeCapabilities {
            rollback: bug != Bug::GoesBackUnasked,
            diff: bug != Bug::DiffsUnasked,
            ..HomeCapabilities::default()
        }
    }
    fn remount(&mut self) -> HomeResult<()> {
        self.live.model.forget_all();
        Ok(())
    }
    fn commit(&mut self) -> HomeResult<()> {
        Ok(())
    }
    fn snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.kept.insert(name.to_owned(), self.live.model.snapshot());
        Ok(())
    }
    fn open_snapshot(&self, name: &str) -> HomeResult<Arc<dyn FileSystem>> {
        let kept = match self.live.bug {
            Bug::SharesSnapshots => self.live.model.snapshot(),
            _ => self.kept[name].snapshot(),
        };
        Ok(Arc::new(kept))
    }
    fn destroy_snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.kept.remove(name);
        Ok(())
    }
    fn roll_back(&mut self, snapshot: &str, keep: &str) -> Answer<()> {
        self.kept.insert(keep.to_owned(), self.live.model.snapshot());
        if self.live.bug != Bug::StaysWhereItIs {
            self.live.model.roll_back(&self.kept[snapshot]).map_err(|error| error.to_string())?;
        }
        Ok(Ok(()))
    }
    fn diff(&self, before: &Moment, after: &Moment) -> Answer<Vec<Difference>> {
        let at = |moment: &Moment| match moment {
            Moment::Kept(name) => self.kept[name].snapshot(),
            Moment::Live | Moment::Fork(_) => self.live.model.snapshot(),
        };
        let mut told: Vec<Difference> = at(before).diff(&at(after)).into_iter().collect();
        if self.live.bug == Bug::ForgetsRenames {
            told.retain(|difference| !matches!(difference.what, Change::Renamed(_)));
        }
        Ok(Ok(told))
    }
    fn clone_snapshot(&mut self, snapshot: &str, _clone: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.kept[snapshot].fork()))
    }
    fn destroy_clone(&mut self, _clone: &str) -> HomeResult<()> {
        Ok(())
    }
}

fn with_bug(bug: Bug) -> impl Fn(Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    move |clock| {
        let live = Arc::new(Buggy { model: Model::new(clock), bug, is_bare: false });
        Ok(Box::new(BuggyHome { live, kept: BTreeMap::new() }))
    }
}

/// The smallest of the first failures: one history may have no shorter way to a bug than by several
/// steps that depend on each other.
fn smallest_failure(make_home: MakeHome<'_>) -> Option<Box<Failure>> {
    let failures =
        (0..40).filter_map(|seed| run_history(&Options::new(seed, 600), make_home).err());
    failures.take(3).min_by_key(|failure| failure.trace.len())
}

#[test]
fn a_model_agrees_with_itself() {
    let mut sum = Report::default();
    for seed in 0..20 {
        let report =
            run_history(&Options::new(seed, 1000), &|clock| Ok(Box::new(ModelHome::new(clock))));
        sum.add(&report.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{sum:?}");
    assert!(sum.done * 3 > sum.operations(), "most operations make sense: {sum:?}");
    assert!(sum.refused * 10 > sum.operations(), "errors are compared too: {sum:?}");
    assert!(sum.snapshots > 20 && sum.clones > 5 && sum.remounts > 20, "{sum:?}");
    assert!(sum.rollbacks > 5 && sum.diffs > 20 && sum.differences > 100, "{sum:?}");
}

#[test]
fn a_file_system_without_capabilities_agrees_in_the_rest() {
    let mut sum = Report::default();
    for seed in 0..10 {
        let report = run_history(&Options::new(seed, 1000), &|clock| {
            let live =
                Arc::new(Buggy { model: Model::new(clock), bug: Bug::Nothing, is_bare: true });
            Ok(Box::new(BuggyHome { live, kept: BTreeMap::new() }))
        });
        sum.add(&report.unwrap_or_else(|failure| panic!("{failure}")));
    }
    assert!(sum.lacking > 200 && sum.done > sum.lacking, "{sum:?}");
    assert!(sum.rollbacks > 2 && sum.forks == 0, "{sum:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let make_home: MakeHome<'_> = &|clock| Ok(Box::new(ModelHome::new(clock)));
    let first = run_history(&Options::new(7, 1500), make_home).unwrap();
    assert_eq!(first, run_history(&Options::new(7, 1500), make_home).unwrap());
    assert_ne!(first, run_history(&Options::new(8, 1500), make_home).unwrap());
}

#[test]
fn planted_bugs_are_caught_and_made_small() {
    let bugs = [
        Bug::LosesByte,
        Bug::KeepsHole,
        Bug::ExchangesNothing,
        Bug::LeaksOrphans,
        Bug::TouchesTimes,
        Bug::Panics,
        Bug::SharesSnapshots,
        Bug::StaysWhereItIs,
        Bug::ForgetsRenames,
        Bug::GoesBackUnasked,
        Bug::DiffsUnasked,
    ];
    for (number, bug) in bugs.into_iter().enumerate() {
        let failure = smallest_failure(&with_bug(bug))
            .unwrap_or_else(|| panic!("bug {number} was not caught"));
        assert!(failure.trace.len() <= 6, "bug {number}: {failure}");
        let replay = Options {
            kept: Some(failure.kept.to_string().parse().unwrap()),
            shrink_runs_max: 0,
            ..Options::new(failure.seed, failure.steps)
        };
        let again = run_history(&replay, &with_bug(bug)).unwrap_err();
        assert_eq!(again.reason, failure.reason, "a replay fails in the same way");
    }
}

impl FileSystem for Buggy {
    fn forget(&self, ino: Ino, count: u64) {
        if self.bug != Bug::LeaksOrphans {
            self.model.forget(ino, count);
        }
    }

    fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let mode = match mode {
            RenameMode::Exchange if self.bug == Bug::ExchangesNothing => RenameMode::Replace,
            mode => mode,
        };
        self.model.rename(caller, parent, name, new_parent, new_name, mode)
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        assert!(self.bug != Bug::Panics || offset < 1 << 33, "read at {offset}");
        self.model.read(ino, offset, len, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        if self.bug == Bug::TouchesTimes && data.is_empty() {
            let set = SetAttributes::default();
            return self.model.set_attributes(Caller { uid: 0, gid: 0 }, ino, &set).map(|_| ());
        }
        let end = offset.saturating_add(data.len() as u64);
        if self.bug == Bug::LosesByte && end / 131_072 == 1 && data.len() > 1 {
            return self.model.write(ino, offset, &data[..data.len() - 1], options);
        }
        self.model.write(ino, offset, data, options)
    }

    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        self.model.append(ino, data, options)
    }

    fn space(&self) -> Result<SpaceReport> {
        self.model.space()
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.model.lookup(parent, name)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.model.parent(ino)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.model.pin(ino)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.model.attributes(ino)
    }

    fn forget_all(&self) {
        self.model.forget_all();
    }

    fn set_attributes(&self, caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.model.set_attributes(caller, ino, set)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.model.read_link(ino)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.model.create(caller, parent, name, node)
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.model.create_anonymous(caller, parent, permissions)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.model.link(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.model.unlink(parent, name)
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.model.remove_directory(parent, name)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.model.read_directory(ino, after, with_attributes, visit)
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.model.xattr(ino, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.model.set_xattr(ino, name, value, mode)
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.model.list_xattrs(ino)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.model.remove_xattr(ino, name)
    }

    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()> {
        self.model.sync(ino, scope)
    }

    fn sync_all(&self) -> Result<()> {
        self.model.sync_all()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        if self.is_bare {
            return Capabilities::default();
        }
        Capabilities {
            ranges: Some(self),
            copying: Some(self),
            sharing: Some(self),
            ..Capabilities::default()
        }
    }

    fn access_rules(&self) -> AccessRules<'_> {
        AccessRules::ModeBits
    }
}

impl Ranges for Buggy {
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        match how {
            Allocate::PunchHole if self.bug == Bug::KeepsHole => {
                self.model.allocate(ino, Allocate::ReserveKeepSize, offset, len)
            }
            how => self.model.allocate(ino, how, offset, len),
        }
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        self.model.seek(ino, offset, target)
    }
}

impl Copying for Buggy {
    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.model.copy_range(from, from_offset, to, to_offset, len)
    }
}

impl Sharing for Buggy {
    fn share_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.model.share_range(from, from_offset, to, to_offset, len)
    }
}
