//! `marram get` and `marram set`: properties of a dataset.

use crate::arguments::{GetArguments, SetArguments};
use crate::commands::answers::unexpected;
use crate::control::protocol::{Answer, Operation, PropertyRow};
use crate::engine::properties::parse_settings;
use crate::error::{Error, Result};
use crate::output::{Align, Output, Table, size_text};
use crate::target::Target;
use std::collections::BTreeMap;

pub(super) fn get(arguments: &GetArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    let rows = properties(&target, arguments.dataset.as_deref())?;
    let rows = choose(rows, &arguments.properties)?;
    let format = arguments.format;
    output.print(&rows, || {
        let mut table = Table::new(&[
            ("DATASET", Align::Left),
            ("PROPERTY", Align::Left),
            ("VALUE", Align::Left),
            ("SOURCE", Align::Left),
        ]);
        for row in &rows {
            table.row(vec![
                row.dataset.clone(),
                row.property.clone(),
                value_text(row, format.exact),
                row.source.clone(),
            ]);
        }
        if format.no_header { table.tab_separated() } else { table.columns(output.colour) }
    });
    Ok(())
}

fn properties(target: &Target, dataset: Option<&str>) -> Result<Vec<PropertyRow>> {
    let dataset = target.dataset(dataset)?.to_string();
    match target.perform(&Operation::Get { dataset })? {
        Answer::Properties(rows) => Ok(rows),
        other => Err(unexpected(&other)),
    }
}

/// The rows that were asked for, in the order asked for; all if none or `all` was.
fn choose(rows: Vec<PropertyRow>, names: &[String]) -> Result<Vec<PropertyRow>> {
    if names.is_empty() || names.iter().any(|name| name == "all") {
        return Ok(rows);
    }
    let names = names.iter().flat_map(|name| name.split(','));
    let find = |name: &str| {
        rows.iter().find(|row| row.property == name).cloned().ok_or_else(|| {
            let known: Vec<&str> = rows.iter().map(|row| row.property.as_str()).collect();
            Error::usage(format!("there is no property {name:?}"))
                .hint(format!("properties are: {}", known.join(", ")))
        })
    };
    names.map(find).collect()
}

fn value_text(row: &PropertyRow, exact: bool) -> String {
    match (row.property.as_str(), row.value.parse::<u64>()) {
        ("recordsize" | "quota" | "reservation", Ok(bytes)) => size_text(bytes, exact),
        _ => row.value.clone(),
    }
}

pub(super) fn set(arguments: &SetArguments, output: &Output) -> Result<()> {
    let settings = parse_settings(&arguments.settings)?;
    let mut properties: BTreeMap<String, Option<String>> =
        settings.into_iter().map(|(name, value)| (name, Some(value))).collect();
    for name in &arguments.defaults {
        if properties.insert(name.clone(), None).flatten().is_some() {
            return Err(Error::usage(format!("{name} is to be set and to be the default")));
        }
    }
    let target = Target::find(&arguments.target)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?.to_string();
    if !arguments.defaults.is_empty() {
        choose(self::properties(&target, Some(&dataset))?, &arguments.defaults)?;
    }
    target.perform(&Operation::Set { dataset: dataset.clone(), properties: properties.clone() })?;
    if output.json {
        let rows = self::properties(&target, Some(&dataset))?;
        let changed: Vec<PropertyRow> =
            rows.into_iter().filter(|row| properties.contains_key(&row.property)).collect();
        output.print(&changed, String::new);
    }
    Ok(())
}
