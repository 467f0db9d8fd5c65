//! What a new inode has of its directory's list: RFC 8881, section 6.4.3.
//!
//! The mode of the `open` or `mkdir` restricts what is inherited and never adds to it. The umask
//! counts only for those classes of which no inherited entry speaks. Most programs make files with
//! mode 0666 because they trust in the umask. Set as a change of mode would be, that would open to
//! everyone what the directory's list opens to a few.

use super::{Entry, Inheritance, List, Who};

impl List {
    /// The list of an inode that is made with `mode` in a directory that has this list; `None`
    /// if there is nothing for it to inherit.
    pub fn inherited(&self, mode: u32, umask: u32, is_directory: bool) -> Option<List> {
        let mut list = List::default();
        for entry in &self.entries {
            match is_directory {
                true => list.entries.extend(for_directory(entry)),
                false => list.entries.extend(for_file(entry)),
            }
        }
        if list.entries.is_empty() {
            return None;
        }
        let own = list.restricted(mode, umask);
        Some(list.with_modes(own, mode >> 3 & 7, is_directory))
    }

    /// The mode that list and maker give together.
    fn restricted(&self, mode: u32, umask: u32) -> u32 {
        let spoken =
            |who: Who| self.effective().any(|entry| [who, Who::Everyone].contains(&entry.who));
        let class = |who: Who, bits: u32| {
            let allowed = if spoken(who) { self.mode() } else { !umask };
            mode & allowed & bits
        };
        class(Who::Owner, 0o700) | class(Who::Group, 0o070) | class(Who::Everyone, 0o007)
    }
}

fn for_file(entry: &Entry) -> Option<Entry> {
    let own = Entry { inheritance: Inheritance::NONE, ..*entry };
    entry.inheritance.files.then_some(own)
}

/// An entry that counts for the directory itself and goes on to what is made in it becomes two, so
/// that a change of the directory's mode leaves the second as it is.
fn for_directory(entry: &Entry) -> impl Iterator<Item = Entry> + use<> {
    let Inheritance { files, directories, no_propagate, .. } = entry.inheritance;
    let own = Entry { inheritance: Inheritance::NONE, ..*entry };
    let onward = Inheritance { files, directories, no_propagate: false, inherit_only: true };
    let onward = Entry { inheritance: onward, ..*entry };
    let goes_on = entry.inheritance.is_inheritable() && !no_propagate;
    directories.then_some(own).into_iter().chain(goes_on.then_some(onward))
}

#[cfg(test)]
mod tests {
    use super::super::{Rights, Verdict};
    use super::{Entry, Inheritance, List, Who};

    const R: Rights = Rights::READ_DATA;
    const W: Rights = Rights(Rights::WRITE_DATA.0 | Rights::APPEND_DATA.0);
    const FILES: Inheritance = Inheritance { files: true, ..Inheritance::NONE };
    const DIRECTORIES: Inheritance = Inheritance { directories: true, ..Inheritance::NONE };
    const BOTH: Inheritance = Inheritance { files: true, ..DIRECTORIES };

    fn with(inheritance: Inheritance, entry: Entry) -> Entry {
        Entry { inheritance, ..entry }
    }

    fn list(entries: &[Entry]) -> List {
        List { entries: entries.to_vec() }
    }

    fn may(list: &List, who: Who, rights: Rights) -> bool {
        list.evaluate(rights, |entry| entry == who || entry == Who::Everyone) == Verdict::Allowed
    }

    #[test]
    fn flags_say_what_goes_where() {
        let user = |inheritance| with(inheritance, Entry::allow(Who::NamedUser(5), R));
        let only = |inheritance| Inheritance { inherit_only: true, ..inheritance };
        let once = |inheritance| Inheritance { no_propagate: true, ..inheritance };
        let plain = Inheritance::NONE;
        let cases: [(Inheritance, &[Inheritance], &[Inheritance]); 8] = [
            (plain, &[], &[]),
            (FILES, &[plain], &[only(FILES)]),
            (DIRECTORIES, &[], &[plain, only(DIRECTORIES)]),
            (BOTH, &[plain], &[plain, only(BOTH)]),
            (only(BOTH), &[plain], &[plain, only(BOTH)]),
            (once(FILES), &[plain], &[]),
            (once(BOTH), &[plain], &[plain]),
            (only(once(DIRECTORIES)), &[], &[plain]),
        ];
        for (given, file, directory) in cases {
            let parent = list(&[user(given)]);
            let named = |is_directory| {
                let made = parent.inherited(0o777, 0, is_directory).unwrap_or_default();
                let about = made.entries.into_iter().filter(|entry| entry.who.is_named());
                let mut flags: Vec<_> = about.map(|entry| entry.inheritance).collect();
                flags.sort_by_key(|flags| flags.inherit_only);
                flags
            };
            assert_eq!(named(false), file, "{given:?}");
            assert_eq!(named(true), directory, "{given:?}");
        }
    }

    #[test]
    fn the_mode_restricts_and_never_grants() {
        let parent = list(&[
            with(BOTH, Entry::allow(Who::Owner, R | W)),
            with(BOTH, Entry::allow(Who::NamedUser(5), R | W)),
            with(BOTH, Entry::allow(Who::Everyone, R)),
        ]);
        let made = parent.inherited(0o666, 0o777, false).unwrap();
        assert_eq!(
            made.mode(),
            0o644,
            "the umask does not count, and nobody gets what is not there"
        );
        assert!(may(&made, Who::NamedUser(5), R | W));
        let private = parent.inherited(0o600, 0o022, false).unwrap();
        assert_eq!(private.mode(), 0o600);
        assert!(!may(&private, Who::NamedUser(5), R));
    }

    #[test]
    fn the_umask_counts_for_those_of_whom_nothing_is_said() {
        let parent = list(&[with(BOTH, Entry::allow(Who::NamedUser(5), R | W))]);
        let made = parent.inherited(0o666, 0o027, false).unwrap();
        assert_eq!(made.mode(), 0o640);
        assert!(may(&made, Who::NamedUser(5), R | W), "the umask is not meant for names");
        assert!(may(&made, Who::Owner, R | W));
    }
}
