//! A server is found, looked at, and refused if it is not fit.

use super::Access;
use super::documents::PARTS;
use super::failure::{Failure, Outcome};
use super::sessions::{CALLS_MAX, Sessions};
use crate::server::tcp;
use crate::server::tls::Verified;
use marram_store::Result;
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::options::{
    Acknowledgment, AuthMechanism, ClientOptions, Credential, ServerAddress, Tls, TlsOptions,
    WriteConcern,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a server may take to answer while a connection is made, at most.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);
/// The oldest version that is taken, as servers count those of their protocol: that of 5.0.
const PROTOCOL_MIN: i32 = 13;
/// The row of the transaction that is tried.
const TRIAL: &str = "trial";

/// How the hosts of a place are reached.
struct Way {
    hosts: Vec<ServerAddress>,
    verified: Option<Verified>,
}

/// Connects to the server of a place, which must be fit for a home.
pub(super) fn open(access: Access) -> Result<Sessions> {
    let patience = access.patience.min(GREETING_PATIENCE);
    let way = way(&access, patience)?;
    let is_new = Arc::new(AtomicBool::new(false));
    let options = options(&access, way, patience, &is_new)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("mongodb")
        .enable_all()
        .build()
        .map_err(Failure::from)?;
    let client = {
        let _inside = runtime.enter();
        Client::with_options(options).map_err(Failure::from)?
    };
    let sessions = Sessions::new(access, client, runtime, is_new);
    sessions.patiently(async || refuse_unfit(&sessions).await)?;
    Ok(sessions)
}

/// Looks at the hosts in order until one answers. The driver would try all for long, and then say
/// little of what is wrong.
fn way(access: &Access, patience: Duration) -> Outcome<Way> {
    let place = &access.place;
    let is_alone = place.hosts.len() == 1;
    let mut failed = None;
    for (name, port) in &place.hosts {
        let answer = tcp::addresses(name, *port).map_err(Failure::from).and_then(|addresses| {
            let verified = place.tls.to(name, tcp::are_here(&addresses) && is_alone)?;
            let stream = tcp::connect(&addresses, patience)?;
            let at = stream.peer_addr()?;
            verified.as_ref().map(|it| it.encrypt(name, stream)).transpose()?;
            Ok((verified, at))
        });
        let (verified, at) = match answer {
            Ok(answer) => answer,
            Err(Failure::Unfit(text)) => return Err(Failure::Unfit(text)),
            Err(failure) => {
                failed = Some(failure);
                continue;
            }
        };
        let named = |(host, port): &(String, u16)| (host.clone(), Some(*port));
        let hosts = match verified {
            Some(_) => place.hosts.iter().map(named).collect(),
            // In the clear nothing but the address that was looked at is spoken to.
            None => vec![(at.ip().to_string(), Some(at.port()))],
        };
        let address = |(host, port)| ServerAddress::Tcp { host, port };
        return Ok(Way { hosts: hosts.into_iter().map(address).collect(), verified });
    }
    Err(failed.unwrap_or_else(|| Failure::Unfit("no host is named".to_owned())))
}

fn options(
    access: &Access,
    way: Way,
    patience: Duration,
    is_new: &Arc<AtomicBool>,
) -> Result<ClientOptions> {
    let is_new = Arc::clone(is_new);
    let mark = move |event: CmapEvent| {
        if let CmapEvent::ConnectionCreated(_) = event {
            is_new.store(true, Ordering::Release);
        }
    };
    // Members of a replica set are found by themselves where each has to prove its name.
    let is_direct = way.verified.is_none();
    let tls = way.verified.map_or(Tls::Disabled, |Verified { roots, own }| {
        let mut options = TlsOptions::default();
        options.ca_file_path = Some(roots);
        options.cert_key_file_path = own;
        Tls::Enabled(options)
    });
    let durable = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
    let mut options = ClientOptions::builder()
        .hosts(way.hosts)
        .app_name(access.name.clone())
        .direct_connection(is_direct)
        .tls(tls)
        .connect_timeout(patience)
        .server_selection_timeout(patience)
        .max_pool_size(CALLS_MAX)
        .retry_reads(false)
        .retry_writes(false)
        .write_concern(durable)
        .cmap_event_handler(EventHandler::callback(mark))
        .build();
    options.credential = credential(access)?;
    Ok(options)
}

/// SCRAM: both sides prove that they know the password, which is not sent.
fn credential(access: &Access) -> Result<Option<Credential>> {
    let Some(user) = &access.place.user else { return Ok(None) };
    let no_text = |_| Failure::Unfit("the password is not UTF-8".to_owned());
    let password = String::from_utf8(access.password()?).map_err(no_text)?;
    let credential = Credential::builder()
        .username(user.clone())
        .password(password)
        .source(access.place.users.clone())
        .mechanism(AuthMechanism::ScramSha256)
        .build();
    Ok(Some(credential))
}

