//! `marram allow` and `marram disallow`: what users and groups may do beside root.

use crate::arguments::{AllowArguments, DisallowArguments, FormatArguments};
use crate::commands::answers::unexpected;
use crate::control::owner_names;
use crate::control::protocol::{
    Answer, GrantChange, GrantOrder, GrantRow, Operation, Owner, OwnerClass,
};
use crate::error::{Error, Result};
use crate::output::{Align, Output, Table};
use crate::target::Target;
use std::ffi::OsStr;
use std::path::Path;

pub(super) fn allow(arguments: &AllowArguments, output: &Output) -> Result<()> {
    let dataset = arguments.dataset.as_deref();
    match arguments.words.as_slice() {
        [target] => {
            let (target, dataset) = find(target, dataset)?;
            let order = GrantOrder { dataset, change: None };
            let rows = target.perform(&Operation::Grants(order))?;
            print(rows, arguments.format, output)
        }
        [grantee, verbs, target] => {
            let verbs = text(verbs)?.split(',').map(str::to_owned).collect();
            let rows = change((text(grantee)?, verbs, false), find(target, dataset)?)?;
            print(rows, arguments.format, output)
        }
        _ => Err(Error::usage("it needs USER VERBS TARGET, @GROUP VERBS TARGET, or TARGET alone")
            .hint("`marram allow ann snapshot,send /srv/work` lets ann do both")),
    }
}

pub(super) fn disallow(arguments: &DisallowArguments, output: &Output) -> Result<()> {
    let found = find(arguments.target.as_os_str(), arguments.dataset.as_deref())?;
    let rows = change((&arguments.grantee, arguments.verbs.clone(), true), found)?;
    print(rows, arguments.format, output)
}

fn text(word: &OsStr) -> Result<&str> {
    word.to_str().ok_or_else(|| Error::usage(format!("{} is no word of it", word.display())))
}

fn find(target: &OsStr, dataset: Option<&str>) -> Result<(Target, String)> {
    let target = Target::find(Path::new(target))?;
    let dataset = target.dataset(dataset)?.to_string();
    Ok((target, dataset))
}

fn change(
    (grantee, verbs, take_back): (&str, Vec<String>, bool),
    (target, dataset): (Target, String),
) -> Result<Answer> {
    let owner = owner(grantee)?;
    let change = Some(GrantChange { owner, verbs, take_back });
    target.perform(&Operation::Grants(GrantOrder { dataset, change }))
}

/// A user, or behind an `@` a group, by name or number.
fn owner(grantee: &str) -> Result<Owner> {
    let (class, name) = match grantee.strip_prefix('@') {
        Some(name) => (OwnerClass::Group, name),
        None => (OwnerClass::User, grantee),
    };
    let id = owner_names::id_of(class, name).ok_or_else(|| {
        Error::not_found(format!("no {class} is named {name:?}"))
            .hint("give its number; a group stands behind an @")
    })?;
    Ok(Owner { class, id })
}

fn print(answer: Answer, format: FormatArguments, output: &Output) -> Result<()> {
    let Answer::Grants(mut rows) = answer else { return Err(unexpected(&answer)) };
    for row in &mut rows {
        row.name = owner_names::name_of(row.owner.class, row.owner.id);
    }
    output.print(&rows, || table(&rows, format, output));
    Ok(())
}

fn table(rows: &[GrantRow], format: FormatArguments, output: &Output) -> String {
    let mut table = Table::new(&[
        ("CLASS", Align::Left),
        ("ID", Align::Right),
        ("NAME", Align::Left),
        ("MAY", Align::Left),
    ]);
    for row in rows {
        table.row(vec![
            row.owner.class.to_string(),
            row.owner.id.to_string(),
            row.name.clone().unwrap_or_else(|| "-".to_owned()),
            row.verbs.join(","),
        ]);
    }
    if format.no_header { table.tab_separated() } else { table.columns(output.colour) }
}
