//! A program that puts texts together: started for each conflict in a text, before the merge.
//!
//! It gets four files, by the names that git gives to them: `BASE`, `LOCAL` (of what the changes go
//! into), `REMOTE` (of what they are of) and `MERGED`. That one begins with the lines of both and
//! marks, and is what the program leaves. Nothing of the pool is changed while it runs; the merge
//! carries the state of the preview.

use super::Merge;
use crate::control::protocol::{
    ConflictChoice, ConflictRow, ConflictTexts, Decision, MergeRequest,
};
use crate::error::{Error, Result};
use crate::names::quoted;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The files, by the variables that name them to the program.
const FILES: [&str; 4] = ["BASE", "LOCAL", "REMOTE", "MERGED"];

/// How the program is called if its command names none of the files.
const FILES_OF_PLAIN: &str = r#" "$LOCAL" "$MERGED" "$REMOTE""#;

/// Fills a request with what the program makes of each conflict that is left.
///
/// # Errors
/// A conflict that is in no text, before the program is started; a program that cannot be started,
/// fails, or leaves a text as it was: nothing has changed.
pub(super) fn decide(
    request: &mut MergeRequest,
    command: &str,
    preview: &Merge<'_>,
    shows_json: bool,
) -> Result<()> {
    let asked = MergeRequest { preview: true, texts: true, drop: false, ..request.clone() };
    let summary = preview(&asked)?;
    if summary.is_outdated {
        return Ok(());
    }
    let is_other = |row: &&ConflictRow| row.texts.is_none() || row.marked.is_none();
    let others: Vec<&ConflictRow> = summary.conflicts.iter().filter(is_other).collect();
    if !others.is_empty() {
        let count = match others.len() {
            1 => "1 conflict is".to_owned(),
            count => format!("{count} conflicts are"),
        };
        return Err(Error::usage(format!("{count} in no text, or in a long one"))
            .details(others.into_iter().map(ConflictRow::line))
            .hint("decide these by --ours PATH or --theirs PATH; nothing was changed"));
    }
    request.state.get_or_insert(summary.state);
    for row in &summary.conflicts {
        let (Some(texts), Some(marked)) = (&row.texts, &row.marked) else { continue };
        let text = put_together(row, (texts, marked), command, shows_json)?;
        let (choice, text) = (ConflictChoice::Text, Some(text));
        request.decisions.push(Decision { conflict: row.bare(), choice, text });
    }
    Ok(())
}

/// What the program makes of one conflict.
fn put_together(
    row: &ConflictRow,
    (texts, marked): (&ConflictTexts, &str),
    command: &str,
    shows_json: bool,
) -> Result<String> {
    let folder = tempfile::Builder::new()
        .prefix("marram-merge-")
        .tempdir()
        .map_err(|error| Error::system("make a folder in", &std::env::temp_dir(), error))?;
    let path = row.path_in_bytes();
    let name = OsStr::from_bytes(path.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
    let contents = [&texts.base, &texts.ours, &texts.theirs, marked];
    let mut program = Command::new("sh");
    let plain = if command.contains('$') { "" } else { FILES_OF_PLAIN };
    program.arg("-c").arg(format!("{command}{plain}"));
    let mut merged = PathBuf::new();
    for (variable, content) in FILES.into_iter().zip(contents) {
        merged = write(&folder.path().join(variable), name, content)?;
        program.env(variable, &merged);
    }
    if shows_json {
        program.stdout(Stdio::from(rustix::stdio::stderr().try_clone_to_owned().map_err(
            |error| Error::failed(format!("cannot lead the program's output: {error}")),
        )?));
    }
    let place = quoted(&path);
    let broken_off = |why: String| {
        Error::failed(format!("{place}: {command}: {why}")).hint("nothing was changed")
    };
    let status = program.status().map_err(|error| broken_off(error.to_string()))?;
    if !status.success() {
        return Err(broken_off(status.to_string()));
    }
    let text = std::fs::read_to_string(&merged)
        .map_err(|error| broken_off(format!("it left no text: {error}")))?;
    if text == marked {
        return Err(broken_off("it left the text as it was, with its marks".to_owned()));
    }
    Ok(text)
}

/// Writes a file that keeps the name, by which programs know what is in it.
fn write(folder: &Path, name: &OsStr, content: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    let written = std::fs::create_dir(folder).and_then(|()| std::fs::write(&path, content));
    written.map_err(|error| Error::system("write", &path, error))?;
    Ok(path)
}
