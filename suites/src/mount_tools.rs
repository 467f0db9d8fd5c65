//! The system's own tools: mount(8), umount(8), fstab, mkfs and fsck through the one binary.
//!
//! mount(8) looks for its helpers in `/sbin` only, so the links are put there for the length of
//! the script; what was there before comes back.

use super::{Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, output, run, text};
use marram_lab::project;
use marram_lab::subject::MountPoint;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LINKS: [&str; 12] = [
    "mkfs.fuseblk.marram",
    "fsck.fuseblk.marram",
    "mount.fuseblk.marram",
    "umount.fuseblk.marram",
    "mkfs.fuse.marram",
    "fsck.fuse.marram",
    "mount.marram",
    "mount.fuse.marram",
    "umount.fuse.marram",
    "umount.marram",
    "mkfs.marram",
    "fsck.marram",
];

const POOL_BYTES: u64 = 512 << 20;

/// How long a daemon in the background may take to be gone after `umount`.
const GONE_LIMIT: Duration = Duration::from_secs(10);

/// Each tool in turn.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let binary = project::release_binary()?.canonicalize()?;
    let _links = Links::make(&binary)?;
    let pool = setting.folder.join("tools.pool");
    std::fs::File::create_new(&pool)?.set_len(POOL_BYTES)?;
    silent(command(&["mkfs.marram"]).arg(&pool))?;
    step("mkfs.marram");
    let point = MountPoint::make(setting.folder.join("point"))?;
    mount_and_use(&pool, &point, command(&["mount", "-t", "fuse.marram"]).arg(&pool))?;
    step("mount -t fuse.marram, umount");
    fstab(setting, &pool, &point)?;
    step("an fstab line");
    second_mount_is_refused(&binary, &pool, &point)?;
    step("a second mount is refused");
    let status = command(&["fsck.marram", "-n"]).arg(&pool).status()?;
    if status.code() != Some(0) {
        return fail(format!("fsck.marram of a sound pool: {status}"));
    }
    step("fsck.marram");
    nonsense_is_refused(&binary, &pool, point.path())?;
    step("bad input is refused with a reason");
    Ok(())
}

/// A tool that works says nothing.
fn silent(tool: &mut std::process::Command) -> Result<()> {
    let said = output(tool)?;
    let words = [said.stdout, said.stderr].concat();
    if words.is_empty() {
        return Ok(());
    }
    fail(format!("a mount tool is not silent: {:?}", String::from_utf8_lossy(&words)))
}

/// Mounts with `mount`, writes, unmounts, mounts again, reads.
fn mount_and_use(pool: &Path, point: &MountPoint, mount: &mut std::process::Command) -> Result<()> {
    mount.arg(point.path());
    silent(mount)?;
    let file = point.path().join("file");
    std::fs::write(&file, "kept").context(|| "the mount is usable when mount(8) returns")?;
    silent(command(&["umount"]).arg(point.path()))?;
    expect_free(pool)?;
    silent(mount)?;
    let kept = std::fs::read(&file)?;
    silent(command(&["umount"]).arg(point.path()))?;
    expect_free(pool)?;
    if kept == b"kept" { Ok(()) } else { fail("the file changed over an unmount") }
}

/// Nobody holds the pool: `marram check` wants it unmounted.
fn expect_free(pool: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match run(command(&["fsck.marram", "-n"]).arg(pool)) {
            Ok(()) => return Ok(()),
            Err(failure) if start.elapsed() > GONE_LIMIT => return Err(failure),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn fstab(setting: &Setting, pool: &Path, point: &MountPoint) -> Result<()> {
    let table = setting.folder.join("fstab");
    let options = "defaults,nofail,_netdev,noatime,allow_other,x-systemd.automount";
    let (pool_word, point_word) = (pool.display(), point.path().display());
    std::fs::write(&table, format!("{pool_word} {point_word} fuse.marram {options} 0 0\n"))?;
    run(command(&["mount", "--fstab"]).arg(&table).arg(point.path()))?;
    let kind = text(command(&["findmnt", "--noheadings", "--output", "FSTYPE"]).arg(point.path()))?;
    if !kind.contains("marram") {
        return fail(format!("mounted as {kind:?}, wanted a type that names marram"));
    }
    run(command(&["umount"]).arg(point.path()))?;
    expect_free(pool)
}

fn second_mount_is_refused(binary: &Path, pool: &Path, point: &MountPoint) -> Result<()> {
    let marram = || std::process::Command::new(binary);
    run(marram().arg("mount").arg(pool).arg(point.path()))?;
    let other = point.path().with_file_name("other");
    let other = MountPoint::make(other)?;
    let forced = output(marram().args(["create", "--force"]).arg(pool));
    if forced.is_ok() {
        return fail("a pool was created over a mounted one");
    }
    let second = output(marram().arg("check").arg(pool));
    let Err(refusal) = second else { return fail("a mounted pool was checked offline") };
    if !refusal.to_string().chars().any(|letter| letter.is_ascii_digit()) {
        return fail(format!("the refusal does not name the holder's process: {refusal}"));
    }
    run(marram().arg("unmount").arg(point.path()))?;
    drop(other);
    expect_free(pool)
}

/// Bad input: a clear error, a status that is not zero, and no panic.
fn nonsense_is_refused(binary: &Path, pool: &Path, point: &Path) -> Result<()> {
    let absent = point.join("absent");
    let zeros = pool.with_extension("zeros");
    std::fs::File::create(&zeros)?.set_len(64 << 20)?;
    let text_file = pool.with_extension("text");
    std::fs::write(&text_file, "not a pool\n")?;
    let truncated = pool.with_extension("truncated");
    std::fs::copy(pool, &truncated)?;
    std::fs::File::options().write(true).open(&truncated)?.set_len(1 << 20)?;
    let cases: [(&Path, &Path, &str); 6] = [
        (pool, &absent, "rw"),
        (pool, &text_file, "rw"),
        (pool, point, "no_such_option=7"),
        (&zeros, point, "rw"),
        (&text_file, point, "rw"),
        (&truncated, point, "rw"),
    ];
    for (source, target, options) in cases {
        let mut mount = std::process::Command::new(binary);
        mount.args(["mount", "-o", options]).arg(source).arg(target);
        let said = mount.output()?;
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        if said.status.success() || words.trim().is_empty() || words.contains("panicked") {
            let line = marram_lab::process::shown(&mount);
            return fail(format!("`{line}`: {} with {words:?}", said.status));
        }
    }
    Ok(())
}

/// Links in `/sbin` to the binary. With the script they go, and what was there before comes back.
pub(super) struct Links(Vec<(PathBuf, Option<PathBuf>)>);

impl Links {
    /// Makes them.
    pub(super) fn make(binary: &Path) -> Result<Self> {
        let mut links = Self(Vec::new());
        for name in LINKS {
            let link = Path::new("/sbin").join(name);
            let before = match std::fs::symlink_metadata(&link) {
                Ok(found) if found.is_symlink() => Some(std::fs::read_link(&link)?),
                Ok(_) => return fail(format!("{} is no link", link.display())),
                Err(_) => None,
            };
            if before.is_some() {
                std::fs::remove_file(&link)?;
            }
            links.0.push((link.clone(), before));
            std::os::unix::fs::symlink(binary, &link).context(|| link.display())?;
        }
        Ok(links)
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        for (link, before) in &self.0 {
            let restored = std::fs::remove_file(link).and_then(|()| match before {
                Some(target) => std::os::unix::fs::symlink(target, link),
                None => Ok(()),
            });
            if let Err(error) = restored {
                eprintln!("warning: {}: {error}", link.display());
            }
        }
    }
}
