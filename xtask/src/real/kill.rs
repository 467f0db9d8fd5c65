//! The daemon killed with SIGKILL at random moments of an unpacking.
//!
//! What survives has to be the file system at one moment. The members of the archive are unpacked
//! by one `tar` in a known order, so at any moment the tree is: the first members whole, then at
//! most one that is partly there, then nothing. Any other tree means that two operations were torn
//! apart. Beside `tar`, a thread calls `syncfs` at random moments, so that the kill also falls into
//! group commits; what `syncfs` or `fsync` acknowledged before the kill must have survived.

use super::linux_tree::unpack;
use super::{GIB, LinuxTree, Setting, linux_tree, step};
use crate::failure::{Context, Result, fail};
use crate::process::{OwnedChild, command, text};
use crate::seed::Seed;
use crate::subject::{Making, Marram, Subject};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A mount after a crash takes no repair: this is far above what it needs and far below a scan.
const MOUNT_LIMIT: Duration = Duration::from_secs(5);

/// Rounds on one pool before it is made anew.
const ROUNDS_PER_POOL: u32 = 10;

/// All rounds.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let linux = linux_tree(setting.is_short)?;
    let members = members(&linux)?;
    let mut seed = Seed::new(setting.seed);
    let mut left = setting.rounds;
    while left > 0 {
        let rounds = left.min(ROUNDS_PER_POOL);
        let folder = tempfile::tempdir_in(&setting.folder)?;
        let mut marram = Marram::make(folder.path(), &Making::sized(16 * GIB))?;
        for number in 0..rounds {
            let delay_ms = seed.between(200, setting.scaled(9_000, 3_000));
            round(&mut marram, &linux, &members, number, delay_ms, &mut seed)
                .context(|| format!("seed {} round {number}", setting.seed))?;
        }
        marram.unmount()?;
        left -= rounds;
    }
    Ok(())
}

/// The members of the archive in their order, without directories' closing slash.
fn members(linux: &LinuxTree) -> Result<Vec<PathBuf>> {
    let list = text(command(&["tar", "-tPf"]).arg(&linux.archive))?;
    Ok(list.lines().map(|line| PathBuf::from(line.trim_end_matches('/'))).collect())
}

fn round(
    marram: &mut Marram,
    linux: &LinuxTree,
    members: &[PathBuf],
    number: u32,
    delay_ms: u64,
    seed: &mut Seed,
) -> Result<()> {
    let name = format!("round-{number}");
    let folder = marram.root().join(&name);
    make_durable_folder(&folder)?;
    let durable = unpack_and_kill(marram, linux, members, &folder, delay_ms, seed)?;
    marram.check().context(|| "after the kill")?;
    let start = Instant::now();
    marram.mount().context(|| "after the kill")?;
    let took = start.elapsed();
    if took > MOUNT_LIMIT {
        return fail(format!("the mount after the kill took {took:?}"));
    }
    let survived = expect_prefix(linux, members, &folder)?;
    step(&format!(
        "{name}: killed after {delay_ms} ms; {survived} of {} members, {durable} synced; \
         mounted in {} ms",
        members.len(),
        took.as_millis()
    ));
    if survived < durable {
        return fail(format!("{durable} members were synced, {survived} survived"));
    }
    // The next round starts from a changed tree, and its kill may fall into these removals.
    if number >= 1 {
        remove(&marram.root().join(format!("round-{}", number - 1)))?;
    }
    Ok(())
}

/// The folder itself is durable before the race starts.
fn make_durable_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir(folder)?;
    let parent = folder.parent().expect("a folder below the mount");
    Ok(std::fs::File::open(parent)?.sync_all()?)
}

/// How many members were durable for sure when the daemon was killed.
fn unpack_and_kill(
    marram: &mut Marram,
    linux: &LinuxTree,
    members: &[PathBuf],
    folder: &Path,
    delay_ms: u64,
    seed: &mut Seed,
) -> Result<usize> {
    let mut tar = unpack(linux, folder);
    tar.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let stop = AtomicBool::new(false);
    let durable = AtomicUsize::new(0);
    let mut pauses = Seed::new(seed.next());
    let root = marram.root().to_owned();
    std::thread::scope(|threads| {
        let mut unpacking = OwnedChild::start(&mut tar)?;
        threads.spawn(|| sync_at_times(&root, members, folder, &stop, &durable, &mut pauses));
        std::thread::sleep(Duration::from_millis(delay_ms));
        // No sync that is acknowledged after this line counts.
        stop.store(true, Ordering::SeqCst);
        let counted = durable.load(Ordering::SeqCst);
        marram.kill()?;
        unpacking.kill()?;
        Ok(counted)
    })
}

