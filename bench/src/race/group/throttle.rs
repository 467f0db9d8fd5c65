//! A device that is held to a rate, by the kernel's control groups of the first version.
//!
//! There a request counts in its own group alone: what a program writes directly in the program's,
//! and what the kernel writes back in the root. So both are held. The second version has no such
//! file in its root, and there nothing is measured rather than something else.

use marram_lab::failure::{Context, Result};
use rustix::fs::{major, minor, stat};
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup/blkio";
const FILE: &str = "blkio.throttle.write_bps_device";

/// Bytes a second.
pub(super) const RATE: u64 = 100_000_000;

/// Lets go when it is dropped.
pub(super) struct Throttle {
    device: String,
    places: Vec<PathBuf>,
}

impl Throttle {
    /// Holds writes to `device` to 100 MB/s; `None` where this kernel has no means.
    pub(super) fn hold(device: &Path) -> Result<Option<Self>> {
        if !Path::new(ROOT).join(FILE).is_file() {
            return Ok(None);
        }
        let number = stat(device).context(|| device.display())?.st_rdev;
        let groups = std::fs::read_to_string("/proc/self/cgroup")?;
        let mut places = vec![Path::new(ROOT).join(FILE)];
        let own = own_group(&groups).map(|group| Path::new(ROOT).join(group).join(FILE));
        places.extend(own.filter(|place| place.is_file() && *place != places[0]));
        let device = format!("{}:{}", major(number), minor(number));
        let held = Self { device, places };
        held.set(RATE)?;
        Ok(Some(held))
    }

    fn set(&self, rate: u64) -> Result<()> {
        for place in &self.places {
            std::fs::write(place, format!("{} {rate}", self.device)).context(|| place.display())?;
        }
        Ok(())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        const NO_LIMIT: u64 = 0;
        if let Err(failure) = self.set(NO_LIMIT) {
            eprintln!("warning: {} stays slow: {failure}", self.device);
        }
    }
}

/// The group of this process, from the root of `blkio`.
fn own_group(groups: &str) -> Option<&str> {
    let mut lines =
        groups.lines().filter_map(|line| line.split(':').nth(1).zip(line.splitn(3, ':').nth(2)));
    let (_, group) = lines.find(|(names, _)| names.split(',').any(|name| name == "blkio"))?;
    Some(group.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_that_of_the_right_controller() {
        let groups = "7:cpu,cpuacct:/a\n5:blkio:/user.slice/one:two\n0::/b\n";
        assert_eq!(own_group(groups), Some("user.slice/one:two"));
        assert_eq!(own_group("0::/b\n"), None);
    }
}
