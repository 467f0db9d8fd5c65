//! An ordinary user, played by root in a mount namespace of its own, where `/dev/fuse` is open to
//! all as on an ordinary system.

use crate::workbench::{Workbench, can_mount, copy_program, outcome};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Has the user run `script`, after root has run `prepare`.
pub(crate) fn play(prepare: &str, script: &str) {
    let has_programs = ["unshare", "setpriv", "fusermount3"]
        .iter()
        .all(|name| ["/usr/bin", "/bin"].iter().any(|at| Path::new(at).join(name).exists()));
    if !can_mount() || !has_programs {
        eprintln!("skipped: unshare, setpriv and fusermount3 are needed");
        return;
    }
    let bench = Workbench::new();
    let home = bench.make_folder("home");
    copy_program(&home.join("marram"));
    fs::write(home.join("script"), script).expect("the folder is ours");
    for path in [bench.path("."), home.clone()] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("the folder is ours");
    }
    chown(&home, Some(65534), Some(65534)).expect("the folder is ours");
    let enter = format!(
        "set -e; mknod {0}/fuse c 10 229; chmod 666 {0}/fuse; mount --bind {0}/fuse /dev/fuse; \
         {prepare}\nexec setpriv --reuid=65534 --regid=65534 --clear-groups sh {0}/script",
        home.display()
    );
    let outcome = outcome(
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &enter])
            .env("HOME", &home)
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_DATA_HOME"),
    );
    assert_eq!(outcome.status, 0, "{}\n{}", outcome.out, outcome.err);
}
