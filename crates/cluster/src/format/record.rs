//! Records: datasets and snapshots, lines, the client.

use super::fields::{put_count, put_counted};
use super::{Fields, LIST_MAX};
use marram_store::Result;
use std::collections::BTreeMap;

/// A dataset or snapshot. Its number stands in its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub role: Role,
    /// Its name; of a snapshot the part behind the `@`.
    pub name: String,
    /// The line on which its items lie.
    pub line: u64,
    /// The period of the line: of a dataset the present one, of a snapshot the last that it has.
    pub period: u64,
    /// The object that is the root of what it shows.
    pub root_object: u64,
    /// The user whose fork it is.
    pub owner: u32,
    /// When it was made: seconds since 1970.
    pub created_seconds: i64,
    /// Bytes of all its values and of the blocks that they refer to.
    pub referenced_bytes: u64,
    /// Tags that keep a snapshot.
    pub holds: Vec<String>,
    /// Properties of its own.
    pub properties: BTreeMap<String, String>,
}

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A dataset, and the number of the snapshot that it began as.
    Dataset {
        /// That number; 0 of one that was created empty.
        origin: u64,
        /// Whether it is a fork, and that snapshot its base.
        is_fork: bool,
    },
    /// A snapshot, and the number of its dataset.
    Snapshot {
        /// That number.
        of: u64,
    },
}

/// A line. Its number stands in its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRecord {
    /// The line that it began on; 0 of one that began empty.
    pub parent: u64,
    /// The period of that line that it began as.
    pub parent_period: u64,
}

/// How a client is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// What it publishes waits for nothing: others may read.
    Beside,
    /// What it publishes may wait, for no other client reads: each other one rests.
    Alone,
    /// It answers nothing, and publishes nothing of its users, before it has said that it is beside
    /// the others.
    Resting,
}

/// A client that has the store open. Its session stands in its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// How it is there.
    pub stance: Stance,
    /// Since when: seconds since 1970, by its clock.
    pub since: i64,
    /// What it says of itself: its host, its process.
    pub name: String,
    /// Grows for as long as it lives.
    pub beat: u64,
}

const DATASET: u8 = 0;
const FORK: u8 = 1;
const SNAPSHOT: u8 = 2;

impl Record {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let (role, other) = match self.role {
            Role::Dataset { origin, is_fork: false } => (DATASET, origin),
            Role::Dataset { origin, is_fork: true } => (FORK, origin),
            Role::Snapshot { of } => (SNAPSHOT, of),
        };
        let mut out = vec![role];
        let numbers = [other, self.line, self.period, self.root_object, self.referenced_bytes];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        out.extend_from_slice(&self.created_seconds.to_le_bytes());
        out.extend_from_slice(&self.owner.to_le_bytes());
        put_counted(&mut out, self.name.as_bytes());
        put_count(&mut out, self.holds.len());
        self.holds.iter().for_each(|tag| put_counted(&mut out, tag.as_bytes()));
        put_count(&mut out, self.properties.len());
        for (name, value) in &self.properties {
            put_counted(&mut out, name.as_bytes());
            put_counted(&mut out, value.as_bytes());
        }
        out
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn decode(bytes: &[u8]) -> Result<Record> {
        let mut fields = Fields::new("the record of a dataset", bytes);
        let (role, other) = (fields.u8()?, fields.u64()?);
        let role = match role {
            DATASET => Role::Dataset { origin: other, is_fork: false },
            FORK => Role::Dataset { origin: other, is_fork: true },
            SNAPSHOT => Role::Snapshot { of: other },
            _ => return fields.refuse("it is of no known kind"),
        };
        let (line, period, root_object) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (referenced_bytes, created_seconds) = (fields.u64()?, fields.i64()?);
        let (owner, name) = (fields.u32()?, fields.text()?);
        let holds = list(&mut fields, 4, Fields::text)?.into_iter().collect();
        let properties = list(&mut fields, 8, |fields| Ok((fields.text()?, fields.text()?)))?;
        fields.end()?;
        let properties = properties.into_iter().collect();
        Ok(Record {
            role,
            name,
            line,
            period,
            root_object,
            owner,
            created_seconds,
            referenced_bytes,
            holds,
            properties,
        })
    }
}

fn list<'r, T>(
    fields: &mut Fields<'r>,
    least_bytes: usize,
    mut one: impl FnMut(&mut Fields<'r>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = fields.count(least_bytes)?;
    if count > LIST_MAX {
        return fields.refuse("a list is too long");
    }
    (0..count).map(|_| one(fields)).collect()
}

impl LineRecord {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        [self.parent, self.parent_period].map(u64::to_le_bytes).concat()
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn decode(bytes: &[u8]) -> Result<LineRecord> {
        let mut fields = Fields::new("the record of a line", bytes);
        let record = LineRecord { parent: fields.u64()?, parent_period: fields.u64()? };
        fields.end()?;
        Ok(record)
    }
}

impl Stance {
    /// The number that stands for it in rows and entries.
    pub(super) fn number(self) -> u8 {
        match self {
            Stance::Beside => 0,
            Stance::Alone => 1,
            Stance::Resting => 2,
        }
    }

    /// Reads such a number.
    pub(super) fn take(fields: &mut Fields<'_>) -> Result<Stance> {
        match fields.u8()? {
            0 => Ok(Stance::Beside),
            1 => Ok(Stance::Alone),
            2 => Ok(Stance::Resting),
            _ => fields.refuse("it says nothing known of how a client is there"),
        }
    }
}

impl ClientRecord {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.stance.number()];
        out.extend_from_slice(&self.since.to_le_bytes());
        out.extend_from_slice(&self.beat.to_le_bytes());
        put_counted(&mut out, self.name.as_bytes());
        out
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn decode(bytes: &[u8]) -> Result<ClientRecord> {
        let mut fields = Fields::new("the record of a client", bytes);
        let (stance, since, beat) = (Stance::take(&mut fields)?, fields.i64()?, fields.u64()?);
        let record = ClientRecord { stance, since, name: fields.text()?, beat };
        fields.end()?;
        Ok(record)
    }
}
