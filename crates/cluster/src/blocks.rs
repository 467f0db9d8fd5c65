//! Blocks, named by their content, in the database or outside of it.

use crate::database::{Change, Range, Row, Table};
use crate::failure::damaged;
use crate::format::{BlockId, BlockRow, ObjectName, Reference, UploadId};
use crate::holder::Hold;
use crate::objects::Objects;
use crate::rows::{Rows, UncertainRow};
use crate::writers;
use bytes::Bytes;
use marram_codec::{Compression, codec_id, compress_with_grain, decompress};
use marram_store::{Error, FreshBlock, Result, StoredForm};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Content that one write sends at most, in bytes.
const WRITE_BYTES: usize = 8 << 20;
/// Content that one question asks for, in bytes.
const READ_BYTES: usize = 8 << 20;
/// Content that goes along with the entry that refers to it, in bytes: more would hold the guard of
/// the log for long, and be sent twice where an entry is refused.
const ALONG_BYTES: usize = 64 << 10;
/// What compression has to save at least, in bytes.
const GRAIN_BYTES: usize = 512;
/// How much zstd does for a block that is sent to a server: about as much as its link needs.
const ZSTD_LEVEL: i8 = 3;
/// Objects of which one question asks whether they are needed.
const STRAYS_ASKED: usize = 256;
/// Content that the cache is made for, in bytes a block.
const CACHED_BLOCK_BYTES: u64 = 32 << 10;

/// The blocks of a store, and a cache of their contents.
pub(crate) struct Blocks {
    rows: Rows,
    /// Where they lie, if not in the database.
    objects: Option<Arc<dyn Objects>>,
    /// Uploads up to now.
    uploads: AtomicU64,
    /// How many parts of the objects have been looked through for some that nothing needs.
    looked_through: AtomicU32,
    /// The first error of the steps of a sweep that is not at its end.
    pub(crate) failed_sweep: Mutex<Option<Error>>,
    /// Blocks of which a read has found that they are not where they should be, or are another
    /// content: they are sent anew, as if they had no row.
    lost: Mutex<BTreeSet<BlockId>>,
    /// By which the place in which they lie is held.
    pub(crate) hold: Hold,
    cache: Cache<BlockId, Bytes, ByLength>,
}

/// What is to be done about an object that is loose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetGo {
    /// Its upload is under way: it stays loose.
    Keep,
    /// A block needs it: it is loose no more.
    Forget,
    /// No block needs it, or ever will.
    Unlink,
}

#[derive(Clone)]
struct ByLength;

impl Weighter<BlockId, Bytes> for ByLength {
    fn weight(&self, _: &BlockId, content: &Bytes) -> u64 {
        content.len() as u64
    }
}

/// What an upload begins from.
struct Stand<'l> {
    /// The entry before its own.
    followed: u64,
    now: i64,
    /// Blocks that are put anew.
    lost: &'l BTreeSet<BlockId>,
}

/// A block on its way into the store.
pub(crate) struct Upload {
    pub(crate) reference: Reference,
    pub(crate) block: Arc<FreshBlock>,
}

impl Blocks {
    pub(crate) fn new(rows: Rows, objects: Option<Arc<dyn Objects>>, cache_bytes: u64) -> Blocks {
        let items = usize::try_from(cache_bytes / CACHED_BLOCK_BYTES).unwrap_or(usize::MAX).max(16);
        Blocks {
            hold: Hold::new(rows.clone(), objects.clone()),
            rows,
            objects,
            uploads: AtomicU64::new(0),
            looked_through: AtomicU32::new(0),
            failed_sweep: Mutex::default(),
            lost: Mutex::default(),
            cache: Cache::with_weighter(items, cache_bytes, ByLength),
        }
    }

    /// Where they lie, if not in the database.
    pub(crate) fn objects(&self) -> Option<&Arc<dyn Objects>> {
        self.objects.as_ref()
    }

    /// The name of a content.
    pub(crate) fn reference(&self, content: &[u8]) -> Reference {
        let len = u32::try_from(content.len()).expect("a block is bounded");
        Reference { id: self.rows.hash(content), len }
    }

