//! Programs as the system finds them: looked for before anything is made, so that a command that is
//! not there changes nothing.

use super::Refusal;
use crate::error::Error;
use rustix::fs::{Access, access};
use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where programs are if `PATH` does not say.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Makes sure that there is a program of that name, which may be run.
///
/// # Errors
/// There is none, or it may not be run.
pub(crate) fn check_program(name: &OsStr) -> Result<(), Refusal> {
    let found = match name.as_bytes().contains(&b'/') {
        true => look_at(Path::new(name)),
        false => search(name),
    };
    found.map_err(|error| cannot_run(name, error))
}

/// The refusal of a program that the system does not run.
pub(super) fn cannot_run(name: &OsStr, error: io::Error) -> Refusal {
    let status = match error.kind() {
        ErrorKind::NotFound => Refusal::NOT_FOUND,
        _ => Refusal::NOT_EXECUTABLE,
    };
    Refusal { error: Error::system("run", Path::new(name), error), status }
}

fn search(name: &OsStr) -> io::Result<()> {
    let path = env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    let mut refused = io::Error::from(ErrorKind::NotFound);
    for folder in env::split_paths(&path) {
        match look_at(&folder.join(name)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => refused = error,
            Err(_) => (),
        }
    }
    Err(refused)
}

fn look_at(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::check_program;
    use crate::private_view::Refusal;
    use std::ffi::OsStr;

    #[test]
    fn a_program_is_there_and_may_be_run_or_has_a_status_that_says_so() {
        let status = |name: &OsStr| check_program(name).err().map(|refusal| refusal.status);
        assert_eq!(status(OsStr::new("sh")), None);
        assert_eq!(status(OsStr::new("/bin/sh")), None);
        assert_eq!(status(OsStr::new("no-such-program")), Some(Refusal::NOT_FOUND));
        assert_eq!(status(OsStr::new("/no/such")), Some(Refusal::NOT_FOUND));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(status(folder.path().as_os_str()), Some(Refusal::NOT_EXECUTABLE));
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(status(file.as_os_str()), Some(Refusal::NOT_EXECUTABLE));
    }
}
