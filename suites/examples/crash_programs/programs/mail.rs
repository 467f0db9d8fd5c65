//! Mail in folders of the maildir kind: delivered, and moved from the inbox to the archive.
//!
//! A delivery writes under `tmp`, syncs the file, renames it into `new` (or links and unlinks, as
//! some programs do), and syncs `new`. A move is a rename, or a copy that is synced and renamed
//! into place before the original goes, and a sync of both folders. Whatever a crash leaves: every
//! mail that was acknowledged is in at least one folder, and every mail in a folder is whole.

use super::{Program, Stage, run};
use crate::pool::{Result, words};
use crate::tree::Tree;
use marram_sim::pattern;
use std::path::Path;
use std::process::Command;

/// Mails of a run; all but the last are moved.
const MAILS: u64 = 9;
const MAIL_BYTES: u64 = 20_000;

const FOLDERS: &str = "mkdir -p mail/inbox/tmp mail/inbox/new mail/archive/tmp mail/archive/new\n\
    sync mail/inbox mail/archive mail .";
/// Scripts with the mail's name as `$1` and the mail outside of the mount as `$2`.
const DELIVER_BY_RENAME: &str = "cat \"$2\" > mail/inbox/tmp/$1; sync mail/inbox/tmp/$1
    mv mail/inbox/tmp/$1 mail/inbox/new/$1; sync mail/inbox/new";
const DELIVER_BY_LINK: &str = "cat \"$2\" > mail/inbox/tmp/$1; sync mail/inbox/tmp/$1
    ln mail/inbox/tmp/$1 mail/inbox/new/$1; rm mail/inbox/tmp/$1; sync mail/inbox/new";
const MOVE_BY_RENAME: &str = "mv mail/inbox/new/$1 mail/archive/new/$1
    sync mail/archive/new mail/inbox/new";
const MOVE_BY_COPY: &str = "cp mail/inbox/new/$1 mail/archive/tmp/$1; sync mail/archive/tmp/$1
    mv mail/archive/tmp/$1 mail/archive/new/$1; sync mail/archive/new
    rm mail/inbox/new/$1; sync mail/inbox/new";

/// Deliveries and moves in turns.
pub(super) struct Moves;

/// What is done to a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Deliver(u64),
    Move(u64),
}

/// All steps but the first, which makes the folders.
fn steps() -> Vec<Step> {
    let mut steps = vec![Step::Deliver(1)];
    for number in 2..=MAILS {
        steps.extend([Step::Deliver(number), Step::Move(number - 1)]);
    }
    steps
}

impl Step {
    fn script(self) -> &'static str {
        match self {
            Step::Deliver(number) if number.is_multiple_of(2) => DELIVER_BY_LINK,
            Step::Deliver(_) => DELIVER_BY_RENAME,
            Step::Move(number) if number % 4 < 2 => MOVE_BY_COPY,
            Step::Move(_) => MOVE_BY_RENAME,
        }
    }

    fn number(self) -> u64 {
        let (Step::Deliver(number) | Step::Move(number)) = self;
        number
    }

    /// Whether the whole of it is in the tree.
    fn is_in(self, tree: &Tree) -> bool {
        let is_at = |folder: &str| tree.file(&format!("{folder}/{}", self.number())).is_some();
        let (inbox, archive) = (is_at("mail/inbox/new"), is_at("mail/archive/new"));
        match self {
            Step::Deliver(_) => (inbox && !is_at("mail/inbox/tmp")) || archive,
            Step::Move(_) => archive && !inbox,
        }
    }
}

impl Program for Moves {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn perform(&self, stage: &Stage<'_>) -> Result<()> {
        let shell = |script: &str, words: &[&str]| {
            let mut shell = Command::new("sh");
            shell.args(["-ec", script, "sh"]).args(words).current_dir(&stage.folder);
            run(&mut shell).map(|_| ())
        };
        shell(FOLDERS, &[])?;
        stage.end_step();
        stage.promise();
        let outside = stage.outside.join("mail");
        for step in steps() {
            let name = step.number().to_string();
            std::fs::write(&outside, mail(stage.seed, step.number())).map_err(words)?;
            shell(step.script(), &[&name, &outside.to_string_lossy()])?;
            stage.end_step();
            stage.promise();
        }
        Ok(())
    }

    fn inspect(&self, tree: &Tree, _folder: &Path, seed: u64) -> Result<u64> {
        for folder in ["mail/inbox/new", "mail/archive/new"] {
            for name in tree.below(folder) {
                let place = format!("{folder}/{name}");
                let number = name.parse().map_err(|_| format!("{place} is no mail"))?;
                let found = tree.file(&place).ok_or_else(|| format!("{place} is no file"))?;
                if found != mail(seed, number) {
                    return Err(format!("{place} has {} bytes, not those sent", found.len()));
                }
            }
        }
        if !tree.0.contains_key("mail/archive/new") {
            return Ok(0);
        }
        let steps = steps();
        let done = steps.iter().take_while(|step| step.is_in(tree)).count();
        match steps[done..].iter().find(|step| step.is_in(tree)) {
            Some(later) => Err(format!("{later:?} is done, but {:?} is not", steps[done])),
            None => Ok(1 + done as u64),
        }
    }
}

fn mail(seed: u64, number: u64) -> Vec<u8> {
    pattern(seed * 101 + number, ((seed + number * 7_919) % MAIL_BYTES) as usize)
}

#[cfg(test)]
mod tests {
    use super::{MAILS, Moves, mail, steps};
    use crate::programs::Program;
    use crate::tree::{Node, Tree};
    use std::path::Path;

    fn tree(inbox: &[u64], archive: &[u64]) -> Tree {
        let mut tree = Tree::default();
        let folders = [("mail/inbox/new", inbox), ("mail/archive/new", archive)];
        for (folder, numbers) in folders {
            tree.0.insert(folder.to_owned(), Node::Directory);
            for number in numbers {
                let node = Node::File(false, mail(4, *number));
                tree.0.insert(format!("{folder}/{number}"), node);
            }
        }
        tree
    }

    fn inspect(tree: &Tree) -> Result<u64, String> {
        Moves.inspect(tree, Path::new("/nonexistent"), 4)
    }

    #[test]
    fn steps_are_counted_and_a_step_under_way_is_none_yet() {
        assert_eq!(inspect(&Tree::default()), Ok(0));
        assert_eq!(inspect(&tree(&[], &[])), Ok(1));
        assert_eq!(inspect(&tree(&[1], &[])), Ok(2));
        assert_eq!(inspect(&tree(&[1, 2], &[])), Ok(3));
        assert_eq!(inspect(&tree(&[1, 2], &[1])), Ok(3), "in both folders: moved in part");
        assert_eq!(inspect(&tree(&[2], &[1])), Ok(4));
        let all: Vec<u64> = (1..MAILS).collect();
        assert_eq!(inspect(&tree(&[MAILS], &all)), Ok(1 + steps().len() as u64));
    }

    #[test]
    fn a_mail_that_is_lost_or_not_whole_is_found() {
        inspect(&tree(&[2], &[])).expect_err("the second without the first");
        inspect(&tree(&[3], &[1])).expect_err("the second is lost");
        let mut torn = tree(&[1, 2], &[]);
        torn.0.insert("mail/inbox/new/2".to_owned(), Node::File(false, Vec::new()));
        inspect(&torn).expect_err("a name without its content");
    }
}
