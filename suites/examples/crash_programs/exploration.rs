//! Goes through the states that a power cut could leave of a run: each is verified and opened, and
//! what is in it is shown to the program that wrote it.
//!
//! Many states hold the same tree, and a program says the same of the same tree; so it is asked
//! once for each tree. What a state *must* hold is another matter for each state, and is compared
//! for each.

use crate::pool::{Result, open, verify, words};
use crate::recording::Recorded;
use crate::tree::Tree;
use marram_device::Device;
use marram_sim::Random;
use marram_sim::crash::{Bounds, Images, states};
use marram_sim::device::{CrashState, OverlayDevice};
use marram_vfs::FileSystem;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Most violations of one run.
const VIOLATIONS_MAX: usize = 3;
/// One in so many images has all its content read by the verifier, and is opened a second time.
const THOROUGH_ONE_IN: u128 = 8;

/// Something that a crash must not leave.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// The state.
    pub(crate) id: String,
    /// What is wrong.
    pub(crate) reason: String,
}

/// What was looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Images, no two of them equal.
    pub(crate) distinct: u64,
    /// States, equal images included.
    pub(crate) compared: u64,
    /// Trees that a program was asked about.
    pub(crate) trees: u64,
    pub(crate) violations: Vec<Violation>,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Outcome) {
        self.distinct += other.distinct;
        self.compared += other.compared;
        self.trees += other.trees;
        self.violations.extend(other.violations);
    }
}

/// What is known of the images of one run.
pub(crate) struct Exploration<'r> {
    recorded: &'r Recorded,
    images: Images<'r>,
    /// Whether the offline verifier looks at each image too, or the program is the only judge.
    is_verified: bool,
    /// A folder on a file system in memory, for the copies that programs look at.
    scratch: PathBuf,
    /// The number of the next copy.
    copies: AtomicUsize,
    /// How many steps are in each image; nothing if it is a violation that has been reported.
    images_known: Mutex<HashMap<u128, Option<u64>>>,
    trees_known: Mutex<HashMap<u128, Result<u64>>>,
    compared: AtomicU64,
    violations: Mutex<Vec<Violation>>,
}

impl<'r> Exploration<'r> {
    /// Of a run, with copies of trees below `scratch`.
    pub(crate) fn new(
        recorded: &'r Recorded,
        is_verified: bool,
        scratch: &Path,
    ) -> Exploration<'r> {
        Exploration {
            is_verified,
            images: Images::new(recorded.trace.base(), Arc::default(), &recorded.trace),
            recorded,
            scratch: scratch.to_owned(),
            copies: AtomicUsize::new(0),
            images_known: Mutex::default(),
            trees_known: Mutex::default(),
            compared: AtomicU64::new(0),
            violations: Mutex::default(),
        }
    }

    /// Looks at states until so many distinct ones were seen, or there are no more.
    pub(crate) fn explore(&self, distinct_max: u64, seed: u64, threads: usize) -> Outcome {
        let bounds = Bounds { states_max: usize::MAX, ..Bounds::default() };
        let states = shuffled(states(&self.recorded.trace, &bounds, seed), seed);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    while !self.is_over(distinct_max) {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(state) = states.get(index) else { return };
                        self.visit(*state);
                    }
                });
            }
        });
        Outcome {
            distinct: self.distinct(),
            compared: self.compared.load(Ordering::Relaxed),
            trees: lock(&self.trees_known).len() as u64,
            violations: lock(&self.violations).clone(),
        }
    }

    fn is_over(&self, distinct_max: u64) -> bool {
        self.distinct() >= distinct_max || lock(&self.violations).len() >= VIOLATIONS_MAX
    }

    fn distinct(&self) -> u64 {
        lock(&self.images_known).len() as u64
    }

    fn visit(&self, state: CrashState) {
        if let Err(reason) = self.examine(state) {
            let id = format!("{}@{state}", self.recorded.name);
            lock(&self.violations).push(Violation { id, reason });
        }
    }

    fn examine(&self, state: CrashState) -> Result<()> {
        self.compared.fetch_add(1, Ordering::Relaxed);
        let image = self.images.image(state);
        let digest = image.digest();
        let known = lock(&self.images_known).get(&digest).copied();
        let steps = match known {
            Some(None) => return Ok(()),
            Some(Some(steps)) => steps,
            None => {
                let is_thorough = digest.is_multiple_of(THOROUGH_ONE_IN);
                let steps = guarded(|| self.recover(Arc::new(image), is_thorough))
                    .and_then(|tree| self.inspect(&tree));
                lock(&self.images_known).insert(digest, steps.as_ref().ok().copied());
                steps?
            }
        };
        self.recorded.window(state).judge(steps)
    }

    /// What the program says of a tree.
    fn inspect(&self, tree: &Tree) -> Result<u64> {
        let digest = tree.digest();
        if let Some(known) = lock(&self.trees_known).get(&digest) {
            return known.clone();
        }
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        let folder = self.scratch.join(format!("tree-{number}"));
        let steps = self.recorded.program.inspect(tree, &folder, self.recorded.name.seed);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(words)?;
        }
        lock(&self.trees_known).insert(digest, steps.clone());
        steps
    }

    /// Looks at one state in full, and leaves a copy of what is in it in `folder`. Returns what
    /// there is to say about a state that is well.
    pub(crate) fn replay(&self, state: CrashState, folder: &Path) -> Result<String> {
        let count = self.recorded.trace.events().len();
        if state.cut > count {
            return Err(format!("the run has only {count} events"));
        }
        let window = self.recorded.window(state);
        let tree = guarded(|| self.recover(Arc::new(self.images.image(state)), true))?;
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(words)?;
        }
        tree.write(folder).map_err(words)?;
        let told = format!("{window:?}; what the crash left is in {}", folder.display());
        let steps = self.inspect(&tree).map_err(|reason| format!("{reason}\n{told}"))?;
        window.judge(steps).map_err(|reason| format!("{reason}\n{told}"))?;
        Ok(format!("{steps} steps are there; {told}"))
    }

    /// Verifies an image, opens it, and reads all that is in it.
    fn recover(&self, device: Arc<OverlayDevice>, is_thorough: bool) -> Result<Tree> {
        let check = |when: &str| {
            let told = |reason| format!("{when} it was opened, {reason}");
            if self.is_verified { verify(&*device, is_thorough).map_err(told) } else { Ok(()) }
        };
        let read = |when: &str| {
            let told = |reason| format!("{when}: {reason}");
            let (_pool, files) = open(Arc::clone(&device) as Arc<dyn Device>).map_err(told)?;
            Tree::read(&*files as &dyn FileSystem).map_err(told)
        };
        check("before")?;
        let tree = read("opened")?;
        if device.write_count() > 0 {
            check("after")?;
        }
        if is_thorough && read("opened a second time")? != tree {
            return Err("opened a second time, it holds another tree than the first".to_owned());
        }
        Ok(tree)
    }
}

/// The states in an order that the seed decides: however few are looked at, they are of all parts
/// of the run.
fn shuffled(mut states: Vec<CrashState>, seed: u64) -> Vec<CrashState> {
    let mut random = Random::new(seed);
    for end in (1..states.len()).rev() {
        states.swap(end, random.below(end as u64 + 1) as usize);
    }
    states
}

/// Runs something that must not panic.
fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a word")))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with it")
}
