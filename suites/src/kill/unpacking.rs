//! `tar` unpacking: what survives has to be the file system at one moment.
//!
//! The members of the archive are unpacked by one `tar` in a known order, so at any moment the tree
//! is: the first members whole, then at most one that is partly there, then nothing. Any other tree
//! means that two operations were torn apart. Beside `tar`, a thread syncs at random moments, so
//! that the kill also falls into group commits; what that acknowledged must have survived.

use super::super::linux_tree::unpack;
use super::super::{LinuxTree, linux_tree};
use super::{LOAD_LIMIT, Load, Place, sync_folder};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{OwnedChild, command, text};
use marram_lab::seed::Seed;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Unpacks a part of the Linux tree.
pub(super) struct Unpacking {
    linux: LinuxTree,
    /// The members of the archive in their order, without directories' closing slash.
    members: Vec<PathBuf>,
}

impl Unpacking {
    /// Reads the archive's list.
    pub(super) fn new() -> Result<Self> {
        let linux = linux_tree(true)?;
        let members = members(&linux)?;
        Ok(Self { linux, members })
    }
}

impl Load for Unpacking {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn work(&self, place: &Place, is_over: &AtomicBool) -> Result<()> {
        let mut tar = unpack(&self.linux, &place.folder);
        tar.stdout(Stdio::null()).stderr(Stdio::null());
        let mut tar = OwnedChild::start(&mut tar)?;
        sync_at_times(&self.members, place, is_over)?;
        let status = tar.wait(LOAD_LIMIT)?;
        if status.success() { Ok(()) } else { fail(format!("tar ended with {status}")) }
    }

    fn judge(&self, place: &Place) -> Result<String> {
        let acknowledged = place.journal.last_number()?;
        let survived = expect_prefix(&self.linux, &self.members, &place.folder)? as u64;
        if survived < acknowledged {
            return fail(format!("{survived} members survived of {acknowledged} synced"));
        }
        let all = self.members.len();
        Ok(format!("{survived} of {all} members, {acknowledged} synced"))
    }
}

fn members(linux: &LinuxTree) -> Result<Vec<PathBuf>> {
    let list = text(command(&["tar", "-tPf"]).arg(&linux.archive))?;
    Ok(list.lines().map(|line| PathBuf::from(line.trim_end_matches('/'))).collect())
}

/// Syncs at random moments, and notes how many members were there before each sync.
fn sync_at_times(members: &[PathBuf], place: &Place, is_over: &AtomicBool) -> Result<()> {
    let mut pauses = Seed::new(place.seed);
    let mut present = 0;
    while !is_over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(pauses.between(20, 400)));
        while present < members.len()
            && std::fs::symlink_metadata(place.folder.join(&members[present])).is_ok()
        {
            present += 1;
        }
        // The last member that is there may still be written: only those before it count.
        let whole = present.saturating_sub(1);
        sync_folder(&place.folder)?;
        place.journal.note(&whole.to_string())?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use marram_lab::process::run;

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
