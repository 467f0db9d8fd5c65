//! `marram diff`: what differs between two states, in time that follows the change.

use crate::arguments::DiffArguments;
use crate::commands::answers::{unexpected, write_back};
use crate::control::protocol::{Answer, CompareOrder, DifferenceRow, Operation};
use crate::engine::OpenMode;
use crate::engine::home::lacks;
use crate::error::{Error, Result};
use crate::names::printable;
use crate::output::Output;
use crate::target::{Target, with_optional_snapshot};
use marram_store::Source;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The inode of a root directory.
const ROOT: u64 = 1;
/// The directory that shows snapshots and forks, and how many parts of a path lead to the root of
/// one of them.
const HIDDEN: &str = ".marram";
const MEMBER_PARTS: usize = 3;

#[derive(Serialize)]
struct Told<'a> {
    before: String,
    after: String,
    differences: &'a [DifferenceRow],
}

/// One side of a comparison.
struct Side {
    target: Target,
    source: Source,
    root: u64,
    /// Where that directory is below the root of what `source` shows, if the path tells.
    place: Option<PathBuf>,
}

pub(super) fn run(arguments: &DiffArguments, output: &Output) -> Result<()> {
    let first = side(&arguments.before)?;
    let (before, after) = match &arguments.after {
        Some(path) => {
            let second = side(path)?;
            if second.target.pool != first.target.pool {
                return Err(Error::usage("the two are in different pools"));
            }
            (first, second)
        }
        None => alone(first, &arguments.before)?,
    };
    let root = common_root(&before, &after)?;
    let order = CompareOrder {
        before: before.source.to_string(),
        after: after.source.to_string(),
        root,
        patch: arguments.patch,
    };
    let rows = compare(&before.target, &order)?;
    let told = Told {
        before: before.source.to_string(),
        after: after.source.to_string(),
        differences: &rows,
    };
    output.print(&told, || match () {
        () if arguments.patch => patches(&rows),
        () if arguments.stat => stat(&rows),
        () => lines(&rows),
    });
    Ok(())
}

/// The directory that is compared. One that was removed and made again is another one at the same
/// place: what is there now is asked for, and found in a snapshot by its path.
fn common_root(before: &Side, after: &Side) -> Result<u64> {
    // What a fork has made may have the number of something else that its parent has made.
    let is_same_place = before.place.is_some()
        && before.place == after.place
        && before.source.dataset == after.source.dataset;
    match (before.root, after.root) {
        (one, other) if one == other => Ok(one),
        (ROOT, other) => Ok(other),
        (one, ROOT) => Ok(one),
        (now, _) if is_same_place && before.source.snapshot.is_none() => Ok(now),
        (_, now) if is_same_place => Ok(now),
        _ => Err(Error::usage("the two are different directories")),
    }
}

/// Where a path leads below the root of the dataset, snapshot or fork that it is in.
fn place_of(target: &Target, path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let below = path.strip_prefix(target.directory.as_ref()?).ok()?;
    let of_member = if below.starts_with(HIDDEN) { MEMBER_PARTS } else { 0 };
    Some(below.components().skip(of_member).collect())
}

/// Asks the daemon that has the pool, or the pool itself.
fn compare(target: &Target, order: &CompareOrder) -> Result<Vec<DifferenceRow>> {
    if let Some(client) = target.connect()? {
        return client.compare(order);
    }
    let mut rows = Vec::new();
    let home = target.open(&OpenMode::for_command(false))?;
    let snapshots = home.snapshots().ok_or_else(|| lacks(&*home, "snapshots"))?;
    let compared = snapshots.compare(order, &mut |row| {
        rows.push(row);
        Ok(())
    });
    home.close()?;
    compared.map(|()| rows)
}

/// What a fork, seen at `path`, has changed since it was made.
///
/// # Errors
/// Whatever refuses the comparison or fails.
pub(super) fn changes_of_fork(path: &Path) -> Result<Vec<DifferenceRow>> {
    let (before, after) = alone(side(path)?, path)?;
    let order = CompareOrder {
        before: before.source.to_string(),
        after: after.source.to_string(),
        root: common_root(&before, &after)?,
        patch: false,
    };
    compare(&before.target, &order)
}

fn side(path: &Path) -> Result<Side> {
    let (path, snapshot) = with_optional_snapshot(path)?;
    let target = Target::find(&path)?;
    write_back(&target, &path)?;
    let root = match target.ino {
        Some(0) => return Err(not_a_directory(&path)),
        Some(ino) => ino,
        None => ROOT,
    };
    let mut source = match &target.mounted {
        Some(mounted) => mounted.clone(),
        None => Source::live(target.dataset(None)?),
    };
    match (&source.snapshot, snapshot) {
        (Some(_), Some(_)) => {
            let path = path.display();
            return Err(Error::usage(format!("{path} is in a snapshot, which has none")));
        }
        (None, Some(name)) => source.snapshot = Some(name),
        _ => (),
    }
    let place = place_of(&target, &path);
    Ok(Side { target, source, root, place })
}

