//! Where a dataset is mounted, and where a transaction's view of it is to be seen.

use super::open::Half;
use crate::control::client::Client;
use crate::control::daemons::Daemon;
use crate::control::protocol::TransactionPart;
use crate::error::{Error, Result};
use crate::mountinfo::{self, DeviceNumber, MountEntry};
use crate::names::quoted;
use crate::private_view::{Binding, Brought, Covered, Inherited, View};
use crate::target::Target;
use marram_store::Source;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A dataset that can have a transaction, as this process sees it.
pub(super) struct Dataset {
    /// How it was found.
    pub(super) target: Target,
    /// The mount of it, as the daemon has made it.
    pub(super) mount: PathBuf,
    /// Every place where it is seen: where, and which directory of it.
    places: Vec<Place>,
}

/// A place where a dataset is seen.
struct Place {
    at: PathBuf,
    /// From the root of the dataset.
    inner: PathBuf,
    covered: Covered,
}

impl Dataset {
    /// Finds the dataset of a directory.
    ///
    /// # Errors
    /// There is none, or it cannot have a transaction from here.
    pub(super) fn find(directory: &Path) -> Result<Dataset> {
        let target = Target::find_also_inside(directory)?;
        let told = quoted(directory.as_os_str().as_bytes());
        if let Some(user) = target.daemon.as_ref().and_then(Daemon::other_user) {
            return Err(Error::refused(format!(
                "the daemon of user {user} serves {told}: it is not believed about what this \
                 process would see there"
            ))
            .hint("run it as that user"));
        }
        let mounted = target.mounted.clone().zip(target.mount.clone());
        let Some((source, report)) = mounted else {
            return Err(Error::usage(format!("{told} is a pool, and no directory"))
                .hint("mount it, and work in the mount"));
        };
        if report.source != source.to_string() {
            return Err(below_marram(&told, &source));
        }
        let unseen = || Error::failed(format!("the mount that {told} is in has no number"));
        let places = places_of(report.device.ok_or_else(unseen)?)?;
        if places.is_empty() {
            return Err(Error::in_use(format!("something else is seen where {told} is mounted")));
        }
        Ok(Dataset { target, mount: report.directory, places })
    }

    /// What a command inherits that is to see its view in all places.
    fn inherited(&self) -> Result<Inherited> {
        let places = self.places.iter().map(|place| (place.at.clone(), place.inner.clone()));
        Inherited::of_whole(places.collect())
    }

    /// What is seen where, of a view that is mounted on `mounted`.
    fn bindings(&self, mounted: &Path) -> Vec<Binding> {
        let shown = |place: &Place| match place.inner.strip_prefix("/") {
            Ok(inner) if inner != Path::new("") => mounted.join(inner),
            _ => mounted.to_owned(),
        };
        let binding = |place: &Place| Binding {
            shown: shown(place),
            place: place.at.clone(),
            covered: place.covered,
        };
        self.places.iter().map(binding).collect()
    }

    /// Whether it is seen in a transaction.
    fn is_inside(&self) -> bool {
        self.target.mounted.as_ref().is_some_and(|it| it.dataset.transaction().is_some())
    }

    /// Whether a transaction's part is in it, which is one in the pool of this id.
    fn is(&self, (pool, part): &(String, TransactionPart)) -> bool {
        let is_of_pool = self.home().is_some_and(|(id, _)| id == pool);
        let mounted = self.target.mounted.as_ref();
        is_of_pool && mounted.is_some_and(|it| it.dataset.as_str() == part.dataset)
    }

    /// Refuses a dataset that is in another pool than this one, beside others that are in this
    /// one's alone or not.
    fn check_second(&self, other: &Dataset, are_of_one: bool) -> Result<()> {
        let (own, its) = (self.target.pool.display(), other.target.pool.display());
        let told = format!("it is in {its}, and not in {own}");
        let (here, there) = (self.target.daemon.as_ref(), other.target.daemon.as_ref());
        let is_of_user = here.zip(there).is_some_and(|(here, there)| here.is_of_user_of(there));
        let hint = match () {
            () if self.is_inside() || other.is_inside() => {
                "inside of another transaction all datasets are in one pool"
            }
            () if !are_of_one => "the datasets of a transaction are in two pools at most",
            () if !is_of_user => "the two pools are mounted by two users: mount both by one",
            () => return Ok(()),
        };
        Err(Error::usage(told).hint(hint))
    }

