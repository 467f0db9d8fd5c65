//! The manual page marram(7): what there is, how it is named, and a first day with it.

use super::roff::Roff;

/// What stands in a section.
enum Block {
    Text(&'static str),
    /// A word and its meaning.
    Word(&'static str, &'static str),
    /// A command line, and what it does.
    Line(&'static str, &'static str),
}

use Block::{Line, Text, Word};

const SECTIONS: &[(&str, &[Block])] = &[
    (
        "NAME",
        &[Text(
            "marram - a copy-on-write file system in user space: what there is, and a first day",
        )],
    ),
    (
        "DESCRIPTION",
        &[
            Text(
                "Marram keeps file systems in an ordinary file or on a block device. Nothing that \
                 is in use is overwritten: a state can be kept, forked, compared, merged, taken \
                 back and sent elsewhere. Each block is verified by a checksum when it is read.",
            ),
            Word("pool", "A file or block device, and all that is in it."),
            Word(
                "dataset",
                "A file system in a pool, with properties of its own. The first one is called \
                 root.",
            ),
            Word("snapshot", "A state of a dataset that was kept. Named TARGET@NAME."),
            Word("clone", "A dataset that began as a snapshot, and shares its blocks."),
            Word(
                "fork",
                "A directory that began as another one, and can be merged back into it. It lies \
                 below .marram/forks.",
            ),
            Word(
                ".marram",
                "The hidden directory at the root of a mount. Below it lie the snapshots, to be \
                 read, and the forks, to be written.",
            ),
        ],
    ),
    (
        "TARGETS",
        &[Text(
            "Most commands take a TARGET: a pool, by its file or block device, or any path inside \
             a mounted file system. A pool stands for its root dataset, and a path for the dataset \
             that is mounted there. The option --dataset NAME picks another one. A snapshot is \
             named by @NAME at the end: work.pool@before, /mnt@before, /mnt/src@before.",
        )],
    ),
    (
        "A FIRST DAY",
        &[
            Line("marram create work.pool --size 20G", "A pool in a file. It takes what is used."),
            Line("marram mount work.pool ~/work", "The directory has to exist."),
            Line("marram snapshot ~/work@before", "The present state is kept, at once."),
            Line("marram fork ~/work/src try", "Work in ~/work/.marram/forks/try."),
            Line("marram diff ~/work/.marram/forks/try", "What was changed there."),
            Line("marram merge ~/work/.marram/forks/try --drop", "All of it goes into ~/work/src."),
            Line("marram undo ~/work", "The last operation is taken back."),
            Line("marram unmount ~/work", "Comes back when everything is durable."),
        ],
    ),
    (
        "WHEN SOMETHING IS GONE",
        &[
            Text(
                "Files that a snapshot has are copied out of .marram/snapshots/NAME, or a whole \
                 directory goes back to it:",
            ),
            Line("marram rollback ~/work/src@before", "What was there before is kept too."),
            Text(
                "A destroyed snapshot, fork or dataset, a merge and a rollback are operations, and \
                 can be taken back for a while (property undo, an hour by default):",
            ),
            Line("marram log ~/work", "The operations, with their numbers."),
            Line("marram undo ~/work 12", "One of them."),
        ],
    ),
    (
        "WHEN THE POOL IS FULL",
        &[
            Line("marram space ~/work", "Which dataset, snapshot or fork holds how much."),
            Line("marram space ~/work@monday..friday", "What destroying these gives back."),
            Line("marram grow work.pool --size 40G", "More space, while it is mounted."),
        ],
    ),
    (
        "AT BOOT",
        &[
            Text("After marram-install(1), a line in /etc/fstab mounts a pool:"),
            Text("/srv/work.pool /mnt fuse.marram defaults,nofail 0 0"),
        ],
    ),
    (
        "FOR PROGRAMS",
        &[Text(
            "With --json each command prints one JSON object on standard output: version, command, \
             and result or error. Wrong usage is answered so too. Tables take -H (tabs, no header) \
             and -p (bytes and seconds). The exit status is 0 if all was done, 1 if it failed, 2 \
             for wrong usage, 3 if it was done in part or damage was found, 10 if something is not \
             there, 11 if something is locked or in use, and 12 if the user may not do it.",
        )],
    ),
    (
        "ENVIRONMENT",
        &[
            Word("NO_COLOR", "No colours, if it is set and not empty."),
            Word("XDG_RUNTIME_DIR", "Where sockets of an ordinary user's daemons lie."),
            Word("XDG_STATE_HOME", "Where daemons log: in marram below it, or ~/.local/state."),
            Word("XDG_DATA_HOME", "Where `marram quickstart` makes its pool, or ~/.local/share."),
        ],
    ),
    (
        "SEE ALSO",
        &[Text("marram(1) lists all commands; each has a page, as marram-mount(1). fuse(4)")],
    ),
];

/// The text of the page.
pub(super) fn text() -> String {
    let mut roff = Roff::default();
    roff.title("marram", 7);
    for (title, blocks) in SECTIONS {
        roff.section(title);
        for block in *blocks {
            match block {
                Text(text) => roff.paragraph(text),
                Word(word, meaning) => roff.entry(word, meaning),
                Line(line, what) => roff.example(line, what),
            }
        }
    }
    roff.into_text()
}

#[cfg(test)]
mod tests {
    use super::{Block, SECTIONS};
    use crate::arguments::parse;

    #[test]
    fn every_line_of_the_overview_can_be_typed() {
        let blocks = SECTIONS.iter().flat_map(|(_, blocks)| *blocks);
        let mut lines = 0;
        for block in blocks {
            if let Block::Line(line, _) = block {
                assert!(parse(line.split(' ').map(std::ffi::OsString::from)).is_ok(), "{line}");
                lines += 1;
            }
        }
        assert!(lines > 10, "{lines}");
    }
}
