//! Blocks as objects of a bucket, at a service that speaks the protocol of S3.
//!
//! An object is whole and durable when its writing is acknowledged, so there is no other name first
//! and nothing to sync. All stand below a **prefix**, in folders by the first byte of a block's id
//! as the files of a directory do, with the same **marker** and the same **holder**.
//!
//! What such a service may do does no harm here. A request that comes late, or twice, writes or
//! removes an object whose name never comes again. A list that lags lets an object that nothing
//! needs lie a little longer. A holder that comes late is one of the last tokens of the database.

mod answer;
mod requests;
mod signature;

use crate::format::{BlocksPlace, BucketPlace, ObjectName};
use crate::objects::{
    HOLDER, MARKER, MARKER_BYTES_MAX, OBJECT_BYTES_MAX, Objects, marker, place_of,
};
use crate::state::Clock;
use crate::writers;
use answer::{Judged, failed, first, texts};
use marram_store::{Error, Result, Space};
use requests::{Request, Requests};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one page of a list at most, and of what is said of a failure.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Pages of one list at most, of a thousand names each.
const PAGES_MAX: usize = 1 << 20;
/// How a page of a list ends.
const PAGE_END: &str = "</ListBucketResult>";
/// What to do about keys.
const KEYS_HINT: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them into \
                         ~/.aws/credentials, which a mounted home reads again";

/// The keys of a user.
#[derive(Clone)]
pub struct Keys {
    /// Its number, which is sent.
    pub id: String,
    /// The secret, which is not.
    pub secret: String,
    /// Of keys that hold for a while: the token of their session.
    pub token: Option<String>,
}

/// Gives the keys. It is asked at the first request, and again when they hold no longer.
pub type GiveKeys = Arc<dyn Fn() -> Result<Keys> + Send + Sync>;

/// How a bucket is reached.
#[derive(Clone)]
pub struct Access {
    /// The keys.
    pub keys: GiveKeys,
    /// Gives the seconds since 1970, which signatures have.
    pub clock: Clock,
    /// A file of roots that are trusted, if not those of the system.
    pub roots: Option<PathBuf>,
    /// Between the first two tries of a request; later pauses are longer.
    pub pause: Duration,
}

/// A bucket with the blocks of a store.
pub struct Bucket {
    requests: Requests,
    /// The number of the store.
    store: [u8; 16],
}

impl Bucket {
    /// Takes an empty part of a bucket for the blocks of a new store.
    ///
    /// # Errors
    /// Something is in it, or it cannot be written; then all is as it was.
    pub fn create(place: BucketPlace, store: &[u8; 16], access: Access) -> Result<Bucket> {
        let bucket = Bucket { requests: Requests::new(place, access)?, store: *store };
        let (names, _) = bucket.page("", None)?;
        if let Some(name) = names.first() {
            let text = format!("{} is not empty: it has {name}", bucket.requests.place());
            return Err(Error::Io(text));
        }
        // Of two that take it at once, one comes first. A service that does not know such a
        // question lets the later one be first, so what is there then is looked at.
        let text = marker(store);
        bucket.put(MARKER, text.as_bytes(), true)?;
        bucket.refuse_other()?;
        Ok(bucket)
    }

    /// Opens the part of a bucket that a store has.
    ///
    /// # Errors
    /// It is not there, is not that of the store, or cannot be read.
    pub fn open(place: BucketPlace, store: &[u8; 16], access: Access) -> Result<Bucket> {
        let bucket = Bucket { requests: Requests::new(place, access)?, store: *store };
        bucket.refuse_other()?;
        Ok(bucket)
    }

    fn refuse_other(&self) -> Result<()> {
        match self.get(MARKER, MARKER_BYTES_MAX)? {
            Some(bytes) if bytes == marker(&self.store).as_bytes() => Ok(()),
            Some(_) => Err(Error::Io(format!(
                "{} has the blocks of another home: bring back what this one had there",
                self.requests.place()
            ))),
            None => Err(self.not_there()),
        }
    }

    /// The error for a place without a marker.
    fn not_there(&self) -> Error {
        Error::Io(format!(
            "{} has no object {MARKER}, so it is not where the blocks of this home lie: bring it \
             back",
            self.requests.place()
        ))
    }

    fn locate_in(&self, name: &str) -> String {
        self.requests.place().locate(name)
    }

    fn put(&self, name: &str, body: &[u8], is_new: bool) -> Result<()> {
        let what = format!("write {}", self.locate_in(name));
        let most = PAGE_BYTES_MAX;
        let request = Request { method: "PUT", key: Some(name), query: &[], body, is_new, most };
        match self.requests.make(request, &what)? {
            Judged::Done(_) => Ok(()),
            // What is there may be what was written, by a request whose answer was lost.
            Judged::Taken if is_new => Ok(()),
            Judged::Taken => Err(failed(&what, "something is there")),
            Judged::Missing => Err(failed(&what, "the service says that it is not there")),
        }
    }