    /// Writes those of the blocks that are not there, for an entry of a session. They are loose
    /// until a row refers to them.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if another client has published, or given the upload up meanwhile; or
    /// the database or the place of the blocks fails.
    pub(crate) fn upload(
        &self,
        uploads: &[Upload],
        now: i64,
        (session, entry): ([u8; 16], u64),
    ) -> Result<()> {
        if uploads.is_empty() {
            return Ok(());
        }
        let ids: Vec<Vec<u8>> = uploads.iter().map(|it| it.reference.id.to_vec()).collect();
        let known = self.rows.database().has(Table::Blocks, &ids)?;
        let lost = self.lost.lock().clone();
        let mut seen = BTreeSet::new();
        let missing = uploads.iter().zip(known);
        let missing: Vec<&Upload> = missing
            .filter(|(upload, is_there)| !is_there || lost.contains(&upload.reference.id))
            .map(|(upload, _)| upload)
            .filter(|it| seen.insert(it.reference.id))
            .collect();
        if missing.is_empty() {
            // A place that another database holds may lack what the rows know.
            self.hold.refuse_held()?;
        }
        let mut rest = &missing[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |upload: &&&Upload| {
                let is_begun = bytes < WRITE_BYTES;
                bytes += upload.block.data().len();
                is_begun
            };
            let (some, others) = rest.split_at(rest.iter().take_while(fits).count());
            match &self.objects {
                None => self.write(some, now)?,
                Some(objects) => {
                    let count = self.uploads.fetch_add(1, Ordering::Relaxed);
                    let number = [&session[..], &entry.to_le_bytes(), &count.to_le_bytes()];
                    let mut upload = UploadId::default();
                    upload.copy_from_slice(&self.rows.hash(&number.concat())[..8]);
                    let stand = Stand { followed: entry - 1, now, lost: &lost };
                    self.write_outside(&**objects, (some, &upload), &stand)?;
                }
            }
            rest = others;
        }
        Ok(())
    }

    /// The rows of the blocks, if they are to be written in one step with the entry that refers to
    /// them: what is little costs less when nobody asks whether it is there. What was stored before
    /// is asked about.
    pub(crate) fn along(&self, uploads: &[Upload]) -> Option<Vec<Change>> {
        let bytes: usize = uploads.iter().map(|upload| upload.block.data().len()).sum();
        let is_new = uploads.iter().all(|upload| upload.block.stored().is_none());
        let row = |upload: &Upload| {
            let stored = stored(upload, self.compression());
            self.rows.put(Table::Blocks, upload.reference.id.to_vec(), stored)
        };
        let is_worth_it = is_new && self.objects.is_none() && self.rows.database().is_far();
        (is_worth_it && bytes <= ALONG_BYTES).then(|| uploads.iter().map(row).collect())
    }

    /// Keeps what was written: a file that is written anew has often been written here before.
    pub(crate) fn keep(&self, uploads: &[Upload]) {
        for Upload { reference, block } in uploads {
            if !self.is_here(reference) {
                // A copy: what it is a part of may be much larger.
                self.cache.insert(reference.id, Bytes::copy_from_slice(block.data()));
            }
        }
    }

    fn write(&self, uploads: &[&Upload], now: i64) -> Result<()> {
        let mut changes = Vec::new();
        for upload in uploads {
            changes.push(loose(&self.rows, &upload.reference.id, now));
            let stored = stored(upload, self.compression());
            changes.push(self.rows.put(Table::Blocks, upload.reference.id.to_vec(), stored));
        }
        self.rows.write(&changes)
    }

    /// Writes blocks as objects of one upload. First rows say what comes, so that a sweep finds
    /// what a crash leaves; then come the objects; and then the rows of the blocks, if nobody has
    /// given the upload up. The first rows need the log to be where it was: if their answer is lost
    /// they are put again, and by then the upload may have been given up.
    fn write_outside(
        &self,
        objects: &dyn Objects,
        (uploads, upload): (&[&Upload], &UploadId),
        &Stand { followed, now, lost }: &Stand<'_>,
    ) -> Result<()> {
        let rows = &self.rows;
        let name = |it: &Upload| ObjectName { block: it.reference.id, upload: *upload };
        let under_way = || rows.put(Table::Loose, upload.to_vec(), now.to_le_bytes().to_vec());
        let coming = uploads.iter().map(|it| loose_object(rows, &name(it), now));
        let first: Vec<Change> = std::iter::once(under_way()).chain(coming).collect();
        if !rows.write_after(followed, &first)? {
            return Err(Error::Overtaken);
        }
        let contents: Vec<(ObjectName, Vec<u8>)> =
            uploads.iter().map(|it| (name(it), stored(it, self.compression()))).collect();
        objects.write(&contents)?;
        self.hold.note_upload();
        if let Err(error) = self.hold.refuse_held() {
            // It is tried again under other names.
            for (name, _) in &contents {
                let _stays_as_after_a_crash = objects.remove(name);
            }
            return Err(error);
        }
        let mut changes = Vec::new();
        for it in uploads {
            if lost.contains(&it.reference.id) {
                // What is left of it is needed no more.
                let old = self.object_of(&it.reference.id)?;
                changes.extend(old.map(|old| loose_object(rows, &old, now)));
            }
            let row = BlockRow::outside(it.reference.len, upload).encode();
            changes.push(loose(rows, &it.reference.id, now));
            changes.push(rows.put(Table::Blocks, it.reference.id.to_vec(), row));
        }
        changes.push(Change::remove(Table::Loose, upload.to_vec()));
        if !rows.write_while(under_way(), &changes)? {
            // It was made all the same if only its answer was lost: only it names the upload.
            let one = |it: &&Upload| Range::one(Table::Blocks, it.reference.id.to_vec());
            let found = rows.read(&uploads.iter().map(one).collect::<Vec<_>>())?;
            for (it, row) in uploads.iter().zip(&found) {
                if !names(row.first(), &name(it))? {
                    return Err(Error::Overtaken);
                }
            }
        }
        let mut lost = self.lost.lock();
        for it in uploads {
            lost.remove(&it.reference.id);
        }
        Ok(())
    }

