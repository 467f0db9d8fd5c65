//! What stands in a merge's way other than conflicts: then nothing is changed.

use super::family::{Family, Tree};
use marram_history::MergeOptions;
use marram_posix::{Limit, OwnerClass, OwnerId};
use marram_vfs::{Error, FileSystem};

/// What a preview says that is in the way.
fn obstacle(family: &Family) -> Option<Error> {
    let before = family.parent.content();
    let preview = MergeOptions { preview: true, ..MergeOptions::default() };
    let report = family.merge_with(&preview).unwrap();
    assert_eq!(family.parent.content(), before);
    assert!(report.conflicts.is_empty() && !report.differences.is_empty());
    report.obstacle
}

fn refused(family: &Family) -> Error {
    let before = family.parent.content();
    let used = family.parent.0.space().unwrap().inodes_used;
    let obstacle = obstacle(family);
    let error = family.merge_with(&MergeOptions::default()).unwrap_err();
    assert_eq!(obstacle, Some(error.clone()));
    assert_eq!(family.parent.content(), before);
    assert_eq!(family.parent.0.space().unwrap().inodes_used, used);
    error
}

fn prepare(tree: &Tree) {
    tree.file("/a", &[1; 100_000]);
}

#[test]
fn a_full_store_changes_nothing() {
    let family = Family::new(prepare);
    for number in 0..100 {
        family.fork.file(&format!("/file {number}"), &[number; 1000]);
    }
    family.store.set_limit(1);
    assert_eq!(refused(&family), Error::NoSpace);
    family.store.set_limit(1 << 40);
    assert_eq!(obstacle(&family), None);
    family.merge();
    assert_eq!(family.parent.content(), family.fork.content());
}

#[test]
fn a_quota_changes_nothing() {
    let family = Family::new(prepare);
    let owner = OwnerId { class: OwnerClass::User, id: 1000 };
    let limit = Limit { bytes: 150_000, inodes: i64::MAX };
    family.fork.file("/b", &[2; 100_000]);
    family.parent.0.set_limit(owner, limit).unwrap();
    assert_eq!(refused(&family), Error::QuotaExceeded);
    family.parent.0.set_limit(owner, Limit::NONE).unwrap();
    assert_eq!(obstacle(&family), None);
    family.merge();
    let usage = |tree: &Tree| tree.0.owner(owner).unwrap().usage;
    assert_eq!(usage(&family.parent), usage(&family.fork));
}