    /// The bytes of an object; none if it is not there.
    fn get(&self, name: &str, most: usize) -> Result<Option<Vec<u8>>> {
        let what = format!("read {}", self.locate_in(name));
        let request =
            Request { method: "GET", key: Some(name), query: &[], body: b"", is_new: false, most };
        match self.requests.make(request, &what)? {
            Judged::Done(bytes) => Ok(Some(bytes)),
            Judged::Missing => Ok(None),
            Judged::Taken => Err(failed(&what, "the service refuses a condition")),
        }
    }

    fn delete(&self, name: &str) -> Result<()> {
        let what = format!("remove {}", self.locate_in(name));
        let request = Request {
            method: "DELETE",
            key: Some(name),
            query: &[],
            body: b"",
            is_new: false,
            most: PAGE_BYTES_MAX,
        };
        match self.requests.make(request, &what)? {
            Judged::Done(_) | Judged::Missing => Ok(()),
            Judged::Taken => Err(failed(&what, "the service refuses a condition")),
        }
    }

    /// A page of the names that begin so, and where the next one begins.
    fn page(&self, begin: &str, from: Option<String>) -> Result<(Vec<String>, Option<String>)> {
        let what = format!("list {}", self.locate_in(begin));
        let before = self.requests.place().key("");
        let mut query = vec![("list-type", "2".to_owned()), ("prefix", format!("{before}{begin}"))];
        query.extend(from.clone().map(|from| ("continuation-token", from)));
        let request = Request {
            method: "GET",
            key: None,
            query: &query,
            body: b"",
            is_new: false,
            most: PAGE_BYTES_MAX,
        };
        let Judged::Done(bytes) = self.requests.make(request, &what)? else {
            return Err(failed(&what, "the bucket is not there; make it, or bring it back"));
        };
        let text = String::from_utf8_lossy(&bytes);
        if !text.trim_end().ends_with(PAGE_END) {
            return Err(failed(&what, "what the service answers is no list"));
        }
        let names = texts(&text, "Key").into_iter();
        let names = names.filter_map(|key| key.strip_prefix(&before).map(str::to_owned)).collect();
        let is_cut = first(&text, "IsTruncated").as_deref() == Some("true");
        let next = first(&text, "NextContinuationToken").filter(|_| is_cut);
        match is_cut && (next.is_none() || next == from) {
            true => Err(failed(&what, "the service does not say where its list goes on")),
            false => Ok((names, next)),
        }
    }

    /// All names that begin so.
    fn names(&self, begin: &str) -> Result<Vec<String>> {
        let (mut names, mut from) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let (some, next) = self.page(begin, from)?;
            names.extend(some);
            from = next;
            if from.is_none() {
                return Ok(names);
            }
        }
        Err(failed(&format!("list {}", self.locate_in(begin)), "the list does not end"))
    }
}

impl Objects for Bucket {
    fn write(&self, objects: &[(ObjectName, Vec<u8>)]) -> Result<()> {
        let written = writers::at_once(objects, |some| {
            some.iter().try_for_each(|(name, bytes)| self.put(&place_of(name), bytes, false))
        });
        if written == Err(Error::NoSpace) {
            // What is full has its space back at once. After other failures a sweep does that.
            objects.iter().for_each(|(name, _)| {
                let _left_for_a_sweep = self.remove(name);
            });
        }
        written
    }

    fn read(&self, name: &ObjectName) -> Result<Option<Vec<u8>>> {
        let found = self.get(&place_of(name), OBJECT_BYTES_MAX)?;
        // A bucket that has gone away has lost nothing.
        if found.is_none() {
            self.probe()?;
        }
        Ok(found)
    }

    fn remove(&self, name: &ObjectName) -> Result<()> {
        self.delete(&place_of(name))
    }

    fn list(&self, first: u8) -> Result<Vec<ObjectName>> {
        let begin = format!("{first:02x}/");
        let names = self.names(&begin)?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(&begin)?.parse().ok()).collect())
    }

    fn probe(&self) -> Result<()> {
        self.refuse_other()
    }

    fn holder(&self) -> Result<Option<Vec<u8>>> {
        self.get(HOLDER, MARKER_BYTES_MAX)
    }

    fn set_holder(&self, said: &[u8]) -> Result<()> {
        self.put(HOLDER, said, false)
    }

    fn holder_place(&self) -> String {
        self.locate_in(HOLDER)
    }

    fn place(&self) -> BlocksPlace {
        BlocksPlace::Bucket(self.requests.place().clone())
    }

    fn locate(&self, name: &ObjectName) -> String {
        self.locate_in(&place_of(name))
    }

    fn space(&self) -> Option<Space> {
        None
    }

    fn discard(&self) {
        // The place may have become another home's. Others may have put what they like there.
        if self.refuse_other().is_ok() {
            for name in [HOLDER, MARKER] {
                let _left_if_it_cannot_be_removed = self.delete(name);
            }
        }
    }
}