/// Syncs at random moments, and notes how many members were there before the last sync.
fn sync_at_times(
    root: &Path,
    members: &[PathBuf],
    folder: &Path,
    stop: &AtomicBool,
    durable: &AtomicUsize,
    pauses: &mut Seed,
) {
    let mut present = 0;
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(pauses.between(100, 1_500)));
        while present < members.len()
            && std::fs::symlink_metadata(folder.join(&members[present])).is_ok()
        {
            present += 1;
        }
        // The last member that is there may still be written: only those before it count.
        let whole = present.saturating_sub(1);
        // A mount of plain FUSE type does not pass `syncfs` on; `fsync` of a folder always arrives.
        let synced = std::fs::File::open(root).and_then(|root| root.sync_all());
        if synced.is_ok() && !stop.load(Ordering::SeqCst) {
            durable.store(whole, Ordering::SeqCst);
        }
    }
}

/// Fails unless what is below `folder` is a prefix of the members, the last perhaps in part.
fn expect_prefix(linux: &LinuxTree, members: &[PathBuf], folder: &Path) -> Result<usize> {
    let reference = linux.reference.parent().expect("the tree lies in a folder");
    let present = |member: &PathBuf| std::fs::symlink_metadata(folder.join(member)).is_ok();
    let survived = members.iter().take_while(|member| present(member)).count();
    let total = count_below(folder)?;
    if total != survived {
        return fail(format!("{total} entries survived, but only the first {survived} in order"));
    }
    for (index, member) in members[..survived].iter().enumerate() {
        let is_last = index + 1 == survived;
        expect_member(&reference.join(member), &folder.join(member), is_last)
            .context(|| format!("member {index} of {survived}, {}", member.display()))?;
    }
    Ok(survived)
}

fn count_below(folder: &Path) -> Result<usize> {
    let mut count = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            count += 1;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(count)
}

/// A whole member has its content, mode and mtime; the last one a beginning of its content.
/// Directories get their mode and time from `tar` at the very end, so theirs are not compared.
fn expect_member(reference: &Path, survivor: &Path, is_last: bool) -> Result<()> {
    let (wanted, found) =
        (std::fs::symlink_metadata(reference)?, std::fs::symlink_metadata(survivor)?);
    if wanted.file_type() != found.file_type() {
        return fail("another kind of file");
    }
    if wanted.is_dir() {
        return Ok(());
    }
    if wanted.is_symlink() {
        let same = std::fs::read_link(reference)? == std::fs::read_link(survivor)?;
        return if same { Ok(()) } else { fail("another target") };
    }
    let (wanted_bytes, found_bytes) = (std::fs::read(reference)?, std::fs::read(survivor)?);
    if is_last {
        let begins = wanted_bytes.starts_with(&found_bytes);
        return if begins { Ok(()) } else { fail("not a beginning of the content") };
    }
    if wanted_bytes != found_bytes {
        return fail(format!("{} bytes, wanted {}", found_bytes.len(), wanted_bytes.len()));
    }
    let metadata = |m: &std::fs::Metadata| (m.mode(), m.mtime(), m.mtime_nsec());
    if metadata(&wanted) != metadata(&found) {
        return fail(format!("metadata {:?}, wanted {:?}", metadata(&found), metadata(&wanted)));
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() { Ok(std::fs::remove_dir_all(folder)?) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::run;

    fn archive() -> (tempfile::TempDir, LinuxTree, Vec<PathBuf>) {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "mkdir -p t/a; echo one > t/a/1; echo two > t/a/2; ln -s a t/b; echo 3 > t/c; \
                      tar --sort=name --format=posix -cf archive.tar t";
        run(command(&["sh", "-c", script]).current_dir(folder.path())).expect("an archive");
        let place = folder.path();
        let (reference, archive) = (place.join("t"), place.join("archive.tar"));
        let linux = LinuxTree { reference, archive, top: "t" };
        let members = members(&linux).expect("members");
        (folder, linux, members)
    }

    fn judged(change: &str) -> Result<usize> {
        let (folder, linux, members) = archive();
        let survivor = folder.path().join("survivor");
        std::fs::create_dir(&survivor).expect("a folder");
        run(&mut unpack(&linux, &survivor)).expect("unpacked");
        run(command(&["sh", "-c", change]).current_dir(&survivor)).expect("the change");
        expect_prefix(&linux, &members, &survivor)
    }

    #[test]
    fn a_prefix_is_accepted_whole_or_with_its_last_member_in_part() {
        assert_eq!(judged("true").expect("the whole tree"), 6);
        assert_eq!(judged("rm t/c").expect("all but the last"), 5);
        assert_eq!(judged("printf '' > t/c").expect("an empty last file"), 6);
        assert_eq!(judged("rm -r t").expect("nothing"), 0);
    }

    #[test]
    fn what_no_moment_could_leave_is_refused() {
        judged("rm t/a/1").expect_err("a hole in the order");
        judged("printf '' > t/a/1").expect_err("a file in the middle that lost its content");
        judged("touch t/a/2").expect_err("a file in the middle that lost its time");
        judged("echo 4 > t/c").expect_err("a last file with other content");
        judged("touch t/d").expect_err("a file that nobody wrote");
    }
}
