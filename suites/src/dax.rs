//! The pmem home on memory that keeps what is stored, as far as a machine without it can show:
//! QEMU emulates NVDIMMs and virtio-pmem, and Debian's kernel finds DAX, `MAP_SYNC` and a DAX
//! device. Power is cut while four homes are worked on, twice; then the processor's caches
//! survive.
//!
//! What a processor keeps in its caches is not emulated: a line that is never written back is not
//! lost here. That is for the crash explorer (`cargo xtask crash --pmem`).

mod machine;

use super::{Setting, step};
use machine::{Caches, Machine, Parts};
use marram_lab::failure::{Failure, Result, fail};
use marram_lab::process::require;
use marram_lab::project;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the machine does.
const SCRIPT: &str = include_str!("dax/guest.sh");
/// Each home has said at least so many steps when power goes.
const STEPS: u64 = 60;
/// From power until the work has begun, and until enough has been done.
const LIMIT: Duration = Duration::from_secs(300);

/// What each image lies on, as `create` and `mount` say it: while caches are lost, and kept.
const MEDIA: [(&str, &str, &str); 4] = [
    ("dax", "a DAX file (lines are written back)", "a DAX file (caches survive"),
    ("epoch", "a DAX file (lines are written back)", "a DAX file (caches survive"),
    ("device", "a DAX device (lines are written back)", "a DAX device (caches survive"),
    ("virtio", "a DAX file without MAP_SYNC", "a DAX file without MAP_SYNC"),
];

/// What must be refused, and why.
const REFUSED: [(&str, &str); 4] = [
    ("dax-checkpoint", "durable=checkpoint"),
    ("device-checkpoint", "durable=checkpoint"),
    ("virtio-each", "durable=each"),
    ("device-again", "is there already"),
];

/// What the machine has said.
#[derive(Default)]
struct Heard {
    /// The last step of each image that it has promised.
    said: BTreeMap<String, u64>,
    /// The other lines with a meaning, by their first two words.
    lines: BTreeMap<(String, String), String>,
}

impl Heard {
    /// Notes a line, and fails if it is about a failure.
    fn note(&mut self, line: &str) -> Result<()> {
        if line.contains("FAILED") {
            return fail(line);
        }
        let mut words = line.splitn(3, ' ');
        let [verb, image, rest] = [(); 3].map(|()| words.next().unwrap_or_default().to_owned());
        match verb.as_str() {
            // A line that was cut off with the machine may have lost digits, never gained some.
            "SAID" => {
                let number = rest.parse().map_err(|_| Failure::new(format!("strange: {line}")))?;
                self.said.insert(image, number);
            }
            "CREATED" | "MOUNTED" | "CHECKED" | "JUDGED" | "REFUSED" | "UNMOUNTED" => {
                self.lines.insert((verb, image), rest);
            }
            _ => {}
        }
        Ok(())
    }

    fn line(&self, verb: &str, image: &str) -> Result<&str> {
        match self.lines.get(&(verb.to_owned(), image.to_owned())) {
            Some(line) => Ok(line),
            None => fail(format!("no line `{verb} {image}`")),
        }
    }

    /// Fails unless a line has this text.
    fn expect(&self, verb: &str, image: &str, text: &str) -> Result<()> {
        let line = self.line(verb, image)?;
        if line.contains(text) {
            return Ok(());
        }
        fail(format!("{verb} {image}: `{line}` has no `{text}`"))
    }

    /// Whether each image has done so many steps more than `before`.
    fn has_worked(&self, before: &BTreeMap<String, u64>) -> bool {
        MEDIA.iter().all(|(image, ..)| {
            let base = before.get(*image).copied().unwrap_or_default();
            self.said.get(*image).is_some_and(|said| *said >= base + STEPS)
        })
    }
}

/// All of it.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("ndctl", "ndctl"),
        ("busybox", "busybox-static"),
        ("cpio", "cpio"),
        ("depmod", "kmod"),
    ])?;
    let parts = Parts::make(&setting.folder, &project::release_binary()?, SCRIPT)?;
    let first = parts.start(Caches::Lost, &["task=first".to_owned()])?;
    let heard = work_until_cut(first, &BTreeMap::new())?;
    for (image, medium, _) in MEDIA {
        heard.expect("CREATED", image, medium)?;
        heard.expect("MOUNTED", image, medium)?;
        step(&format!("{image}: {}", heard.line("MOUNTED", image)?));
    }
    for (name, why) in REFUSED {
        heard.expect("REFUSED", name, why)?;
    }
    let second = parts.start(Caches::Lost, &words("again", &heard.said))?;
    let promised = heard.said;
    let heard = work_until_cut(second, &promised)?;
    judge(&heard, &promised)?;
    let last = parts.start(Caches::Kept, &words("last", &heard.said))?;
    let promised = heard.said;
    let mut heard = Heard::default();
    last.hear(LIMIT, |line| heard.note(line).map(|()| line == "DONE"))?;
    last.wait(LIMIT)?;
    judge(&heard, &promised)?;
    for (image, _, medium) in MEDIA {
        heard.expect("MOUNTED", image, medium)?;
        heard.line("UNMOUNTED", image)?;
    }
    Ok(())
}

/// Words for the machine: its task, and what it has promised before.
fn words(task: &str, said: &BTreeMap<String, u64>) -> Vec<String> {
    let promised = said.iter().map(|(image, number)| format!("said_{image}={number}"));
    [format!("task={task}")].into_iter().chain(promised).collect()
}

/// Cuts power as soon as each image has been worked on.
fn work_until_cut(machine: Machine, before: &BTreeMap<String, u64>) -> Result<Heard> {
    let mut heard = Heard::default();
    machine.hear(LIMIT, |line| {
        heard.note(line)?;
        Ok(heard.has_worked(before))
    })?;
    let mut late = Vec::new();
    machine.cut_power(|line| {
        late.push(line.to_owned());
        Ok(true)
    })?;
    // The last line may be cut off.
    late.pop();
    late.iter().try_for_each(|line| heard.note(line))?;
    Ok(heard)
}

/// Judges what is there of what was promised.
fn judge(heard: &Heard, promised: &BTreeMap<String, u64>) -> Result<()> {
    for (image, promised) in promised {
        heard.expect("CHECKED", image, "0 errors")?;
        let line = heard.line("JUDGED", image)?;
        if !line.contains(" lost: strange:0 ") {
            return fail(format!("{image}: {promised} steps were promised, and {line}"));
        }
        step(&format!("{image}: {promised} steps promised, found {line}"));
    }
    Ok(())
}
