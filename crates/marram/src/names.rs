//! Paths and other text that programs have chosen, as commands print it.
//!
//! A name in a directory is any bytes: line ends, what moves a terminal's cursor, bytes that are no
//! UTF-8. A report deceives by none, and shows no two alike. People get
//! such paths in quotes and with escapes, as git and diff(1) print them and patch(1) reads them.
//! Programs get them as JSON text, and all their bytes beside it where the text has lost some.

use serde::{Deserialize, Serialize, Serializer};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as text; what is no UTF-8 is lost.
pub(crate) fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// All bytes of a path in hexadecimal, if its text has lost some.
pub(crate) fn lost_bytes(path: &[u8]) -> Option<String> {
    let is_text = std::str::from_utf8(path).is_ok();
    (!is_text).then(|| path.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a path, from its text and what [`lost_bytes`] made of it.
pub(crate) fn bytes(text: &str, lost: Option<&String>) -> Vec<u8> {
    let digits = lost.map(|lost| lost.as_bytes().chunks(2));
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let known: Option<Vec<u8>> = digits.and_then(|digits| digits.map(byte).collect());
    known.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// What reports have behind a path: a path that has it itself could be taken for two things.
const SEPARATORS: [&str; 3] = [" -> ", " (", ": "];

/// A path for people: as it is, or in quotes where that could be misread.
pub(crate) fn quoted(path: &[u8]) -> String {
    let is_plain = |letter: char| !is_deceptive(letter) && !matches!(letter, '"' | '\\');
    let is_one = |text: &str| {
        let has_separator = SEPARATORS.iter().any(|separator| text.contains(separator));
        !has_separator && !text.ends_with(" ->") && !text.ends_with(':')
    };
    match std::str::from_utf8(path) {
        Ok(text) if text.chars().all(is_plain) && is_one(text) => text.to_owned(),
        _ => format!("\"{}\"", escaped(path, true)),
    }
}

/// Whether a letter moves the cursor, ends a line, or changes the direction of what follows it.
fn is_deceptive(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text for people in one line: what would end it, or moves the cursor, becomes its number.
/// Not for what must be read back: a `\` stays what it is.
pub(crate) fn printable(text: String) -> String {
    match text.chars().any(is_deceptive) {
        true => escaped(text.as_bytes(), false),
        false => text,
    }
}

/// A path as a word of a command that people copy: in quotes where a shell would part it, or do
/// something else with it.
pub(crate) fn shell_word(path: &Path) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:=@%".contains(letter);
    let text = printable(path.display().to_string());
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The bytes with escapes: of what is not printed, of what is no UTF-8, and where text stands in
/// quotes of these and of what escapes.
fn escaped(bytes: &[u8], in_quotes: bool) -> String {
    let mut told = String::with_capacity(bytes.len());
    let octal = |told: &mut String, bytes: &[u8]| {
        bytes.iter().for_each(|byte| told.push_str(&format!("\\{byte:03o}")));
    };
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' => told.push_str("\\n"),
                '\t' => told.push_str("\\t"),
                '"' | '\\' if in_quotes => told.extend(['\\', letter]),
                _ if is_deceptive(letter) => {
                    octal(&mut told, letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => told.push(letter),
            }
        }
        octal(&mut told, chunk.invalid());
    }
    told
}

/// A path in a report, with all its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathText {
    /// As text.
    pub(crate) path: String,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<String>,
}

impl PathText {
    /// A path as a report has it.
    pub(crate) fn of(path: &[u8]) -> PathText {
        PathText { path: text(path), path_bytes: lost_bytes(path) }
    }

    /// A path of a dataset, as it is seen below a mount.
    pub(crate) fn below(directory: &Path, path: &[u8]) -> PathText {
        let mut whole = directory.as_os_str().as_bytes().to_vec();
        if path != b"/" {
            whole.extend(path);
        }
        PathText::of(&whole)
    }

    /// All its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        bytes(&self.path, self.path_bytes.as_ref())
    }
}

/// Writes a path into JSON: as text, also one that is no UTF-8.
pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::{bytes, lost_bytes, printable, quoted, shell_word, text};
    use std::path::Path;

    #[test]
    fn paths_that_could_be_misread_stand_in_quotes() {
        for (path, told) in [
            (&b"/a b/\xc3\xa9"[..], "/a b/\u{e9}"),
            (b"/a\nD /b", r#""/a\nD /b""#),
            (b"/a\x1b[2K", r#""/a\033[2K""#),
            (b"/\xc2\x9b", r#""/\302\233""#),
            (b"/\xff\"\\\xc3\xa9", "\"/\\377\\\"\\\\\u{e9}\""),
            (b"", ""),
            (b"/y -> /z", r#""/y -> /z""#),
            (b"/y ->", r#""/y ->""#),
            (b"/y->(z)", "/y->(z)"),
            (b"/y (1)", r#""/y (1)""#),
            (b"/y: z", r#""/y: z""#),
            ("/\u{2028}\u{202e}\u{2069}".as_bytes(), r#""/\342\200\250\342\200\256\342\201\251""#),
        ] {
            assert_eq!(quoted(path), told);
        }
        assert_eq!(printable("a\\b\r\"c\"\n".to_owned()), r#"a\b\015"c"\n"#);
        assert_eq!(printable("\u{e9}".to_owned()), "\u{e9}");
    }

    #[test]
    fn what_people_copy_into_a_shell_is_one_word() {
        for (path, told) in [
            ("/mnt/a-b_c.1@s", "/mnt/a-b_c.1@s"),
            ("/mnt/\u{e9}", "/mnt/\u{e9}"),
            ("", "''"),
            ("a b", "'a b'"),
            ("a; rm -rf ~", "'a; rm -rf ~'"),
            ("it's", r"'it'\''s'"),
            ("a\nb", r"'a\nb'"),
        ] {
            assert_eq!(shell_word(Path::new(path)), told);
        }
    }

    #[test]
    fn no_byte_of_a_path_is_lost_between_programs() {
        for path in [&b"/plain"[..], b"/\xff", b"/\xfe", b"/\xef\xbf\xbd", b"/\xc3"] {
            assert_eq!(bytes(&text(path), lost_bytes(path).as_ref()), path);
        }
        assert_eq!(lost_bytes("/\u{e9}".as_bytes()), None);
        assert_eq!(bytes("/a", Some(&"zz".to_owned())), b"/a", "no hexadecimal is no path");
    }
}
