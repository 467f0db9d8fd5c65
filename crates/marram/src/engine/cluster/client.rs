//! The client that has a home open: what it says of itself, and whether it is still there.
//!
//! On the same host a process is found by its number and the moment at which it began, so a daemon
//! that was killed is known to be gone at once. Elsewhere its beat tells.

use crate::error::{Error, Result};
use std::fs;
use std::path::Path;

/// A process of a host, as a home names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientProcess {
    pid: u32,
    host: String,
    /// What no other boot of a host, and no other namespace of processes, has.
    place: String,
    /// Clock ticks after the boot at which the process began.
    began: u64,
}

impl ClientProcess {
    /// This process.
    ///
    /// # Errors
    /// The kernel's files about it cannot be read.
    pub(super) fn own() -> Result<ClientProcess> {
        let pid = std::process::id();
        let host = read("/proc/sys/kernel/hostname")?;
        let began = began(pid)
            .ok_or_else(|| Error::failed("the kernel does not tell when this process began"))?;
        Ok(ClientProcess { pid, host, place: own_place()?, began })
    }

    /// What it says of itself in a home.
    pub(super) fn name(&self) -> String {
        let ClientProcess { pid, host, place, began } = self;
        format!("process {pid} on {host} ({place}, {began})")
    }

    /// Reads such a text; none of another client's.
    pub(super) fn parse(name: &str) -> Option<ClientProcess> {
        let rest = name.strip_prefix("process ")?.strip_suffix(')')?;
        let (pid, rest) = rest.split_once(" on ")?;
        let (host, rest) = rest.split_once(" (")?;
        let (place, began) = rest.split_once(", ")?;
        Some(ClientProcess {
            pid: pid.parse().ok()?,
            host: host.to_owned(),
            place: place.to_owned(),
            began: began.parse().ok()?,
        })
    }

    /// Whether it is there; none if it is not of this host.
    pub(super) fn is_there(&self) -> Option<bool> {
        let is_here = own_place().is_ok_and(|place| place == self.place);
        is_here.then(|| began(self.pid) == Some(self.began))
    }
}

/// What of a client's name people want to see.
pub(super) fn short(name: &str) -> &str {
    name.split_once(" (").map_or(name, |(short, _)| short)
}

fn own_place() -> Result<String> {
    let boot = read("/proc/sys/kernel/random/boot_id")?;
    let namespace = Path::new("/proc/self/ns/pid");
    let namespace = fs::read_link(namespace)
        .map_err(|error| Error::system("look at", namespace, error))?
        .to_string_lossy()
        .into_owned();
    Ok(format!("{boot} {namespace}"))
}

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| Error::system("read", Path::new(path), error))?;
    Ok(text.trim().to_owned())
}

/// When a process began; none if there is no such process.
fn began(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses, and may have any letters.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    let began = fields.nth(STARTTIME_BEHIND_STATE)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(began)
}

/// Fields between the state of a process and the moment at which it began.
const STARTTIME_BEHIND_STATE: usize = 18;

#[cfg(test)]
mod tests {
    use super::{ClientProcess, short};

    #[test]
    fn a_process_is_found_by_its_number_and_its_beginning() {
        let own = ClientProcess::own().unwrap();
        assert_eq!(ClientProcess::parse(&own.name()), Some(own.clone()));
        assert!(short(&own.name()).starts_with("process ") && !short(&own.name()).contains('('));
        assert_eq!(own.is_there(), Some(true));
        let earlier = ClientProcess { began: own.began - 1, ..own.clone() };
        assert_eq!(earlier.is_there(), Some(false), "its number was given away again");
        let elsewhere = ClientProcess { place: "another boot".to_owned(), ..own };
        assert_eq!(elsewhere.is_there(), None);
        assert_eq!(ClientProcess::parse("client 1"), None);
    }

    #[test]
    fn a_process_that_has_ended_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let began = super::began(child.id()).unwrap();
        let own = ClientProcess::own().unwrap();
        let process = ClientProcess { pid: child.id(), began, ..own };
        assert_eq!(process.is_there(), Some(true));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process.is_there(), Some(false));
    }
}
