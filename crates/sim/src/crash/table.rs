//! The small set of things that bounded workloads are made of.

use super::action::Action::{
    Administer, Commit, InClone, InFork, InTransaction, InTransactionOnClone, Root, Transact,
};
use super::action::Administration::{
    Clone, Destroy, DirectoryRollback, Fork, Merge, Rollback, Snapshot,
};
use super::action::Change::{
    Allocate, Append, Copy, Create, CreateHeld, Hold, LetGo, Link, MakeDirectory, RemoveDirectory,
    RemoveXattr, Rename, Resize, SetPermissions, SetXattr, Symlink, Sync, SyncAll, Unlink, Write,
};
use super::action::File::{At, Held};
use super::action::{Action, File, Transaction};
use marram_vfs::Allocate::{PunchHole, Reserve, Zero};
use marram_vfs::RenameMode::{Exchange, Replace, Whiteout};
use marram_vfs::SyncScope::{All, Data};

/// A row: its name in ids, and what it does.
pub(crate) type Row = (&'static str, &'static [Action]);

/// The file with several records.
const F: File = At("A/f");
/// The short file.
const G: File = At("B/g");
/// The file in the root.
const H: File = At("h");

/// What there is before each workload: two directories with something in them, three files.
pub(crate) const PRESET: &[Action] = &[
    Root(MakeDirectory("A")),
    Root(MakeDirectory("B")),
    Root(MakeDirectory("B/e")),
    Root(Create("A/f")),
    Root(Write { file: F, offset: 0, len: 20_000, seed: 5 }),
    Root(Create("B/g")),
    Root(Write { file: G, offset: 0, len: 300, seed: 4 }),
    Root(Create("h")),
    Root(Write { file: H, offset: 0, len: 5_000, seed: 8 }),
    Root(SetXattr { file: G, len: 20 }),
];

