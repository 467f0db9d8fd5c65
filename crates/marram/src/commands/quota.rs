//! `marram quota`: what users, groups and projects use of a dataset, and what they may use.
//!
//! The daemon answers its own user, root, and users that are allowed it, about all owners. Any
//! other user on another's mount asks through the mount, which knows the user and answers about
//! that user, the user's groups, and the project of the file or directory that is named.

use crate::arguments::{OwnerArguments, QuotaArguments};
use crate::commands::answers::unexpected;
use crate::control::owner_names;
use crate::control::protocol::{Answer, Operation, Owner, OwnerClass, OwnerRow};
use crate::error::{Error, Result};
use crate::mountinfo::{self, MountEntry};
use crate::output::{Align, Output, Table, size_text};
use crate::paths;
use crate::sizes::parse_size;
use crate::target::Target;
use marram_store::Source;
use marram_vfs::UsageOwner;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

/// What takes a limit away.
const NONE: &str = "none";

pub(super) fn run(arguments: &QuotaArguments, output: &Output) -> Result<()> {
    let owner = chosen(&arguments.owner)?;
    let asks = arguments.bytes.is_none() && arguments.inodes.is_none();
    let asks_own = asks && arguments.dataset.is_none() && is_anothers(&arguments.target)?;
    let mut rows = match all(arguments, owner) {
        Err(_) if asks_own => own(&arguments.target, owner)?,
        other => other?,
    };
    for row in &mut rows {
        row.name = owner_names::name_of(row.owner.class, row.owner.id);
    }
    output.print(&rows, || text(&rows, arguments, output));
    Ok(())
}

/// Whether a path lies in a mount of another user.
fn is_anothers(path: &Path) -> Result<bool> {
    let entry = mountinfo::mount_of(&paths::resolved(path)?)?;
    let owner = entry.filter(MountEntry::is_marram).and_then(|entry| entry.owner_uid());
    Ok(!paths::is_root() && owner.is_some_and(|owner| owner != paths::own_uid()))
}

/// What may be known through the mount.
fn own(path: &Path, owner: Option<Owner>) -> Result<Vec<OwnerRow>> {
    let file = File::open(path).map_err(|error| Error::system("open", path, error))?;
    if let Some(owner) = owner {
        return Ok(vec![ask(&file, path, owner)?]);
    }
    let user = Owner { class: OwnerClass::User, id: paths::own_uid() };
    let mut rows = vec![ask(&file, path, user)?];
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups: BTreeSet<u32> = groups
        .into_iter()
        .chain([rustix::process::getegid()])
        .map(|group| group.as_raw())
        .collect();
    for id in groups {
        let row = ask(&file, path, Owner { class: OwnerClass::Group, id })?;
        let limited = row.bytes_limit.is_some() || row.inodes_limit.is_some();
        if row.inodes > 0 || limited {
            rows.push(row);
        }
    }
    Ok(rows)
}

fn ask(file: &File, path: &Path, owner: Owner) -> Result<OwnerRow> {
    let asked = match owner.class {
        OwnerClass::User => UsageOwner::User(owner.id),
        OwnerClass::Group => UsageOwner::Group(owner.id),
        OwnerClass::Project => UsageOwner::Project(owner.id),
    };
    let told = marram_fuse::usage(file, asked).map_err(|error| {
        let (class, id, place) = (owner.class, owner.id, path.display());
        Error::failed(format!("cannot tell what {class} {id} uses of {place}: {error}"))
            .hint("ordinary users may ask about themselves, their groups and a file's project")
    })?;
    Ok(OwnerRow {
        bytes: told.bytes,
        bytes_limit: told.bytes_limit,
        inodes: told.inodes,
        inodes_limit: told.inodes_limit,
        ..OwnerRow::empty(owner)
    })
}

/// What the daemon, or the pool itself, tells; first a limit is set, if one is given.
fn all(arguments: &QuotaArguments, owner: Option<Owner>) -> Result<Vec<OwnerRow>> {
    let target = Target::find(&arguments.target)?;
    let source = source(&target, arguments.dataset.as_deref())?;
    match (owner, arguments.bytes.is_some() || arguments.inodes.is_some()) {
        (None, true) => {
            return Err(Error::usage("a limit needs an owner: --user, --group or --project"));
        }
        (Some(owner), true) => set(&target, &source, owner, arguments)?,
        (_, false) => {}
    }
    let mut rows = owners(&target, &source)?;
    if let Some(owner) = owner {
        rows.retain(|row| row.owner == owner);
        if rows.is_empty() {
            rows.push(OwnerRow::empty(owner));
        }
    }
    Ok(rows)
}

