//! `marram defragment`: writes anew what lies in crumbs, and gives back the blocks of which little
//! is still used.

use super::pass;
use crate::arguments::PassArguments;
use crate::commands::answers::unexpected;
use crate::control::protocol::{Answer, DefragmentSummary, Request};
use crate::engine::home::Pass;
use crate::error::{Error, Result};
use crate::output::{Output, size_text};

pub(super) fn run(arguments: &PassArguments, output: &Output) -> Result<()> {
    let summary = match pass::make(arguments, Request::Defragment, Pass::Defragment, output)? {
        Answer::Defragmented(summary) => *summary,
        other => return Err(unexpected(&other)),
    };
    pass::say_left_alone(arguments, &summary.end);
    output.print(&summary, || text(&summary, arguments.exact));
    pass::judge_end(&summary.end, "rewritten")?;
    if summary.is_short_of_space {
        return Err(Error::partial("too little space is free to rewrite more")
            .hint("new blocks are written before the old ones come back: free some space first"));
    }
    pass::judge_skipped(&summary.end, "files")
}

fn text(summary: &DefragmentSummary, exact: bool) -> String {
    let size = |bytes| size_text(bytes, exact);
    let row = &summary.rewriting;
    let mut lines =
        vec![format!("looked at:   {} in {} files", size(row.content_bytes), summary.files)];
    if summary.end.dry_run {
        lines.push(format!("extents:     {}", summary.extents_before));
        lines.push(format!(
            "could write: {}, in place of blocks that take {}",
            size(row.rewritten_bytes),
            size(row.released_bytes)
        ));
    } else {
        let (before, after) = (summary.extents_before, summary.extents_after);
        lines.push(format!("extents:     {before} before, {after} now"));
        lines.push(format!("written:     {}", size(row.rewritten_bytes)));
        let freed = pass::given_back(&summary.end);
        lines.push(format!("given back:  {}", size(freed)));
    }
    if row.held_bytes > 0 {
        let held = size(row.held_bytes);
        lines.push(format!("left alone:  {held} that snapshots, forks or other files have too"));
    }
    lines.join("\n") + "\n"
}
