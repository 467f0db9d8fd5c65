//! Rooms: the top-level modules of a crate have an order, and an import never runs against it.
//!
//! `xtask/tidy.rooms` lists the rooms bottom up. A room takes only from rooms that stand before
//! it, so that a reader of the crate begins at the top of the list and never has to look ahead.
//! The root of the crate is no room: it may name them all.

use super::Finding;
use super::plan::{Arrow, Plan};
use crate::failure::{Context, Result, fail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The list of rooms.
const LIST: &str = "xtask/tidy.rooms";

/// The order of a crate's rooms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The crate's folder.
    pub(crate) name: String,
    /// The rooms, bottom up, each with its line in the list.
    rooms: Vec<(String, usize)>,
}

impl Order {
    /// The place of the room of `module` in the order; none of what is on no list.
    pub(crate) fn place(&self, module: &[String]) -> Option<usize> {
        self.rooms.iter().position(|(room, _)| Some(room) == module.first())
    }

    /// Whether `arrow` runs to a room that stands later.
    pub(crate) fn is_against(&self, plan: &Plan<'_>, arrow: &Arrow) -> bool {
        let place = |file: usize| self.place(&plan.files[file].module);
        matches!((place(arrow.from), place(arrow.to)), (Some(from), Some(to)) if from < to)
    }
}

/// The orders that are written down.
pub(crate) fn orders(root: &Path) -> Result<Vec<Order>> {
    let text =
        std::fs::read_to_string(root.join(LIST)).context(|| format!("cannot read {LIST}"))?;
    parse(&text)
}

/// A line at the margin, `name:`, begins a crate; an indented line is a room and what it is.
fn parse(text: &str) -> Result<Vec<Order>> {
    let mut orders: Vec<Order> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim_end();
        let Some(word) = line.split_whitespace().next() else { continue };
        match (line.starts_with(' '), line.strip_suffix(':'), orders.last_mut()) {
            (true, _, Some(order)) => order.rooms.push((word.to_owned(), index + 1)),
            (false, Some(name), _) => orders.push(Order { name: name.into(), rooms: Vec::new() }),
            _ => return fail(format!("{LIST}:{}: want `crate:` or `    room`", index + 1)),
        }
    }
    Ok(orders)
}

/// The imports of `plan` that run against `order`, a finding a file.
pub(crate) fn imports_against(plan: &Plan<'_>, arrows: &[Arrow], order: &Order) -> Vec<Finding> {
    let mut against: BTreeMap<usize, Vec<&Arrow>> = BTreeMap::new();
    for arrow in arrows.iter().filter(|arrow| !arrow.is_call && order.is_against(plan, arrow)) {
        against.entry(arrow.from).or_default().push(arrow);
    }
    let findings = against.into_iter().map(|(file, arrows)| {
        let names = arrows.iter().map(|arrow| format!("`{}` (line {})", arrow.name, arrow.line));
        let names: Vec<String> = names.collect();
        let message = format!("takes from later rooms: {}", names.join(", "));
        let source = plan.files[file].source;
        let finding = Finding::new("rooms", source, arrows[0].line, message);
        Finding { measure: Some(arrows.len()), ..finding }
    });
    findings.collect()
}

/// Rooms that are not on the list, and lines of the list that name no room.
pub(crate) fn unlisted(plan: &Plan<'_>, order: &Order) -> Vec<Finding> {
    let rooms: BTreeSet<&String> =
        plan.files.iter().filter_map(|file| file.module.first()).collect();
    let missing = plan.files.iter().filter(|file| {
        let is_first = file.module.len() == 1;
        is_first && order.place(&file.module).is_none()
    });
    let missing = missing.map(|file| {
        let message = format!("`{}` has no place in {LIST}", file.module[0]);
        Finding::new("rooms", file.source, 1, message)
    });
    let stale = order.rooms.iter().filter(|(room, _)| !rooms.contains(room));
    let stale = stale.map(|(room, line)| {
        let message = format!("`{}` has no room `{room}`: remove the line", plan.name);
        Finding { rule: "rooms", place: LIST.into(), line: *line, measure: None, message }
    });
    missing.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::plan::arrows;
    use crate::tidy::source::Source;

    const LISTED: &str = "pool:\n    media  bytes\n    tree   nodes\n    commit\n";

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        let parse_file = |(path, text): &(&str, &str)| {
            Source::parse(&format!("crates/pool/src/{path}"), text).expect("the snippet parses")
        };
        let sources: Vec<Source> = files.iter().map(parse_file).collect();
        let plan = Plan::new("pool", &sources);
        let order = &parse(LISTED).expect("the list parses")[0];
        let mut findings = imports_against(&plan, &arrows(&plan), order);
        findings.extend(unlisted(&plan, order));
        findings
    }

    fn with_media(text: &str) -> Vec<Option<usize>> {
        let found = found(&[
            ("lib.rs", "mod media; mod tree; mod commit; pub use commit::Commit;"),
            ("media/mod.rs", text),
            ("media/cache.rs", "pub struct Cache;"),
            ("tree.rs", "use crate::media::Cache; pub struct Node; pub fn walk() {}"),
            ("commit.rs", "use crate::{media::Cache, tree}; pub struct Commit;"),
        ]);
        found.into_iter().map(|finding| finding.measure).collect()
    }

    #[test]
    fn imports_of_earlier_rooms_are_fine() {
        assert!(with_media("mod cache; pub use cache::Cache;").is_empty());
    }

    #[test]
    fn imports_and_paths_that_run_against_the_order_are_found() {
        assert_eq!(with_media("mod cache; use crate::tree::Node;"), [Some(1)]);
        assert_eq!(with_media("mod cache; use super::tree::{Node, walk};"), [Some(2)]);
        assert_eq!(with_media("mod cache; fn f() { crate::tree::walk() }"), [Some(1)]);
        assert_eq!(with_media("mod cache; fn f() { vec![super::tree::walk()] }"), [Some(1)]);
    }

    #[test]
    fn a_re_export_hides_nothing() {
        assert_eq!(with_media("mod cache; use crate::Commit;"), [Some(1)]);
    }

    #[test]
    fn tests_may_look_ahead() {
        assert!(with_media("mod cache; #[cfg(test)] mod tests { use crate::Commit; }").is_empty());
    }

    #[test]
    fn rooms_and_lines_without_each_other_are_found() {
        let found = found(&[("lib.rs", ""), ("media.rs", ""), ("tree.rs", ""), ("log.rs", "")]);
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("`log` has no place"));
        assert!(lines[1].contains("tidy.rooms:4: rooms: `pool` has no room `commit`"));
    }

    #[test]
    fn a_line_of_another_shape_is_refused() {
        assert!(parse("    room before its crate\n").is_err());
        assert!(parse("pool\n").is_err());
    }
}
