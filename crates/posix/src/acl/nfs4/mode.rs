//! Lists and the nine permission bits: RFC 8881, sections 6.3.2 and 6.4.1.
//!
//! Read, write and execute bits stand for more than one permission each: reading for named
//! attributes (extended attributes in the namespace `user.`) too, writing also for appending, named
//! attributes and, of a directory, deleting what is in it. So a list that is made from a mode
//! means what the mode means elsewhere.

use super::{Entry, Inheritance, List, Rights, Who};
use std::collections::HashSet;

/// What everyone may do whatever the mode is.
const ALWAYS: Rights =
    Rights(Rights::READ_ATTRIBUTES.0 | Rights::READ_ACL.0 | Rights::SYNCHRONIZE.0);
/// What the owner may do besides.
const OWNER_ALWAYS: Rights =
    Rights(Rights::WRITE_ATTRIBUTES.0 | Rights::WRITE_ACL.0 | Rights::WRITE_OWNER.0);

/// What three bits of a mode allow.
fn rights(bits: u32, is_directory: bool) -> Rights {
    let mut rights = Rights::NONE;
    if bits & 4 != 0 {
        rights = rights | Rights::READ_DATA | Rights::READ_NAMED_ATTRS;
    }
    if bits & 2 != 0 {
        rights = rights | Rights::WRITE_DATA | Rights::APPEND_DATA | Rights::WRITE_NAMED_ATTRS;
        if is_directory {
            rights = rights | Rights::DELETE_CHILD;
        }
    }
    if bits & 1 != 0 {
        rights = rights | Rights::EXECUTE;
    }
    rights
}

/// The bits of a class, at their place for others.
fn class(mode: u32, shift: u32) -> u32 {
    mode >> shift & 7
}

impl List {
    /// The list that says what `mode` says.
    pub fn from_mode(mode: u32, is_directory: bool) -> List {
        let rights = |bits| rights(bits, is_directory);
        let (owner, group, others) = (class(mode, 6), class(mode, 3), class(mode, 0));
        let entries = [
            Entry::allow(Who::Owner, rights(owner) | ALWAYS | OWNER_ALWAYS),
            Entry::deny(Who::Owner, rights((group | others) & !owner)),
            Entry::allow(Who::Group, rights(group) | ALWAYS),
            Entry::deny(Who::Group, rights(others & !group)),
            Entry::allow(Who::Everyone, rights(others) | ALWAYS),
        ];
        let spoken = entries.into_iter().filter(|entry| !entry.rights.is_empty());
        List { entries: spoken.collect() }
    }

    /// The nine permission bits that the list gives: what its entries for the owner, the group and
    /// everyone allow to those.
    pub fn mode(&self) -> u32 {
        let bits = |class: Who| {
            let allowed = self.allowed_to(class);
            let writes = Rights::WRITE_DATA | Rights::APPEND_DATA;
            let bit = |rights, bit| if allowed.has(rights) { bit } else { 0 };
            bit(Rights::READ_DATA, 4) | bit(writes, 2) | bit(Rights::EXECUTE, 1)
        };
        bits(Who::Owner) << 6 | bits(Who::Group) << 3 | bits(Who::Everyone)
    }

    /// What entries for a class and for everyone leave allowed to that class.
    fn allowed_to(&self, class: Who) -> Rights {
        let (mut settled, mut allowed) = (Rights::NONE, Rights::NONE);
        let about = self.effective().filter(|entry| [class, Who::Everyone].contains(&entry.who));
        for entry in about {
            if entry.allows {
                allowed = allowed | entry.rights & !settled;
            }
            settled = settled | entry.rights;
        }
        allowed
    }

    /// Brings the list in step with a mode that has been set. Entries for what is made in a
    /// directory stay as they are.
    #[must_use]
    pub fn with_mode(self, mode: u32, is_directory: bool) -> List {
        self.with_modes(mode, class(mode, 3), is_directory)
    }

    /// The same, with other bits than those of the group as the most that entries with names
    /// may allow.
    #[must_use]
    pub(super) fn with_modes(self, mode: u32, named: u32, is_directory: bool) -> List {
        let rights = |bits| rights(bits, is_directory);
        let (owner, group, others) = (class(mode, 6), class(mode, 3), class(mode, 0));
        let limit = Limit { all: rights(7), named: rights(named) };
        let names = self.names();
        let mut middle: Vec<Entry> = Vec::new();
        for entry in self.entries {
            middle.extend(limit.parts_of(entry));
        }
        keep_from(&mut middle, &names, rights(others & !named));
        let granted = middle.iter().filter(|entry| entry.allows && entry.is_effective());
        let later = granted.fold(rights(group | others), |all, entry| all | entry.rights);
        let before = [
            Entry::allow(Who::Owner, rights(owner)),
            Entry::deny(Who::Owner, later & rights(7) & !rights(owner)),
        ];
        let after = [
            Entry::allow(Who::Group, rights(group)),
            Entry::deny(Who::Group, rights(others & !group)),
            Entry::allow(Who::Everyone, rights(others)),
        ];
        let mut list = List::default();
        for entry in before.into_iter().chain(middle).chain(after) {
            list.add(entry);
        }
        list
    }

