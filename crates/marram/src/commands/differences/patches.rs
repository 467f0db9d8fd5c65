//! The lines of text that differ, in the order that patch(1) needs.

use super::line;
use crate::control::protocol::DifferenceRow;
use std::cmp::Reverse;
use std::collections::HashMap;

/// All patches, in the order that patch(1) needs: what goes first and what is new last, as it may
/// have the name of what was moved.
pub(in crate::commands) fn patches(rows: &[DifferenceRow]) -> String {
    let mut told = [String::new(), String::new(), String::new()];
    let mut moves = Vec::new();
    for row in rows {
        let text = patch(row);
        match row.change.as_str() {
            "removed" => told[0].push_str(&text),
            "created" => told[2].push_str(&text),
            _ => match row.patch.as_deref().and_then(move_in) {
                Some((old, new)) => moves.push((old, new, text)),
                None => told[1].push_str(&text),
            },
        }
    }
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

/// The lines that differ, or the line of a difference without any.
fn patch(row: &DifferenceRow) -> String {
    match &row.patch {
        Some(patch) => format!("{}{patch}", line(row)),
        None => line(row),
    }
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn moves_are_told_after_what_makes_their_names_free() {
        let move_of = |old: &'static str, new| (old, new, format!("{old}>{new} "));
        let chain = vec![move_of("long", "b"), move_of("b", "d/c"), move_of("x", "y")];
        assert_eq!(in_order(chain), "b>d/c long>b x>y ");
        // Each old name is shorter than the new one where that is in use.
        let round = vec![move_of("a", "ccc"), move_of("bb", "a"), move_of("ccc", "bb")];
        assert_eq!(in_order(round), "a>ccc bb>a ccc>bb ");
    }
}
