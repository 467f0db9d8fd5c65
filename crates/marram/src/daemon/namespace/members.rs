//! Members that are open, by slot.
//!
//! A slot is given when a member is opened. It is free again when the kernel has forgotten every
//! inode of it and nobody is within an operation on it: else a number that somebody still holds
//! would come to mean something else. A member that is destroyed leaves its slot as a **grave**,
//! where whatever comes is stale, until the kernel has forgotten all of it too.
//!
//! Each operation holds the member that it works on, and an eviction waits until no operation
//! does. The clock of "unused for a while" is the number of lookups.

use super::control_directories::{HIDDEN_NAME, path_of};
use super::numbers::{FIRST_MEMBER_SLOT, SLOTS, join};
use super::{ControlDirectory, Opened};
use crate::engine::Volume;
use marram_store::Source;
use marram_vfs::{Attributes, Error, Ino, Result};
use parking_lot::{Mutex, RwLock};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most members that are open at a time, with those that are gone but not forgotten.
const OPEN_MAX: usize = 16_384;
/// A member that the kernel has forgotten is closed after so many ticks without use.
const REST_TICKS: u64 = 10;
/// After so many, the kernel is asked to forget one that nobody uses.
const LONG_REST_TICKS: u64 = 300;
/// How often to look whether the last operation on a member has ended.
const OPERATION_TICK: Duration = Duration::from_millis(1);

/// Where a member is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Place {
    /// In which control directory.
    pub(in crate::daemon) directory: ControlDirectory,
    /// Under which name.
    pub(in crate::daemon) name: String,
    /// The directory whose past it is, by its number in the mount; the root's is all of it.
    pub(in crate::daemon) of: Ino,
}

impl Place {
    /// In a control directory at the root of the mount.
    pub(in crate::daemon) fn at_root(directory: ControlDirectory, name: &str) -> Place {
        Place { directory, name: name.to_owned(), of: Ino::ROOT }
    }

    /// Its path from the root of the mount; of a past that of all of it.
    pub(in crate::daemon) fn path(&self) -> PathBuf {
        let hidden = PathBuf::from(OsStr::from_bytes(HIDDEN_NAME));
        hidden.join(path_of(self.directory)).join(&self.name)
    }
}

/// As what a member is seen.
pub(super) struct Seen {
    /// The directory that is its root.
    pub(super) root: Ino,
    /// The mode of that, if it is not the stored one; then its access list is hidden too.
    pub(super) permissions: Option<u32>,
}

/// A member that is open.
pub(super) struct Member {
    slot: u32,
    place: Place,
    /// Shared by all members of the same snapshot or fork.
    opened: Arc<Opened>,
    seen: Seen,
    /// Lookups of its inodes that the kernel has not forgotten yet.
    pins: Arc<AtomicU64>,
    used_tick: AtomicU64,
}

impl Member {
    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn source(&self) -> &Source {
        &self.opened.source
    }

    pub(super) fn files(&self) -> &Arc<dyn Volume> {
        &self.opened.volume
    }

    pub(super) fn root(&self) -> Ino {
        self.seen.root
    }

    /// The root of the snapshot or fork that it is a part of.
    pub(super) fn whole_root(&self) -> Ino {
        self.opened.root
    }

    /// Whether an inode has an access list that is hidden.
    pub(super) fn hides_list(&self, ino: Ino) -> bool {
        ino == self.seen.root && self.seen.permissions.is_some()
    }

    /// Attributes of an inode of this member as the kernel is to know them.
    pub(super) fn told(&self, found: Attributes, pinned: bool) -> Result<Attributes> {
        match join(self.slot, found.ino) {
            Ok(ino) => {
                self.pins.fetch_add(u64::from(pinned), Ordering::Relaxed);
                let generation = found.generation ^ u64::from(self.opened.mark);
                let masked = self.seen.permissions.filter(|_| found.ino == self.seen.root);
                let permissions = masked.unwrap_or(found.permissions);
                Ok(Attributes { ino, generation, permissions, ..found })
            }
            Err(error) => {
                if pinned {
                    self.opened.volume.forget(found.ino, 1);
                }
                Err(error)
            }
        }
    }

