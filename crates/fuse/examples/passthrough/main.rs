//! Hands every call on to a folder of the host: `passthrough classic|io_uring FOLDER MOUNTPOINT`.
//! What it costs over the folder itself is what a file system pays for this crate and for FUSE,
//! before it has done anything: the ceiling that the benchmarks measure engines against.
//!
//! `--without CHOICE` leaves one of the kernel's caches unused, to see what it saves.

mod errors;
mod host;

use host::HostFolder;
use marram_fuse::{MountOptions, Offer, TransportChoice, mount, should_be_wakeful};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

const USAGE: &str = "usage: passthrough classic|io_uring FOLDER MOUNTPOINT [--without names|\
    absences|attributes|opens|directories|listings|symlinks|large-writes|read-ahead]";

/// What the kernel and most libraries have unless more is asked for, in bytes.
const USUAL_BYTES: u32 = 128 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (places, without) = match &arguments[..] {
        [places @ .., flag, choice] if flag == "--without" => (places, Some(choice)),
        places => (places, None),
    };
    let [transport, folder, mountpoint] = places else { return Err(USAGE.into()) };
    let transport = match transport.as_str() {
        "classic" => TransportChoice::Classic,
        "io_uring" => TransportChoice::IoUring,
        _ => return Err(USAGE.into()),
    };
    // The kernel has taken the caller's umask off already.
    umask(Mode::empty());
    open_as_many_as_can_be()?;
    let mut options = MountOptions::new(mountpoint, "passthrough");
    options.transport = transport;
    options.allow_other = true;
    options.wakeful = should_be_wakeful();
    if let Some(choice) = without {
        leave_out(choice, &mut options)?;
    }
    options.on_event = Arc::new(|event| eprintln!("passthrough: {event}"));
    mount(Arc::new(HostFolder::open(folder)?), options)?.wait()?;
    Ok(())
}

fn leave_out(choice: &str, options: &mut MountOptions) -> Result<(), Box<dyn Error>> {
    match choice {
        "names" => options.entry_timeout = Duration::ZERO,
        "absences" => options.absence_timeout = Duration::ZERO,
        "attributes" => options.attributes_timeout = Duration::ZERO,
        "opens" => options.declined.push(Offer::UnaskedOpens),
        "directories" => options.declined.push(Offer::UnaskedDirectoryOpens),
        "listings" => options.declined.push(Offer::AttributesWithNames),
        "symlinks" => options.declined.push(Offer::KeptSymlinks),
        "large-writes" => options.transfer_bytes_max = USUAL_BYTES,
        "read-ahead" => options.read_ahead_bytes = USUAL_BYTES,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

/// A descriptor stands for each inode that the kernel knows: root may have as many as the kernel
/// allows at all, others as many as they are granted.
fn open_as_many_as_can_be() -> Result<(), Box<dyn Error>> {
    let of_kernel = std::fs::read_to_string("/proc/sys/fs/nr_open")?.trim().parse()?;
    let granted = getrlimit(Resource::Nofile).maximum;
    let limit = |most| Rlimit { current: most, maximum: most };
    setrlimit(Resource::Nofile, limit(Some(of_kernel)))
        .or_else(|_refused| setrlimit(Resource::Nofile, limit(granted)))?;
    Ok(())
}