    /// What compresses a block. Where it goes over a network, bytes cost more than time.
    fn compression(&self) -> Compression {
        match self.rows.database().is_far() {
            true => Compression::Zstd { level: ZSTD_LEVEL },
            false => Compression::Lz4,
        }
    }

    /// Whether the content of a block is in memory.
    pub(crate) fn is_here(&self, reference: &Reference) -> bool {
        self.cache.get(&reference.id).is_some()
    }

    /// The contents of some blocks, verified, many in one question; without those that are not
    /// there, or damaged.
    pub(crate) fn read_all(&self, references: &[Reference]) -> Result<BTreeMap<BlockId, Bytes>> {
        let (mut contents, mut away) = (BTreeMap::new(), Vec::new());
        for reference in references {
            match self.cache.get(&reference.id) {
                Some(content) => drop(contents.insert(reference.id, content)),
                None => away.push(*reference),
            }
        }
        while !away.is_empty() {
            let mut bytes = 0;
            let fits = |reference: &&Reference| {
                bytes += reference.len as usize;
                bytes <= READ_BYTES
            };
            let count = away.iter().take_while(fits).count().max(1);
            let asked: Vec<Reference> = away.drain(..count).collect();
            let one = |it: &Reference| Range::one(Table::Blocks, it.id.to_vec());
            let ranges: Vec<Range> = asked.iter().map(one).collect();
            for (reference, found) in asked.iter().zip(self.rows.read(&ranges)?) {
                let Some((_, value)) = found.first() else { continue };
                if let Ok(content) = self.unpacked(reference, value, |_, _, content| content) {
                    let content = Bytes::from(content);
                    self.cache.insert(reference.id, content.clone());
                    contents.insert(reference.id, content);
                }
            }
        }
        Ok(contents)
    }

    /// The content of a block, verified.
    pub(crate) fn read(&self, reference: &Reference) -> Result<Bytes> {
        if let Some(content) = self.cache.get(&reference.id) {
            return Ok(content);
        }
        let content = Bytes::from(self.verified(reference, |_, _, content| content)?);
        self.cache.insert(reference.id, content.clone());
        Ok(content)
    }

    /// A block as it is stored, when its content has been verified: what compressed it, and the
    /// bytes.
    pub(crate) fn stored(&self, reference: &Reference) -> Result<(u8, Vec<u8>)> {
        self.verified(reference, |codec, stored, _| (codec, stored.to_vec()))
    }

    fn verified<T>(
        &self,
        reference: &Reference,
        take: impl FnOnce(u8, &[u8], Vec<u8>) -> T,
    ) -> Result<T> {
        let value = self.rows.get(Table::Blocks, reference.id.to_vec())?;
        let missing = || {
            let reason = "the database does not have it".to_owned();
            damaged("a data block", hexadecimal(&reference.id), reason)
        };
        self.unpacked(reference, &value.ok_or_else(missing)?, take)
    }

