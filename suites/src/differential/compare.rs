//! What two file systems made of the same call, held against each other.
//!
//! Inode numbers have nothing to do with each other, and clocks tick on their own: so of a time it
//! is compared whether the call moved it, and only times that somebody set are compared as they
//! are. ext4 takes access times from the tick of the kernel, some milliseconds wide; whether an
//! access time moves is therefore compared only where a tick more or less makes no difference.

use super::call::{Bytes, Object, Step};
use super::observe::{Attributes, Leaf, Nanoseconds};
use super::side::{Report, Seen};
use rustix::fs::FileType;
use std::collections::BTreeMap;

/// More than a tick of the kernel's clock.
const TICK: Nanoseconds = 12_000_000;

/// A time this near the present was taken from a clock; those that calls set are years away.
const RECENT: Nanoseconds = 3600 * 1_000_000_000;

const TIMES: [&str; 3] = ["access time", "modification time", "change time"];

/// Something that is not the same on both.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    /// What: the name of an attribute, or `result`.
    pub(super) aspect: &'static str,
    /// Of which subject of the call, where it is not the call itself.
    pub(super) subject: Option<(usize, Object)>,
    /// On Marram.
    pub(super) marram: String,
    /// On ext4.
    pub(super) ext4: String,
}

/// All differences that one call shows.
pub(super) fn differences(step: &Step, marram: &Report, ext4: &Report) -> Vec<Difference> {
    let mut found = Vec::new();
    if marram.outcome != ext4.outcome {
        let (marram, ext4) = (format!("{:?}", marram.outcome), format!("{:?}", ext4.outcome));
        found.push(Difference { aspect: "result", subject: None, marram, ext4 });
    }
    for (index, subject) in step.call.subjects().into_iter().enumerate() {
        let (left, right) = (&marram.seen[index], &ext4.seen[index]);
        let mut add = |aspect, marram: String, ext4: String| {
            let subject = Some((index, subject.clone()));
            found.push(Difference { aspect, subject, marram, ext4 });
        };
        match (&left.after, &right.after) {
            (Ok(left_after), Ok(right_after)) => {
                of_attributes(left_after, right_after, &mut add);
                let moves = Moves { marram, ext4, left, right };
                moves.compare(left_after, right_after, &mut add);
            }
            (Err(left), Err(right)) if left == right => {}
            (left, right) => add("presence", format!("{left:?}"), format!("{right:?}")),
        }
    }
    found
}

type Add<'a> = dyn FnMut(&'static str, String, String) + 'a;

/// Attributes that must be the same at all times. What a folder's size means is each file
/// system's own affair.
fn of_attributes(left: &Attributes, right: &Attributes, add: &mut Add<'_>) {
    let size = |of: &Attributes| if of.kind() == FileType::Directory { 0 } else { of.size };
    let is_device = matches!(left.kind(), FileType::CharacterDevice | FileType::BlockDevice);
    let device = |of: &Attributes| if is_device { of.device } else { 0 };
    let fields = [
        ("links", left.links, right.links),
        ("user", left.user.into(), right.user.into()),
        ("group", left.group.into(), right.group.into()),
        ("size", size(left), size(right)),
        ("device", device(left), device(right)),
    ];
    if left.mode != right.mode {
        add("mode", format!("{:o}", left.mode), format!("{:o}", right.mode));
    }
    for (name, left, right) in fields {
        if left != right {
            add(name, left.to_string(), right.to_string());
        }
    }
}

/// What a call did to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Nothing.
    Kept,
    /// It is the present now, as the file system's clock tells it.
    Present,
    /// It was set to this.
    Set(Nanoseconds),
}

impl Move {
    fn of(was: Option<Nanoseconds>, is: Nanoseconds, now: Nanoseconds) -> Self {
        match was {
            Some(was) if was == is => Self::Kept,
            _ if is_recent(is, now) => Self::Present,
            _ => Self::Set(is),
        }
    }
}

/// Whether times moved.
struct Moves<'a> {
    marram: &'a Report,
    ext4: &'a Report,
    left: &'a Seen,
    right: &'a Seen,
}

impl Moves<'_> {
    fn compare(&self, left: &Attributes, right: &Attributes, add: &mut Add<'_>) {
        let left_was = before(self.marram, left.inode);
        let right_was = before(self.ext4, right.inode);
        for (index, name) in TIMES.into_iter().enumerate() {
            let [left, right] = [(left_was, left, self.marram), (right_was, right, self.ext4)].map(
                |(was, is, report)| {
                    Move::of(was.map(|was| was.times[index]), is.times[index], report.at)
                },
            );
            let is_decided = match (left_was, right_was) {
                (Some(left), Some(right)) => {
                    decided(left, self.marram.at) == decided(right, self.ext4.at)
                        && decided(left, self.marram.at).is_some()
                }
                // A name that is new may be one more name of something older.
                _ => false,
            };
            if left != right && (index != 0 || is_decided) {
                add(name, format!("{left:?}"), format!("{right:?}"));
            }
        }
        let is_same = |seen: &Seen, now: &Attributes| {
            seen.before.as_ref().ok().map(|before| before.inode == now.inode)
        };
        let (left, right) = (is_same(self.left, left), is_same(self.right, right));
        if left != right {
            add("identity", format!("{left:?}"), format!("{right:?}"));
        }
    }
}

/// The inode as it was before the call, under whatever name.
fn before(report: &Report, inode: u64) -> Option<&Attributes> {
    let known = report.seen.iter().filter_map(|seen| seen.before.as_ref().ok());
    known.into_iter().find(|attributes| attributes.inode == inode)
}

