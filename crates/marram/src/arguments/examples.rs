//! Examples of each command: in its help, and in its manual page. Each is a command line that the
//! definitions take, which a test sees to.

use clap::Command;
use clap::builder::StyledStr;

/// A command line, and what it does.
pub(crate) type Example = (&'static str, &'static str);

/// The examples of a command; of one with kinds, as in `destroy snapshot`, those of each kind.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "create",
        &[
            ("marram create work.pool --size 20G", "a pool in a file, which takes what is used"),
            ("marram create /dev/sdb1 --label backup -O compression=zstd:3", "on a block device"),
            ("marram create ~/work --dataset photos", "a dataset in a pool that is mounted"),
            ("marram create sqlite:work.db --blocks blocks", "names in SQLite, content in files"),
            ("marram create sqlite:work.db --blocks s3://team/work", "or in a bucket"),
        ],
    ),
    (
        "mount",
        &[
            ("marram mount work.pool ~/work", "the root dataset"),
            ("marram mount work.pool@before /mnt", "a snapshot, read-only"),
            ("marram mount work.pool /mnt --dataset photos -o noatime,cache=1G", "a dataset"),
            ("marram mount monday.stream /mnt", "a backup that `marram send --to-file` wrote"),
        ],
    ),
    (
        "unmount",
        &[
            ("marram unmount ~/work", "one mount"),
            ("marram unmount work.pool", "all mounts of a pool"),
            ("marram unmount --detach ~/work", "although programs still use it"),
        ],
    ),
    (
        "status",
        &[
            ("marram status", "of all mounted pools"),
            ("marram status ~/work --json", "of one, for a program"),
        ],
    ),
    (
        "list",
        &[
            ("marram list ~/work", "with sizes"),
            ("marram list ~/work -Hp", "for scripts: tabs, bytes, seconds"),
        ],
    ),
    (
        "snapshot",
        &[
            ("marram snapshot ~/work@before", "by name"),
            ("marram snapshot ~/work --keep 24h,7d,4w", "by time, and thin older ones: for cron"),
            ("marram snapshot ~/work@before --recursive", "of all datasets at one moment"),
        ],
    ),
    (
        "space",
        &[
            ("marram space ~/work", "of each dataset, snapshot and fork"),
            ("marram space ~/work@monday..friday", "what destroying those would give back"),
            ("marram space --files ~/work/src --top 10", "what deleting files would give back"),
        ],
    ),
    ("clone", &[("marram clone ~/work@before again", "the dataset `again` begins as `before`")]),
    ("fork", &[("marram fork ~/work/src try", "it appears as ~/work/.marram/forks/try, writable")]),
    (
        "run",
        &[
            ("marram run ~/work/src -- make -j4", "what it did is shown, then it is your choice"),
            ("marram run --merge ~/work/src -- npm install", "merged if the command succeeds"),
            ("marram run --keep --name try ~/work/src -- ./configure", "kept as the fork try"),
        ],
    ),
    ("enter", &[("marram enter try", "a shell in that fork, at the path of its directory")]),
    (
        "forks",
        &[
            ("marram forks ~/work", "all of them"),
            ("marram forks ~/work --graph", "which began as which"),
        ],
    ),
    (
        "diff",
        &[
            ("marram diff ~/work/src@before", "since a snapshot"),
            ("marram diff ~/work --fork try --stat", "what a fork has changed"),
            ("marram diff ~/work/src@monday ~/work/src@friday --patch", "as `git apply` reads it"),
        ],
    ),
    (
        "merge",
        &[
            ("marram merge ~/work/.marram/forks/try --preview", "what would happen"),
            ("marram merge ~/work/.marram/forks/try --text --drop", "lines go together"),
            ("marram merge ~/work --fork try --interactive", "ask about each conflict"),
        ],
    ),
    (
        "update",
        &[
            ("marram update ~/work/.marram/forks/try --preview", "what would come in"),
            ("marram update ~/work/.marram/forks/try --text", "lines go together"),
        ],
    ),
    (
        "rollback",
        &[
            ("marram rollback ~/work@before", "the whole dataset"),
            ("marram rollback ~/work/src@before", "one directory, or one file"),
            ("marram rollback ~/work/src/gone.c@before", "what was removed"),
        ],
    ),
    (
        "versions",
        &[
            ("marram versions ~/work/src/main.c", "each version, and the snapshots that have it"),
            ("marram versions ~/work/src", "of a directory, also of one that was removed"),
        ],
    ),
    (
        "send",
        &[
            ("marram send ~/work@monday --to-file monday.stream", "a full backup"),
            ("marram send ~/work@friday --from monday --progress", "what is new since"),
        ],
    ),
    (
        "receive",
        &[
            ("marram receive backup.pool work --from-file monday.stream", "from a file"),
            ("marram receive backup.pool work --resumable", "from standard input, as over ssh"),
        ],
    ),
    ("log", &[("marram log ~/work --last 10", "the last ten operations, with their numbers")]),
    (
        "undo",
        &[
            ("marram undo ~/work", "the last operation"),
            ("marram undo ~/work 12", "the one that `marram log` numbers so"),
        ],
    ),
    (
        "rename",
        &[
            ("marram rename ~/work@before installed", "a snapshot"),
            ("marram rename ~/work pictures --dataset photos", "a dataset"),
        ],
    ),
    ("promote", &[("marram promote ~/work again", "what `again` began as can go then")]),
    ("hold", &[("marram hold ~/work@before audit", "until `release` takes that word back")]),
    ("release", &[("marram release ~/work@before audit", "the word of `hold`")]),
    (
        "destroy",
        &[
            ("marram destroy snapshot ~/work before --dry-run", "what would go, and come back"),
            ("marram destroy fork ~/work try", "asks first; `marram undo` helps for an hour"),
        ],
    ),
    (
        "destroy snapshot",
        &[
            ("marram destroy snapshot ~/work before --dry-run", "what would go, and come back"),
            ("marram destroy snapshot ~/work@before", "the same name as everywhere"),
            ("marram destroy snapshot ~/work monday..friday", "a range, by age"),
        ],
    ),
    ("destroy fork", &[("marram destroy fork ~/work try --yes", "for scripts: do not ask")]),
    (
        "destroy dataset",
        &[("marram destroy dataset ~/work photos --dry-run", "with its snapshots")],
    ),
    (
        "get",
        &[
            ("marram get ~/work", "all properties"),
            ("marram get ~/work compression -H", "one, for a script"),
        ],
    ),
    (
        "set",
        &[
            ("marram set ~/work compression=zstd:3 quota=10G", "several at once"),
            ("marram set ~/work snapshots=15m:8,1h:24,1d:7", "snapshots that the daemon takes"),
            ("marram set ~/work --default compression", "back to the default"),
        ],
    ),
    (
        "quota",
        &[
            ("marram quota ~/work", "of everybody"),
            ("marram quota ~/work --user anna --bytes 10G", "a limit"),
        ],
    ),
    (
        "allow",
        &[
            ("marram allow ann snapshot,send /srv/work", "beside what each user may"),
            ("marram allow @staff rollback /srv/work --dataset photos", "a group"),
            ("marram allow /srv/work", "what has been allowed"),
        ],
    ),
    ("disallow", &[("marram disallow ann all /srv/work", "all that ann was allowed")]),
    ("tx", &[("marram tx run -- make install", "all of it, or nothing")]),
    (
        "tx run",
        &[
            ("marram tx run -- make install", "in the dataset of the working directory"),
            (
                "marram tx run --in / --retry 3 -- dpkg -i PACKAGE",
                "again if others were in the way",
            ),
        ],
    ),
    (
        "tx begin",
        &[("marram tx begin ~/work --idle 30m", "the id that it prints is for `tx run --id`")],
    ),
    ("tx commit", &[("marram tx commit ~/work 5f0c", "all that was done in it, at once")]),
    ("tx abort", &[("marram tx abort ~/work 5f0c", "none of it was ever there")]),
    ("tx diff", &[("marram tx diff ~/work 5f0c --patch", "what it has changed so far")]),
    ("tx list", &[("marram tx list ~/work", "what is open, or being ended")]),
    ("tx show", &[("marram tx show ~/work 5f0c", "whether it was committed")]),
    (
        "tx resolve",
        &[
            ("marram tx resolve work.pool 5f0c", "as the other pool has decided"),
            ("marram tx resolve work.pool 5f0c --abort", "without it, if it is lost"),
        ],
    ),
    ("range", &[("marram range collapse ~/work/log 0 1M", "the first mebibyte goes")]),
    ("range collapse", &[("marram range collapse ~/work/log 0 1M", "the first mebibyte goes")]),
    ("range insert", &[("marram range insert ~/work/log 4K 4K", "a hole of 4 KiB after 4 KiB")]),
    ("range unshare", &[("marram range unshare ~/work/db 0 64M", "writes there need no space")]),
    (
        "reflink",
        &[
            ("marram reflink ~/work/big.img ~/work/copy.img", "the whole file"),
            ("marram reflink a b --range 0:1M:4M", "a range, to another place"),
        ],
    ),
    (
        "dedup",
        &[
            ("marram dedup ~/work --dry-run", "what could be saved"),
            ("marram dedup ~/work/a ~/work/b", "two directories with each other"),
        ],
    ),
    ("defragment", &[("marram defragment ~/work/db", "all files below a directory")]),
    ("extents", &[("marram extents ~/work/db/data", "where the pieces of a file lie")]),
    (
        "check",
        &[
            ("marram check work.pool", "all trees"),
            ("marram check work.pool --data", "and the content of all files"),
        ],
    ),
    (
        "grow",
        &[
            ("marram grow work.pool --size 40G", "a pool in a file"),
            ("marram grow /dev/vg/work", "after `lvextend`"),
        ],
    ),
    ("label", &[("marram label work.pool photos", "a name for people")]),
    ("sync", &[("marram sync ~/work", "before the power goes, say")]),
    ("clients", &[("marram clients sqlite:work.db", "each daemon, and whether it is alone")]),
    ("expel", &[("marram expel postgres://fs@db/trees 4f2a", "a host that will not come back")]),
    ("quickstart", &[("marram quickstart", "at ~/marram, in a pool of up to 20 GiB")]),
    ("doctor", &[("marram doctor", "when a mount fails")]),
    ("bench", &[("marram bench /srv", "on the disk of /srv; takes a few minutes")]),
    ("completions", &[("marram completions bash", "`marram install` puts it in its place")]),
    ("manual", &[("marram manual man", "all pages, into the folder man")]),
    (
        "install",
        &[
            ("marram install", "below /usr/local, as root"),
            ("marram install --root image --prefix /usr", "into an image or a package"),
        ],
    ),
    (
        "uninstall",
        &[
            ("marram uninstall", "what `marram install` put below /usr/local, as root"),
            ("marram uninstall --prefix /usr", "with the words that `install` was given"),
        ],
    ),
    ("version", &[("marram version --json", "for a program")]),
];

