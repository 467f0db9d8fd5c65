//! Hosts, each known from all others, and each boot of one from the next.

use crate::error::{Error, Result};
use std::fs;
use std::path::Path;

/// What a host is known by from one boot to the next: systemd's number, and the number that its
/// firmware has, which only root reads. Copies of an installation have the first in common.
const MACHINE: [&str; 2] = ["/etc/machine-id", "/sys/class/dmi/id/product_uuid"];
/// Whose the hash of these numbers is: they are not to be known elsewhere.
const CONTEXT: &str = "Marram: the host of a client of a cluster home";
/// Letters of that hash.
const MACHINE_LETTERS: usize = 16;

/// Where a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What no other host has, and each boot; none of a host without a number.
    machine: Option<String>,
    /// What no other boot has.
    boot: String,
    /// What no other namespace of processes has.
    processes: String,
}

impl Place {
    /// This one.
    ///
    /// # Errors
    /// The kernel's files about it cannot be read.
    pub(super) fn own() -> Result<Place> {
        let boot = read("/proc/sys/kernel/random/boot_id")?;
        let processes = Path::new("/proc/self/ns/pid");
        let processes = fs::read_link(processes)
            .map_err(|error| Error::system("look at", processes, error))?
            .to_string_lossy()
            .into_owned();
        Ok(Place { machine: machine(&MACHINE.map(|path| read(path).ok())), boot, processes })
    }

    /// As it stands in the name of a client.
    pub(super) fn text(&self) -> String {
        let machine = self.machine.as_deref().unwrap_or("-");
        format!("{machine} {} {}", self.boot, self.processes)
    }

    /// Reads such a text.
    pub(super) fn parse(text: &str) -> Option<Place> {
        let mut words = text.split(' ').map(str::to_owned);
        let machine = words.next().filter(|machine| machine != "-");
        Some(Place { machine, boot: words.next()?, processes: words.next()? })
    }

    /// Whether the processes of both are found by the same numbers.
    pub(super) fn has_processes_of(&self, other: &Place) -> bool {
        (&self.boot, &self.processes) == (&other.boot, &other.processes)
    }

    /// Whether it was on the host of another one, before that booted.
    pub(super) fn is_before_boot_of(&self, other: &Place) -> bool {
        self.machine.is_some() && self.machine == other.machine && self.boot != other.boot
    }
}

/// The hash of the numbers of a host; none if it lacks the first.
fn machine(numbers: &[Option<String>; 2]) -> Option<String> {
    let [id, firmware] = numbers;
    // While a host boots for the first time, its number is this word.
    let id = id.as_deref().filter(|id| !id.is_empty() && *id != "uninitialized")?;
    let both = format!("{id} {}", firmware.as_deref().unwrap_or_default());
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    let hash = hasher.update(both.as_bytes()).finalize().to_hex();
    Some(hash[..MACHINE_LETTERS].to_owned())
}

/// A text of the kernel or of the system, without its line feed.
pub(super) fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| Error::system("read", Path::new(path), error))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Place, machine};

    /// This place as another boot of a host has it.
    pub(in crate::engine::cluster) fn place(machine: Option<&str>, boot: &str) -> Place {
        let own = Place::own().unwrap();
        Place { machine: machine.map(str::to_owned), boot: boot.to_owned(), ..own }
    }

    #[test]
    fn a_former_boot_is_known_by_the_number_of_its_host() {
        let now = place(Some("a"), "2");
        assert!(place(Some("a"), "1").is_before_boot_of(&now));
        assert!(!now.is_before_boot_of(&now), "another namespace of the same boot");
        assert!(!place(Some("b"), "1").is_before_boot_of(&now), "another host");
        let unknown = place(None, "2");
        assert!(!place(None, "1").is_before_boot_of(&unknown), "nobody knows");
        for place in [now, unknown] {
            assert_eq!(Place::parse(&place.text()), Some(place));
        }
        assert_eq!(Place::parse("one word"), None);
    }

    #[test]
    fn a_host_is_known_by_its_numbers_and_does_not_tell_them() {
        let of = |id: &str, firmware: Option<&str>| {
            machine(&[Some(id.to_owned()), firmware.map(str::to_owned)])
        };
        assert_eq!(of("a", None), of("a", None));
        assert!(of("a", Some("1")) != of("a", Some("2")), "a copy of the installation");
        assert!(of("", Some("1")).is_none() && of("uninitialized", None).is_none());
        assert!(machine(&[None, Some("1".to_owned())]).is_none());
        assert!(!of("0123456789abcdef", None).unwrap().contains("0123456789abcdef"));
    }
}