    /// The kernel has got one more inode.
    pub(super) fn count_pin(&self) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.opened.volume.forget(ino, count);
        take_off(&self.pins, count);
    }

    fn is_forgotten(&self) -> bool {
        self.pins.load(Ordering::Relaxed) == 0
    }
}

fn take_off(pins: &AtomicU64, count: u64) {
    let less = |pins: u64| Some(pins.saturating_sub(count));
    let _always_some = pins.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// What is in a slot.
enum Slot {
    Free,
    Open(Arc<Member>),
    /// Its member is gone; the kernel still knows so many inodes.
    Grave(Arc<AtomicU64>),
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    tick: u64,
}

/// All members of a mount.
#[derive(Default)]
pub(super) struct Members {
    slots: RwLock<Slots>,
    /// Held while a member is opened, so that nothing is opened twice.
    opening: Mutex<()>,
}

impl Members {
    /// The member in `slot`.
    pub(super) fn get(&self, slot: u32) -> Result<Arc<Member>> {
        let slots = self.slots.read();
        match slots.at(slot) {
            Some(Slot::Open(member)) => {
                member.used_tick.store(slots.tick, Ordering::Relaxed);
                Ok(Arc::clone(member))
            }
            _ => Err(Error::Stale),
        }
    }

    /// The first open member for which `is_it` holds.
    pub(super) fn find(&self, is_it: impl Fn(&Member) -> bool) -> Option<Arc<Member>> {
        self.all().into_iter().find(|member| is_it(member))
    }

    /// All open members.
    pub(super) fn all(&self) -> Vec<Arc<Member>> {
        let slots = self.slots.read();
        slots.slots.iter().filter_map(Slot::open).map(Arc::clone).collect()
    }

    /// Runs something while no member is opened or evicted.
    pub(super) fn while_none_goes<T>(&self, work: impl FnOnce() -> T) -> T {
        let _one_at_a_time = self.opening.lock();
        work()
    }

    /// The member at `place`, opened by `open` if nothing else of it is open, and seen as `seen`
    /// finds.
    pub(super) fn at(
        &self,
        place: Place,
        open: impl FnOnce() -> Result<Opened>,
        seen: impl FnOnce(&Opened) -> Result<Seen>,
    ) -> Result<Arc<Member>> {
        let found = |members: &Members| members.find(|member| member.place == place);
        if let Some(member) = found(self) {
            return self.get(member.slot);
        }
        let _one_at_a_time = self.opening.lock();
        if let Some(member) = found(self) {
            return self.get(member.slot);
        }
        let slot = self.free_slot()?;
        let is_same = |other: &Member| {
            other.place.directory == place.directory && other.place.name == place.name
        };
        let opened = match self.find(is_same) {
            Some(other) => Arc::clone(&other.opened),
            None => Arc::new(open()?),
        };
        let seen = seen(&opened)?;
        let mut slots = self.slots.write();
        let member = Arc::new(Member {
            slot,
            place,
            opened,
            seen,
            pins: Arc::default(),
            used_tick: AtomicU64::new(slots.tick),
        });
        *slots.at_mut(slot) = Slot::Open(Arc::clone(&member));
        Ok(member)
    }

    /// Finds a slot; the caller holds `opening`.
    fn free_slot(&self) -> Result<u32> {
        let mut slots = self.slots.write();
        let free = slots.slots.iter().position(|slot| matches!(slot, Slot::Free));
        let index = match free {
            Some(index) => index,
            None if slots.slots.len() >= OPEN_MAX => return Err(Error::TooManyOpen),
            None => {
                slots.slots.push(Slot::Free);
                slots.slots.len() - 1
            }
        };
        let slot = u32::try_from(index).ok().and_then(|index| index.checked_add(FIRST_MEMBER_SLOT));
        slot.filter(|slot| *slot < SLOTS).ok_or(Error::TooManyOpen)
    }

    /// The kernel forgets `count` lookups of an inode.
    pub(super) fn forget(&self, slot: u32, ino: Ino, count: u64) {
        if let Ok(member) = self.get(slot) {
            return member.forget(ino, count);
        }
        let mut slots = self.slots.write();
        let Some(Slot::Grave(pins)) = slots.at(slot) else {
            return;
        };
        take_off(pins, count);
        if pins.load(Ordering::Relaxed) == 0 {
            *slots.at_mut(slot) = Slot::Free;
        }
    }

    /// Takes all members of `source` away, and returns when no operation uses one any more.
    pub(super) fn evict(&self, source: &Source) -> Vec<Place> {
        let _none_is_opened = self.opening.lock();
        let mut gone = self.all();
        gone.retain(|member| member.source() == source);
        let mut slots = self.slots.write();
        for member in &gone {
            *slots.at_mut(member.slot) = match member.is_forgotten() {
                true => Slot::Free,
                false => Slot::Grave(Arc::clone(&member.pins)),
            };
        }
        drop(slots);
        for member in &gone {
            while Arc::strong_count(member) > 1 {
                std::thread::sleep(OPERATION_TICK);
            }
        }
        gone.iter().map(|member| member.place.clone()).collect()
    }

    /// See [`super::Namespace::close_unused`].
    pub(super) fn close_unused(&self) -> Vec<Place> {
        let tick = {
            let mut slots = self.slots.write();
            slots.tick += 1;
            slots.tick
        };
        let mut known_for_long = Vec::new();
        for member in self.all() {
            let rest = tick - member.used_tick.load(Ordering::Relaxed).min(tick);
            match member.is_forgotten() {
                true if rest >= REST_TICKS => {
                    let _in_use_again = self.close(member);
                }
                false if rest >= LONG_REST_TICKS && rest % LONG_REST_TICKS == 0 => {
                    known_for_long.push(member.place.clone());
                }
                _ => (),
            }
        }
        known_for_long
    }

    /// See [`super::Namespace::close_if_forgotten`].
    pub(super) fn close_if_forgotten(&self, source: &Source) -> bool {
        match self.find(|member| member.source() == source) {
            Some(member) => member.is_forgotten() && self.close(member),
            None => true,
        }
    }

    /// Closes a member unless somebody has begun to use it again.
    fn close(&self, member: Arc<Member>) -> bool {
        if Arc::strong_count(&member.opened) == 1 {
            member.files().forget_all();
        }
        // Durability is not promised by forgetting; what is in memory must only reach the store.
        let _told_at_the_next_sync = member.files().sync_all();
        let mut slots = self.slots.write();
        // This one and the table's own.
        let unused = Arc::strong_count(&member) == 2 && member.is_forgotten();
        if unused {
            *slots.at_mut(member.slot) = Slot::Free;
        }
        unused
    }

    /// Closes all: the mount is gone.
    pub(super) fn clear(&self) {
        for member in self.all() {
            member.files().forget_all();
        }
        self.slots.write().slots.clear();
    }
}

impl Slot {
    fn open(&self) -> Option<&Arc<Member>> {
        match self {
            Slot::Open(member) => Some(member),
            _ => None,
        }
    }
}

impl Slots {
    fn at(&self, slot: u32) -> Option<&Slot> {
        let index = slot.checked_sub(FIRST_MEMBER_SLOT)?;
        self.slots.get(usize::try_from(index).ok()?)
    }

    fn at_mut(&mut self, slot: u32) -> &mut Slot {
        let index = usize::try_from(slot - FIRST_MEMBER_SLOT).expect("32 bits are a usize");
        &mut self.slots[index]
    }
}
