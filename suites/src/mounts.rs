//! The mount as a mount: where it is bound to, permissions on it, remounts, handles. No program
//! waits for ever when a device hangs or the daemon is to end.
//!
//! Parts that need system calls which no shell has are small programs in Python.

use super::{GIB, Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{OwnedChild, command, require, run, text};
use marram_lab::subject::{Making, Marram, MountPoint, Subject, peak_memory_bytes};
use rustix::process::Signal;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A user and group without rights to anything.
const USER: &str = "65534";
/// Programs of ours for what no shell can do.
const HANDLES: &str = include_str!("mount/handles.py");
const IDMAP: &str = include_str!("mount/idmap.py");
const INOTIFY: &str = include_str!("mount/inotify.py");
const OPEN_FILES: &str = include_str!("mount/open_files.py");
const LOCKS: &str = include_str!("mount/locks.py");

/// More than the daemon may hold, whatever programs have open and locked.
const PEAK_BYTES_MAX: u64 = 600 << 20;

/// In what time a program that was killed, and a daemon that was asked to end, have to be gone.
const GONE_LIMIT: Duration = Duration::from_secs(10);

/// Each part in turn, on one pool.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("setpriv", "util-linux"), ("unshare", "util-linux"), ("python3", "python3")])?;
    let mut marram = Marram::make(&setting.folder.join("subject"), &Making::sized(GIB))?;
    std::fs::set_permissions(marram.root(), PermissionsExt::from_mode(0o777))?;
    options(&marram)?;
    remounts(&mut marram)?;
    handles(&mut marram)?;
    run(python(INOTIFY).arg(marram.root()))?;
    step("inotify tells of what comes through the mount");
    removed_under_a_reader(marram.root())?;
    containers(&marram, &setting.folder)?;
    bound(&mut marram, &setting.folder)?;
    let count = setting.scaled(100_000, 5_000);
    run(python(OPEN_FILES).arg(marram.root()).arg(count.to_string()))?;
    step(&format!("{count} files open without a name"));
    let count = setting.scaled(1_000_000, 50_000);
    run(python(LOCKS).arg(marram.root()).arg(count.to_string()))?;
    step(&format!("{count} locks at the same time"));
    bounded(&marram)?;
    made_anew(&mut marram)?;
    marram.unmount()?;
    marram.check()
}

fn python(program: &str) -> Command {
    command(&["python3", "-c", program])
}

/// The command line as nobody would run it.
fn as_user(words: &[&str]) -> Command {
    let mut setpriv = command(&["setpriv", "--clear-groups", "--reuid", USER, "--regid", USER]);
    setpriv.args(words);
    setpriv
}

fn remount(marram: &Marram, options: &str) -> Result<()> {
    let options = format!("remount,{options}");
    run(marram.command(&["mount", "-o", &options]).arg(marram.pool()).arg(marram.root()))
}

/// Programs, setuid and device nodes count as the options say; access is for modes to decide, and
/// everybody may enter what root has mounted.
fn options(marram: &Marram) -> Result<()> {
    let root = marram.root();
    let (id, device) = (root.join("id"), root.join("zero"));
    std::fs::copy("/usr/bin/id", &id)?;
    std::fs::set_permissions(&id, PermissionsExt::from_mode(0o4755))?;
    run(command(&["mknod", "-m", "666"]).arg(&device).args(["c", "1", "5"]))?;
    let path = id.to_string_lossy();
    let effective = || text(as_user(&[&path, "-u"]).env("LC_ALL", "C"));
    expect("setuid", &effective()?, "0")?;
    std::fs::File::open(&device).context(|| "a device node with dev")?;
    remount(marram, "nosuid,nodev")?;
    expect("nosuid", &effective()?, USER)?;
    refused("a device node with nodev", std::fs::File::open(&device))?;
    remount(marram, "noexec,suid,dev")?;
    refused("a program with noexec", command(&[&path]).output())?;
    remount(marram, "exec")?;
    expect("exec", &effective()?, "0")?;
    let (private, secret) = (root.join("private"), root.join("private/secret"));
    std::fs::create_dir(&private)?;
    std::fs::set_permissions(&private, PermissionsExt::from_mode(0o700))?;
    std::fs::write(&secret, "secret")?;
    if run(as_user(&["cat"]).arg(&secret)).is_ok() {
        return fail("a user reads what only root may");
    }
    run(as_user(&["touch"]).arg(root.join("of-a-user")))?;
    step("suid, dev and exec count as the options say; modes hold for everybody");
    Ok(())
}