/// The operations.
pub(crate) const CHANGES: &[Row] = &[
    ("create", &[Root(Create("A/n"))]),
    (
        "create-write",
        &[Root(Create("B/n")), Root(Write { file: At("B/n"), offset: 0, len: 3_000, seed: 2 })],
    ),
    ("append", &[Root(Append { file: F, len: 5_000, seed: 11 })]),
    ("append-short", &[Root(Append { file: G, len: 10, seed: 14 })]),
    ("overwrite", &[Root(Write { file: F, offset: 1_000, len: 4_096, seed: 17 })]),
    ("overwrite-page", &[Root(Write { file: F, offset: 8_192, len: 4_096, seed: 20 })]),
    ("overwrite-all", &[Root(Write { file: G, offset: 0, len: 300, seed: 23 })]),
    ("write-far", &[Root(Write { file: H, offset: 200_000, len: 100, seed: 26 })]),
    ("truncate", &[Root(Resize { file: F, size: 5_000 })]),
    ("truncate-all", &[Root(Resize { file: F, size: 0 })]),
    ("extend", &[Root(Resize { file: H, size: 100_000 })]),
    ("punch", &[Root(Allocate { file: F, how: PunchHole, offset: 4_096, len: 8_192 })]),
    ("zero", &[Root(Allocate { file: H, how: Zero, offset: 1_000, len: 6_000 })]),
    ("reserve", &[Root(Allocate { file: G, how: Reserve, offset: 0, len: 20_000 })]),
    ("copy", &[Root(Copy { from: "A/f", to: "h", len: 16_384 })]),
    ("link", &[Root(Link(F, "B/l"))]),
    ("symlink", &[Root(Symlink("A/s"))]),
    ("unlink", &[Root(Unlink("A/f"))]),
    ("unlink-short", &[Root(Unlink("B/g"))]),
    (
        "unlink-open",
        &[
            Root(Hold("h")),
            Root(Unlink("h")),
            Root(Write { file: Held, offset: 100, len: 9_000, seed: 29 }),
        ],
    ),
    ("close", &[Root(LetGo)]),
    ("rename", &[Root(Rename("A/f", "B/f", Replace))]),
    ("rename-back", &[Root(Rename("B/f", "A/f", Replace))]),
    ("rename-over", &[Root(Rename("A/f", "B/g", Replace))]),
    ("rename-over-large", &[Root(Rename("h", "A/f", Replace))]),
    ("rename-whiteout", &[Root(Rename("B/g", "A/g", Whiteout))]),
    ("exchange", &[Root(Rename("A/f", "B/g", Exchange))]),
    ("rename-directory", &[Root(Rename("A", "B/e", Replace))]),
    ("exchange-directories", &[Root(Rename("A", "B", Exchange))]),
    ("mkdir", &[Root(MakeDirectory("A/d"))]),
    ("mkdir-fill", &[Root(MakeDirectory("B/d")), Root(Create("B/d/x"))]),
    ("rmdir", &[Root(RemoveDirectory("B/e"))]),
    ("chmod", &[Root(SetPermissions(F, 0o600))]),
    ("xattr", &[Root(SetXattr { file: F, len: 30 })]),
    ("xattr-long", &[Root(SetXattr { file: H, len: 6_000 })]),
    ("xattr-remove", &[Root(RemoveXattr(G))]),
    (
        "anonymous",
        &[
            Root(CreateHeld("A")),
            Root(Write { file: Held, offset: 0, len: 7_000, seed: 32 }),
            Root(Link(Held, "A/t")),
        ],
    ),
    (
        "replace",
        &[
            Root(Create("A/tmp")),
            Root(Write { file: At("A/tmp"), offset: 0, len: 9_000, seed: 35 }),
            Root(Rename("A/tmp", "A/f", Replace)),
        ],
    ),
    (
        "in-clone",
        &[
            Administer(Snapshot("root@s")),
            Administer(Clone),
            InClone(Write { file: G, offset: 50, len: 6_000, seed: 38 }),
            Root(Append { file: G, len: 40, seed: 41 }),
        ],
    ),
    ("clone-write", &[InClone(Write { file: G, offset: 10, len: 5_000, seed: 44 })]),
    ("clone-rename", &[InClone(Rename("A/f", "B/g", Replace))]),
    (
        "drop-snapshot",
        &[Administer(Snapshot("root@s")), Root(Unlink("h")), Administer(Destroy("root@s"))],
    ),
    ("fork-write", &[InFork(Write { file: F, offset: 4_000, len: 5_000, seed: 59 })]),
    ("fork-rename", &[InFork(Rename("A/f", "B/e/f", Replace))]),
    ("fork-unlink", &[InFork(Unlink("B/g"))]),
    (
        "merge-fork",
        &[
            Administer(Fork),
            InFork(Write { file: F, offset: 1_000, len: 9_000, seed: 62 }),
            InFork(Create("B/k")),
            InFork(Write { file: At("B/k"), offset: 0, len: 7_000, seed: 65 }),
            InFork(Unlink("h")),
            Administer(Merge),
        ],
    ),
    (
        "merge-and-drop",
        &[
            Administer(Fork),
            InFork(MakeDirectory("A/k")),
            InFork(Rename("B/g", "A/k/g", Replace)),
            InFork(Append { file: H, len: 9_000, seed: 68 }),
            Root(Append { file: F, len: 6_000, seed: 71 }),
            Administer(Merge),
            Administer(Destroy("k")),
        ],
    ),
    (
        "go-back",
        &[
            Administer(Snapshot("root@s")),
            Root(Write { file: F, offset: 500, len: 12_000, seed: 74 }),
            Root(Unlink("B/g")),
            Administer(Rollback),
        ],
    ),
    (
        "directory-back",
        &[
            Administer(Snapshot("root@s")),
            Root(Write { file: F, offset: 500, len: 12_000, seed: 89 }),
            Root(Create("A/n")),
            Root(Rename("h", "A/h", Replace)),
            Administer(DirectoryRollback("A")),
        ],
    ),
    (
        "directory-back-made-anew",
        &[
            Administer(Snapshot("root@s")),
            Root(Rename("B", "A/old", Replace)),
            Root(MakeDirectory("B")),
            Root(Link(F, "B/l")),
            Administer(DirectoryRollback("B")),
        ],
    ),
    (
        "transaction",
        &[
            Transact(Transaction::Begin),
            InTransaction(Write { file: F, offset: 1_000, len: 9_000, seed: 92 }),
            InTransaction(Create("B/k")),
            InTransaction(Write { file: At("B/k"), offset: 0, len: 7_000, seed: 95 }),
            InTransaction(Unlink("h")),
            Transact(Transaction::Commit),
        ],
    ),
    (
        "transaction-beside",
        &[
            Transact(Transaction::Begin),
            InTransaction(MakeDirectory("A/k")),
            InTransaction(Rename("B/g", "A/k/g", Replace)),
            InTransaction(Append { file: H, len: 9_000, seed: 98 }),
            Root(Append { file: F, len: 6_000, seed: 101 }),
            Transact(Transaction::Commit),
        ],
    ),
    (
        "transaction-spilled",
        &[
            Transact(Transaction::Begin),
            InTransaction(Write { file: F, offset: 0, len: 15_000, seed: 104 }),
            Root(Append { file: G, len: 500, seed: 107 }),
            Commit,
            InTransaction(Create("A/k")),
            InTransaction(Write { file: At("A/k"), offset: 0, len: 6_000, seed: 110 }),
            Transact(Transaction::Commit),
        ],
    ),
    (
        "transaction-aborted",
        &[
            Transact(Transaction::Begin),
            InTransaction(Write { file: F, offset: 0, len: 15_000, seed: 113 }),
            Commit,
            InTransaction(Unlink("B/g")),
            Transact(Transaction::Abort),
        ],
    ),
    (
        "transaction-on-both",
        &[
            Administer(Snapshot("root@s")),
            Administer(Clone),
            Transact(Transaction::BeginOnBoth),
            InTransaction(Write { file: F, offset: 1_000, len: 9_000, seed: 128 }),
            InTransactionOnClone(Write { file: F, offset: 500, len: 9_000, seed: 131 }),
            InTransactionOnClone(Unlink("h")),
            InTransaction(Rename("B/g", "A/g", Replace)),
            Transact(Transaction::Commit),
        ],
    ),
    (
        "transaction-on-both-beside",
        &[
            Transact(Transaction::BeginOnBoth),
            InTransactionOnClone(Append { file: G, len: 700, seed: 134 }),
            InTransaction(Create("B/k")),
            Root(Append { file: F, len: 6_000, seed: 137 }),
            InClone(Append { file: F, len: 600, seed: 140 }),
            Transact(Transaction::Commit),
        ],
    ),
    (
        "transaction-on-both-spilled",
        &[
            Transact(Transaction::BeginOnBoth),
            InTransactionOnClone(Write { file: F, offset: 0, len: 15_000, seed: 143 }),
            Commit,
            InTransaction(Create("A/k")),
            Transact(Transaction::Commit),
        ],
    ),
    ("transaction-begin", &[Transact(Transaction::Begin)]),
    (
        "transaction-write",
        &[InTransaction(Write { file: F, offset: 3_000, len: 8_000, seed: 116 })],
    ),
    ("transaction-rename", &[InTransaction(Rename("A/f", "B/e/f", Replace))]),
];

