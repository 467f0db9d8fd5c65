//! What was decided about conflicts before the merge: by paths of the command line, or by a file.

use super::Merge;
use crate::commands::selection::from_root;
use crate::control::protocol::{
    ConflictChoice, ConflictRow, Decision, MergeRequest, Operation, PathChoice, REQUEST_BYTES_MAX,
};
use crate::error::{Error, Result};
use crate::names::{PathText, quoted};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Largest file of decisions, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// What a request has beside its operation, at most, in bytes.
const ENVELOPE_BYTES_MAX: u64 = 64 << 10;
/// Most conflicts that are named where something fits none of them.
const NAMED_MAX: usize = 5;
/// The kind of a conflict in the content of a file.
const CONTENT: &str = "content";

/// Adds the paths of the command line to a request; `roots` are directories that stand for the root
/// of the fork.
///
/// # Errors
/// A path that is named for both sides, or lies outside.
pub(super) fn add_paths(
    request: &mut MergeRequest,
    (ours, theirs): (&[PathBuf], &[PathBuf]),
    roots: &[PathBuf],
) -> Result<()> {
    let named = |paths: &[PathBuf], choice| -> Result<Vec<(Vec<u8>, ConflictChoice)>> {
        paths.iter().map(|path| Ok((from_root(path, roots)?, choice))).collect()
    };
    let ours = named(ours, ConflictChoice::Ours)?;
    let theirs = named(theirs, ConflictChoice::Theirs)?;
    if let Some((path, _)) = ours.iter().find(|(path, _)| theirs.iter().any(|it| it.0 == *path)) {
        let path = quoted(path);
        return Err(Error::usage(format!("{path} is named by --ours and by --theirs"))
            .hint("one side of each conflict is taken; of two paths the longer one decides"));
    }
    let choices = ours.into_iter().chain(theirs);
    request.paths =
        choices.map(|(path, choice)| PathChoice { path: PathText::of(&path), choice }).collect();
    Ok(())
}

/// Refuses what is decided where there is no conflict: it may be mistyped, and then another
/// conflict is not decided as it was meant. A conflict counts that is there while nothing is
/// decided, or that follows from what is.
///
/// # Errors
/// There is no conflict at a path, or none that a file decides; or a preview fails.
pub(super) fn refuse_unmatched(request: &MergeRequest, preview: &Merge<'_>) -> Result<()> {
    let names_all = request.paths.iter().all(|choice| choice.path.path == "/");
    if names_all && request.decisions.is_empty() {
        return Ok(());
    }
    let decided = MergeRequest { preview: true, drop: false, ..request.clone() };
    let (paths, decisions) = (Vec::new(), Vec::new());
    let bare = MergeRequest { paths, decisions, ..decided.clone() };
    let mut found = BTreeSet::new();
    for request in [bare, decided] {
        let summary = preview(&request)?;
        if summary.is_outdated {
            return Ok(());
        }
        let rows = summary.conflicts.iter().chain(&summary.decided);
        found.extend(rows.map(ConflictRow::bare));
    }
    let is_below = |row: &ConflictRow, above: &[u8]| {
        let path = row.path_in_bytes();
        let rest = path.strip_prefix(above);
        above == b"/" || rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    };
    for PathChoice { path, .. } in &request.paths {
        let above = path.bytes();
        if above != b"/" && !found.iter().any(|row| is_below(row, &above)) {
            return Err(unmatched(&format!("at {}", quoted(&above)), &found));
        }
    }
    let is_found = |decision: &&Decision| found.contains(&decision.conflict);
    match request.decisions.iter().find(|decision| !is_found(decision)) {
        Some(decision) => Err(unmatched(&decision.conflict.line(), &found)),
        None => Ok(()),
    }
}

fn unmatched(what: &str, found: &BTreeSet<ConflictRow>) -> Error {
    let mut paths: Vec<String> = found.iter().map(|row| quoted(&row.path_in_bytes())).collect();
    paths.dedup();
    let left = paths.len().saturating_sub(NAMED_MAX);
    paths.truncate(NAMED_MAX);
    let more = if left > 0 { format!(" and {left} more") } else { String::new() };
    let hint = match paths.is_empty() {
        true => "nothing is in conflict: merge without it".to_owned(),
        false => format!("there are conflicts at {}{more}", paths.join(", ")),
    };
    Error::usage(format!("there is no conflict {what}")).hint(hint)
}

/// Refuses what is longer than a daemon reads.
///
/// # Errors
/// It is.
pub(super) fn refuse_too_long(request: &MergeRequest) -> Result<()> {
    if request.decisions.is_empty() {
        return Ok(());
    }
    let printed = serde_json::to_vec(&Operation::Merge(request.clone()));
    let bytes = printed.map_or(u64::MAX, |printed| printed.len() as u64);
    let most = REQUEST_BYTES_MAX - ENVELOPE_BYTES_MAX;
    if bytes <= most {
        return Ok(());
    }
    let told = format!("the decisions and their texts have {bytes} bytes, and {most} are the most");
    Err(Error::usage(told).hint("decide whole directories by --ours PATH and --theirs PATH"))
}

/// What `merge --json` printed, of which the rest is not looked at.
#[derive(Deserialize)]
struct Printed {
    fork: String,
    #[serde(default)]
    update: bool,
    #[serde(default)]
    state: Option<String>,
    conflicts: Vec<Filled>,
}

