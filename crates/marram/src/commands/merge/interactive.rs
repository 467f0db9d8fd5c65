//! Asking about conflicts, one by one.
//!
//! Nothing is changed while somebody thinks: each round is a preview with what was decided so far,
//! since a decision can lead to another conflict. What is merged in the end is what the previews
//! were about, or nothing: the request carries their state.

use crate::control::protocol::{ConflictChoice, ConflictRow, Decision, MergeRequest, MergeSummary};
use crate::error::{Error, Result};
use crate::names::printable;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};

/// Most rounds of previews; each has at least one conflict more that was decided.
const ROUNDS_MAX: usize = 1_000;
/// Most lines of a text that are shown.
const LINES_MAX: usize = 200;

/// What merges a request, or previews it.
type Preview<'a> = dyn Fn(&MergeRequest) -> Result<Box<MergeSummary>> + 'a;

/// Fills a request, which is that of a preview, with decisions about all conflicts.
///
/// # Errors
/// A failed preview; a merge that would be refused whatever is decided; nobody wants to decide:
/// nothing has changed.
pub(super) fn decide(
    request: &mut MergeRequest,
    preview: &Preview<'_>,
    input: &mut dyn BufRead,
    prompt: &mut dyn Write,
) -> Result<()> {
    // Where the decision about a conflict stands in the request.
    let mut places: BTreeMap<ConflictRow, usize> = BTreeMap::new();
    for _ in 0..ROUNDS_MAX {
        let summary = preview(request)?;
        request.state.get_or_insert_with(|| summary.state.clone());
        if summary.conflicts.is_empty() || summary.is_outdated {
            return Ok(());
        }
        // What has to do with the conflicts themselves is foreseen when all are decided.
        if let Some(obstacle) = &summary.obstacle {
            let (fork, parent) = (&summary.fork, &summary.parent);
            return Err(Error::in_use(format!("{fork} cannot go into {parent}: {obstacle}")));
        }
        for conflict in &summary.conflicts {
            let row = conflict.bare();
            let place = places.get(&row).copied();
            if place.is_some() {
                tell(prompt, "that cannot be done there: decide otherwise\n");
            }
            let sides = if request.update { ["fork", "parent"] } else { ["parent", "fork"] };
            let choice = ask(conflict, sides, input, prompt)?;
            let decision = Decision { conflict: row.clone(), choice, text: None };
            match place {
                Some(place) => request.decisions[place] = decision,
                None => {
                    places.insert(row, request.decisions.len());
                    request.decisions.push(decision);
                }
            }
        }
    }
    Err(Error::usage("there are conflicts without end").hint("merge with --ours or --theirs"))
}

/// Says something at the terminal; a terminal that takes nothing is no reason to stop.
fn tell(prompt: &mut dyn Write, text: &str) {
    let _unheard = prompt.write_all(text.as_bytes()).and_then(|()| prompt.flush());
}

/// A line of a text: what would move the cursor becomes an escape, but for tabs.
fn printable_line(line: &str) -> String {
    let parts = line.split('\t').map(|part| printable(part.to_owned()));
    parts.collect::<Vec<_>>().join("\t")
}

fn ask(
    conflict: &ConflictRow,
    [ours, theirs]: [&str; 2],
    input: &mut dyn BufRead,
    prompt: &mut dyn Write,
) -> Result<ConflictChoice> {
    let marked = &conflict.marked;
    tell(prompt, &format!("{}\n", conflict.line()));
    if let Some(text) = marked {
        let line = |line: &str| format!("    {}\n", printable_line(line));
        text.lines().take(LINES_MAX).for_each(|text| tell(prompt, &line(text)));
        if text.lines().nth(LINES_MAX).is_some() {
            tell(prompt, "    ...\n");
        }
    }
    let lines = if marked.is_some() { ", [l]ines of both as shown" } else { "" };
    loop {
        let question =
            format!("[o]urs (the {ours}'s), [t]heirs (the {theirs}'s){lines}, [a]bort? ");
        tell(prompt, &question);
        let mut answer = String::new();
        let read = input.read_line(&mut answer);
        let read = read.map_err(|error| Error::usage(format!("no answer: {error}")))?;
        match answer.trim() {
            "o" | "ours" => return Ok(ConflictChoice::Ours),
            "t" | "theirs" => return Ok(ConflictChoice::Theirs),
            "l" | "lines" if marked.is_some() => return Ok(ConflictChoice::Marked),
            "a" | "abort" => break,
            _ if read == 0 => break,
            _ => (),
        }
    }
    Err(Error::usage("the merge was broken off: nothing was changed"))
}
