//! Mounts the in-memory model: `serve_model MOUNTPOINT [BLOCK_DEVICE]`. For comparing what the
//! kernel makes of it with what it makes of an engine, and for test suites of other people.

use marram_fuse::{MountOptions, mount};
use marram_model::Model;
use marram_vfs::SystemClock;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mountpoint = arguments.next().ok_or("usage: serve_model MOUNTPOINT [BLOCK_DEVICE]")?;
    let mut options = MountOptions::new(mountpoint, "model");
    options.block_device = arguments.next().map(Into::into);
    options.allow_other = true;
    options.writeback = std::env::var_os("WRITEBACK").is_some();
    options.on_event = Arc::new(|event| eprintln!("serve_model: {event}"));
    let session = mount(Arc::new(Model::new(Arc::new(SystemClock))), options)?;
    session.wait()?;
    Ok(())
}
