//! Hands every call on to a folder of the host: `passthrough classic|io_uring FOLDER MOUNTPOINT`.
//! What it costs over the folder itself is what a file system pays for this crate and for FUSE,
//! before it has done anything: the ceiling that the benchmarks measure engines against.

mod errors;
mod host;

use host::HostFolder;
use marram_fuse::{MountOptions, TransportChoice, mount, should_be_wakeful};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use std::error::Error;
use std::sync::Arc;

const USAGE: &str = "usage: passthrough classic|io_uring FOLDER MOUNTPOINT";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [transport, folder, mountpoint] = &arguments[..] else { return Err(USAGE.into()) };
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
    options.on_event = Arc::new(|event| eprintln!("passthrough: {event}"));
    mount(Arc::new(HostFolder::open(folder)?), options)?.wait()?;
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
