//! The clients that have a home open: what they say of themselves, and whether they are still
//! there.
//!
//! On the same host a process is found by its number and the moment at which it began, so a daemon
//! that was killed is known to be gone at once. Elsewhere its beat tells, and so it does of a
//! process that is there and does not answer, as one that is stopped. One of a former boot of this
//! host, of which the beat stands still, does not come back.

use super::host::{Place, read};
use crate::error::{Error, Result};
use marram_cluster::{Client, Lost, Stance};
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
    place: Place,
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
        Ok(ClientProcess { pid, host, place: Place::own()?, began })
    }

    /// What it says of itself in a home.
    pub(super) fn name(&self) -> String {
        let ClientProcess { pid, host, place, began } = self;
        format!("process {pid} on {host} ({}, {began})", place.text())
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
            place: Place::parse(place)?,
            began: began.parse().ok()?,
        })
    }

    /// Whether it is there; none if it is not of this host, or `/proc` does not show it.
    pub(super) fn is_there(&self) -> Option<bool> {
        if !Place::own().is_ok_and(|own| own.has_processes_of(&self.place)) {
            return None;
        }
        match began(self.pid) {
            Some(began) => Some(began == self.began),
            None if has_ended(self.pid) => Some(false),
            None => None,
        }
    }

    /// Whether it was on the host of another process before that booted. A copy of a host has
    /// another name, or is not silent: so this is asked only of one that is.
    fn is_before_boot_of(&self, other: &ClientProcess) -> bool {
        self.host == other.host && self.place.is_before_boot_of(&other.place)
    }

    /// Whether it can come back once its beat stands still.
    pub(super) fn may_return(&self) -> bool {
        self.is_there() != Some(false)
            && !ClientProcess::own().is_ok_and(|own| self.is_before_boot_of(&own))
    }
}

/// The beats of clients, and since when each stands still.
#[derive(Default)]
pub(super) struct Awaited(Mutex<BTreeMap<[u8; 16], (u64, Instant)>>);

impl Awaited {
    /// Those of some clients that are lost; of others that are awaited, it waits for a moment.
    pub(super) fn lost(&self, there: &[Client]) -> Vec<Lost> {
        let is_awaited = |client: &Client| client.stance == Stance::Alone;
        if there.iter().any(is_awaited) {
            thread::sleep(LOOK);
        }
        self.lost_after(there, |client| if is_awaited(client) { LOST_AFTER } else { GONE_AFTER })
    }

    /// Those that are lost, where none is awaited.
    pub(super) fn lost_beside(&self, there: &[Client]) -> Vec<Lost> {
        self.lost_after(there, |_| GONE_AFTER)
    }

    fn lost_after(&self, there: &[Client], after: impl Fn(&Client) -> Duration) -> Vec<Lost> {
        let judged = |client: &Client| {
            let process = ClientProcess::parse(&client.name);
            let is_gone = process.as_ref().and_then(ClientProcess::is_there) == Some(false);
            let is_lost = is_gone || self.stood_still(client) >= after(client);
            let may_return = process.is_none_or(|process| process.may_return());
            is_lost.then_some(Lost { session: client.session, may_return })
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
    use crate::engine::cluster::host::tests::place;

    #[test]
    fn a_process_is_found_by_its_number_and_its_beginning() {
        let own = ClientProcess::own().unwrap();
        assert_eq!(ClientProcess::parse(&own.name()), Some(own.clone()));
        assert!(short(&own.name()).starts_with("process ") && !short(&own.name()).contains('('));
        assert_eq!(own.is_there(), Some(true));
        let earlier = ClientProcess { began: own.began - 1, ..own.clone() };
        assert_eq!(earlier.is_there(), Some(false), "its number was given away again");
        let elsewhere = ClientProcess { place: place(Some("a"), "another"), ..own };
        assert_eq!(elsewhere.is_there(), None);
        assert_eq!(ClientProcess::parse("client 1"), None);
    }

    #[test]
    fn one_of_a_former_boot_of_this_host_does_not_come_back() {
        let own = ClientProcess { place: place(Some("a"), "2"), ..ClientProcess::own().unwrap() };
        let former = ClientProcess { place: place(Some("a"), "1"), ..own.clone() };
        assert!(former.is_before_boot_of(&own));
        let copy = ClientProcess { host: "a copy of it".to_owned(), ..former };
        assert!(!copy.is_before_boot_of(&own) && copy.may_return());
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