    /// Takes what compressed a block, its stored bytes, and its content, verified.
    fn unpacked<T>(
        &self,
        reference: &Reference,
        value: &[u8],
        take: impl FnOnce(u8, &[u8], Vec<u8>) -> T,
    ) -> Result<T> {
        let row = BlockRow::decode(value)?;
        let (place, object) = match (row.upload()?, &self.objects) {
            (Some(upload), Some(objects)) => {
                let mut name = ObjectName { block: reference.id, upload };
                let mut found = objects.read(&name)?;
                // Another client may have put the block anew since its row was read.
                let now = if found.is_none() { self.object_of(&reference.id)? } else { None };
                if let Some(now) = now.filter(|now| *now != name) {
                    (found, name) = (objects.read(&now)?, now);
                }
                let place = objects.locate(&name);
                let lost = || {
                    self.lost.lock().insert(reference.id);
                    damaged("a data block", place.clone(), LOST)
                };
                (place.clone(), Some(found.ok_or_else(lost)?))
            }
            _ => (hexadecimal(&reference.id), None),
        };
        let wrong = |reason: String| match &object {
            None => damaged("a data block", place.clone(), reason),
            Some(_) => {
                self.lost.lock().insert(reference.id);
                damaged("a data block", place.clone(), format!("{reason}; {BRING_BACK}"))
            }
        };
        let row = match &object {
            None => row,
            Some(bytes) => BlockRow::decode(bytes).map_err(|error| wrong(error.to_string()))?,
        };
        if row.len != reference.len {
            return Err(wrong(format!("it has {} bytes instead of {}", row.len, reference.len)));
        }
        let content = decompress(row.codec, row.stored, row.len as usize);
        let content = content.map_err(|error| wrong(error.to_string()))?;
        match self.rows.hash(&content) == reference.id {
            true => Ok(take(row.codec, row.stored, content)),
            false => Err(wrong("its content has another hash".to_owned())),
        }
    }

    /// What has to be known of a block that is loose: what refers to it, and which object it has.
    pub(crate) fn asked_of(&self, id: &BlockId) -> Vec<Range> {
        let outside = self.objects.is_some().then(|| Range::one(Table::Blocks, id.to_vec()));
        [uses(id, 1)].into_iter().chain(outside).collect()
    }

    /// What takes a block away, by the answers to that; none if something refers to it. Its
    /// object is then one that perhaps no block needs.
    pub(crate) fn removal(
        &self,
        id: &BlockId,
        answers: Vec<Vec<UncertainRow>>,
        now: i64,
    ) -> Result<Option<Vec<Change>>> {
        let mut answers = answers.into_iter();
        if next_row(&mut answers)?.is_some() {
            return Ok(None);
        }
        let row = next_row(&mut answers)?;
        let object = object_in(id, row.as_ref().map(|(_, value)| value))?;
        let object = object.map(|name| loose_object(&self.rows, &name, now));
        let remove = Change::remove(Table::Blocks, id.to_vec());
        Ok(Some(object.into_iter().chain([remove]).collect()))
    }

    /// The object that the row of a block names.
    fn object_of(&self, id: &BlockId) -> Result<Option<ObjectName>> {
        object_in(id, self.rows.get(Table::Blocks, id.to_vec())?.as_ref())
    }

    /// What has to be known of an object that is loose.
    pub(crate) fn asked_of_object(&self, name: &ObjectName) -> Vec<Range> {
        match self.objects.is_some() {
            false => Vec::new(),
            true => vec![
                Range::one(Table::Loose, name.upload.to_vec()),
                Range::one(Table::Blocks, name.block.to_vec()),
            ],
        }
    }

    /// What is to be done about it, by the answers to that.
    pub(crate) fn let_go(
        &self,
        name: &ObjectName,
        answers: Vec<Vec<UncertainRow>>,
    ) -> Result<LetGo> {
        if self.objects.is_none() {
            return Ok(LetGo::Forget);
        }
        let mut answers = answers.into_iter();
        if next_row(&mut answers)?.is_some() {
            return Ok(LetGo::Keep);
        }
        match names(next_row(&mut answers)?.as_ref(), name)? {
            true => Ok(LetGo::Forget),
            false => Ok(LetGo::Unlink),
        }
    }

    /// Removes objects that no block needs, and says which have gone; also the first error. What
    /// took the row of an object away is durable before: a power cut that brought the row back
    /// would have it name nothing, and the next upload of the content be skipped.
    pub(crate) fn unlink(&self, names: Vec<ObjectName>) -> (Vec<ObjectName>, Option<Error>) {
        let Some(objects) = self.objects.as_ref().filter(|_| !names.is_empty()) else {
            return (Vec::new(), None);
        };
        if let Err(error) = self.rows.database().settle() {
            return (Vec::new(), Some(error));
        }
        let removed = Mutex::new(Vec::new());
        let done = writers::at_once(&names, |some| {
            let mut done = Ok(());
            for name in some {
                match objects.remove(name) {
                    Ok(()) => removed.lock().push(*name),
                    Err(error) => done = done.and(Err(error)),
                }
            }
            done
        });
        (removed.into_inner(), done.err())
    }

