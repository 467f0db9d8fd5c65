//! The versions of a file or directory, as rows.

use super::kind;
use crate::control::credentials::Credentials;
use crate::control::protocol::{Answer, VersionRow, VersionsOrder};
use crate::engine::rights::without_rights;
use crate::error::{Error, Result};
use crate::names::{self, PathText};
use crate::timestamps::format_exact;
use marram_history::{Aspect, Version, VersionChange, VersionsOf};
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{Identity, Ino};

/// Tells the versions of a file or directory, newest first: to a user those that it comes to.
///
/// # Errors
/// No snapshot has it, nor is it there now; no such dataset; a failed read.
pub(crate) fn versions(
    store: &dyn Store,
    order: &VersionsOrder,
    user: Option<&Credentials>,
) -> Result<Answer> {
    let dataset: DatasetName = order.dataset.parse()?;
    let directory = match order.directory {
        Some(directory) => directory,
        None => store.report(&Source::live(dataset.clone()))?.root_object,
    };
    let names: Vec<Vec<u8>> = order.names.iter().map(PathText::bytes).collect();
    let user = user.map(|user| user as &dyn Identity);
    let of = VersionsOf { dataset: &dataset, directory: Ino(directory), names: &names, user };
    let versions = marram_history::versions(store, of).map_err(without_rights)?;
    if versions.is_empty() {
        let path = names::quoted(&names.join(&b'/'));
        return Err(Error::not_found(format!("{path} is not there, nor does a snapshot have it"))
            .hint(format!("`marram list` shows the snapshots of {dataset}")));
    }
    Ok(Answer::Versions(versions.into_iter().map(row).collect()))
}

fn row(version: Version) -> VersionRow {
    let (change, aspects, below) = match version.change {
        VersionChange::Oldest => ("oldest", Vec::new(), None),
        VersionChange::Created => ("created", Vec::new(), None),
        VersionChange::Removed => ("removed", Vec::new(), None),
        VersionChange::Changed(aspects) => ("changed", aspects, None),
        VersionChange::Below(counts) => {
            ("changed", Vec::new(), Some((counts.created, counts.removed, counts.changed)))
        }
    };
    let found = version.found.as_ref();
    VersionRow {
        now: version.sources.iter().any(|source| source.snapshot.is_none()),
        snapshots: version.sources.into_iter().filter_map(|source| source.snapshot).collect(),
        since_seconds: version.since_seconds,
        kind: found.map(|found| kind(found.kind).to_owned()),
        path: found.map(|found| names::text(&found.path)),
        path_bytes: found.and_then(|found| names::lost_bytes(&found.path)),
        size: found.map(|found| found.size),
        modified: found
            .map(|found| format_exact(found.modified.seconds, found.modified.nanoseconds)),
        change: change.to_owned(),
        aspects: aspects.into_iter().map(|aspect| word(aspect).to_owned()).collect(),
        below,
    }
}

const fn word(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Content => "content",
        Aspect::Mode => "mode",
        Aspect::Owner => "owner",
        Aspect::Flags => "flags",
        Aspect::Xattrs => "xattrs",
        Aspect::Kind => "kind",
        Aspect::Path => "path",
    }
}