async fn refuse_unfit(sessions: &Sessions) -> Outcome<()> {
    let hello = sessions.command(doc! { "hello": 1 }).await?;
    let refused = |text: &str| Err(Failure::Unfit(text.to_owned()));
    if hello.get_str("msg").is_ok_and(|it| it == "isdbgrid") {
        return refused("this is a sharded cluster: name the replica set that has the database");
    }
    if hello.get_str("setName").is_err() {
        return refused(
            "the server has no transactions, for it is no member of a replica set: start mongod \
             with --replSet NAME, and call rs.initiate() once; FerretDB has none at all",
        );
    }
    if hello.get_i32("maxWireVersion").unwrap_or(0) < PROTOCOL_MIN {
        return refused("the server is older than MongoDB 5.0, which is the oldest that will do");
    }
    refuse_volatile(sessions).await
}

/// A server that keeps all in memory loses it with its process.
async fn refuse_volatile(sessions: &Sessions) -> Outcome<()> {
    let text = "the server keeps its data in memory only: a home needs a storage engine that \
                keeps it on a disk";
    match sessions.command(doc! { "serverStatus": 1 }).await {
        Ok(status) => {
            let engine = status.get_document("storageEngine").ok();
            match engine.and_then(|engine| engine.get_bool("persistent").ok()) {
                Some(false) => Err(Failure::Unfit(text.to_owned())),
                _ => Ok(()),
            }
        }
        // Not every user may ask for that.
        Err(failure) if failure.is_of_rights() => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Tries a transaction: what it does is seen by nobody before its commit, and gone if that never
/// comes. A server that takes the words and does not keep to them would lose what is written.
pub(super) fn refuse_without_transactions(sessions: &Sessions) -> Result<()> {
    let trial = format!("{TRIAL}/{}", sessions.access.name);
    let put = || {
        let row = doc! { "_id": trial.clone(), "v": 0 };
        doc! { "insert": PARTS, "documents": [row] }
    };
    let find = || {
        let stages = [doc! { "$match": { "_id": trial.clone() } }];
        doc! { "aggregate": PARTS, "pipeline": stages, "cursor": {} }
    };
    let seen = sessions.in_transaction(async |turn, _| {
        match turn.command(put()).await {
            Ok(_) => {}
            // Nor can anything else be written then.
            Err(failure) if failure.is_of_rights() => return Ok(false),
            Err(failure) => return Err(failure),
        }
        let seen = !sessions.documents(&find()).await?.is_empty();
        let gone =
            doc! { "delete": PARTS, "deletes": [{ "q": { "_id": trial.clone() }, "limit": 1 }] };
        turn.command(gone).await?;
        Ok(seen)
    });
    match seen {
        Ok(false) => Ok(()),
        Ok(true) => Err(none_there("what a transaction has not committed is seen by all").into()),
        Err(failure) if failure.is_of_ability() => Err(none_there(&failure.to_string()).into()),
        Err(failure) => Err(failure.into()),
    }
}

fn none_there(why: &str) -> Failure {
    Failure::Unfit(format!("the server has no transactions: {why}"))
}

/// The names of the collections of a database.
pub(super) async fn collections(sessions: &Sessions) -> Outcome<Vec<String>> {
    let answer = sessions.command(doc! { "listCollections": 1, "nameOnly": true }).await?;
    let cursor = answer.get_document("cursor").ok();
    let batch = cursor.and_then(|cursor| cursor.get_array("firstBatch").ok());
    let name = |it: &Document| it.get_str("name").ok().map(str::to_owned);
    Ok(batch.into_iter().flatten().filter_map(|it| it.as_document().and_then(name)).collect())
}

/// The number of a collection, which a copy of it does not have; empty where the server tells none.
pub(super) async fn identity(sessions: &Sessions, name: &str) -> Outcome<Vec<u8>> {
    let asked = doc! { "listCollections": 1, "filter": { "name": name } };
    let answer = sessions.command(asked).await?;
    let cursor = answer.get_document("cursor").ok();
    let first = cursor.and_then(|cursor| cursor.get_array("firstBatch").ok()?.first());
    let info = first.and_then(|it| it.as_document()?.get_document("info").ok());
    match info.and_then(|info| info.get("uuid")) {
        Some(Bson::Binary(id)) => Ok(id.bytes.clone()),
        _ => Ok(Vec::new()),
    }
}
