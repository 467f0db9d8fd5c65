//! When two names of a directory are the same, and where a name lies.
//!
//! In a dataset that was made so, names are the same when only their case differs. Each name then
//! has a **key**, the same for all its spellings, and lies at the hash of its key; the name itself
//! is kept as it was given. The key is Unicode's canonical caseless form (definition D145): the
//! name decomposed, fully case-folded, and composed again (NFC).
//!
//! Where a name lies must not change with the version of a table, so the tables are those of one
//! version of Unicode, [`FOLDING_VERSION`]. A name with a character that this version does not
//! know is its own key, as are bytes that are not UTF-8: so every name can be had. For characters
//! that it knows Unicode promises that later tables say the same.

use super::{NAME_HASH_BITS, NAME_SLOTS};
use crate::FormatError;
use crate::reader::Reader;
use caseless::Caseless;
use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_public_assigned;

/// The version of Unicode whose characters are folded.
pub const FOLDING_VERSION: u8 = 16;

/// When two names of a directory are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// When their bytes are.
    #[default]
    Exact,
    /// When their keys are.
    Folded,
}

impl NameRule {
    /// The number that stands for it in the counters record.
    pub(super) fn number(self) -> u32 {
        match self {
            NameRule::Exact => 0,
            NameRule::Folded => u32::from(FOLDING_VERSION),
        }
    }

    pub(super) fn read(fields: &mut Reader<'_>) -> Result<NameRule, FormatError> {
        let offset = fields.at();
        let number = fields.u32("name rule")?;
        match number {
            0 => Ok(NameRule::Exact),
            _ if number == NameRule::Folded.number() => Ok(NameRule::Folded),
            _ => Err(fields.unexpected("name rule", offset, u64::from(number), "0 or 16")),
        }
    }

    /// What all names that are the same have in common.
    pub fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        match self {
            NameRule::Exact => Cow::Borrowed(name),
            NameRule::Folded if name.is_ascii() => match name.iter().any(u8::is_ascii_uppercase) {
                true => Cow::Owned(name.to_ascii_lowercase()),
                false => Cow::Borrowed(name),
            },
            NameRule::Folded => folded(name).map_or(Cow::Borrowed(name), Cow::Owned),
        }
    }

    /// The offset of the first slot for the name of an entry; see [`name_offset`].
    pub fn entry_offset(self, seed: u64, name: &[u8]) -> u64 {
        name_offset(seed, &self.key(name))
    }
}

/// The offset of the first slot for a name, in keys of entries and attributes: XXH3 of the name
/// with the dataset's seed, its low 54 bits, shifted over the slot bits.
pub fn name_offset(seed: u64, name: &[u8]) -> u64 {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(name, seed);
    (hash & ((1 << NAME_HASH_BITS) - 1)) * NAME_SLOTS
}

/// The caseless form of a name, if it is made of characters that are known.
fn folded(name: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(name).ok()?;
    if !text.chars().all(is_known) {
        return None;
    }
    Some(text.nfd().default_case_fold().nfc().collect::<String>().into_bytes())
}

/// Whether a character has a meaning, if only a private one.
fn is_known(character: char) -> bool {
    let private = matches!(
        character,
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{ffffd}' | '\u{100000}'..='\u{10fffd}'
    );
    private || is_public_assigned(character)
}

#[cfg(test)]
mod tests {
    use super::{FOLDING_VERSION, NameRule, folded};

    fn key(name: &str) -> String {
        String::from_utf8(NameRule::Folded.key(name.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn spellings_of_a_name_have_one_key() {
        let groups: [&[&str]; 7] = [
            &["readme", "README", "ReadMe"],
            &["stra\u{df}e", "STRASSE", "Stra\u{1e9e}e"],
            &["\u{e9}t\u{e9}", "E\u{301}T\u{c9}", "e\u{301}te\u{301}"],
            &["\u{3c3}\u{3c2}", "\u{3a3}\u{3a3}", "\u{3c3}\u{3c3}"],
            &["\u{212b}", "\u{c5}", "\u{e5}", "a\u{30a}"],
            &["\u{fb01}le", "FILE", "file"],
            &["\u{10400}", "\u{10428}"],
        ];
        for group in groups {
            let keys: Vec<String> = group.iter().map(|name| key(name)).collect();
            assert!(keys.iter().all(|other| *other == keys[0]), "{group:?}: {keys:?}");
            assert_eq!(key(&keys[0]), keys[0], "a key is its own key");
        }
        assert_ne!(key("i"), key("\u{131}"), "no language's own rules");
        assert_ne!(key("\u{2460}"), key("1"), "what looks alike is not the same");
        assert_eq!(NameRule::Exact.key(b"ReadMe").as_ref(), b"ReadMe");
    }

    #[test]
    fn what_is_no_known_text_is_its_own_key() {
        for bytes in [&b"\xff\xfeABC"[..], b"A\xc3", "A\u{378}".as_bytes(), "A\u{fffe}".as_bytes()]
        {
            assert_eq!(NameRule::Folded.key(bytes).as_ref(), bytes);
        }
        assert_eq!(key("A\u{e000}"), "a\u{e000}", "private characters do not keep others as is");
        // New in Unicode 17: a later table must not fold it in a dataset that is there.
        assert_eq!(key("A\u{1c8b}"), "A\u{1c8b}");
    }

    #[test]
    fn tables_are_those_of_the_version_that_datasets_name() {
        let version = u64::from(FOLDING_VERSION);
        assert_eq!(caseless::UNICODE_VERSION.0, version);
        assert_eq!(u64::from(unicode_normalization::UNICODE_VERSION.0), version);
        let mut all = Vec::new();
        for character in '\0'..=char::MAX {
            let mut bytes = [0; 4];
            let name = character.encode_utf8(&mut bytes).as_bytes();
            let key = folded(name).unwrap_or_else(|| b"?".to_vec());
            assert!(!key.contains(&b'/') || name == b"/", "{character:?}");
            all.extend_from_slice(&key);
            all.push(0);
        }
        let digest = xxhash_rust::xxh3::xxh3_64(&all);
        assert_eq!(
            digest, 14067066105224650289,
            "the tables have changed: names of old datasets would not be found"
        );
    }
}