/// The points at which something becomes durable; the first is none.
pub(crate) const PERSISTENCE: &[Row] = &[
    ("none", &[]),
    ("fsync", &[Root(Sync(F, All))]),
    ("fdatasync", &[Root(Sync(H, Data))]),
    ("fsync-short", &[Root(Sync(G, All))]),
    ("fsync-directory", &[Root(Sync(At("A"), All))]),
    ("sync", &[Root(SyncAll)]),
    ("commit", &[Commit]),
    ("snapshot", &[Administer(Snapshot("root@s"))]),
    ("second-snapshot", &[Administer(Snapshot("root@t"))]),
    ("clone", &[Administer(Snapshot("root@s")), Administer(Clone)]),
    ("snapshot-of-clone", &[Administer(Snapshot("c@s"))]),
    ("destroy-snapshot", &[Administer(Destroy("root@s"))]),
    ("destroy-second", &[Administer(Destroy("root@t"))]),
    ("destroy-clone", &[Administer(Destroy("c"))]),
    ("sync-in-clone", &[InClone(SetXattr { file: F, len: 9 }), InClone(SyncAll)]),
    ("fork", &[Administer(Fork)]),
    ("sync-in-fork", &[InFork(SetXattr { file: H, len: 9 }), InFork(SyncAll)]),
    ("merge", &[Administer(Merge)]),
    ("destroy-fork", &[Administer(Destroy("k"))]),
    ("rollback", &[Administer(Rollback)]),
    ("rollback-of-directory", &[Administer(DirectoryRollback("B"))]),
    ("destroy-before", &[Administer(Destroy("root@before"))]),
    ("transaction-commit", &[Transact(Transaction::Commit)]),
    ("transaction-abort", &[Transact(Transaction::Abort)]),
];

