//! Names of users, groups and projects.
//!
//! They come from the files that have them on every system, and else from `getent`, which also
//! asks directories in the network. A name that nobody knows is as good as none: the number says
//! the same.

use crate::control::protocol::OwnerClass;
use std::process::{Command, Stdio};

/// Longest file of names that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The number that `name` stands for, or is.
pub(crate) fn id_of(class: OwnerClass, name: &str) -> Option<u32> {
    if let Ok(id) = name.parse() {
        return Some(id);
    }
    let wanted = |line: &Line<'_>| line.name == name;
    find(class, name, wanted).map(|(_, id)| id)
}

/// The name of a number.
pub(crate) fn name_of(class: OwnerClass, id: u32) -> Option<String> {
    find(class, &id.to_string(), |line| line.id == id).map(|(name, _)| name)
}

/// A line of a file of names.
struct Line<'a> {
    name: &'a str,
    id: u32,
}

fn find(class: OwnerClass, key: &str, wanted: impl Fn(&Line<'_>) -> bool) -> Option<(String, u32)> {
    let (path, database) = match class {
        OwnerClass::User => ("/etc/passwd", "passwd"),
        OwnerClass::Group => ("/etc/group", "group"),
        OwnerClass::Project => ("/etc/projid", ""),
    };
    let small = std::fs::metadata(path).is_ok_and(|file| file.len() <= FILE_BYTES_MAX);
    let text =
        if small { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    let search = |text: &str| {
        let mut lines = text.lines().filter_map(|line| parse(class, line));
        lines.find(&wanted).map(|line| (line.name.to_owned(), line.id))
    };
    search(&text).or_else(|| search(&getent(database, key)?))
}

/// `name:password:id:...` of users and groups, `name:id` of projects.
fn parse(class: OwnerClass, line: &str) -> Option<Line<'_>> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let id = fields.nth(if class == OwnerClass::Project { 0 } else { 1 })?;
    Some(Line { name, id: id.trim().parse().ok()? })
}

fn getent(database: &str, key: &str) -> Option<String> {
    if database.is_empty() || key.starts_with('-') {
        return None;
    }
    let mut command = Command::new("getent");
    let output = command.args([database, key]).stdin(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

#[cfg(test)]
mod tests {
    use super::{id_of, name_of, parse};
    use crate::control::protocol::OwnerClass;

    #[test]
    fn names_and_numbers_are_found() {
        assert_eq!(id_of(OwnerClass::User, "root"), Some(0));
        assert_eq!(id_of(OwnerClass::Group, "4711"), Some(4711));
        assert_eq!(id_of(OwnerClass::User, "nobody of this name"), None);
        assert_eq!(name_of(OwnerClass::User, 0).as_deref(), Some("root"));
        assert_eq!(name_of(OwnerClass::Project, u32::MAX), None);
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let project = |line| parse(OwnerClass::Project, line).map(|found| (found.name, found.id));
        assert_eq!(project("web:42"), Some(("web", 42)));
        for line in ["", "#web:42", "web", "web:x", ":3"] {
            assert_eq!(project(line), None, "{line}");
        }
    }
}
