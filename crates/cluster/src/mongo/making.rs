//! A home that is being made: its collections are claimed by its maker.
//!
//! The claim is a document beside the parts, with the name of the maker. All that is written before
//! the header is there holds the claim in its transaction, and the header ends it. So what a crash
//! or a lost answer leaves is known from a home, and the next maker takes the claim over: what a
//! slow maker does that comes back is refused then. Collections without a claim are never
//! touched.

use super::documents::PARTS;
use super::failure::{Failure, Outcome};
use super::sessions::Turn;
use super::{MongoDatabase, all_collections, documents, lasting, rows};
use crate::database::{Range, Table};
use crate::format::keys;
use marram_store::Result;
use mongodb::bson::{Document, doc};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// The document of the claim.
const CLAIM: &str = "making";
/// With this the name begins of a maker that takes away what it has made: nobody takes over then.
const REMOVING: &str = "removing:";

impl MongoDatabase {
    /// Claims an empty database, or one with the collections of a home whose making was cut off.
    ///
    /// # Errors
    /// It has collections of anything else; the server does not answer, or is not fit.
    pub(super) fn claim(&self) -> Result<()> {
        let there = self.collections()?;
        let ours: BTreeSet<String> = all_collections().into_iter().map(str::to_owned).collect();
        // The parts come first, so without them all others are somebody else's.
        let is_begun = there.is_empty() || there.contains(PARTS);
        if !there.is_subset(&ours) || !is_begun {
            return Err(self.has_collections());
        }
        // The first thing that a maker makes; an answer that was lost finds it made.
        self.make_collection(PARTS)?;
        let is_first = there.is_empty() || there.iter().eq([PARTS]);
        let claimed = self.sessions.in_transaction(async |turn, _| {
            let header = [Range::one(Table::Header, keys::HEADER)];
            let has_header = match there.contains(Table::Header.name()) {
                true => !rows(turn, &documents::Reading::of(&header)).await?.concat().is_empty(),
                false => false,
            };
            let own = doc! { "_id": CLAIM, "v": self.maker() };
            match self.maker_there(turn).await? {
                _ if has_header => return Err(Failure::Taken),
                Maker::Nobody if is_first => {
                    turn.command(doc! { "insert": PARTS, "documents": [own] }).await?;
                }
                Maker::Nobody | Maker::Unclaimed => return Err(Failure::Taken),
                Maker::Named(name) if name.starts_with(REMOVING) => return Err(Failure::Taken),
                Maker::Named(name) => {
                    let found = doc! { "_id": CLAIM, "v": name };
                    turn.command(touch_claim(found, self.maker())).await?;
                }
            }
            Ok(())
        });
        match claimed {
            Ok(()) => Ok(()),
            Err(Failure::Taken | Failure::Guarded) => Err(self.has_collections()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Makes all collections that are not there.
    pub(super) fn make_collections(&self) -> Result<()> {
        all_collections().into_iter().try_for_each(|name| self.make_collection(name))
    }

    fn make_collection(&self, name: &str) -> Result<()> {
        let create = lasting(doc! { "create": name });
        let made = self.sessions.patiently(async || self.sessions.command(create.clone()).await);
        match made {
            Err(_) if self.collections().is_ok_and(|there| there.contains(name)) => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    fn maker(&self) -> &str {
        &self.sessions.access.name
    }

    /// Holds the claim until the transaction is at an end, if a home is being made. One that
    /// `may_have_ended` it is the transaction that ends it, asked for again.
    pub(super) async fn hold_claim(
        &self,
        turn: &mut Turn<'_>,
        may_have_ended: bool,
    ) -> Outcome<()> {
        if !self.is_making.load(Ordering::Acquire) {
            return Ok(());
        }
        let own = doc! { "_id": CLAIM, "v": self.maker() };
        let answer = turn.command(touch_claim(own, self.maker())).await?;
        match documents::count(&answer) {
            0 if !may_have_ended => Err(lost_claim()),
            _ => Ok(()),
        }
    }

    /// Ends the claim.
    pub(super) async fn end_claim(&self, turn: &mut Turn<'_>) -> Outcome<()> {
        if !self.is_making.load(Ordering::Acquire) {
            return Ok(());
        }
        let answer = turn.command(without_claim(self.maker())).await?;
        match documents::count(&answer) {
            0 => Err(lost_claim()),
            _ => Ok(()),
        }
    }

    /// Takes away what was made of a home, if the claim is held. From then on nobody takes the
    /// claim over; with it goes the last of what was made.
    pub(super) fn unmake(&self) -> Result<()> {
        let removing = format!("{REMOVING}{}", self.maker());
        let mut is_held = false;
        self.sessions.in_transaction(async |turn, _| {
            let own = doc! { "_id": CLAIM, "v": self.maker() };
            turn.command(touch_claim(own, &removing)).await?;
            is_held =
                matches!(self.maker_there(turn).await?, Maker::Named(name) if name == removing);
            Ok(())
        })?;
        if !is_held {
            return Ok(());
        }
        let all: Vec<_> = all_collections().into_iter().filter(|name| *name != PARTS).collect();
        self.remove_those(&all)?;
        let gone = without_claim(&removing);
        let ended = self.sessions.in_transaction(async |turn, _| {
            turn.command(gone.clone()).await?;
            Ok(())
        });
        Ok(ended?)
    }

    async fn maker_there(&self, turn: &mut Turn<'_>) -> Outcome<Maker> {
        let stages = [doc! { "$limit": 1 }];
        let any = doc! { "aggregate": PARTS, "pipeline": stages, "cursor": {} };
        let stages = [doc! { "$match": { "_id": CLAIM } }];
        let claim = doc! { "aggregate": PARTS, "pipeline": stages, "cursor": {} };
        let found = turn.documents(claim).await?;
        if let Some(name) = found.first().and_then(|claim| claim.get_str("v").ok()) {
            return Ok(Maker::Named(name.to_owned()));
        }
        match turn.documents(any).await?.is_empty() {
            true => Ok(Maker::Nobody),
            false => Ok(Maker::Unclaimed),
        }
    }
}

/// The maker of a home in a database.
enum Maker {
    /// Nobody, and nothing is there.
    Nobody,
    /// Nobody, and something is there.
    Unclaimed,
    /// One of this name.
    Named(String),
}

fn without_claim(maker: &str) -> Document {
    let claim = doc! { "_id": CLAIM, "v": maker };
    doc! { "delete": PARTS, "deletes": [{ "q": claim, "limit": 1 }] }
}

fn touch_claim(found: Document, maker: &str) -> Document {
    let update = doc! { "$set": { "v": maker }, "$inc": { "g": 1_i64 } };
    doc! { "update": PARTS, "updates": [{ "q": found, "u": update }] }
}

fn lost_claim() -> Failure {
    Failure::Unfit("another one makes a home there, and has come first".to_owned())
}
