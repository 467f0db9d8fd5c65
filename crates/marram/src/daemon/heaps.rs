//! How many heaps the allocator has for the threads of a daemon.
//!
//! Content comes from one thread and goes on another. With a heap for each thread, as the C library
//! has them by itself, each keeps what it ever held at once, which together was 900 MiB where 360
//! do (PostMark over io_uring, whose threads take turns). The C library
//! reads the number only when a process starts.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the C library looks at.
const VARIABLE: &str = "MALLOC_ARENA_MAX";
/// One for the serving threads, as a rule, and one for the commit.
const HEAPS: &str = "2";

/// Lets the program that is to be started have few heaps.
pub(super) fn few(command: &mut Command) -> &mut Command {
    command.env(VARIABLE, HEAPS)
}

/// Starts this program anew, in this process and with the same words, if nobody has said how many
/// heaps it is to have. For a daemon that is in the foreground, before it has anything open.
///
/// # Errors
/// The system refuses: it goes on as it is, and takes more memory.
pub(crate) fn start_anew_with_few() -> io::Result<()> {
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(());
    }
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| OsString::from("marram"));
    let mut program = Command::new(std::env::current_exe()?);
    Err(few(program.arg0(name).args(words)).exec())
}