    /// The pool that it is in, among all that are mounted.
    fn home(&self) -> Option<(&str, &Path)> {
        let daemon = self.target.daemon.as_ref()?;
        Some((&daemon.greeting.pool_id, &daemon.greeting.pool))
    }
}

/// The datasets that a transaction works in; there is one at least.
pub(super) struct Datasets {
    pub(super) first: Dataset,
    others: Vec<Dataset>,
}

impl Datasets {
    /// Finds the datasets of directories. Of several in one dataset the first counts.
    ///
    /// # Errors
    /// As for [`Dataset::find`]; they are in more than two pools, or in two inside of another
    /// transaction, or of two users.
    pub(super) fn find(directory: &Path, with: &[PathBuf]) -> Result<Datasets> {
        let first = Dataset::find(directory)?;
        let mut others: Vec<Dataset> = Vec::new();
        for directory in with {
            let other = Dataset::find(directory)?;
            let mut known = std::iter::once(&first).chain(&others);
            let is_known = known.any(|known| known.home() == other.home());
            if !is_known {
                let are_of_one = others.iter().all(|known| known.home() == first.home());
                first
                    .check_second(&other, are_of_one)
                    .map_err(|error| error.during(quoted(directory.as_os_str().as_bytes())))?;
            }
            if std::iter::once(&first).chain(&others).all(|it| it.mount != other.mount) {
                others.push(other);
            }
        }
        Datasets { first, others }.without_mounts_in_them()
    }

    /// The same of those that an open transaction works in, of which one was found. The others are
    /// looked for where they were mounted when it began.
    ///
    /// # Errors
    /// It works in other datasets only; something else is mounted where one was; as for
    /// [`Dataset::find`].
    pub(super) fn of_open(found: Dataset, halves: &[Half]) -> Result<Datasets> {
        let of_half = |half: &Half| {
            let daemon = half.target.daemon.as_ref();
            let pool = daemon.map_or_else(String::new, |it| it.greeting.pool_id.clone());
            half.row.parts().into_iter().map(move |part| (pool.clone(), part)).collect::<Vec<_>>()
        };
        let parts: Vec<(String, TransactionPart)> = halves.iter().flat_map(of_half).collect();
        if !parts.iter().any(|part| found.is(part)) {
            let names: Vec<&str> = parts.iter().map(|(_, part)| &*part.dataset).collect();
            return Err(Error::usage(format!("the transaction is one of {}", names.join(", "))));
        }
        let mut found = Some(found);
        let mut all = parts.iter().map(|part| {
            if let Some(own) = found.take_if(|found| found.is(part)) {
                return Ok(own);
            }
            let other = Dataset::find(&part.1.directory)?;
            if other.is(part) {
                return Ok(other);
            }
            let part = &part.1;
            let told = quoted(part.directory.as_os_str().as_bytes());
            Err(Error::in_use(format!("{} is not mounted at {told} any more", part.dataset))
                .hint("mount it there, or end the transaction"))
        });
        let first = all.next().unwrap_or_else(|| Err(Error::failed("there is no dataset")))?;
        Datasets { first, others: all.collect::<Result<_>>()? }.without_mounts_in_them()
    }

    /// Refuses a place with mounts in it that are not its own: the views have nothing of them.
    fn without_mounts_in_them(self) -> Result<Datasets> {
        let mounts = mountinfo::mounts()?;
        let places = || self.all().flat_map(|dataset| &dataset.places).map(|place| &*place.at);
        for place in places() {
            let is_inside = |at: &&Path| *at != place && at.starts_with(place);
            let is_other = |at: &&Path| !places().any(|own| own == *at);
            let mut inside = mounts.iter().map(|entry| &*entry.directory).filter(is_inside);
            if let Some(first) = inside.find(is_other) {
                let (first, place) = (first.as_os_str().as_bytes(), place.as_os_str().as_bytes());
                let hint = "a transaction has nothing of what is mounted in its dataset: unmount \
                            that first, or name it by --with if it is of the same pool";
                return Err(Error::usage(format!(
                    "{} is mounted in {}",
                    quoted(first),
                    quoted(place)
                ))
                .hint(hint));
            }
        }
        Ok(self)
    }