fn expect(what: &str, found: &str, wanted: &str) -> Result<()> {
    if found == wanted { Ok(()) } else { fail(format!("{what}: {found:?}, wanted {wanted:?}")) }
}

fn refused<T>(what: &str, outcome: std::io::Result<T>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => fail(format!("{what}: {error}, wanted EACCES")),
        Ok(_) => fail(format!("{what} works")),
    }
}

/// A remount to read-only makes everything durable: a kill of the daemon takes nothing.
fn remounts(marram: &mut Marram) -> Result<()> {
    let file = marram.root().join("before-ro");
    std::fs::write(&file, "kept")?;
    remount(marram, "ro")?;
    match std::fs::write(&file, "changed") {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {}
        other => return fail(format!("a write after `remount,ro`: {other:?}")),
    }
    marram.kill()?;
    marram.mount()?;
    expect("after a kill", &std::fs::read_to_string(&file)?, "kept")?;
    remount(marram, "ro")?;
    remount(marram, "rw")?;
    std::fs::write(&file, "changed").context(|| "a write after `remount,rw`")?;
    step("remount,ro makes everything durable; remount,rw goes on");
    Ok(())
}

/// A handle opens its file, whatever the kernel has forgotten and however often the pool was
/// mounted since, and nothing when the file is gone.
fn handles(marram: &mut Marram) -> Result<()> {
    let names = ["first", "second", "third"];
    for name in names {
        std::fs::write(marram.root().join(name), name)?;
    }
    let taken = text(python(HANDLES).arg("take").arg(marram.root()).args(names))?;
    let open = |marram: &Marram, count: usize| {
        let handles = taken.lines().take(count);
        run(python(HANDLES).arg("open").arg(marram.root()).args(handles))
    };
    open(marram, names.len())?;
    std::fs::write("/proc/sys/vm/drop_caches", "2").context(|| "dropping the kernel's caches")?;
    open(marram, names.len())?;
    marram.remount()?;
    open(marram, names.len())?;
    std::fs::remove_file(marram.root().join("third"))?;
    run(python(HANDLES).arg("stale").arg(marram.root()).args(taken.lines().skip(2)))?;
    open(marram, 2)?;
    step("file handles last over dropped caches and a remount");
    Ok(())
}

/// A directory that somebody reads is removed with all that is in it.
fn removed_under_a_reader(root: &Path) -> Result<()> {
    let folder = root.join("removed");
    std::fs::create_dir(&folder)?;
    for number in 0..2_000 {
        std::fs::write(folder.join(number.to_string()), "")?;
    }
    let mut reader = std::fs::read_dir(&folder)?;
    if reader.next().is_none() {
        return fail("nothing is listed");
    }
    std::fs::remove_dir_all(&folder)?;
    for entry in reader {
        entry.context(|| "listing a directory that was removed meanwhile")?;
    }
    step("a directory removed under its reader");
    Ok(())
}

