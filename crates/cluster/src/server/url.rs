//! Parts of the URL of a database, and how they are written.

use marram_store::{Error, Result};

/// The part that names a host, and its port if one is named. An address of IPv6 stands in brackets.
pub(crate) fn host_and_port(text: &str) -> Result<(String, Option<u16>)> {
    let (host, number) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (address, rest.strip_prefix(':').unwrap_or(rest)),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let number = if number.is_empty() { None } else { Some(port(number)?) };
    Ok((decoded(host)?, number))
}

/// A host as it is written in a URL.
pub(crate) fn host(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { encoded(name) }
}

pub(crate) fn port(text: &str) -> Result<u16> {
    text.parse().map_err(|_| wrong("the port is no number up to 65535"))
}

/// The first of some variables of the environment that names the user.
pub(crate) fn user_of_environment(variables: &[&str]) -> Option<String> {
    variables.iter().find_map(|name| std::env::var(name).ok())
}

/// The text is never said again: a password may stand in it.
pub(crate) fn wrong(why: &str) -> Error {
    Error::Invalid(format!("the URL of the database: {why}"))
}

/// A URL with a password, and where that belongs instead.
pub(crate) fn password_named(instead: &str) -> Error {
    wrong(&format!(
        "a password stands in it, which every user of this host can read: leave it out, change \
         it, and set {instead}"
    ))
}

/// The text with `%XX` as the bytes that they stand for.
pub(crate) fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = (*first == b'%').then(|| tail.get(..2)).flatten();
        let hexadecimal = digits.and_then(|it| std::str::from_utf8(it).ok());
        match hexadecimal.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None if *first == b'%' => return Err(wrong("a % is not followed by two digits")),
            None => bytes.push(*first),
        }
        rest = if *first == b'%' { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))
}

pub(crate) fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}
