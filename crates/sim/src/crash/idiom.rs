//! What careful programs do, over and over, with commits whenever the background feels like it.

use super::action::Change::{Append, Create, CreateHeld, LetGo, Link, Rename, Sync, Unlink, Write};
use super::action::File::{At, Held};
use super::action::{Action, Administration, Change};
use crate::random::Random;
use marram_vfs::RenameMode::Replace;
use marram_vfs::SyncScope::{All, Data};

/// One round of an idiom.
pub(crate) type Round = fn(&mut Random) -> Vec<Change>;

/// The idioms by name.
pub(crate) const IDIOMS: &[(&str, Round)] = &[
    ("replace", replace),
    ("replace-synced", replace_synced),
    ("append-log", append_log),
    ("create-link", create_link),
    ("mail-move", mail_move),
    ("journal", journal),
];

/// `rounds` rounds of an idiom.
pub(crate) fn actions(idiom: Round, seed: u64, rounds: usize) -> Vec<Action> {
    let mut random = Random::new(seed);
    let mut actions = Vec::new();
    for _ in 0..rounds {
        for change in idiom(&mut random) {
            actions.push(Action::Root(change));
            if random.once_in(8) {
                actions.push(Action::Commit);
            }
        }
        if random.once_in(12) {
            actions.push(Action::Administer(Administration::Destroy("root@s")));
            actions.push(Action::Administer(Administration::Snapshot("root@s")));
        }
    }
    actions.push(Action::Commit);
    actions
}

fn content(random: &mut Random) -> (usize, u64) {
    let len = random.pick(&[100, 3_000, 4_096, 20_000, 40_000]);
    (len, random.number())
}

/// Write a temporary file, rename it over the target, no fsync at all.
fn replace(random: &mut Random) -> Vec<Change> {
    let (len, seed) = content(random);
    vec![
        Create("A/tmp"),
        Write { file: At("A/tmp"), offset: 0, len, seed },
        Rename("A/tmp", "A/f", Replace),
    ]
}

/// The same with every fsync that the manuals ask for.
fn replace_synced(random: &mut Random) -> Vec<Change> {
    let (len, seed) = content(random);
    vec![
        Create("A/tmp"),
        Write { file: At("A/tmp"), offset: 0, len, seed },
        Sync(At("A/tmp"), All),
        Rename("A/tmp", "A/f", Replace),
        Sync(At("A"), All),
    ]
}

/// Append to a log; now and then make it durable, start a new one.
fn append_log(random: &mut Random) -> Vec<Change> {
    let len = random.pick(&[10, 80, 500, 5_000]);
    let mut changes = vec![Append { file: At("h"), len, seed: random.number() }];
    if random.once_in(3) {
        changes.push(Sync(At("h"), Data));
    }
    if random.once_in(10) {
        changes.extend([Unlink("A/h.1"), Link(At("h"), "A/h.1"), Unlink("h"), Create("h")]);
    }
    changes
}

/// Write a file that has no name yet, then give it one.
fn create_link(random: &mut Random) -> Vec<Change> {
    let (len, seed) = content(random);
    vec![
        CreateHeld("B"),
        Write { file: Held, offset: 0, len, seed },
        Unlink("B/linked"),
        Link(Held, "B/linked"),
        LetGo,
    ]
}

/// Deliver a mail into one directory, move it to another.
fn mail_move(random: &mut Random) -> Vec<Change> {
    let (len, seed) = content(random);
    vec![
        Create("A/new"),
        Write { file: At("A/new"), offset: 0, len, seed },
        Sync(At("A/new"), All),
        Rename("A/new", "B/new", Replace),
        Sync(At("B"), All),
        Link(At("B/new"), "B/seen"),
        Unlink("B/new"),
        Unlink("B/seen"),
    ]
}

/// A database with a rollback journal.
fn journal(random: &mut Random) -> Vec<Change> {
    let offset = random.below(8) * 4_096;
    vec![
        Create("A/journal"),
        Append { file: At("A/journal"), len: 4_120, seed: random.number() },
        Sync(At("A/journal"), Data),
        Write { file: At("A/f"), offset, len: 4_096, seed: random.number() },
        Sync(At("A/f"), Data),
        Unlink("A/journal"),
        Sync(At("A"), All),
    ]
}