/// The mount bound into a namespace of an unprivileged user, and seen through mapped ids.
fn containers(marram: &Marram, folder: &Path) -> Result<()> {
    let inside = MountPoint::make(folder.join("inside"))?;
    let script = "set -e; mount --rbind \"$0\" \"$1\"; cd \"$1\"; test \"$(id -u)\" = 0
        echo mine > in-a-container; test \"$(stat -c %u in-a-container)\" = 0
        ! cat private/secret 2> /dev/null; ! chown 5 in-a-container 2> /dev/null
        mv in-a-container renamed; cat renamed";
    let mut enter = as_user(&["unshare", "-Urm", "sh", "-c", script]);
    let said = text(enter.arg(marram.root()).arg(inside.path()))?;
    expect("in a user namespace", &said, "mine")?;
    let owner = text(command(&["stat", "-c", "%u"]).arg(marram.root().join("renamed")))?;
    expect("the owner outside", &owner, USER)?;
    step("bound into the namespace of an unprivileged user");
    std::fs::write(marram.root().join("of-root"), "")?;
    run(python(IDMAP).arg(marram.root()).arg(inside.path()))?;
    let seen = text(command(&["stat", "-c", "%u:%g"]).arg(inside.path().join("of-root")))?;
    expect("an owner through mapped ids", &seen, "100000:100000")?;
    let shifted = ["setpriv", "--clear-groups", "--reuid", "100005", "--regid", "100005"];
    run(command(&shifted).arg("touch").arg(inside.path().join("of-five")))?;
    let kept = text(command(&["stat", "-c", "%u:%g"]).arg(marram.root().join("of-five")))?;
    expect("the owner on disk", &kept, "5:5")?;
    run(command(&["umount", "-i"]).arg(inside.path()))?;
    step("id-mapped");
    Ok(())
}

/// A mount that is bound to another place too.
fn bound(marram: &mut Marram, folder: &Path) -> Result<()> {
    let helper = folder.join("umount.fuseblk.marram");
    symlink(marram.command(&[]).get_program(), &helper)?;
    let other = MountPoint::make(folder.join("bound"))?;
    let bind = || run(command(&["mount", "--bind"]).arg(marram.root()).arg(other.path()));
    bind()?;
    run(Command::new(&helper).arg(other.path()))?;
    if other.is_mounted()? {
        return fail("the helper left the bound mount");
    }
    bind()?;
    let said = marram.command(&["unmount"]).arg(marram.root()).output()?;
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    if said.status.code() != Some(3) || !words.contains("still in use") {
        return fail(format!("unmount of what is bound elsewhere: {} {words:?}", said.status));
    }
    std::fs::write(other.path().join("through-the-other"), "works")?;
    run(Command::new(&helper).arg(other.path()))?;
    marram.unmount_has_happened()?;
    marram.mount()?;
    step("bound to another place: each place is unmounted by itself");
    Ok(())
}

/// Files that were never closed, but by the end of their programs, and locks have not made the
/// daemon grow without end, and have left nothing behind.
fn bounded(marram: &Marram) -> Result<()> {
    let Some(daemon) = marram.daemon() else { return fail("no daemon") };
    let peak = peak_memory_bytes(daemon)?;
    if peak > PEAK_BYTES_MAX {
        return fail(format!("the daemon held {} MiB for open files and locks", peak >> 20));
    }
    for name in ["open", "locks"] {
        if marram.root().join(name).exists() {
            return fail(format!("`{name}` is left"));
        }
    }
    step(&format!("the daemon held at most {} MiB meanwhile", peak >> 20));
    Ok(())
}

/// A pool is made anew right after its last place was unmounted without a word to the daemon; what
/// is mounted then is the new one. Before, it is mounted below itself, and that is passed on from
/// one place to another.
fn made_anew(marram: &mut Marram) -> Result<()> {
    let root = marram.root().to_owned();
    let [above, bound] = ["above", "bound"].map(|name| root.join(name));
    let umount = |point: &Path| run(command(&["umount", "-i"]).arg(point));
    for _ in 0..5 {
        let mount = |point: &Path| run(marram.command(&["mount"]).arg(marram.pool()).arg(point));
        std::fs::create_dir(&above)?;
        std::fs::create_dir(&bound)?;
        mount(&above)?;
        run(command(&["mount", "--make-shared"]).arg(&above))?;
        run(command(&["mount", "--bind"]).arg(&above).arg(&bound))?;
        run(command(&["mount", "--make-slave"]).arg(&bound))?;
        let (below, passed_on) = (above.join("below"), bound.join("below/above"));
        std::fs::create_dir(&below)?;
        mount(&below)?;
        if !passed_on.exists() {
            return fail("a mount in a shared place is not passed on");
        }
        for place in [&below, &bound, &above, &root] {
            umount(place)?;
        }
        run(marram.command(&["create", "--force"]).arg(marram.pool()))?;
        marram.unmount_has_happened()?;
        marram.mount()?;
        if std::fs::read_dir(&root)?.next().is_some() {
            return fail("what was mounted is not what was made");
        }
    }
    step("made anew right after the last of many places was unmounted");
    Ok(())
}

