//! What root hands out of a dataset, reported and changed.

use crate::control::protocol::{Answer, GrantChange, GrantOrder, GrantRow, Owner, OwnerClass};
use crate::error::{Error, Result};
use marram_pool::Pool;
use marram_store::{DatasetName, Grantee, Grants, Store, Verb};
use std::collections::BTreeSet;

/// The word for each verb.
const ALL: &str = "all";

/// Changes it, if that is wanted, and tells what it is then.
///
/// # Errors
/// A word is no verb; a project; root; there is no such dataset; a failed commit.
pub(super) fn perform(pool: &Pool, order: &GrantOrder) -> Result<Answer> {
    let dataset = order.dataset.parse()?;
    let grants = match &order.change {
        None => of(pool, &dataset)?,
        Some(change) => change_of(pool, &dataset, change)?,
    };
    Ok(Answer::Grants(rows(&grants)))
}

/// What a dataset hands out.
///
/// # Errors
/// There is no such dataset.
pub(super) fn of(pool: &Pool, dataset: &DatasetName) -> Result<Grants> {
    let properties = pool.properties(dataset)?;
    let allow = properties.get("allow").map(|(value, _)| value.parse());
    Ok(allow.transpose()?.unwrap_or_default())
}

fn change_of(pool: &Pool, dataset: &DatasetName, change: &GrantChange) -> Result<Grants> {
    let grantee = grantee(change.owner)?;
    let verbs = verbs(&change.verbs)?;
    Ok(pool.change_grants(dataset, |grants| match change.take_back {
        true => {
            grants.disallow(grantee, &verbs);
            Ok(())
        }
        false => grants.allow(grantee, &verbs),
    })?)
}

fn grantee(owner: Owner) -> Result<Grantee> {
    match owner.class {
        OwnerClass::User if owner.id == 0 => Err(Error::usage("root may do all of it anyway")),
        OwnerClass::User => Ok(Grantee::User(owner.id)),
        OwnerClass::Group => Ok(Grantee::Group(owner.id)),
        OwnerClass::Project => Err(Error::usage("a project does nothing: name a user or @GROUP")),
    }
}

fn verbs(words: &[String]) -> Result<BTreeSet<Verb>> {
    if words.iter().any(|word| word == ALL) {
        return Ok(BTreeSet::from(Verb::ALL));
    }
    let parse =
        |word: &String| word.parse::<Verb>().map_err(|error| Error::usage(error.to_string()));
    words.iter().map(parse).collect()
}

fn rows(grants: &Grants) -> Vec<GrantRow> {
    let row = |(to, verbs): (Grantee, &BTreeSet<Verb>)| {
        let owner = match to {
            Grantee::User(id) => Owner { class: OwnerClass::User, id },
            Grantee::Group(id) => Owner { class: OwnerClass::Group, id },
        };
        let verbs = verbs.iter().map(|verb| verb.name().to_owned()).collect();
        GrantRow { owner, name: None, verbs }
    };
    grants.iter().map(row).collect()
}
