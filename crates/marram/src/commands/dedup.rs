//! `marram dedup`: finds content that is stored more than once, and lets it share its blocks.

use super::pass;
use crate::arguments::PassArguments;
use crate::commands::answers::unexpected;
use crate::control::protocol::{Answer, DedupSummary, Request};
use crate::engine::home::Pass;
use crate::error::Result;
use crate::output::{Output, size_text};

pub(super) fn run(arguments: &PassArguments, output: &Output) -> Result<()> {
    let summary = match pass::make(arguments, Request::Dedup, Pass::Dedup, output)? {
        Answer::Deduplicated(summary) => *summary,
        other => return Err(unexpected(&other)),
    };
    pass::say_left_alone(arguments, &summary.end);
    output.print(&summary, || text(&summary, arguments.exact));
    pass::judge_end(&summary.end, "shared")?;
    pass::judge_skipped(&summary.end, "places")
}

fn text(summary: &DedupSummary, exact: bool) -> String {
    let size = |bytes| size_text(bytes, exact);
    let passes = match summary.passes {
        0 | 1 => String::new(),
        passes => format!(", in {passes} passes"),
    };
    let looked_at = format!("{} in {} files{passes}", size(summary.content_bytes), summary.files);
    let mut lines = vec![format!("looked at:    {looked_at}")];
    if summary.short_bytes > 0 {
        let short = size(summary.short_bytes);
        lines.push(format!("left alone:   {short} in files and ends of files under 2 KiB"));
    }
    lines.push(format!("stored twice: {}", size(summary.equal_bytes)));
    if summary.end.dry_run {
        let most = size(summary.released_bytes);
        lines.push(format!("could free:   {most} as stored, less what snapshots keep"));
    } else {
        lines.push(format!("shared now:   {}", size(summary.shared_bytes)));
        let freed = pass::given_back(&summary.end);
        lines.push(format!(
            "given back:   {} of {} as stored",
            size(freed),
            size(summary.released_bytes)
        ));
        if freed < summary.released_bytes / 2 {
            lines.push("the rest comes back with the snapshots that still have it".to_owned());
        }
    }
    lines.join("\n") + "\n"
}
