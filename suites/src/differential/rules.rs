//! The differences that are known: each with its reason, and each in `docs/semantics.md`.
//!
//! A rule is as narrow as its reason. A rule that explains nothing in a long run is an error, so
//! that the table only holds what is true.

use super::call::{Call, Step, Whence};
use super::compare::Difference;
use super::perform::Outcome;
use super::side::{Report, Seen};
use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno;

/// What a rule looks at.
pub(super) struct Found<'a> {
    /// The call.
    pub(super) step: &'a Step,
    /// What Marram made of it.
    pub(super) marram: &'a Report,
    /// What ext4 made of it.
    pub(super) ext4: &'a Report,
    /// What is not the same.
    pub(super) difference: &'a Difference,
}

impl Found<'_> {
    /// What ext4 tells of the subject that differs.
    fn seen_on_ext4(&self) -> Option<&Seen> {
        self.difference.subject.as_ref().map(|(index, _)| &self.ext4.seen[*index])
    }
}

/// A known difference.
pub(super) struct Rule {
    /// Its name, here and in the document.
    pub(super) name: &'static str,
    /// Whether it explains a difference.
    explains: fn(&Found<'_>) -> bool,
}

/// Every rule.
pub(super) const RULES: [Rule; 6] = [
    // The kernel answers from its cache what it has read before: content, a listing, the target of
    // a link (which it also follows on the way to something else). It does not ask us at the end of
    // a file either.
    Rule {
        name: "access-time-of-cached",
        explains: |found| {
            let is_read = match found.step.call {
                Call::Read { .. } | Call::List { .. } | Call::ListOpen { .. } => true,
                _ => found.seen_on_ext4().is_some_and(|seen| {
                    seen.after.is_ok_and(|after| after.kind() == FileType::Symlink)
                }),
            };
            is_read
                && found.difference.aspect == "access time"
                && found.difference.marram == "Kept"
                && found.difference.ext4 == "Present"
        },
    },
    // Both tell holes in whole pages, but ext4 fills small reserved ranges with zeros when
    // something beside them is written.
    Rule {
        name: "holes-exact",
        explains: |found| {
            let is_position = |outcome: &Outcome| matches!(outcome, Ok(_) | Err(Errno::NXIO));
            let asks_for_holes = match &found.step.call {
                Call::Seek { whence, .. } => matches!(whence, Whence::Data | Whence::Hole),
                _ => false,
            };
            found.difference.aspect == "result"
                && asks_for_holes
                && is_position(&found.marram.outcome)
                && is_position(&found.ext4.outcome)
        },
    },
    // A copy shares blocks: nobody reads the source.
    Rule {
        name: "access-time-of-copied",
        explains: |found| {
            found.difference.aspect == "access time"
                && found.difference.marram == "Kept"
                && matches!(found.step.call, Call::Copy { .. })
        },
    },
    // ext4 makes the whiteout first, and takes it away again when the rename cannot be.
    Rule {
        name: "times-of-failed-whiteout",
        explains: |found| {
            let is_whiteout = match &found.step.call {
                Call::Rename { flags, .. } => flags.contains(RenameFlags::WHITEOUT),
                _ => false,
            };
            let is_time = ["modification time", "change time"];
            is_time.contains(&found.difference.aspect)
                && is_whiteout
                && found.marram.outcome.is_err()
                && found.marram.outcome == found.ext4.outcome
        },
    },
    // The kernel moves bytes through pipes and devices without telling the file system of them. A
    // new name of one shows its times as nobody has compared them yet.
    Rule {
        name: "times-of-pipes-and-devices",
        explains: |found| {
            let is_plain = |kind: FileType| {
                [FileType::RegularFile, FileType::Directory, FileType::Symlink].contains(&kind)
            };
            let was_plain = |seen: &Seen| seen.before.is_ok_and(|before| is_plain(before.kind()));
            let is_use = found.difference.marram == "Kept"
                && matches!(found.step.call, Call::Read { .. } | Call::Write { .. })
                && !found.ext4.seen.iter().any(was_plain);
            let is_new_name =
                matches!(found.step.call, Call::MakeLink { .. } | Call::Rename { .. })
                    && found.seen_on_ext4().is_some_and(|seen| {
                        seen.before.is_err()
                            && seen.after.is_ok_and(|after| !is_plain(after.kind()))
                    });
            found.difference.aspect.ends_with(" time") && (is_use || is_new_name)
        },
    },
    // ext4 does nothing at all when an attribute has its value already.
    Rule {
        name: "change-time-of-same-attribute",
        explains: |found| {
            found.difference.aspect == "change time"
                && found.difference.marram == "Present"
                && found.difference.ext4 == "Kept"
                && matches!(found.step.call, Call::SetAttribute { .. })
                && found.ext4.outcome.is_ok()
        },
    },
];

/// The rules, and how often each was needed.
#[derive(Default)]
pub(super) struct Usage([u64; RULES.len()]);

impl Usage {
    /// Whether a rule explains this; it is counted.
    pub(super) fn explain(&mut self, found: &Found<'_>) -> bool {
        let rule = RULES.iter().position(|rule| (rule.explains)(found));
        if let Some(rule) = rule {
            self.0[rule] += 1;
        }
        rule.is_some()
    }

    /// Each rule and its count.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RULES.iter().map(|rule| rule.name).zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_and_the_table_have_the_same_rules() {
        let document =
            std::fs::read_to_string(marram_lab::project::root().join("docs/semantics.md"))
                .expect("the document is there");
        let heading = "## Where ext4 answers otherwise";
        let (_, section) = document.split_once(heading).expect("it has the section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
        let names: Vec<&str> = rows.filter_map(|row| row.split(" |").next()).skip(1).collect();
        let mut names: Vec<&str> = names.into_iter().filter(|name| !name.contains("---")).collect();
        names.sort_unstable();
        let mut rules: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        rules.sort_unstable();
        assert_eq!(names, rules);
    }
}
