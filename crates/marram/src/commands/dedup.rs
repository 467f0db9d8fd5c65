//! `marram dedup`: finds content that is stored more than once, and lets it share its blocks.

use crate::arguments::DedupArguments;
use crate::control::protocol::{Answer, DedupDirectory, DedupOrder, DedupSummary, Request};
use crate::engine::{OpenMode, OpenPool, dedup};
use crate::error::{Error, Result};
use crate::output::{Output, say, size_text};
use crate::target::Target;
use marram_store::Source;
use std::path::{Path, PathBuf};

pub(super) fn run(arguments: &DedupArguments, output: &Output) -> Result<()> {
    let (target, places) = places_of(&arguments.directories, arguments.dataset.as_deref())?;
    let order = DedupOrder { places, dry_run: arguments.dry_run };
    let summary = match perform(&target, &order)? {
        Answer::Deduplicated(summary) => *summary,
        other => return Err(super::unexpected(&other)),
    };
    for row in &summary.told {
        let directory = arguments.directories.get(row.place).map_or(Path::new(""), |it| it);
        say(&format!("left alone: {}: {}", directory.join(&row.path).display(), row.reason));
    }
    output.print(&summary, || text(&summary, arguments.exact));
    judge(&summary)
}

/// The pool that directories are in, and what they are there.
///
/// # Errors
/// One is none, or they are in several pools.
pub(super) fn places_of(
    directories: &[PathBuf],
    dataset: Option<&str>,
) -> Result<(Target, Vec<DedupDirectory>)> {
    let mut found: Option<Target> = None;
    let mut places = Vec::new();
    for path in directories {
        let target = Target::find(path)?;
        if found.as_ref().is_some_and(|first| first.pool != target.pool) {
            return Err(Error::usage(format!("{} is in another pool", path.display()))
                .hint("one command works in one pool: name directories of one at a time"));
        }
        super::write_back(&target, path)?;
        places.push(place(&target, path, dataset)?);
        found = Some(target);
    }
    let target = found.ok_or_else(|| Error::usage("name a directory below a mount, or a pool"))?;
    Ok((target, places))
}

fn place(target: &Target, path: &Path, dataset: Option<&str>) -> Result<DedupDirectory> {
    if target.ino == Some(0) {
        return Err(Error::usage(format!("{} is no directory", path.display())));
    }
    let own = match &target.mounted {
        Some(mounted) => mounted.clone(),
        None => Source::live(target.dataset(None)?),
    };
    match dataset {
        Some(name) if name != own.to_string() => {
            Ok(DedupDirectory { source: Source::live(name.parse()?).to_string(), directory: None })
        }
        _ => Ok(DedupDirectory { source: own.to_string(), directory: target.ino }),
    }
}

fn perform(target: &Target, order: &DedupOrder) -> Result<Answer> {
    if let Some(client) = target.connect()? {
        return client.ask(&Request::Dedup(order.clone()));
    }
    let pool = OpenPool::open(&target.pool, &OpenMode::for_dedup(order.dry_run))?;
    let answer = dedup::alone(pool.pool(), order);
    pool.close()?;
    answer
}

fn text(summary: &DedupSummary, exact: bool) -> String {
    let size = |bytes| size_text(bytes, exact);
    let passes = match summary.passes {
        0 | 1 => String::new(),
        passes => format!(", in {passes} passes"),
    };
    let looked_at = format!("{} in {} files{passes}", size(summary.content_bytes), summary.files);
    let mut lines = vec![format!("looked at:    {looked_at}")];
    lines.push(format!("stored twice: {}", size(summary.equal_bytes)));
    if summary.dry_run {
        let most = size(summary.released_bytes);
        lines.push(format!("could free:   {most} as stored, less what snapshots keep"));
    } else {
        lines.push(format!("shared now:   {}", size(summary.shared_bytes)));
        let freed = u64::try_from(summary.freed_bytes).unwrap_or(0);
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

/// What was left undone is told by the exit status too.
fn judge(summary: &DedupSummary) -> Result<()> {
    if let Some(failure) = &summary.failure {
        return Err(Error::partial(format!("not everything was looked at: {failure}"))
            .hint("what has been shared stays so; run it again when that is mended"));
    }
    if summary.is_interrupted {
        return Err(Error::partial("not everything was looked at: a directory was unmounted"));
    }
    match summary.skipped {
        0 => Ok(()),
        skipped => Err(Error::partial(format!("{skipped} places were left alone"))),
    }
}
