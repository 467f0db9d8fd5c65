//! Where a dataset is mounted, and where a transaction's view of it is to be seen.

use crate::control::client::Client;
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
    ///
    /// # Errors
    /// Something leads past the view.
    pub(super) fn inherited(&self) -> Result<Inherited> {
        let also: Vec<PathBuf> = self.places[1..].iter().map(|place| place.at.clone()).collect();
        Inherited::of_places(&self.places[0].at, &also)
    }

    /// The view of a transaction that `client` says is mounted on `mounted`. Where that is not
    /// seen, as inside of another transaction, it is brought.
    ///
    /// # Errors
    /// The mounts cannot be read; the daemon is not seen from here.
    pub(super) fn view(&self, client: &Client, mounted: &Path) -> Result<View> {
        let brought = match is_mounted(mounted)? {
            true => None,
            false => {
                let unseen = || Error::failed("the process of the daemon is not seen from here");
                let namespace = client.namespace().ok_or_else(unseen)?;
                Some(Brought { place: mounted.to_owned(), namespace })
            }
        };
        let shown = |place: &Place| match place.inner.strip_prefix("/") {
            Ok(inner) if inner != Path::new("") => mounted.join(inner),
            _ => mounted.to_owned(),
        };
        let (first, others) = (&self.places[0], &self.places[1..]);
        let binding = |place: &Place| Binding {
            shown: shown(place),
            place: place.at.clone(),
            covered: place.covered,
        };
        Ok(View {
            shown: shown(first),
            place: first.at.clone(),
            mount: first.at.clone(),
            covered: first.covered,
            also: others.iter().map(binding).collect(),
            brought,
        })
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
        refuse_mounts_in(&mounts, &entry.directory)?;
        let covered = Covered::at(&entry.directory)?;
        places.push(Place { at: entry.directory.clone(), inner: entry.root.clone(), covered });
    }
    places.sort_by_key(|place| place.inner != Path::new("/"));
    Ok(places)
}

/// Refuses a place with mounts in it: the view has nothing of them.
fn refuse_mounts_in(mounts: &[MountEntry], place: &Path) -> Result<()> {
    let is_inside = |at: &&Path| *at != place && at.starts_with(place);
    let Some(first) = mounts.iter().map(|entry| &*entry.directory).find(is_inside) else {
        return Ok(());
    };
    let (first, place) = (first.as_os_str().as_bytes(), place.as_os_str().as_bytes());
    Err(Error::usage(format!("{} is mounted in {}", quoted(first), quoted(place)))
        .hint("a transaction has nothing of what is mounted in its dataset: unmount that first"))
}