    fn all(&self) -> impl Iterator<Item = &Dataset> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The places of the datasets of each pool among all, first those of the first.
    pub(super) fn of_pools(&self) -> Vec<Vec<usize>> {
        let is_first = |at: &usize| *at == 0 || self.others[at - 1].home() == self.first.home();
        let (first, second) = (0..=self.others.len()).partition(is_first);
        let pools: [Vec<usize>; 2] = [first, second];
        pools.into_iter().filter(|places| !places.is_empty()).collect()
    }

    /// The dataset at a place among all.
    pub(super) fn at(&self, place: usize) -> &Dataset {
        place.checked_sub(1).map_or(&self.first, |place| &self.others[place])
    }

    /// What a command inherits that is to see the views in all places.
    ///
    /// # Errors
    /// Something leads past a view.
    pub(super) fn inherited(&self) -> Result<Inherited> {
        let mut inherited = self.first.inherited()?;
        for other in &self.others {
            inherited = inherited.and(other.inherited()?);
        }
        Ok(inherited)
    }

    /// The views of a transaction that `client` says are mounted on `mounted`. Where they are not
    /// seen, as inside of another transaction, they are brought.
    ///
    /// # Errors
    /// The mounts cannot be read; the daemon is not seen from here.
    pub(super) fn view(&self, client: &Client, mounted: &[PathBuf]) -> Result<View> {
        let mut unseen = Vec::new();
        for place in mounted {
            if !is_mounted(place)? {
                unseen.push(place.clone());
            }
        }
        let brought = match unseen.is_empty() {
            true => None,
            false => {
                let unseen_daemon =
                    || Error::failed("the process of the daemon is not seen from here");
                let namespace = client.namespace().ok_or_else(unseen_daemon)?;
                Some(Brought { places: unseen, namespace })
            }
        };
        let mut all: Vec<(usize, Binding)> = Vec::new();
        for (at, (dataset, mounted)) in self.all().zip(mounted).enumerate() {
            all.extend(dataset.bindings(mounted).into_iter().map(|binding| (at, binding)));
        }
        // What is mounted in another one is shown after that.
        all.sort_by_key(|(_, binding)| binding.place.components().count());
        let (outermost, Binding { shown, place, covered }) = all.remove(0);
        let others = self.all().enumerate().filter(|(at, _)| *at != outermost);
        let further = others.map(|(_, dataset)| dataset.places[0].at.clone()).collect();
        let also = all.into_iter().map(|(_, binding)| binding).collect();
        let mount = place.clone();
        Ok(View { shown, place, mount, covered, also, further, brought })
    }
}

/// Whether this process sees a mount at a place. One that cannot be looked at is for what comes
/// later to tell of.
fn is_mounted(place: &Path) -> Result<bool> {
    match std::fs::canonicalize(place) {
        Ok(place) => Ok(mountinfo::mount_on(&place)?.is_some()),
        Err(_) => Ok(true),
    }
}

fn below_marram(told: &str, source: &Source) -> Error {
    let hint = match source.snapshot {
        Some(_) => "a snapshot does not change: work in the dataset",
        None => "a transaction is of a dataset that is mounted by itself: `marram mount --fork`",
    };
    Error::usage(format!("{told} is in {source}, below .marram of another mount")).hint(hint)
}

/// Where a mount is seen: first where all of it is.
fn places_of(device: DeviceNumber) -> Result<Vec<Place>> {
    let mounts = mountinfo::mounts()?;
    let is_seen = |entry: &&MountEntry| {
        let on_it = mounts.iter().rev().find(|other| other.directory == entry.directory);
        entry.device == device && on_it.is_some_and(|other| other.number == entry.number)
    };
    let mut places = Vec::new();
    for entry in mounts.iter().filter(is_seen) {
        let covered = Covered::at(&entry.directory)?;
        places.push(Place { at: entry.directory.clone(), inner: entry.root.clone(), covered });
    }
    places.sort_by_key(|place| place.inner != Path::new("/"));
    Ok(places)
}
