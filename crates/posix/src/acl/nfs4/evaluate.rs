//! What a list allows: RFC 8881, section 6.2.1.
//!
//! Entries are looked at in order, those only that are about the caller. A permission is settled by
//! the first entry that has it.

use super::{List, Rights, Who};

/// What a list says of permissions asked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All are allowed.
    Allowed,
    /// At least one is denied before it is allowed.
    Denied,
    /// None is denied, and at least one is not spoken of: not allowed either.
    Unmentioned,
}

impl List {
    /// What the list says of `wanted` for a caller; `is_about` says which entries are about it. It
    /// is called only for entries that have a say.
    pub fn evaluate(&self, wanted: Rights, mut is_about: impl FnMut(Who) -> bool) -> Verdict {
        let mut open = wanted;
        for entry in self.effective() {
            if open.is_empty() {
                break;
            }
            if (entry.rights & open).is_empty() || !is_about(entry.who) {
                continue;
            }
            if !entry.allows {
                return Verdict::Denied;
            }
            open = open & !entry.rights;
        }
        if open.is_empty() { Verdict::Allowed } else { Verdict::Unmentioned }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Inheritance};
    use super::Verdict::{Allowed, Denied, Unmentioned};
    use super::{List, Rights, Who};

    const R: Rights = Rights::READ_DATA;
    const W: Rights = Rights::WRITE_DATA;
    const X: Rights = Rights::EXECUTE;

    /// User 1 is the owner, 2 a member of the owning group, 3 one of group 30, 4 nobody.
    fn is_about(user: u32) -> impl Fn(Who) -> bool {
        move |who| match who {
            Who::Owner => user == 1,
            Who::Group => user == 2,
            Who::Everyone => true,
            Who::NamedUser(named) => named == user,
            Who::NamedGroup(group) => group == 30 && user == 3,
        }
    }

    fn verdicts(entries: &[Entry], wanted: Rights) -> Vec<super::Verdict> {
        let list = List { entries: entries.to_vec() };
        (1..=4).map(|user| list.evaluate(wanted, is_about(user))).collect()
    }

    #[test]
    fn the_first_entry_that_has_a_permission_settles_it() {
        let (allow, deny) = (Entry::allow, Entry::deny);
        let cases: [(&[Entry], Rights, [super::Verdict; 4]); 8] = [
            (&[], R, [Unmentioned; 4]),
            (&[allow(Who::Everyone, R)], R, [Allowed; 4]),
            (&[allow(Who::Owner, R)], R, [Allowed, Unmentioned, Unmentioned, Unmentioned]),
            (
                &[deny(Who::Group, R), allow(Who::Everyone, R)],
                R,
                [Allowed, Denied, Allowed, Allowed],
            ),
            (&[allow(Who::Everyone, R), deny(Who::Group, R)], R, [Allowed; 4]),
            (
                &[allow(Who::NamedGroup(30), W), deny(Who::NamedUser(3), W | R)],
                W,
                [Unmentioned, Unmentioned, Allowed, Unmentioned],
            ),
            (
                &[allow(Who::Owner, R), allow(Who::Everyone, W), deny(Who::Everyone, X)],
                R | W,
                [Allowed, Unmentioned, Unmentioned, Unmentioned],
            ),
            (
                &[allow(Who::NamedUser(4), R | W), deny(Who::Everyone, W), allow(Who::Everyone, R)],
                R | W,
                [Denied, Denied, Denied, Allowed],
            ),
        ];
        for (entries, wanted, expected) in cases {
            assert_eq!(verdicts(entries, wanted), expected, "{entries:?}");
        }
    }

    #[test]
    fn an_entry_for_others_to_inherit_does_not_count() {
        let inheritance = Inheritance { files: true, inherit_only: true, ..Inheritance::default() };
        let deny = Entry { inheritance, ..Entry::deny(Who::Everyone, R) };
        assert_eq!(verdicts(&[deny, Entry::allow(Who::Everyone, R)], R), [Allowed; 4]);
    }

    #[test]
    fn nobody_is_asked_about_who_has_no_say() {
        let list = List {
            entries: vec![
                Entry::allow(Who::Owner, R),
                Entry::deny(Who::NamedGroup(30), W),
                Entry::deny(Who::NamedGroup(30), R),
            ],
        };
        let verdict = list.evaluate(R, |who| {
            assert_eq!(who, Who::Owner);
            true
        });
        assert_eq!(verdict, Allowed);
    }
}
