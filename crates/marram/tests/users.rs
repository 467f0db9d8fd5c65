//! An ordinary user creates and mounts a pool, with and without an environment.
//!
//! The test runs as root, and plays the user in a mount namespace of its own, where `/dev/fuse` is
//! open to all as on an ordinary system.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ordinary_user;
#[allow(dead_code, reason = "these tests use a part of the bench")]
mod workbench;

use ordinary_user::play;

/// What the user does; each line has to succeed.
const SCRIPT: &str = r#"
set -eux
cd "$HOME"
./marram doctor || true
./marram create my.pool --size 64M
mkdir mnt
./marram mount my.pool mnt
grep " $HOME/mnt fuse.marram " /proc/mounts | grep nosuid,nodev
echo content > mnt/file
test "$(stat -c %u:%g mnt)" = 65534:65534
./marram snapshot mnt@a
./marram list mnt
! ./marram mount my.pool mnt2 2> refused
./marram status > told; cat told; grep online told
./marram unmount mnt
! grep "$HOME" /proc/mounts
./marram quickstart qs
touch qs/x
./marram unmount qs
./marram mount my.pool@a mnt
test "$(cat mnt/file)" = content
./marram unmount mnt
"#;

/// The same of a home in a SQLite file, whose daemon is killed in the middle.
const IN_SQLITE: &str = r#"
set -eux
cd "$HOME"
./marram create sqlite:work.db
mkdir mnt
./marram mount sqlite:work.db mnt
mkdir mnt/src
echo one > mnt/src/a
./marram snapshot mnt@before
./marram fork mnt try
echo two > mnt/.marram/forks/try/src/a
./marram diff mnt/.marram/forks/try | grep src/a
./marram merge mnt/.marram/forks/try
test "$(cat mnt/src/a)" = two
echo kept > mnt/kept
sync mnt/kept
./marram status mnt | grep SQLite
pids=$(./marram status mnt --json | grep -o '"pid": *[0-9]*' | grep -o '[0-9]*$')
pid=$(echo "$pids" | head -n 1)
kill -9 "$pid"
while kill -0 "$pid" 2> /dev/null; do sleep 0.1; done
fusermount3 -u -z mnt
./marram check sqlite:work.db
./marram mount sqlite:work.db mnt
test "$(cat mnt/kept)" = kept
test "$(cat mnt/.marram/snapshots/before/src/a)" = one
./marram unmount mnt
./marram check sqlite:work.db
"#;

/// Mounting without an environment, as `mount(8)` and services call it: with a home that the list
/// of users names, and with none. Then by a line of `fstab` with `user`, through `mount(8)` itself.
const BARE: &str = r#"
set -eux
cd "$HOME"
home="$HOME"
bare() { env -i PATH=/usr/bin:/bin "$@"; }
bare ./marram create my.pool --size 64M
mkdir mnt
log=".local/state/marram/$(echo "$home/my.pool" | sed 's,^/,,; s,/,-,g').log"
bare ./marram mount my.pool mnt
grep " $home/mnt fuse.marram " /proc/mounts
test -e "$log"
bare ./marram unmount mnt
mv .local .hidden; touch .local
bare ./marram mount my.pool mnt
bare ./marram status mnt > told; cat told; grep "^log: .* /tmp/marram-65534/" told
bare ./marram unmount mnt
test -x /sbin/mount.fuse.marram || exit 0
unset HOME
mount "$home/mnt"
grep " $home/mnt fuse.marram rw,nosuid,nodev,noexec" /proc/mounts
umount "$home/mnt"
! grep " $home/mnt " /proc/mounts
"#;

#[test]
fn a_user_mounts_without_an_environment() {
    // The helper is shown among the programs of the system, where an overlay can be had.
    let prepare = r#"
        sed "s,^nobody:.*,nobody:x:65534:65534::$HOME:/bin/sh," /etc/passwd > "$HOME/passwd"
        mount --bind "$HOME/passwd" /etc/passwd
        echo "$HOME/my.pool $HOME/mnt fuse.marram noauto,user 0 0" > "$HOME/fstab"
        mount --bind "$HOME/fstab" /etc/fstab
        mkdir "$HOME/sbin"
        for name in mount umount; do cp "$HOME/marram" "$HOME/sbin/$name.fuse.marram"; done
        sbin="$(readlink -f /sbin)"
        mount -t overlay -o "lowerdir=$HOME/sbin:$sbin" overlay "$sbin" || true"#;
    play(prepare, BARE);
}

#[test]
fn a_user_has_pools_of_his_own() {
    play("", SCRIPT);
}

#[test]
fn an_ordinary_user_has_a_home_in_sqlite() {
    play("", IN_SQLITE);
}
