//! Whether two file systems agree.
//!
//! Inode numbers need not be equal, but must correspond one to one for as long as both live.
//! Left open, so not compared: generations, blocks in use, sizes of directories, the texts of
//! errors, amounts of space.

use crate::absent::{seek_in_whole, shows_no_holes};
use crate::execute::{Entry, Value, read_directory};
use marram_vfs::{Attributes, Error, FileSystem, Ino, Kind, Result as FileResult, SeekTarget};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;

/// Agreement, or what is different.
pub type Agreement = Result<(), String>;

/// Most bytes read at once when content is compared.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Longest value shown in full when two differ, in characters.
const SHOWN_CHARACTERS_MAX: usize = 600;

/// Which inode of the real file system is which of the model.
#[derive(Clone, Debug, Default)]
pub struct InodeMap {
    model_by_real: BTreeMap<Ino, Ino>,
    real_by_model: BTreeMap<Ino, Ino>,
}

impl InodeMap {
    /// All that have been met, here and in the model.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (Ino, Ino)> {
        self.model_by_real.iter().map(|(real, model)| (*real, *model))
    }

    /// What an inode is in the model.
    pub(crate) fn model_of(&self, real: Ino) -> Option<Ino> {
        self.model_by_real.get(&real).copied()
    }

    /// Notes that the two are the same inode.
    ///
    /// # Errors
    /// If one of them is known to be another.
    pub fn meet(&mut self, real: Ino, model: Ino) -> Agreement {
        let known_model = *self.model_by_real.entry(real).or_insert(model);
        let known_real = *self.real_by_model.entry(model).or_insert(real);
        if (known_real, known_model) == (real, model) {
            return Ok(());
        }
        Err(format!(
            "inode {} was met as the model's {}, which is {} in the model and {} here",
            real.0, model.0, known_model.0, known_real.0
        ))
    }
}

fn equal<T: PartialEq + Debug>(what: &str, real: &T, model: &T) -> Agreement {
    if real == model {
        return Ok(());
    }
    Err(format!("{what}: {}; the model says {}", shown(real), shown(model)))
}

/// A value as text, cut when it is long.
fn shown(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        None => text,
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
    }
}

/// Compares bytes, and names the first difference.
///
/// # Errors
/// Says what is different.
pub(crate) fn equal_bytes(what: &str, real: &[u8], model: &[u8]) -> Agreement {
    equal(&format!("{what}: length"), &real.len(), &model.len())?;
    match real.iter().zip(model).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!(
            "{what}: byte {at} is {:#04x}; the model says {:#04x}",
            real[at], model[at]
        )),
    }
}

/// Compares what the same operation gave on both.
///
/// # Errors
/// Says what is different.
pub(crate) fn compare_results(
    inodes: &mut InodeMap,
    real: &FileResult<Value>,
    model: &FileResult<Value>,
) -> Agreement {
    match (real, model) {
        (Ok(real), Ok(model)) => compare_values(inodes, real, model),
        (Err(real), Err(model)) => compare_errors(real, model),
        _ => Err(format!("gave {}; the model gives {}", shown(real), shown(model))),
    }
}

fn compare_errors(real: &Error, model: &Error) -> Agreement {
    if std::mem::discriminant(real) == std::mem::discriminant(model) {
        return Ok(());
    }
    Err(format!("refused with {real:?}; the model with {model:?}"))
}

fn compare_values(inodes: &mut InodeMap, real: &Value, model: &Value) -> Agreement {
    match (real, model) {
        (Value::Attributes(real), Value::Attributes(model)) => {
            compare_attributes(inodes, real, model)
        }
        (Value::Bytes(real), Value::Bytes(model)) => equal_bytes("bytes", real, model),
        (Value::Entries(real), Value::Entries(model)) => compare_entries(inodes, real, model),
        (Value::Space(real), Value::Space(_)) => {
            equal("free within total", &(real.free_bytes <= real.total_bytes), &true)
        }
        _ => equal("result", real, model),
    }
}

/// Compares all attributes that are not left open.
///
/// # Errors
/// Says what is different.
pub(crate) fn compare_attributes(
    inodes: &mut InodeMap,
    real: &Attributes,
    model: &Attributes,
) -> Agreement {
    inodes.meet(real.ino, model.ino)?;
    let mut normal = real.clone();
    normal.ino = model.ino;
    normal.generation = model.generation;
    normal.blocks_512 = model.blocks_512;
    if normal.kind == Kind::Directory {
        normal.size = model.size;
    }
    equal("attributes", &normal, model)
}

/// Compares the entries of a directory.
///
/// # Errors
/// Says what is different.
pub(crate) fn compare_entries(inodes: &mut InodeMap, real: &[Entry], model: &[Entry]) -> Agreement {
    let names = |entries: &[Entry]| -> Vec<String> {
        let text = |entry: &Entry| String::from_utf8_lossy(&entry.name).into_owned();
        entries.iter().map(text).collect()
    };
    equal("names", &names(real), &names(model))?;
    for (real, model) in real.iter().zip(model) {
        inodes.meet(real.ino, model.ino)?;
        equal("kind of entry", &real.kind, &model.kind)?;
        match (&real.attributes, &model.attributes) {
            (Some(real), Some(model)) => compare_attributes(inodes, real, model)?,
            (real, model) => equal("has attributes", &real.is_some(), &model.is_some())?,
        }
    }
    Ok(())
}