/// The same, with what stands around it.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    result: Option<Printed>,
}

#[derive(Deserialize)]
struct Filled {
    #[serde(flatten)]
    conflict: ConflictRow,
    /// What the file is to hold.
    #[serde(default)]
    text: Option<String>,
}

/// Adds what a file has decided to a request.
///
/// # Errors
/// It cannot be read, is about another fork or the other direction, or is not what `merge --json`
/// prints.
pub(super) fn add_file(request: &mut MergeRequest, path: &Path) -> Result<()> {
    let name = quoted(path.as_os_str().as_bytes());
    let printed = parsed(&text_of(path)?).map_err(|error| {
        Error::usage(format!("{name} has no decisions: {error}"))
            .hint("fill in the \"choice\" of each conflict in what `marram merge --json` prints")
    })?;
    if printed.fork != request.fork {
        let (fork, own) = (printed.fork, &request.fork);
        return Err(Error::usage(format!("{name} is about the fork {fork}, not about {own}")));
    }
    if printed.update != request.update {
        let of = if printed.update { "an update" } else { "a merge" };
        return Err(Error::usage(format!("{name} is about {of}"))
            .hint("ours and theirs change places there: decide what this command prints"));
    }
    request.state = printed.state.filter(|state| !state.is_empty());
    let mut seen = BTreeSet::new();
    for filled in printed.conflicts {
        let line = filled.conflict.line();
        let is_new = seen.insert(filled.conflict.bare());
        let decision = match is_new {
            true => decision(filled),
            false => Err("is there twice"),
        };
        let wrong = |wrong: &str| Error::usage(format!("{name}: {line} {wrong}"));
        request.decisions.extend(decision.map_err(wrong)?);
    }
    Ok(())
}

/// What is decided about a conflict, or what is wrong with it.
fn decision(filled: Filled) -> std::result::Result<Option<Decision>, &'static str> {
    let Filled { conflict, text } = filled;
    match (conflict.choice, &text) {
        (None | Some(ConflictChoice::Refuse), None) => Ok(None),
        (Some(ConflictChoice::Text), None) => Err("has no \"text\""),
        (Some(ConflictChoice::Text), Some(_)) if conflict.kind != CONTENT => {
            Err("is about no content: it cannot have a \"text\"")
        }
        (choice, Some(_)) if choice != Some(ConflictChoice::Text) => {
            Err("has a \"text\", but not the choice \"text\"")
        }
        (choice, _) => {
            let choice = choice.unwrap_or_default();
            Ok(Some(Decision { conflict: conflict.bare(), choice, text }))
        }
    }
}

/// The report, with or without the envelope around it.
fn parsed(text: &str) -> serde_json::Result<Printed> {
    match serde_json::from_str::<Envelope>(text)?.result {
        Some(printed) => Ok(printed),
        None => serde_json::from_str(text),
    }
}

fn text_of(path: &Path) -> Result<String> {
    let failed = |error: std::io::Error| Error::system("read", path, error);
    let mut text = String::new();
    let mut input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(std::fs::File::open(path).map_err(failed)?),
    };
    input.by_ref().take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let name = quoted(path.as_os_str().as_bytes());
        return Err(Error::usage(format!("{name} has more than {FILE_BYTES_MAX} bytes"))
            .hint("leave out its \"differences\""));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{add_paths, decision, parsed};
    use crate::control::protocol::{ConflictChoice, MergeRequest};
    use std::path::PathBuf;

    #[test]
    fn one_path_is_not_decided_twice() {
        let mut request = MergeRequest::of("work".to_owned());
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        add_paths(&mut request, (&paths(&["/a"]), &paths(&["/a/b", "/c"])), &[]).unwrap();
        assert_eq!(request.paths.len(), 3);
        assert_eq!(request.paths[1].choice, ConflictChoice::Theirs);
        let both = add_paths(&mut request, (&paths(&["/"]), &paths(&["/"])), &[]).unwrap_err();
        assert!(both.message.contains("by --ours and by --theirs"), "{both}");
    }

    #[test]
    fn a_text_belongs_to_content_and_to_the_choice_of_that_name() {
        let of = |kind: &str, rest: &str| {
            let row = format!(r#"{{"path": "/a", "kind": "{kind}", "detail": "d"{rest}}}"#);
            let printed = format!(r#"{{"result": {{"fork": "f", "conflicts": [{row}]}}}}"#);
            let filled = parsed(&printed).unwrap().conflicts.pop().unwrap();
            decision(filled).map(|decision| decision.map(|it| (it.choice, it.text)))
        };
        let text = Some("t".to_owned());
        let given = r#", "choice": "text", "text": "t""#;
        assert_eq!(of("content", given), Ok(Some((ConflictChoice::Text, text))));
        assert_eq!(of("content", ""), Ok(None));
        assert_eq!(of("name", r#", "choice": null"#), Ok(None));
        let theirs = of("name", r#", "choice": "theirs""#);
        assert_eq!(theirs, Ok(Some((ConflictChoice::Theirs, None))));
        assert!(of("name", given).is_err());
        assert!(of("content", r#", "choice": "text""#).is_err());
        assert!(of("content", r#", "text": "t""#).is_err());
        assert!(of("content", r#", "choice": "ours", "text": "t""#).is_err());
    }
}
