//! The clients that have a home open: what they say of themselves, and whether they are still
//! there.
//!
//! On the same host a process is found by its number and the moment at which it began, so a daemon
//! that was killed is known to be gone at once. Elsewhere its beat tells, and so it does of a
//! process that is there and does not answer, as one that is stopped.

use crate::error::{Error, Result};
use marram_cluster::{Client, Lost};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A client that is awaited is taken for lost when its beat stands still for so long.
const LOST_AFTER: Duration = Duration::from_secs(10);
/// One that nobody awaits, when it stands still for so long.
const GONE_AFTER: Duration = Duration::from_secs(30);
/// How often to look at it.
const LOOK: Duration = Duration::from_millis(20);

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

    /// Whether it is there; none if it is not of this host, or `/proc` does not show it.
    pub(super) fn is_there(&self) -> Option<bool> {
        if !own_place().is_ok_and(|place| place == self.place) {
            return None;
        }
        match began(self.pid) {
            Some(began) => Some(began == self.began),
            None if has_ended(self.pid) => Some(false),
            None => None,
        }
    }
}

/// The beats of clients, and since when each stands still.
#[derive(Default)]
pub(super) struct Awaited(Mutex<BTreeMap<[u8; 16], (u64, Instant)>>);

impl Awaited {
    /// Those of some clients that are lost; of others that are awaited, it waits for a moment.
    pub(super) fn lost(&self, there: &[Client]) -> Vec<Lost> {
        if there.iter().any(|client| client.is_alone) {
            thread::sleep(LOOK);
        }
        self.lost_after(there, |client| if client.is_alone { LOST_AFTER } else { GONE_AFTER })
    }

    /// Those that are lost, where none is awaited.
    pub(super) fn lost_beside(&self, there: &[Client]) -> Vec<Lost> {
        self.lost_after(there, |_| GONE_AFTER)
    }

    fn lost_after(&self, there: &[Client], after: impl Fn(&Client) -> Duration) -> Vec<Lost> {
        let is_gone = |client: &Client| {
            let process = ClientProcess::parse(&client.name);
            process.and_then(|process| process.is_there()) == Some(false)
        };
        let judged = |client: &Client| {
            let is_gone = is_gone(client);
            let is_lost = is_gone || self.stood_still(client) >= after(client);
            is_lost.then_some(Lost { session: client.session, may_return: !is_gone })
        };
        let lost = there.iter().filter_map(judged).collect();
        let is_there = |session: &[u8; 16]| there.iter().any(|it| it.session == *session);
        self.0.lock().retain(|session, _| is_there(session));
        lost
    }

    /// For how long the beat of a client has stood still.
    fn stood_still(&self, client: &Client) -> Duration {
        let mut awaited = self.0.lock();
        let seen = awaited.entry(client.session).or_insert((client.beat, Instant::now()));
        if seen.0 != client.beat {
            *seen = (client.beat, Instant::now());
        }
        seen.1.elapsed()
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

/// Whether a process of which no beginning is seen has ended: it is shown as one that has, or
/// nothing has its number. `/proc` may hide processes of other users.
fn has_ended(pid: u32) -> bool {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let signalled = number.map_or(Err(Errno::SRCH), test_kill_process);
    Path::new(&format!("/proc/{pid}/stat")).exists() || signalled == Err(Errno::SRCH)
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