fn not_a_directory(path: &Path) -> Error {
    Error::usage(format!("{} is no directory of a dataset", path.display()))
        .hint("directories are compared with all that is in them: name that one")
}

/// The two sides where only one was named.
fn alone(one: Side, path: &Path) -> Result<(Side, Side)> {
    if one.source.snapshot.is_some() {
        let live = Source::live(one.source.dataset.clone());
        let target = Target::unmounted(one.target.pool.clone());
        let now = Side { target, source: live, root: one.root, place: None };
        return Ok((one, now));
    }
    let rows = match one.target.perform(&Operation::List)? {
        Answer::Datasets(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    let found = rows.iter().find(|row| row.name == one.source.to_string() && row.kind == "fork");
    let base = found.and_then(|row| row.origin.clone()).ok_or_else(|| {
        Error::usage(format!("{} is no fork: compared with what?", path.display()))
            .hint("name a snapshot as DIRECTORY@NAME, or two states")
    })?;
    let target = Target::find(path)?;
    Ok((Side { target, source: base.parse()?, root: one.root, place: None }, one))
}

/// A line for each difference.
pub(super) fn lines(rows: &[DifferenceRow]) -> String {
    each(rows, line)
}

/// What `tell` says of each difference. Where a file was removed and another one has its name, as
/// editors save, that is one: the other file's, with the note that it took a name over.
fn each<'r>(
    rows: &'r [DifferenceRow],
    mut tell: impl FnMut(&'r DifferenceRow, bool) -> String,
) -> String {
    let mut text = String::new();
    let mut rows = rows.iter().peekable();
    while let Some(row) = rows.next() {
        let other = rows.next_if(|next| is_replaced(row, next));
        text.push_str(&tell(other.unwrap_or(row), other.is_some()));
    }
    text
}

fn is_replaced(removed: &DifferenceRow, created: &DifferenceRow) -> bool {
    let changes = (removed.change.as_str(), created.change.as_str());
    changes == ("removed", "created")
        && removed.is_at(created)
        && removed.kind == "file"
        && created.kind == "file"
}

/// One difference in a line: a letter and the path.
fn line(row: &DifferenceRow, took_over: bool) -> String {
    if took_over {
        return format!("M {} (another file has its name)\n", row.place());
    }
    let letter = match row.change.as_str() {
        "created" => 'A',
        "removed" => 'D',
        "renamed" => 'R',
        "linked" => 'L',
        "unlinked" => 'U',
        "content" => 'M',
        "attributes" => 't',
        _ => 'x',
    };
    let slash = if row.kind == "directory" && row.path != "/" { "/" } else { "" };
    let values = row.values.iter().map(|(name, old, new)| {
        let value = |value: &Option<String>| value.clone().map_or("-".to_owned(), printable);
        format!(" {}: {} -> {}", printable(name.clone()), value(old), value(new))
    });
    let values: String = values.collect();
    match row.old_place() {
        Some(old) => format!("{letter} {old}{slash} -> {}{slash}{values}\n", row.place()),
        None => format!("{letter} {}{slash}{values}\n", row.place()),
    }
}

/// How many bytes of each file differ, and all together.
fn stat(rows: &[DifferenceRow]) -> String {
    let (mut files, mut all) = (0_u64, 0_u64);
    let mut text = each(rows, |row, took_over| {
        let bytes: u64 = row.ranges.iter().map(|(from, to)| to - from).sum();
        let sizes = row.sizes.map_or(String::new(), |(old, new)| format!(", {old} -> {new}"));
        let differ = match row.change.as_str() {
            "content" => format!("{bytes} bytes differ{sizes}"),
            _ if took_over => "another file has its name".to_owned(),
            other => other.to_owned(),
        };
        files += 1;
        all += bytes;
        format!("{} | {differ}\n", row.place())
    });
    text.push_str(&format!("{files} differences, {all} bytes of changed files\n"));
    text
}

/// All patches, in the order that patch(1) needs: what goes first and what is new last, as it may
/// have the name of what was moved.
fn patches(rows: &[DifferenceRow]) -> String {
    let mut told = [String::new(), String::new(), String::new()];
    let mut moves = Vec::new();
    each(rows, |row, took_over| {
        let text = patch(row, took_over);
        match row.change.as_str() {
            "removed" => told[0].push_str(&text),
            "created" if !took_over => told[2].push_str(&text),
            _ => match row.patch.as_deref().and_then(move_in) {
                Some((old, new)) => moves.push((old, new, text)),
                None => told[1].push_str(&text),
            },
        }
        String::new()
    });
    let [gone, changed, new] = told;
    [gone, changed, in_order(moves), new].concat()
}

/// The two names in a patch that moves a file.
fn move_in(patch: &str) -> Option<(&str, &str)> {
    let mut lines = patch.lines().skip(1);
    let old = lines.next()?.strip_prefix("rename from ")?;
    Some((old, lines.next()?.strip_prefix("rename to ")?))
}

/// Moves, each after the one that makes its new name free. Where they go round, one has to take a
/// name that is in use, and patch(1) then takes the name that is best known to it for the old one:
/// that must be so.
fn in_order(mut moves: Vec<(&str, &str, String)>) -> String {
    let length = |name: &str| {
        let last = name.rsplit('/').next().unwrap_or(name);
        (name.matches('/').count(), last.len(), name.len())
    };
    moves.sort_by_key(|(old, ..)| Reverse(length(old)));
    let mut waiting: HashMap<&str, (&str, &str)> = HashMap::new();
    for (old, new, text) in &moves {
        waiting.insert(old, (new, text));
    }
    let mut told = String::new();
    for (old, ..) in &moves {
        let (mut chain, mut name) = (Vec::new(), *old);
        while let Some((next, text)) = waiting.remove(name) {
            chain.push(text);
            name = next;
        }
        told.extend(chain.into_iter().rev());
    }
    told
}

/// The lines that differ, or that there are none to tell.
fn patch(row: &DifferenceRow, took_over: bool) -> String {
    match &row.patch {
        Some(patch) => format!("{}{patch}", line(row, took_over)),
        None => line(row, took_over),
    }
}

#[cfg(test)]
mod tests {
    use super::{DifferenceRow, in_order, line, lines, stat};

    fn row(change: &str, path: &str) -> DifferenceRow {
        DifferenceRow {
            change: change.to_owned(),
            path: path.to_owned(),
            path_bytes: None,
            old_path: None,
            old_path_bytes: None,
            kind: "file".to_owned(),
            ranges: Vec::new(),
            sizes: None,
            values: Vec::new(),
            patch: None,
        }
    }

    #[test]
    fn a_difference_is_told_in_a_line() {
        assert_eq!(line(&row("created", "/a"), false), "A /a\n");
        let renamed = DifferenceRow {
            old_path: Some("/b".to_owned()),
            kind: "directory".to_owned(),
            ..row("renamed", "/c")
        };
        assert_eq!(line(&renamed, false), "R /b/ -> /c/\n");
        let values = vec![("mode".to_owned(), Some("0644".to_owned()), Some("0600".to_owned()))];
        let changed = DifferenceRow { values, ..row("attributes", "/d") };
        assert_eq!(line(&changed, false), "t /d mode: 0644 -> 0600\n");
    }

    #[test]
    fn no_name_looks_like_another_line() {
        let values = vec![("user.x".to_owned(), None, Some("1\n2".to_owned()))];
        let row = DifferenceRow {
            path_bytes: Some("2f61ff".to_owned()),
            old_path: Some("/b\nD /c".to_owned()),
            values,
            ..row("renamed", "/a\u{fffd}")
        };
        assert_eq!(line(&row, false), "R \"/b\\nD /c\" -> \"/a\\377\" user.x: - -> 1\\n2\n");
        assert!(stat(&[row]).starts_with("\"/a\\377\" | renamed\n"));
    }

    #[test]
    fn a_file_in_the_place_of_another_is_one_line() {
        let rows = [row("removed", "/a"), row("created", "/a"), row("removed", "/b")];
        assert_eq!(lines(&rows), "M /a (another file has its name)\nD /b\n");
        let folder = DifferenceRow { kind: "directory".to_owned(), ..row("created", "/a") };
        assert_eq!(lines(&[row("removed", "/a"), folder]), "D /a\nA /a/\n");
        assert_eq!(
            stat(&rows[..2]),
            "/a | another file has its name\n1 differences, 0 bytes of changed files\n"
        );
    }

    #[test]
    fn moves_are_told_after_what_makes_their_names_free() {
        let move_of = |old: &'static str, new| (old, new, format!("{old}>{new} "));
        let chain = vec![move_of("long", "b"), move_of("b", "d/c"), move_of("x", "y")];
        assert_eq!(in_order(chain), "b>d/c long>b x>y ");
        // Each old name is shorter than the new one where that is in use.
        let round = vec![move_of("a", "ccc"), move_of("bb", "a"), move_of("ccc", "bb")];
        assert_eq!(in_order(round), "a>ccc bb>a ccc>bb ");
    }

    #[test]
    fn bytes_that_differ_add_up() {
        let changed = DifferenceRow {
            ranges: vec![(0, 4), (10, 11)],
            sizes: Some((20, 21)),
            ..row("content", "/f")
        };
        let text = stat(&[row("removed", "/a"), changed]);
        assert!(text.contains("/f | 5 bytes differ, 20 -> 21\n"), "{text}");
        assert!(text.ends_with("2 differences, 5 bytes of changed files\n"), "{text}");
    }
}
