//! What users and groups may do to a dataset beside root: `1000:send+snapshot,@100:rollback`.
//!
//! Each part is a user, or a group behind an `@`, by its number, and the verbs that it may use. The
//! engine keeps and checks the text; a daemon asks it before it performs what a user wants.

use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Most users and groups that one dataset hands something out to.
pub const GRANTEES_MAX: usize = 256;
/// Nothing is handed out.
const NONE: &str = "none";

/// What can be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Destroy its snapshots.
    Destroy,
    /// Set its quota and reservation, and what owners may use.
    Quota,
    /// Let all of it go back to a snapshot.
    Rollback,
    /// Send its snapshots.
    Send,
    /// Set its other properties.
    Set,
    /// Make snapshots of it.
    Snapshot,
}

impl Verb {
    /// All of them, by name.
    pub const ALL: [Verb; 6] =
        [Verb::Destroy, Verb::Quota, Verb::Rollback, Verb::Send, Verb::Set, Verb::Snapshot];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Destroy => "destroy",
            Verb::Quota => "quota",
            Verb::Rollback => "rollback",
            Verb::Send => "send",
            Verb::Set => "set",
            Verb::Snapshot => "snapshot",
        }
    }
}

impl FromStr for Verb {
    type Err = Error;

    fn from_str(text: &str) -> Result<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.name() == text).ok_or_else(|| {
            let names = Verb::ALL.map(Verb::name).join(", ");
            Error::Invalid(format!("{text:?} cannot be allowed: there are {names}"))
        })
    }
}

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grantee {
    /// A user, by number.
    User(u32),
    /// All users of a group, by number.
    Group(u32),
}

impl fmt::Display for Grantee {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grantee::User(id) => write!(out, "{id}"),
            Grantee::Group(id) => write!(out, "@{id}"),
        }
    }
}

impl FromStr for Grantee {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> std::result::Result<Grantee, Self::Err> {
        match text.strip_prefix('@') {
            Some(id) => id.parse().map(Grantee::Group),
            None => text.parse().map(Grantee::User),
        }
    }
}

/// See the module. No grantee is without a verb.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(BTreeMap<Grantee, BTreeSet<Verb>>);

impl Grants {
    /// Hands out verbs, beside those that `to` has.
    ///
    /// # Errors
    /// There are too many users and groups.
    pub fn allow(&mut self, to: Grantee, verbs: &BTreeSet<Verb>) -> Result<()> {
        if !verbs.is_empty() {
            self.0.entry(to).or_default().extend(verbs);
        }
        match self.0.len() <= GRANTEES_MAX {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "a dataset allows something to at most {GRANTEES_MAX} users and groups: use groups"
            ))),
        }
    }

    /// Takes verbs back from `from`.
    pub fn disallow(&mut self, from: Grantee, verbs: &BTreeSet<Verb>) {
        if let Some(has) = self.0.get_mut(&from) {
            has.retain(|verb| !verbs.contains(verb));
        }
        self.0.retain(|_, has| !has.is_empty());
    }

    /// Whether a user may use a verb, itself or through a group.
    pub fn allows(&self, verb: Verb, user: u32, is_member: impl Fn(u32) -> bool) -> bool {
        self.0.iter().any(|(to, verbs)| {
            let is_for = match to {
                Grantee::User(id) => *id == user,
                Grantee::Group(id) => is_member(*id),
            };
            is_for && verbs.contains(&verb)
        })
    }

    /// Users and groups with what each may do.
    pub fn iter(&self) -> impl Iterator<Item = (Grantee, &BTreeSet<Verb>)> {
        self.0.iter().map(|(to, verbs)| (*to, verbs))
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return out.write_str(NONE);
        }
        let part = |(to, verbs): (&Grantee, &BTreeSet<Verb>)| {
            let verbs: Vec<&str> = verbs.iter().map(|verb| verb.name()).collect();
            format!("{to}:{}", verbs.join("+"))
        };
        out.write_str(&self.0.iter().map(part).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Grants {
    type Err = Error;

    fn from_str(text: &str) -> Result<Grants> {
        let mut grants = Grants::default();
        if text == NONE {
            return Ok(grants);
        }
        for part in text.split(',') {
            let wrong = || {
                Error::Invalid(format!(
                    "allow={text} makes no sense at {part:?}: write NUMBER:VERB+VERB, with an @ \
                     before the number of a group, or none; `marram allow` takes names"
                ))
            };
            let (to, verbs) = part.split_once(':').ok_or_else(wrong)?;
            let verbs = verbs.split('+').map(str::parse).collect::<Result<BTreeSet<Verb>>>()?;
            grants.allow(to.parse().map_err(|_| wrong())?, &verbs)?;
        }
        Ok(grants)
    }
}

#[cfg(test)]
mod tests {
    use super::{GRANTEES_MAX, Grantee, Grants, Verb};
    use std::collections::BTreeSet;

    const NOBODY_ELSE: fn(u32) -> bool = |_| false;

    #[test]
    fn a_text_is_read_and_brought_into_form() {
        for (text, form) in [
            ("none", "none"),
            ("1000:snapshot+send", "1000:send+snapshot"),
            ("@100:rollback,1000:set,1000:quota", "1000:quota+set,@100:rollback"),
        ] {
            assert_eq!(text.parse::<Grants>().unwrap().to_string(), form);
        }
        for wrong in ["", "1000", "ann:send", "1000:", "1000:mount", "@:send", "-1:send", "1:send,"]
        {
            assert!(wrong.parse::<Grants>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn users_have_what_is_theirs_and_their_groups() {
        let grants: Grants = "1000:send,@100:rollback".parse().unwrap();
        assert!(grants.allows(Verb::Send, 1000, NOBODY_ELSE));
        assert!(!grants.allows(Verb::Rollback, 1000, NOBODY_ELSE));
        assert!(grants.allows(Verb::Rollback, 1000, |group| group == 100));
        assert!(!grants.allows(Verb::Send, 100, |group| group == 100));
        assert!(!grants.allows(Verb::Send, 0, NOBODY_ELSE));
    }

    #[test]
    fn what_is_taken_back_is_gone_and_nothing_else() {
        let mut grants: Grants = "1000:send+set,@100:rollback".parse().unwrap();
        grants.disallow(Grantee::User(1000), &BTreeSet::from([Verb::Send, Verb::Quota]));
        assert_eq!(grants.to_string(), "1000:set,@100:rollback");
        grants.disallow(Grantee::Group(100), &BTreeSet::from(Verb::ALL));
        grants.disallow(Grantee::Group(7), &BTreeSet::from(Verb::ALL));
        assert_eq!(grants.to_string(), "1000:set");
    }

    #[test]
    fn there_is_a_most() {
        let mut grants = Grants::default();
        let send = BTreeSet::from([Verb::Send]);
        for id in 0..GRANTEES_MAX {
            grants.allow(Grantee::User(u32::try_from(id).unwrap()), &send).unwrap();
        }
        grants.allow(Grantee::User(0), &BTreeSet::from(Verb::ALL)).unwrap();
        assert!(grants.allow(Grantee::Group(0), &send).is_err());
    }
}