fn is_recent(time: Nanoseconds, now: Nanoseconds) -> bool {
    (time - now).abs() < RECENT
}

/// Whether a read would move the access time by the rule of `relatime`; nothing if that hangs on
/// a tick of the clock.
fn decided(before: &Attributes, now: Nanoseconds) -> Option<bool> {
    const DAY: Nanoseconds = 86_400 * 1_000_000_000;
    let [access, modification, change] = before.times;
    let is_near = |time: Nanoseconds| (access - time).abs() <= TICK;
    let is_old = access < modification || access < change || access + DAY < now;
    if is_near(modification) || is_near(change) || is_near(now) { None } else { Some(is_old) }
}

/// All differences between two trees.
pub(super) fn of_trees(marram: &[Leaf], ext4: &[Leaf], now: Nanoseconds) -> Vec<Difference> {
    let by_path = |leaves: &[Leaf]| -> BTreeMap<Bytes, Leaf> {
        leaves.iter().map(|leaf| (leaf.path.clone(), leaf.clone())).collect()
    };
    let (left, right) = (by_path(marram), by_path(ext4));
    let mut found = Vec::new();
    let more = right.keys().filter(|path| !left.contains_key(*path));
    for (index, path) in left.keys().chain(more).enumerate() {
        let mut add = |aspect, marram: String, ext4: String| {
            let subject = Some((index, Object::Link(path.clone())));
            found.push(Difference { aspect, subject, marram, ext4 });
        };
        match (left.get(path), right.get(path)) {
            (Some(left), Some(right)) => of_leaves(left, right, now, &mut add),
            (left, _) => {
                let is_left = left.is_some();
                add("presence in the tree", is_left.to_string(), (!is_left).to_string());
            }
        }
    }
    found
}

fn of_leaves(left: &Leaf, right: &Leaf, now: Nanoseconds, add: &mut Add<'_>) {
    of_attributes(&left.attributes, &right.attributes, add);
    // Times may differ by rule; each was compared when it moved. What was set must be there still.
    for (index, name) in TIMES.into_iter().enumerate() {
        let (left, right) = (left.attributes.times[index], right.attributes.times[index]);
        if left != right && !is_recent(left, now) && !is_recent(right, now) {
            add(name, left.to_string(), right.to_string());
        }
    }
    if left.first_name != right.first_name {
        add("hard links", format!("{:?}", left.first_name), format!("{:?}", right.first_name));
    }
    if left.content != right.content {
        add("content", format!("{:?}", left.content), format!("{:?}", right.content));
    }
    if left.extended != right.extended {
        add("extended attributes", format!("{:?}", left.extended), format!("{:?}", right.extended));
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::{Call, User};
    use super::super::perform::Value;
    use super::*;
    use rustix::io::Errno;

    const NOW: Nanoseconds = 1_800_000_000_000_000_000;

    fn attributes() -> Attributes {
        let times = [NOW - 5 * TICK, NOW - 2 * TICK, NOW - 2 * TICK];
        let (inode, mode, links, size) = (7, 0o100_644, 1, 10);
        Attributes { inode, mode, links, user: 0, group: 0, device: 0, size, times }
    }

    /// A report of a call with one subject, whose attributes change in this way.
    fn report(change: impl Fn(&mut Attributes)) -> Report {
        let before = attributes();
        let mut after = before;
        change(&mut after);
        let seen = vec![Seen { before: Ok(before), after: Ok(after) }];
        Report { at: NOW, outcome: Ok(Value::Done), seen }
    }

    fn found(left: &Report, right: &Report) -> Vec<&'static str> {
        let step = Step { user: User::Root, call: Call::Sync { slot: 0 } };
        differences(&step, left, right).into_iter().map(|found| found.aspect).collect()
    }

    #[test]
    fn clocks_and_inode_numbers_may_differ_and_nothing_else() {
        let written = report(|after| after.times[1] = NOW);
        let elsewhere = report(|after| after.times[1] = NOW + 5);
        assert_eq!(found(&written, &elsewhere), Vec::<&str>::new());
        let kept = report(|_| {});
        assert_eq!(found(&written, &kept), ["modification time"]);
        assert_eq!(found(&report(|after| after.times[1] = 5), &written), ["modification time"]);
        assert_eq!(found(&report(|after| after.mode |= 0o4000), &kept), ["mode"]);
        assert_eq!(found(&report(|after| after.size = 11), &kept), ["size"]);
        assert_eq!(found(&report(|after| after.links = 2), &kept), ["links"]);
        let refused = Report { outcome: Err(Errno::IO), ..kept.clone() };
        assert_eq!(found(&refused, &kept), ["result"]);
    }

    #[test]
    fn an_access_time_is_compared_where_a_tick_does_not_matter() {
        let read = report(|after| after.times[0] = NOW);
        assert_eq!(found(&read, &report(|_| {})), ["access time"]);
        let near = |change: fn(&mut Attributes)| {
            let mut near = report(change);
            for seen in &mut near.seen {
                seen.before = seen.before.map(|mut before| {
                    before.times[1] = before.times[0] + 1;
                    before
                });
                seen.after = seen.after.map(|mut after| {
                    after.times[1] = NOW - 5 * TICK + 1;
                    after
                });
            }
            near
        };
        assert_eq!(found(&near(|after| after.times[0] = NOW), &near(|_| {})), Vec::<&str>::new());
    }
}