/// What can be under way while something else happens: the last action of each.
pub(crate) const BEGUN: &[Row] = &[
    ("commit", &[Commit]),
    ("sync", &[Root(SyncAll)]),
    ("snapshot", &[Administer(Snapshot("root@s"))]),
    ("clone", &[Administer(Snapshot("root@s")), Administer(Clone)]),
    ("destroy-snapshot", &[Administer(Destroy("root@s"))]),
    ("destroy-clone", &[Administer(Destroy("c"))]),
    (
        "snapshot-again",
        &[
            Administer(Snapshot("root@s")),
            Root(Resize { file: F, size: 9_000 }),
            Administer(Snapshot("root@t")),
        ],
    ),
    (
        "drop-older",
        &[
            Administer(Snapshot("root@s")),
            Root(Write { file: F, offset: 2_000, len: 9_000, seed: 47 }),
            Administer(Snapshot("root@t")),
            Root(Resize { file: H, size: 100 }),
            Administer(Destroy("root@s")),
        ],
    ),
    (
        "drop-newer",
        &[
            Administer(Snapshot("root@s")),
            Root(Append { file: H, len: 9_000, seed: 50 }),
            Administer(Snapshot("root@t")),
            Root(Unlink("A/f")),
            Administer(Destroy("root@t")),
        ],
    ),
    (
        "drop-changed-clone",
        &[
            Administer(Snapshot("root@s")),
            Administer(Clone),
            InClone(Unlink("A/f")),
            InClone(SyncAll),
            InClone(Append { file: H, len: 6_000, seed: 53 }),
            Administer(Destroy("c")),
        ],
    ),
    (
        "drop-kept-clone",
        &[
            Administer(Snapshot("root@s")),
            Administer(Clone),
            InClone(Append { file: H, len: 6_000, seed: 56 }),
            Administer(Snapshot("c@s")),
            InClone(Resize { file: H, size: 10 }),
            Administer(Destroy("c")),
        ],
    ),
    ("fork", &[Administer(Fork)]),
    (
        "drop-merged-fork",
        &[
            Administer(Fork),
            InFork(Write { file: F, offset: 0, len: 15_000, seed: 77 }),
            Administer(Merge),
            InFork(Append { file: H, len: 6_000, seed: 80 }),
            Administer(Destroy("k")),
        ],
    ),
    (
        "drop-before",
        &[
            Administer(Snapshot("root@s")),
            Root(Write { file: F, offset: 3_000, len: 9_000, seed: 83 }),
            Administer(Rollback),
            Root(Append { file: F, len: 700, seed: 86 }),
            Administer(Destroy("root@before")),
        ],
    ),
    (
        "commit-of-moments",
        &[
            Root(Append { file: G, len: 700, seed: 119 }),
            Transact(Transaction::Begin),
            InTransaction(Write { file: F, offset: 2_000, len: 9_000, seed: 122 }),
            Root(Append { file: H, len: 6_000, seed: 125 }),
            Commit,
        ],
    ),
];

/// What a row of the tables does.
pub(crate) fn row(name: &str) -> Option<&'static [Action]> {
    let mut rows = CHANGES.iter().chain(PERSISTENCE).chain(BEGUN);
    rows.find(|(known, _)| *known == name).map(|(_, actions)| *actions)
}

/// The name of a row as the tables have it.
pub(crate) fn known_row(name: &str) -> Option<&'static str> {
    let mut rows = CHANGES.iter().chain(PERSISTENCE).chain(BEGUN);
    rows.find(|(known, _)| *known == name).map(|(known, _)| *known)
}
