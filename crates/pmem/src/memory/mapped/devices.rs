//! What the system says of DAX devices, and of the memory below a DAX file.

use rustix::fs::{major, minor};
use std::fs::{self, File};
use std::io::Result;
use std::path::{Path, PathBuf};

/// Where the system says it.
pub(super) const SYS: &str = "/sys";

/// A device that is memory: its file is mapped, and neither read nor written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DaxDevice {
    folder: PathBuf,
    /// Its size.
    pub(super) bytes: u64,
    /// Mappings begin and end at multiples of so many bytes.
    pub(super) align: u64,
}

fn folder_of(sys: &Path, kind: &str, number: u64) -> PathBuf {
    sys.join(format!("dev/{kind}/{}:{}", major(number), minor(number)))
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl DaxDevice {
    /// The character device of a number, if that is memory.
    pub(super) fn of(sys: &Path, number: u64) -> Option<DaxDevice> {
        let folder = folder_of(sys, "char", number);
        let subsystem = fs::read_link(folder.join("subsystem")).ok()?;
        if subsystem.file_name()? != "dax" {
            return None;
        }
        let bytes = number_in(&folder.join("size"))?;
        let align = number_in(&folder.join("align")).unwrap_or(1 << 21);
        Some(DaxDevice { folder, bytes, align })
    }

    /// Bytes of an image on it: all of them that can be mapped.
    pub(super) fn image_bytes(&self) -> u64 {
        self.bytes - self.bytes % self.align.max(1)
    }

    /// Whether it lies on a bus of persistent memory. Others are memory that the system has set
    /// apart, and that a power cut empties.
    pub(super) fn is_persistent(&self) -> bool {
        let Ok(folder) = self.folder.canonicalize() else { return false };
        let is_bus = |above: &Path| {
            let name = above.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("ndbus"))
        };
        folder.ancestors().any(is_bus)
    }

    /// What all nodes of the device have in common, so that it can be locked.
    pub(super) fn common_file(&self) -> Result<File> {
        File::open(self.folder.join("size"))
    }
}

/// Whether the caches survive a power cut, of the region of memory that a device lies in.
pub(super) fn caches_survive(sys: &Path, kind: &str, number: u64) -> bool {
    let Ok(folder) = folder_of(sys, kind, number).canonicalize() else { return false };
    let mut above = folder.ancestors().map(|above| above.join("persistence_domain"));
    let domain = above.find_map(|path| fs::read_to_string(path).ok());
    domain.is_some_and(|domain| domain.trim() == "cpu_cache")
}

#[cfg(test)]
mod tests {
    use super::{DaxDevice, caches_survive};
    use rustix::fs::makedev;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// A tree as the kernel shows it for a region with a DAX device and a block device.
    fn tree(sys: &Path, domain: &str) {
        let region = sys.join("devices/ndbus0/region0");
        let (dax, disk) = (region.join("dax0.1/dax0.0"), region.join("pfn0.1/block/pmem0"));
        let of_others = sys.join("devices/virtual/mem/null");
        for folder in [&dax, &disk, &of_others] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(region.join("persistence_domain"), format!("{domain}\n")).unwrap();
        fs::write(dax.join("size"), "10485760\n").unwrap();
        fs::write(dax.join("align"), "4194304\n").unwrap();
        symlink("../../../../bus/dax", dax.join("subsystem")).unwrap();
        symlink("../../../../class/mem", of_others.join("subsystem")).unwrap();
        for (kind, number, folder) in
            [("char", "252:7", &dax), ("block", "259:1", &disk), ("char", "1:3", &of_others)]
        {
            fs::create_dir_all(sys.join("dev").join(kind)).unwrap();
            symlink(folder, sys.join("dev").join(kind).join(number)).unwrap();
        }
    }

    #[test]
    fn a_device_is_known_by_what_the_system_says() {
        let sys = tempfile::tempdir().unwrap();
        tree(sys.path(), "memory_controller");
        let found = DaxDevice::of(sys.path(), makedev(252, 7)).unwrap();
        assert_eq!((found.bytes, found.align, found.image_bytes()), (10 << 20, 4 << 20, 8 << 20));
        assert!(found.is_persistent());
        assert_eq!(DaxDevice::of(sys.path(), makedev(1, 3)), None);
        assert_eq!(DaxDevice::of(sys.path(), makedev(252, 8)), None);
    }

    #[test]
    fn memory_that_a_power_cut_empties_is_told_apart() {
        let sys = tempfile::tempdir().unwrap();
        tree(sys.path(), "unknown");
        let apart = sys.path().join("devices/platform/hmem.0/dax1.0");
        fs::create_dir_all(&apart).unwrap();
        fs::write(apart.join("size"), "10485760\n").unwrap();
        symlink("../../../bus/dax", apart.join("subsystem")).unwrap();
        symlink(&apart, sys.path().join("dev/char/252:9")).unwrap();
        assert!(!DaxDevice::of(sys.path(), makedev(252, 9)).unwrap().is_persistent());
    }

    #[test]
    fn caches_survive_where_the_region_says_so() {
        for (domain, expected) in
            [("cpu_cache", true), ("memory_controller", false), ("unknown", false)]
        {
            let sys = tempfile::tempdir().unwrap();
            tree(sys.path(), domain);
            assert_eq!(caches_survive(sys.path(), "char", makedev(252, 7)), expected);
            assert_eq!(caches_survive(sys.path(), "block", makedev(259, 1)), expected);
            assert!(!caches_survive(sys.path(), "char", makedev(1, 3)));
            assert!(!caches_survive(sys.path(), "block", makedev(8, 0)));
        }
    }

    #[test]
    fn a_second_lock_through_another_node_is_refused() {
        let sys = tempfile::tempdir().unwrap();
        tree(sys.path(), "cpu_cache");
        let common = || {
            let found = DaxDevice::of(sys.path(), makedev(252, 7)).unwrap();
            found.common_file().unwrap()
        };
        let held = common();
        held.try_lock().unwrap();
        assert!(common().try_lock().is_err());
        drop(held);
        common().try_lock().unwrap();
    }
}