    /// The objects of the next part of their place, until all were.
    pub(crate) fn next_part(&self) -> Result<Vec<ObjectName>> {
        let part = u8::try_from(self.looked_through.load(Ordering::Relaxed));
        let (Some(objects), Ok(part)) = (&self.objects, part) else { return Ok(Vec::new()) };
        objects.list(part)
    }

    /// The next part is another one.
    pub(crate) fn part_is_done(&self) {
        self.looked_through.fetch_add(1, Ordering::Relaxed);
    }

    /// Those of some objects that no row knows, as a power cut leaves them, become loose. One whose
    /// row has something wrong stays what it is; the first such error comes along.
    pub(crate) fn strays(
        &self,
        listed: &[ObjectName],
        now: i64,
    ) -> Result<(Vec<Change>, Option<Error>)> {
        let (mut changes, mut first_error) = (Vec::new(), None);
        for some in listed.chunks(STRAYS_ASKED) {
            let asked = |name: &ObjectName| {
                let loose = Range::one(Table::Loose, name.key());
                [loose, Range::one(Table::Blocks, name.block.to_vec())]
            };
            let asked: Vec<Range> = some.iter().flat_map(asked).collect();
            let mut found = self.rows.read_each(&asked)?.into_iter();
            for name in some {
                let is_loose = found.next().is_some_and(|rows| !rows.is_empty());
                let row = next_row(&mut found);
                match row.and_then(|row| names(row.as_ref(), name)) {
                    Ok(is_named) if is_loose || is_named => {}
                    Ok(_) => changes.push(loose_object(&self.rows, name, now)),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
        }
        Ok((changes, first_error))
    }
}

/// What to do about a block that is not there.
const LOST: &str = "the file is gone; bring it back from a copy of the directory: `marram check` \
                    of the home lists all that are missing";
/// What to do about one that was changed.
const BRING_BACK: &str = "bring the file back from a copy of the directory";

/// The first row of the next answer, or what is wrong with it.
fn next_row(answers: &mut impl Iterator<Item = Vec<UncertainRow>>) -> Result<Option<Row>> {
    let first = answers.next().and_then(|rows| rows.into_iter().next());
    first.map(|(key, value)| Ok((key, value?))).transpose()
}

/// The object that a row of a block names.
fn object_in(id: &BlockId, row: Option<&Bytes>) -> Result<Option<ObjectName>> {
    let upload = row.map(|value| BlockRow::decode(value)?.upload()).transpose()?.flatten();
    Ok(upload.map(|upload| ObjectName { block: *id, upload }))
}

/// Whether the row of a block names an object.
fn names(row: Option<&Row>, name: &ObjectName) -> Result<bool> {
    let Some((_, value)) = row else { return Ok(false) };
    Ok(BlockRow::decode(value)?.upload()? == Some(name.upload))
}

fn hexadecimal(id: &BlockId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A block as it is stored, in a row or an object.
fn stored(upload: &Upload, compression: Compression) -> Vec<u8> {
    let content = upload.block.data();
    let len = upload.reference.len;
    if let Some(StoredForm { codec, bytes, .. }) = upload.block.form() {
        return BlockRow { codec: *codec, len, stored: bytes }.encode();
    }
    let mut packed = Vec::new();
    let how = if upload.block.is_as_is() { Compression::Off } else { compression };
    let (codec, stored) = match compress_with_grain(how, content, GRAIN_BYTES, &mut packed) {
        true => (how.id(), &packed[..]),
        false => (codec_id::OFF, content),
    };
    BlockRow { codec, len, stored }.encode()
}

/// A change that lets a sweep look whether a block needs an object.
fn loose_object(rows: &Rows, name: &ObjectName, now: i64) -> Change {
    rows.put(Table::Loose, name.key(), now.to_le_bytes().to_vec())
}

/// A change that lets the next sweep look whether anything refers to a block.
pub(crate) fn loose(rows: &Rows, id: &BlockId, now: i64) -> Change {
    rows.put(Table::Loose, id.to_vec(), now.to_le_bytes().to_vec())
}

/// The first rows that refer to a block, at most so many.
pub(crate) fn uses(id: &BlockId, limit: usize) -> Range {
    let to = [&id[..], &[u8::MAX; 33]].concat();
    Range::first(Table::Uses, id.to_vec(), to, limit)
}