/// A pool on a device that hangs: a program that is killed goes at once, and a daemon that is
/// killed goes when the device works again, whatever it was at. One that is asked to end does so,
/// by whatever signal.
pub(super) fn hang(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("fsfreeze", "util-linux"), ("mkfs.ext4", "e2fsprogs")])?;
    let image = setting.folder.join("image");
    std::fs::File::create(&image)?.set_len(GIB / 2)?;
    run(command(&["mkfs.ext4", "-q"]).arg(&image))?;
    let host = MountPoint::make(setting.folder.join("host"))?;
    run(command(&["mount", "-o", "loop"]).arg(&image).arg(host.path()))?;
    let mut marram = Marram::make(&host.path().join("subject"), &Making::sized(GIB / 4))?;
    killed_program(&marram, &host)?;
    killed_daemon(&mut marram, &host)?;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        marram.mount()?;
        std::fs::write(marram.root().join("file"), "kept")?;
        signal_daemon(&marram, signal)?;
        marram.unmount_has_happened()?;
    }
    step("SIGTERM, SIGINT and SIGHUP unmount");
    marram.check()
}

/// A host file system of which every write waits until this goes.
struct Frozen<'a>(&'a MountPoint);

impl<'a> Frozen<'a> {
    fn make(host: &'a MountPoint) -> Result<Self> {
        run(command(&["fsfreeze", "--freeze"]).arg(host.path()))?;
        Ok(Self(host))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Err(failure) = run(command(&["fsfreeze", "--unfreeze"]).arg(self.0.path())) {
            eprintln!("warning: {failure}");
        }
    }
}

fn killed_program(marram: &Marram, host: &MountPoint) -> Result<()> {
    let path = marram.root().join("synced");
    std::fs::File::create(&path)?.write_all(b"content")?;
    let frozen = Frozen::make(host)?;
    let mut sync = OwnedChild::start(command(&["sync"]).arg(&path))?;
    std::thread::sleep(Duration::from_secs(1));
    if sync.ended()?.is_some() {
        return fail("a sync does not wait for its device");
    }
    let begin = Instant::now();
    sync.kill()?;
    let took = begin.elapsed();
    drop(frozen);
    if took > GONE_LIMIT {
        return fail(format!("a program that was killed waited {took:?} for its sync"));
    }
    run(command(&["sync"]).arg(&path))?;
    step(&format!("a program that waited for a device that hangs was gone {took:?} after SIGKILL"));
    Ok(())
}

/// The daemon is killed while it unmounts, which waits for the device.
fn killed_daemon(marram: &mut Marram, host: &MountPoint) -> Result<()> {
    std::fs::write(marram.root().join("unsynced"), "content")?;
    let frozen = Frozen::make(host)?;
    let mut unmount = marram.command(&["unmount"]);
    // It says that the daemon went away, as it should.
    let mut unmount = OwnedChild::start(unmount.arg(marram.root()).stderr(Stdio::null()))?;
    std::thread::sleep(Duration::from_secs(1));
    signal_daemon(marram, Signal::KILL)?;
    std::thread::sleep(Duration::from_secs(1));
    drop(frozen);
    unmount.wait(GONE_LIMIT).context(|| "unmount, after the daemon was killed")?;
    marram.kill()?;
    step("a daemon that was killed in an unmount that hung was gone when the device worked");
    Ok(())
}

fn signal_daemon(marram: &Marram, signal: Signal) -> Result<()> {
    let id = marram.daemon().and_then(|id| i32::try_from(id).ok());
    match id.and_then(rustix::process::Pid::from_raw) {
        Some(id) => Ok(rustix::process::kill_process(id, signal)?),
        None => fail("no daemon to signal"),
    }
}
