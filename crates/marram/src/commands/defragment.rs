//! `marram defragment`: writes anew what lies in crumbs, and gives back the blocks of which little
//! is still used.

use super::dedup::places_of;
use crate::arguments::DefragmentArguments;
use crate::control::protocol::{Answer, DefragmentOrder, DefragmentSummary, Request};
use crate::engine::{OpenMode, OpenPool, defragment};
use crate::error::{Error, Result};
use crate::output::{Output, say, size_text};
use crate::target::Target;
use std::path::Path;

pub(super) fn run(arguments: &DefragmentArguments, output: &Output) -> Result<()> {
    let directories = &arguments.directories;
    let (target, places) = places_of(directories, arguments.dataset.as_deref())?;
    let order = DefragmentOrder { places, dry_run: arguments.dry_run };
    let summary = match perform(&target, &order)? {
        Answer::Defragmented(summary) => *summary,
        other => return Err(super::unexpected(&other)),
    };
    for row in &summary.told {
        let directory = directories.get(row.place).map_or(Path::new(""), |it| it);
        say(&format!("left alone: {}: {}", directory.join(&row.path).display(), row.reason));
    }
    output.print(&summary, || text(&summary, arguments.exact));
    judge(&summary)
}

fn perform(target: &Target, order: &DefragmentOrder) -> Result<Answer> {
    if let Some(client) = target.connect()? {
        return client.ask(&Request::Defragment(order.clone()));
    }
    let pool = OpenPool::open(&target.pool, &OpenMode::for_dedup(order.dry_run))?;
    let answer = defragment::alone(pool.pool(), order);
    pool.close()?;
    answer
}

fn text(summary: &DefragmentSummary, exact: bool) -> String {
    let size = |bytes| size_text(bytes, exact);
    let row = &summary.rewriting;
    let mut lines =
        vec![format!("looked at:   {} in {} files", size(row.content_bytes), summary.files)];
    if summary.dry_run {
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
        let freed = u64::try_from(summary.freed_bytes).unwrap_or(0);
        lines.push(format!("given back:  {}", size(freed)));
    }
    if row.held_bytes > 0 {
        let held = size(row.held_bytes);
        lines.push(format!("left alone:  {held} that snapshots, forks or other files have too"));
    }
    lines.join("\n") + "\n"
}

/// What was left undone is told by the exit status too.
fn judge(summary: &DefragmentSummary) -> Result<()> {
    if let Some(failure) = &summary.failure {
        return Err(Error::partial(format!("not everything was looked at: {failure}"))
            .hint("what has been rewritten stays so; run it again when that is mended"));
    }
    if summary.is_interrupted {
        return Err(Error::partial("not everything was looked at: a directory was unmounted"));
    }
    if summary.is_short_of_space {
        return Err(Error::partial("too little space is free to rewrite more")
            .hint("new blocks are written before the old ones come back: free some space first"));
    }
    match summary.skipped {
        0 => Ok(()),
        skipped => Err(Error::partial(format!("{skipped} files were left alone"))),
    }
}
