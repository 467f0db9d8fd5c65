//! Each order of writes of an image under load: fsx and a load of names beside each other, then the
//! daemon killed in the middle of it. After each the stock `e2fsck` finds nothing, and the kernel's
//! own mount shows the same tree.

pub(super) mod copied;
mod load;

use super::tree::compare;
use super::{Setting, fsx, step, stress};
use load::Load;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, run};
use marram_lab::seed::Seed;
use marram_lab::subject::{Kind, Making, Marram, MountPoint, Subject};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const IMAGE_BYTES: u64 = 192 << 20;

/// Each order, and the kernel's name for what the image is.
const ORDERS: [(Kind, &str); 5] = [
    (Kind::ImageSoft, "ext2"),
    (Kind::ImageJournal, "ext3"),
    (Kind::ImageJournalFull, "ext3"),
    (Kind::ImageJournalWriteback, "ext3"),
    (Kind::ImageAsync, "ext2"),
];

/// The kill comes so long after the load has begun, in milliseconds.
const DELAY_MS: (u64, u64) = (40, 400);
/// What a crash under soft updates has left is given back within so many looks.
const LOOKS_MAX: u32 = 40;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// All orders in turn, whatever the subject that was named.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("e2fsck", "e2fsprogs"), ("mke2fs", "e2fsprogs")])?;
    let mut seed = Seed::new(setting.seed);
    for (kind, format) in ORDERS {
        let order = Order { setting, kind, format, folder: setting.folder.join(kind.name()) };
        order.run(seed.draw()).context(|| kind.name())?;
    }
    Ok(())
}

/// One order of writes.
struct Order<'s> {
    setting: &'s Setting,
    kind: Kind,
    format: &'static str,
    folder: PathBuf,
}

impl Order<'_> {
    fn run(&self, seed: u64) -> Result<()> {
        let mut image = Marram::make_image(self.kind, &self.folder, &Making::sized(IMAGE_BYTES))?;
        self.load(&image, seed)?;
        self.leave(&mut image)?;
        let rounds = self.setting.scaled(20, 1);
        let has_promise = self.kind != Kind::ImageAsync;
        for round in (0..rounds).filter(|_| has_promise) {
            image.mount()?;
            self.kill(&mut image, seed ^ round).context(|| format!("round {round}"))?;
        }
        let killed = if has_promise { format!(", killed {rounds} times") } else { String::new() };
        step(&format!("{}: checked, and the same to the kernel{killed}", self.kind.name()));
        Ok(())
    }

    fn names(&self, image: &Marram, seed: u64) -> Load {
        Load { root: image.root().to_owned(), seed, calls: self.setting.scaled(30_000, 400) }
    }

    /// fsx on a file beside the load of names; in the long form also what stress-ng does.
    fn load(&self, image: &Marram, seed: u64) -> Result<()> {
        let (names, is_over) = (self.names(image, seed), AtomicBool::new(false));
        std::thread::scope(|threads| {
            let working = threads.spawn(|| names.run(&is_over));
            let operations = self.setting.scaled(20_000, 300);
            let file = image.root().join("fsx");
            let done = fsx::on_image(self.setting, &file, seed, operations);
            let worked = working.join().unwrap_or_else(|_| fail("the load of names panicked"));
            done.and(worked)
        })?;
        if self.setting.is_short {
            return Ok(());
        }
        let folder = image.root().join("stress");
        std::fs::create_dir(&folder)?;
        stress::all_in(&folder, 1)?;
        Ok(std::fs::remove_dir(&folder)?)
    }

    /// What is there is there after a remount, to the checker and to the kernel.
    fn leave(&self, image: &mut Marram) -> Result<()> {
        let copy = self.folder.join("copy");
        run(command(&["cp", "-a"]).arg(image.root()).arg(&copy))?;
        image.remount()?;
        compare(&copy, image.root()).context(|| "after a remount")?;
        image.unmount()?;
        image.check()?;
        self.compare_by_kernel(image, &copy)?;
        Ok(std::fs::remove_dir_all(&copy)?)
    }

    /// The kernel mounts what we have left, and shows the same. It writes too, and its mark in the
    /// image does not hurt ours.
    fn compare_by_kernel(&self, image: &Marram, expected: &Path) -> Result<()> {
        let Some(device) = image.device() else { return fail("the image is on no device") };
        let point = MountPoint::make(self.folder.join("kernel"))?;
        run(command(&["mount", "-t", self.format]).arg(device).arg(point.path()))?;
        compare(expected, point.path()).context(|| "by the kernel")?;
        let own = point.path().join("kernel's");
        std::fs::write(&own, "written by the kernel")?;
        std::fs::remove_file(&own)?;
        point.unmount()?;
        image.check().context(|| "after the kernel")
    }

    /// Kills the daemon under load. The next mount ends what it has left.
    fn kill(&self, image: &mut Marram, seed: u64) -> Result<()> {
        let (names, is_over) = (self.names(image, seed), AtomicBool::new(false));
        std::thread::scope(|threads| {
            let working = threads.spawn(|| names.run(&is_over));
            let delay = Seed::new(seed).between(DELAY_MS.0, DELAY_MS.1);
            std::thread::sleep(Duration::from_millis(delay));
            let is_early = working.is_finished();
            let killed = image.kill();
            is_over.store(true, Ordering::SeqCst);
            let worked = working.join().unwrap_or_else(|_| fail("the load of names panicked"));
            killed.and(if is_early { worked } else { Ok(()) })
        })?;
        image.mount()?;
        self.become_clean(image)?;
        image.mount()?;
        self.leave(image)
    }

    /// Unmounts when nothing is found any more: soft updates have what was in use without a user
    /// given back in the background.
    fn become_clean(&self, image: &mut Marram) -> Result<()> {
        let mut looks = 0;
        loop {
            image.unmount()?;
            match image.check() {
                Err(_) if self.kind == Kind::ImageSoft && looks < LOOKS_MAX => looks += 1,
                checked => return checked.context(|| "after the kill"),
            }
            image.mount()?;
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}