    /// The users and groups that entries name, each once.
    fn names(&self) -> Vec<Who> {
        let mut seen = HashSet::new();
        let named = self.effective().map(|entry| entry.who).filter(|who| who.is_named());
        named.filter(|who| seen.insert(*who)).collect()
    }

    /// Adds an entry at the end, to the last one if that is about the same.
    fn add(&mut self, entry: Entry) {
        if entry.rights.is_empty() {
            return;
        }
        match self.entries.last_mut() {
            Some(last) if Entry { rights: last.rights, ..entry } == *last => {
                last.rights = last.rights | entry.rights;
            }
            _ => self.entries.push(entry),
        }
    }
}

/// What a change of mode leaves of the entries that there are.
struct Limit {
    /// All that the mode decides: entries without a name lose it, as the mode's own bring it anew.
    all: Rights,
    /// What of it entries with a name may still allow.
    named: Rights,
}

impl Limit {
    /// The part of an entry for what is made in the directory, which stays, and the part for the
    /// directory itself.
    fn parts_of(&self, entry: Entry) -> impl Iterator<Item = Entry> + use<> {
        let inheritance = Inheritance { inherit_only: true, ..entry.inheritance };
        let passed = entry.inheritance.is_inheritable() || !entry.is_effective();
        let rights = match entry.who.is_named() {
            false => entry.rights & !self.all,
            true if entry.allows => entry.rights & !(self.all & !self.named),
            true => entry.rights,
        };
        let own = Entry { rights, inheritance: Inheritance::NONE, ..entry };
        let passed = passed.then_some(Entry { inheritance, ..entry });
        let own = (entry.is_effective() && !rights.is_empty()).then_some(own);
        passed.into_iter().chain(own)
    }
}