/// The examples of a command, named as it is typed.
pub(crate) fn of(name: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(of, _)| *of == name).map_or(&[], |(_, examples)| examples)
}

/// Adds to the help of `command` and of all below it their examples; `above` is what is typed
/// before their names.
pub(super) fn add_to(command: Command, above: &str) -> Command {
    command.mut_subcommands(|one| {
        let name = format!("{above}{}", one.get_name());
        let one = add_to(one, &format!("{name} "));
        let examples = of(&name);
        if examples.is_empty() {
            return one;
        }
        let text = text(examples);
        let behind = |own: Option<&StyledStr>| match own {
            Some(own) => format!("{own}\n\n{text}"),
            None => text.clone(),
        };
        let (short, long) = (one.get_after_help(), one.get_after_long_help());
        let long = long.map(|long| behind(Some(long)));
        let short = behind(short);
        let one = one.after_help(short);
        match long {
            Some(long) => one.after_long_help(long),
            None => one,
        }
    })
}

fn text(examples: &[Example]) -> String {
    let lines = examples.iter().map(|(line, what)| format!("\n  {line}\n      {what}"));
    ["Examples:".to_owned()].into_iter().chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::{EXAMPLES, of};
    use crate::arguments::{Arguments, parse};
    use clap::{Command, CommandFactory};

    #[test]
    fn every_example_is_a_command_line_of_its_command() {
        for (name, examples) in EXAMPLES {
            for (line, what) in *examples {
                assert!(line.starts_with(&format!("marram {name}")), "{line}");
                let words = line.split(' ').map(std::ffi::OsString::from);
                assert!(parse(words).is_ok(), "{line}");
                assert!(line.len() + 2 <= 80 && what.len() + 6 <= 80, "{line}: {what}");
            }
        }
    }

    #[test]
    fn every_command_that_is_shown_has_an_example() {
        fn look(command: &Command, above: &str) {
            for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
                let name = format!("{above}{}", one.get_name());
                assert!(!of(&name).is_empty(), "{name} has none in arguments/examples.rs");
                look(one, &format!("{name} "));
            }
        }
        look(&Arguments::command(), "");
    }
}
