//! Words of other systems, and what is meant by them here. They are answered, and never run.

/// Words, the command lines that do what is meant by them, and more of it in a sentence.
type Foreign = (&'static [&'static str], &'static [&'static str], &'static str);

const FOREIGN: &[Foreign] = &[
    (
        &["history", "reflog", "oplog", "events"],
        &["marram log TARGET", "marram list TARGET"],
        "the operations on a pool, and its snapshots",
    ),
    (
        &["restore", "revert", "reset", "rewind", "recover", "undelete", "unrm"],
        &["marram versions PATH", "marram rollback PATH@NAME", "marram undo TARGET"],
        "`versions` lists which snapshots have a file or directory, also one that was removed",
    ),
    (
        &["redo"],
        &["marram undo TARGET"],
        "an undo is an operation itself, and is taken back as the others are",
    ),
    (
        &["scrub", "fsck", "verify", "repair", "validate"],
        &["marram check POOL --data"],
        "damage is mended from the second copy wherever a mount meets it",
    ),
    (
        &["rm", "remove", "delete", "del", "unlink", "erase", "drop", "purge", "prune", "forget"],
        &["marram destroy snapshot TARGET NAME --dry-run", "marram forks TARGET"],
        "files are removed by rm(1); `destroy` says which kind of thing goes, and asks",
    ),
    (
        &["snap", "snapshots", "checkpoint", "save", "stash", "backup", "commit"],
        &["marram snapshot TARGET@NAME", "marram list TARGET"],
        "to bring a fork back into its directory, use `marram merge`",
    ),
    (
        &["resize", "expand", "extend", "enlarge"],
        &["marram grow TARGET", "marram grow TARGET --size SIZE"],
        "a pool gets larger, never smaller",
    ),
    (
        &["branch", "branches", "checkout", "switch", "worktree"],
        &["marram fork DIRECTORY NAME", "marram forks TARGET"],
        "a fork is a directory that can be written, in .marram/forks at the root of the mount",
    ),
    (
        &["subvolume", "subvol", "volume", "dataset", "filesystem", "fs"],
        &["marram create TARGET --dataset NAME", "marram list TARGET"],
        "",
    ),
    (
        &["init", "new", "make", "mkfs", "format", "pool", "zpool", "zfs"],
        &["marram create FILE --size SIZE", "marram quickstart"],
        "`create` overwrites nothing unless it is forced to",
    ),
    (&["ls", "show", "datasets"], &["marram list TARGET"], ""),
    (&["df", "du", "usage", "quotas"], &["marram space TARGET", "marram quota TARGET"], ""),
    (
        &["info", "stat", "stats", "st", "health", "iostat", "top", "mounts", "jobs"],
        &["marram status"],
        "",
    ),
    (&["import", "attach", "open"], &["marram mount POOL DIRECTORY"], ""),
    (
        &["export", "detach", "eject", "close"],
        &["marram unmount DIRECTORY", "marram send TARGET@NAME --to-file FILE"],
        "the pool is free when the last mount is gone",
    ),
    (&["defrag", "balance", "reorganize"], &["marram defragment DIRECTORY"], ""),
    (
        &["dedupe", "deduplicate", "duperemove"],
        &["marram dedup DIRECTORY --dry-run"],
        "`marram set TARGET dedup=on` does it for what is written from then on",
    ),
    (
        &["cp", "copy"],
        &["marram reflink SOURCE TARGET", "marram fork DIRECTORY NAME"],
        "neither takes space until one of both is changed",
    ),
    (&["mv", "move"], &["marram rename TARGET@NAME NEW"], "files are moved by mv(1)"),
    (
        &["config", "property", "properties", "options"],
        &["marram get TARGET", "marram set TARGET NAME=VALUE"],
        "",
    ),
    (&["push", "replicate", "dump"], &["marram send TARGET@NAME"], ""),
    (
        &["pull", "recv", "load"],
        &["marram receive TARGET DATASET"],
        "to bring a fork back into its directory, use `marram merge`",
    ),
    (&["compare", "changes", "whatchanged"], &["marram diff DIRECTORY@NAME"], ""),
    (&["keep", "protect", "pin", "lock"], &["marram hold TARGET@NAME WORD"], ""),
    (&["unpin", "unlock", "unhold"], &["marram release TARGET@NAME WORD"], ""),
    (
        &["grant", "delegate", "permit", "revoke", "deny", "acl"],
        &["marram allow USER VERBS TARGET", "marram disallow USER VERBS TARGET"],
        "rights to files are those of chmod(1) and setfacl(1)",
    ),
    (&["flush", "fsync"], &["marram sync TARGET"], ""),
    (&["setup"], &["marram install", "marram quickstart"], ""),
    (&["man", "docs", "manpage"], &["man marram", "marram help COMMAND"], ""),
];

/// What is meant by a word of other systems, in a sentence; none if it is not known.
pub(crate) fn meaning(word: &str) -> Option<String> {
    let (_, lines, more) = FOREIGN.iter().find(|(words, ..)| words.contains(&word))?;
    let lines: Vec<String> = lines.iter().map(|line| format!("`{line}`")).collect();
    let more = if more.is_empty() { String::new() } else { format!("\n{more}") };
    Some(format!("did you mean {}?{more}", lines.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::FOREIGN;
    use crate::arguments::Arguments;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    #[test]
    fn foreign_words_lead_to_commands_that_are_there_and_never_destroy() {
        let command = Arguments::command();
        let mut seen = BTreeSet::new();
        for (words, lines, _) in FOREIGN {
            for word in *words {
                assert!(seen.insert(word), "{word} is there twice");
                assert!(command.find_subcommand(word).is_none(), "{word} is a command");
            }
            for line in lines.iter().filter(|line| **line != "man marram") {
                let verb = line.split(' ').nth(1).unwrap();
                let is_there = verb == "help" || command.find_subcommand(verb).is_some();
                assert!(is_there && line.starts_with("marram "), "{line}");
                assert!(verb != "destroy" || line.ends_with(" --dry-run"), "{line}");
                assert!(!line.contains("--force") && !line.contains("--yes"), "{line}");
            }
        }
    }
}
