//! What other users' daemons answer to root, and root's to other users.
//!
//! The test runs as root, and plays a user in a mount namespace of its own, where `/dev/fuse` is
//! open to all as on an ordinary system. The user has a copy of root's pool: its daemon knows the
//! id, and answers for it in a folder into which root looks.

use crate::workbench::{Outcome, Workbench, can_mount, copy_program, outcome};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Says what root and what the user does.
const ROLES: &str = r#"
set -eux
user() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$THEIRS" "$@"; }
root() { env HOME="$OURS" XDG_STATE_HOME="$OURS/state" "$@"; }
marram="$THEIRS/marram"
socket="$(printf '/tmp/marram-65534/%s.sock' "$ID")"
cd "$THEIRS"
"#;

/// Runs `script` after what each line of it says with roles; each line has to succeed.
fn play(bench: &Workbench, script: &str) -> Option<Outcome> {
    let has_programs = ["unshare", "setpriv", "fusermount3"].iter().all(|name| {
        ["/usr/bin", "/bin"].iter().any(|at| std::path::Path::new(at).join(name).exists())
    });
    if !can_mount() || !has_programs {
        eprintln!("skipped: unshare, setpriv and fusermount3 are needed");
        return None;
    }
    let status = bench.run("status work.pool --json").result();
    let theirs = bench.make_folder("theirs");
    copy_program(&theirs.join("marram"));
    std::fs::copy(bench.path("work.pool"), theirs.join("copy.pool")).expect("copied");
    std::fs::write(theirs.join("script"), format!("{ROLES}{script}")).expect("written");
    for path in [bench.path("."), theirs.clone()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("opened");
    }
    for path in [theirs.clone(), theirs.join("copy.pool")] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("given away");
    }
    let enter = format!(
        "set -e; mknod {0}/fuse c 10 229; chmod 666 {0}/fuse; mount --bind {0}/fuse /dev/fuse; \
         exec sh {0}/script",
        theirs.display()
    );
    let played = outcome(
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &enter])
            .env("OURS", bench.path("."))
            .env("THEIRS", &theirs)
            .env("ID", status[0]["pool_id"].as_str().expect("an id"))
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_DATA_HOME"),
    );
    Some(played)
}

#[test]
fn nobody_answers_for_the_pool_of_somebody_else() {
    let bench = Workbench::with_pool();
    let script = r#"
user mkdir mnt
user "$marram" mount copy.pool mnt
test -S "$socket"
root "$marram" snapshot "$OURS/work.pool@ours" 2> warned
grep "warning: $socket is passed over: user 65534 answers there" warned
root "$marram" snapshot copy.pool@theirs 2> unwarned
! grep warning unwarned
user "$marram" list mnt > list
grep root@theirs list
! grep root@ours list
root "$marram" status > status
grep "$THEIRS/copy.pool" status
user "$marram" unmount mnt
"#;
    let Some(played) = play(&bench, script) else { return };
    assert_eq!(played.status, 0, "{}\n{}", played.out, played.err);
    let list = bench.run("list work.pool").good().out;
    assert!(list.contains("root@ours") && !list.contains("root@theirs"), "{list}");
}

#[test]
fn a_daemon_of_a_pool_that_is_not_its_users_is_not_listed_to_root() {
    let bench = Workbench::with_pool();
    let script = r#"
chown 0:0 copy.pool
chmod 666 copy.pool
user mkdir mnt
user "$marram" mount copy.pool mnt
root "$marram" status > status 2> warned
! grep copy.pool status
grep "warning: $socket is passed over" warned
root "$marram" list > list 2> warned
! grep copy.pool list
! root "$marram" unmount copy.pool
grep " $THEIRS/mnt fuse.marram " /proc/mounts
user "$marram" unmount mnt
"#;
    let Some(played) = play(&bench, script) else { return };
    assert_eq!(played.status, 0, "{}\n{}", played.out, played.err);
}

#[test]
fn the_daemon_of_root_does_for_others_only_what_they_may() {
    let bench = Workbench::with_pool();
    let script = r#"
user mkdir mnt
chmod 755 "$THEIRS"
root "$marram" mount copy.pool mnt
echo content > mnt/file
user cat mnt/file || true
status=0; user "$marram" snapshot copy.pool@a 2> refused || status=$?
test "$status" = 11
grep 'in use' refused
status=0; user "$marram" snapshot mnt@a 2> refused || status=$?
test "$status" = 12
grep 'user 65534 may not' refused
user "$marram" list mnt > list
root "$marram" list mnt > list
! grep root@a list
root "$marram" unmount mnt
"#;
    let Some(played) = play(&bench, script) else { return };
    assert_eq!(played.status, 0, "{}\n{}", played.out, played.err);
}

#[test]
fn what_root_remounts_for_a_user_does_not_trust_him() {
    let bench = Workbench::with_pool();
    let script = r#"
test -e /etc/fuse.conf || exit 0
echo user_allow_other > fuse.conf
mount --bind fuse.conf /etc/fuse.conf
user mkdir mnt
user "$marram" mount copy.pool mnt -o allow_other
status=0; root "$marram" mount copy.pool mnt -o remount,suid 2> refused || status=$?
test "$status" = 2
grep 'suid and dev are for root' refused
root "$marram" mount copy.pool mnt -o remount,ro
grep " $THEIRS/mnt fuse.marram ro,nosuid,nodev" /proc/mounts
user "$marram" unmount mnt
"#;
    let Some(played) = play(&bench, script) else { return };
    assert_eq!(played.status, 0, "{}\n{}", played.out, played.err);
}

#[test]
fn root_of_a_user_namespace_finds_the_daemon_of_the_user_who_he_is_outside() {
    let bench = Workbench::with_pool();
    let script = r#"
user mkdir mnt
user "$marram" mount copy.pool mnt
user unshare --user --map-root-user true || exit 0
user unshare --user --map-root-user "$marram" snapshot copy.pool@inside
user unshare --user --map-root-user "$marram" snapshot mnt@below
user "$marram" list mnt > list
grep root@inside list
grep root@below list
user "$marram" unmount mnt
"#;
    let Some(played) = play(&bench, script) else { return };
    assert_eq!(played.status, 0, "{}\n{}", played.out, played.err);
}