/// Compares everything that can be reached from the root: names, attributes, content, holes,
/// symbolic links, extended attributes.
///
/// # Errors
/// Says what is different, and at which path.
pub fn compare_trees(
    inodes: &mut InodeMap,
    real: &dyn FileSystem,
    model: &dyn FileSystem,
) -> Agreement {
    let mut seen = BTreeMap::new();
    let mut left = vec![(Ino::ROOT, Ino::ROOT, "/".to_owned())];
    while let Some((real_ino, model_ino, path)) = left.pop() {
        if seen.insert(model_ino, ()).is_some() {
            continue;
        }
        compare_inodes(inodes, (real, real_ino), (model, model_ino))
            .map_err(|difference| format!("{path}: {difference}"))?;
        let attributes = model.attributes(model_ino).map_err(|error| error.to_string())?;
        if attributes.kind != Kind::Directory {
            continue;
        }
        let real_entries = read_directory(real, real_ino, false, usize::MAX);
        let model_entries = read_directory(model, model_ino, false, usize::MAX);
        let (real_entries, model_entries) = both(&path, real_entries, model_entries)?;
        compare_entries(inodes, &real_entries, &model_entries)
            .map_err(|difference| format!("{path}: {difference}"))?;
        for (real, model) in real_entries.iter().zip(&model_entries) {
            let name = String::from_utf8_lossy(&model.name);
            left.push((real.ino, model.ino, format!("{path}{name}/")));
        }
    }
    Ok(())
}

/// One file system and an inode in it.
pub(crate) type Place<'a> = (&'a dyn FileSystem, Ino);

/// Compares one inode: attributes, content with its holes, target, extended attributes.
///
/// # Errors
/// Says what is different.
pub(crate) fn compare_inodes(
    inodes: &mut InodeMap,
    real: Place<'_>,
    model: Place<'_>,
) -> Agreement {
    let attributes = (real.0.attributes(real.1), model.0.attributes(model.1));
    let model_attributes = match attributes {
        (Err(real), Err(model)) => return compare_errors(&real, &model),
        (real, model) => {
            let (real, model) = both("attributes", real, model)?;
            compare_attributes(inodes, &real, &model)?;
            model
        }
    };
    match model_attributes.kind {
        Kind::Regular => compare_content(real, model)?,
        Kind::Symlink => {
            let (real, model) =
                both("target", real.0.read_link(real.1), model.0.read_link(model.1))?;
            equal_bytes("target", &real, &model)?;
        }
        _ => (),
    }
    compare_xattrs(real, model)
}

fn both<T>(what: &str, real: FileResult<T>, model: FileResult<T>) -> Result<(T, T), String> {
    match (real, model) {
        (Ok(real), Ok(model)) => Ok((real, model)),
        (Err(real), _) => Err(format!("{what}: refused with {real:?}")),
        (_, Err(model)) => Err(format!("{what}: the model refuses with {model:?}")),
    }
}

fn compare_content(real: Place<'_>, model: Place<'_>) -> Agreement {
    if shows_no_holes(real.0) {
        return compare_in_whole(real, model);
    }
    let mut offset = 0;
    loop {
        let seek = |at: Place<'_>, target| match at.0.seek(at.1, offset, target) {
            Err(Error::NoSuchOffset) => Ok(None),
            found => found.map(Some),
        };
        let data = both("seek", seek(real, SeekTarget::Data), seek(model, SeekTarget::Data))?;
        equal(&format!("data after {offset}"), &data.0, &data.1)?;
        let Some(start) = data.1 else {
            return Ok(());
        };
        let seek = |at: Place<'_>| at.0.seek(at.1, start, SeekTarget::Hole);
        let hole = both("seek", seek(real), seek(model))?;
        equal(&format!("hole after {start}"), &hole.0, &hole.1)?;
        compare_range(real, model, start..hole.1)?;
        offset = hole.1;
    }
}

/// Compares content where the real file system shows a file as data up to its end: all that is data
/// in the model, and of each hole the two ends.
fn compare_in_whole(real: Place<'_>, model: Place<'_>) -> Agreement {
    let size = model.0.attributes(model.1).map_err(|error| error.to_string())?.size;
    for target in [SeekTarget::Data, SeekTarget::Hole] {
        let in_model = seek_in_whole(model.0, model.1, 0, target);
        equal("seek", &real.0.seek(real.1, 0, target).ok(), &in_model.ok())?;
    }
    let mut offset = 0;
    while offset < size {
        let start = model.0.seek(model.1, offset, SeekTarget::Data).unwrap_or(size);
        let end = model.0.seek(model.1, start, SeekTarget::Hole).unwrap_or(size);
        compare_range(real, model, offset..start.min(offset + READ_BYTES_MAX))?;
        compare_range(real, model, offset.max(start.saturating_sub(READ_BYTES_MAX))..start)?;
        compare_range(real, model, start..end)?;
        offset = end;
    }
    Ok(())
}

fn compare_range(real: Place<'_>, model: Place<'_>, range: Range<u64>) -> Agreement {
    let mut offset = range.start;
    while offset < range.end {
        let len = (range.end - offset).min(READ_BYTES_MAX);
        let read = |at: Place<'_>| {
            let mut out = Vec::new();
            at.0.read(at.1, offset, len as usize, &mut out).map(|()| out)
        };
        let (real, model) = both("content", read(real), read(model))?;
        equal_bytes(&format!("content from {offset}"), &real, &model)?;
        offset += len;
    }
    Ok(())
}

fn compare_xattrs(real: Place<'_>, model: Place<'_>) -> Agreement {
    let list = |at: Place<'_>| {
        at.0.list_xattrs(at.1).map(|mut names| {
            names.sort();
            names
        })
    };
    let (real_names, names) = both("extended attributes", list(real), list(model))?;
    equal("names of extended attributes", &real_names, &names)?;
    for name in names {
        let what = format!("extended attribute {:?}", String::from_utf8_lossy(&name));
        let (real, model) =
            both(&what, real.0.xattr(real.1, &name), model.0.xattr(model.1, &name))?;
        equal_bytes(&what, &real, &model)?;
    }
    Ok(())
}