/// Denies `rights` to these users and groups: everyone is about to get them, and they are not to.
fn keep_from(entries: &mut Vec<Entry>, names: &[Who], rights: Rights) {
    if rights.is_empty() {
        return;
    }
    for who in names {
        let denial =
            |entry: &&mut Entry| entry.who == *who && !entry.allows && entry.is_effective();
        match entries.iter_mut().find(denial) {
            Some(entry) => entry.rights = entry.rights | rights,
            None => entries.push(Entry::deny(*who, rights)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ENTRIES_MAX, KEPT_ENTRIES_MAX, Verdict};
    use super::{Entry, Inheritance, List, Rights, Who};

    const R: Rights = Rights::READ_DATA;
    const W: Rights = Rights(Rights::WRITE_DATA.0 | Rights::APPEND_DATA.0);
    const X: Rights = Rights::EXECUTE;

    #[test]
    fn every_mode_comes_back_from_its_list() {
        for mode in 0..=0o777 {
            for is_directory in [false, true] {
                let list = List::from_mode(mode, is_directory);
                assert_eq!(list.mode(), mode);
                assert_eq!(List::decode(&list.encode()), Ok(list));
            }
        }
        assert_eq!(List::from_mode(0o755, false).entries.len(), 3, "nothing to deny");
    }

    /// For the mode, only entries without names count, and write means writing and appending.
    #[test]
    fn a_mode_is_computed_as_the_protocol_says() {
        let (allow, deny) = (Entry::allow, Entry::deny);
        let cases: [(&[Entry], u32); 6] = [
            (&[], 0),
            (&[allow(Who::Everyone, R | W | X)], 0o777),
            (&[deny(Who::Group, W), allow(Who::Everyone, R | W)], 0o646),
            (&[allow(Who::NamedUser(1), R | W), allow(Who::NamedGroup(1), X)], 0),
            (&[allow(Who::Everyone, Rights::WRITE_DATA | R)], 0o444),
            (&[allow(Who::Owner, R), deny(Who::Everyone, R | X), allow(Who::Group, R | X)], 0o400),
        ];
        for (entries, mode) in cases {
            assert_eq!(List { entries: entries.to_vec() }.mode(), mode, "{entries:?}");
        }
    }

    fn mixed() -> List {
        let both = Inheritance { files: true, directories: true, ..Inheritance::NONE };
        List {
            entries: vec![
                Entry::deny(Who::NamedUser(7), X),
                Entry { inheritance: both, ..Entry::allow(Who::NamedUser(5), R | W | X) },
                Entry::allow(Who::Owner, R | W | Rights::WRITE_OWNER),
                Entry::allow(Who::NamedGroup(6), R | Rights::DELETE),
                Entry::deny(Who::Everyone, W),
                Entry { inheritance: both, ..Entry::allow(Who::Everyone, R) },
            ],
        }
    }

    fn may(list: &List, who: Who, rights: Rights) -> bool {
        let about = |entry| entry == who || entry == Who::Everyone;
        list.evaluate(rights, about) == Verdict::Allowed
    }

    #[test]
    fn a_mode_that_is_set_is_the_mode_that_is_told_whatever_the_list_was() {
        for first in 0..=0o777 {
            let list = mixed().with_mode(first, true);
            assert_eq!(list.mode(), first);
            let second = first.rotate_left(3) & 0o777 ^ 0o125;
            let again = list.with_mode(second, true);
            assert_eq!(again.mode(), second);
            assert_eq!(again.clone().with_mode(second, true), again, "it does not grow");
        }
    }

    #[test]
    fn names_have_no_more_than_the_group_bits_and_keep_the_rest() {
        for mode in 0..=0o777 {
            let list = mixed().with_mode(mode, false);
            for (bit, rights) in [(4, R), (2, W), (1, X)] {
                let allowed = mode >> 3 & bit != 0;
                assert_eq!(may(&list, Who::NamedUser(5), rights), allowed, "{mode:o}");
                assert!(allowed || !may(&list, Who::NamedGroup(6), rights), "{mode:o}");
            }
            assert!(!may(&list, Who::NamedUser(7), X));
            assert!(may(&list, Who::NamedGroup(6), Rights::DELETE));
            assert!(may(&list, Who::Owner, Rights::WRITE_OWNER));
        }
    }

    #[test]
    fn what_is_inherited_stays_as_it_is() {
        let inheritable = |list: &List| {
            let entries = list.entries.iter().filter(|entry| entry.inheritance.files);
            entries.map(|entry| (entry.who, entry.rights)).collect::<Vec<_>>()
        };
        let list = mixed().with_mode(0, true);
        assert_eq!(inheritable(&list), inheritable(&mixed()));
        assert!(list.entries.iter().all(|entry| !entry.is_effective() || !entry.inheritance.files));
    }

    /// A list of up to eight entries out of a few kinds, so that they meet each other.
    fn any_list(seed: &mut u64) -> List {
        let mut below = |limit: u32| {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u32::try_from(*seed >> 33).unwrap() % limit
        };
        let whos = [Who::Owner, Who::Group, Who::Everyone, Who::NamedUser(5), Who::NamedGroup(5)];
        let entries = (0..below(9)).map(|_| Entry {
            allows: below(2) == 0,
            who: whos[usize::try_from(below(5)).unwrap()],
            rights: Rights(below(1 << 21)) & Rights::ALL,
            inheritance: Inheritance {
                files: below(4) == 0,
                directories: below(4) == 0,
                no_propagate: below(4) == 0,
                inherit_only: below(4) == 0,
            },
        });
        List { entries: entries.collect() }
    }

    #[test]
    fn any_list_goes_with_any_mode_and_settles_there() {
        let mut seed = 7;
        for round in 0..20_000_u32 {
            let (list, mode, is_directory) = (any_list(&mut seed), round & 0o777, round & 512 == 0);
            let changed = list.clone().with_mode(mode, is_directory);
            assert_eq!(changed.mode(), mode, "{list:?}");
            assert_eq!(changed.clone().with_mode(mode, is_directory), changed, "{list:?}");
            if let Some(made) = list.inherited(mode, 0o022, is_directory) {
                assert_eq!(made.mode() & !mode, 0, "{list:?}");
            }
        }
    }

    #[test]
    fn the_longest_list_stays_within_what_is_kept() {
        let entries = (0..u32::try_from(ENTRIES_MAX).unwrap())
            .map(|id| Entry::allow(Who::NamedUser(id), R | W))
            .collect();
        let mut list = List { entries };
        for mode in [0o604, 0o061, 0o777, 0o007, 0o070] {
            list = list.with_mode(mode, true);
            assert!(list.entries.len() <= KEPT_ENTRIES_MAX);
        }
    }
}