/// What is asked about: also a snapshot, where that is mounted.
fn source(target: &Target, named: Option<&str>) -> Result<Source> {
    match (named, &target.mounted) {
        (None, Some(mounted)) => Ok(mounted.clone()),
        _ => Ok(Source { dataset: target.dataset(named)?, snapshot: None }),
    }
}

fn chosen(arguments: &OwnerArguments) -> Result<Option<Owner>> {
    let OwnerArguments { user, group, project } = arguments;
    let named =
        [(OwnerClass::User, user), (OwnerClass::Group, group), (OwnerClass::Project, project)];
    let Some((class, Some(name))) = named.into_iter().find(|(_, name)| name.is_some()) else {
        return Ok(None);
    };
    let id = owner_names::id_of(class, name).ok_or_else(|| {
        Error::not_found(format!("no {class} is named {name:?}")).hint("give its number")
    })?;
    Ok(Some(Owner { class, id }))
}

fn owners(target: &Target, source: &Source) -> Result<Vec<OwnerRow>> {
    match target.perform(&Operation::Owners { source: source.to_string() })? {
        Answer::Owners(rows) => Ok(rows),
        other => Err(unexpected(&other)),
    }
}

/// Sets the limits that are named, and leaves the others as they are.
fn set(target: &Target, source: &Source, owner: Owner, wanted: &QuotaArguments) -> Result<()> {
    if source.snapshot.is_some() {
        return Err(Error::usage(format!("{source} is a snapshot: its limits cannot change")));
    }
    if owner.id == 0 {
        return Err(Error::usage(format!("{} 0 has no limits", owner.class)));
    }
    let rows = owners(target, source)?;
    let known = rows.into_iter().find(|row| row.owner == owner);
    let known = known.unwrap_or_else(|| OwnerRow::empty(owner));
    let bytes_limit = match wanted.bytes.as_deref() {
        None => known.bytes_limit,
        Some(text) => limit(text, parse_size)?,
    };
    let inodes_limit = match wanted.inodes.as_deref() {
        None => known.inodes_limit,
        Some(text) => limit(text, parse_count)?,
    };
    let dataset = source.dataset.to_string();
    target.perform(&Operation::SetLimit { dataset, owner, bytes_limit, inodes_limit })?;
    Ok(())
}

fn limit(text: &str, parse: impl FnOnce(&str) -> Result<u64>) -> Result<Option<u64>> {
    if text == NONE {
        return Ok(None);
    }
    match parse(text)? {
        limit if i64::try_from(limit).is_ok() => Ok(Some(limit)),
        limit => Err(Error::usage(format!("a limit of {limit} is none: write \"none\""))),
    }
}

fn parse_count(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::usage(format!("{text:?} is no number of inodes")))
}

fn text(rows: &[OwnerRow], arguments: &QuotaArguments, output: &Output) -> String {
    let format = arguments.format;
    let mut table = Table::new(&[
        ("CLASS", Align::Left),
        ("ID", Align::Right),
        ("NAME", Align::Left),
        ("BYTES", Align::Right),
        ("LIMIT", Align::Right),
        ("INODES", Align::Right),
        ("LIMIT", Align::Right),
    ]);
    for row in rows {
        let none = || NONE.to_owned();
        table.row(vec![
            row.owner.class.to_string(),
            row.owner.id.to_string(),
            row.name.clone().unwrap_or_else(|| "-".to_owned()),
            size_text(row.bytes, format.exact),
            row.bytes_limit.map_or_else(none, |bytes| size_text(bytes, format.exact)),
            row.inodes.to_string(),
            row.inodes_limit.map_or_else(none, |inodes| inodes.to_string()),
        ]);
    }
    if format.no_header { table.tab_separated() } else { table.columns(output.colour) }
}

#[cfg(test)]
mod tests {
    use super::{limit, parse_count};
    use crate::sizes::parse_size;

    #[test]
    fn limits_are_numbers_or_none() {
        assert_eq!(limit("none", parse_size).unwrap(), None);
        assert_eq!(limit("10G", parse_size).unwrap(), Some(10 << 30));
        assert_eq!(limit("12", parse_count).unwrap(), Some(12));
        for text in ["", "-1", "many", "1K"] {
            assert!(limit(text, parse_count).is_err(), "{text}");
        }
        assert!(limit("15E", parse_size).is_err(), "more than there can be");
    }
}
