//! Requests to the service that has a bucket: signed, and tried again where that may help.
//!
//! Each is harmless when it is done twice: an object is written once with one content, and its name
//! never comes again. So one whose answer was lost is simply made again.

use super::answer::{Answer, Failure, Judged, failed};
use super::signature::{Unsigned, written};
use super::{Access, Keys};
use crate::format::BucketPlace;
use crate::server::tls::{self, Refusal};
use marram_store::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, http};

/// How often a request is made at most.
const TRIES_MAX: u32 = 7;
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a host is awaited at most.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// How long an answer is awaited at most.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// How long the body of a request takes at most, and that of an answer.
const SENT_WITHIN: Duration = Duration::from_secs(120);
const RECEIVED_WITHIN: Duration = Duration::from_secs(60);
/// Connections that are kept.
const CONNECTIONS_MAX: usize = 16;
/// What names a file of roots.
const ROOTS_WORD: &str = "AWS_CA_BUNDLE=FILE";

/// A request.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) method: &'static str,
    /// The object; none if the bucket is asked.
    pub(super) key: Option<&'a str>,
    pub(super) query: &'a [(&'a str, String)],
    pub(super) body: &'a [u8],
    /// It is refused if the object is there.
    pub(super) is_new: bool,
    /// Bytes of the answer at most.
    pub(super) most: usize,
}

/// What makes requests to one bucket.
pub(super) struct Requests {
    place: BucketPlace,
    access: Access,
    agent: Agent,
    /// What was given last.
    keys: Mutex<Option<Keys>>,
}

impl Requests {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// The service is to be verified, and no root is trusted.
    pub(super) fn new(place: BucketPlace, access: Access) -> Result<Requests> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(CONNECTIONS_MAX)
            .max_idle_connections_per_host(CONNECTIONS_MAX)
            .timeout_resolve(Some(CONNECTED_WITHIN))
            .timeout_connect(Some(CONNECTED_WITHIN))
            .timeout_send_body(Some(SENT_WITHIN))
            .timeout_recv_response(Some(ANSWERED_WITHIN))
            .timeout_recv_body(Some(RECEIVED_WITHIN))
            .user_agent("marram");
        let is_encrypted = place.origin().0.starts_with("https://");
        let config = match is_encrypted {
            true => config.tls_config(verified(&access)?),
            // What stays on this host goes by no proxy.
            false => config.proxy(None),
        };
        let agent = Agent::new_with_config(config.build());
        Ok(Requests { place, access, agent, keys: Mutex::default() })
    }

    pub(super) fn place(&self) -> &BucketPlace {
        &self.place
    }

    /// Makes a request, and again where that may help.
    ///
    /// # Errors
    /// It cannot be done; what was tried stands in `what`.
    pub(super) fn make(&self, request: Request<'_>, what: &str) -> Result<Judged> {
        let mut pause = self.access.pause;
        let mut has_new_keys = false;
        for left in (0..TRIES_MAX).rev() {
            match self.make_once(request, what) {
                Ok(judged) => return Ok(judged),
                Err(Failure::Lasting(error)) => return Err(error),
                Err(Failure::Expired(_)) if !has_new_keys && left > 0 => {
                    *self.keys.lock() = None;
                    has_new_keys = true;
                }
                Err(Failure::Passing(_)) if left > 0 => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(PAUSE_MAX);
                }
                Err(Failure::Expired(why)) => return Err(failed(what, &why)),
                Err(Failure::Passing(why)) => {
                    let why = format!("{why}; it was tried {TRIES_MAX} times");
                    return Err(failed(what, &why));
                }
            }
        }
        Err(failed(what, "it was not tried"))
    }

    fn make_once(&self, request: Request<'_>, what: &str) -> std::result::Result<Judged, Failure> {
        let keys = self.keys().map_err(Failure::Lasting)?;
        let unsent = self.signed(request, &keys).map_err(Failure::Lasting)?;
        let answered = match request.body.is_empty() {
            true => self.agent.run(unsent.map(|_| ())),
            false => self.agent.run(unsent),
        };
        let mut answered = answered.map_err(|error| self.failure(error, what))?;
        let said = |name: &str| answered.headers().get(name)?.to_str().ok();
        let region = said("x-amz-bucket-region").map(str::to_owned);
        let len = said("content-length").and_then(|len| len.parse::<u64>().ok());
        let status = answered.status().as_u16();
        let body = received(answered.body_mut(), request.most);
        let body = body.map_err(|error| Failure::Passing(error.to_string()))?;
        if len.is_some_and(|len| len.min(request.most as u64) != body.len() as u64) {
            return Err(Failure::Passing("the answer was cut off".to_owned()));
        }
        Answer { status, region, body }.judged(what)
    }

    fn keys(&self) -> Result<Keys> {
        let mut keys = self.keys.lock();
        if let Some(keys) = &*keys {
            return Ok(keys.clone());
        }
        let given = (self.access.keys)()?;
        Ok(keys.insert(given).clone())
    }

    fn signed<'a>(&self, request: Request<'a>, keys: &Keys) -> Result<http::Request<&'a [u8]>> {
        let (origin, before) = self.place.origin();
        let path = match request.key {
            Some(key) => format!("{before}/{}", self.place.key(key)),
            None if before.is_empty() => "/".to_owned(),
            None => before,
        };
        let host = origin.split_once("://").map_or("", |(_, host)| host).to_owned();
        let mut headers = BTreeMap::from([("host", host)]);
        if request.is_new {
            headers.insert("if-none-match", "*".to_owned());
        }
        let unsigned = Unsigned {
            method: request.method,
            path: &path,
            query: request.query,
            headers,
            body: request.body,
            region: self.place.region(),
            time: time_of((self.access.clock)())?,
        };
        let mut built = http::Request::builder().method(request.method);
        for (name, value) in unsigned.signed(keys) {
            built = built.header(name, value);
        }
        let query = written(request.query);
        let query = if query.is_empty() { query } else { format!("?{query}") };
        // What is wrong may have a key in it, so it is not said.
        let unfit = |_| Error::Invalid("a key of the bucket has letters that none can have".into());
        built.uri(format!("{origin}{path}{query}")).body(request.body).map_err(unfit)
    }

    /// What follows from a request without an answer.
    fn failure(&self, error: ureq::Error, what: &str) -> Failure {
        let origin = self.place.origin().0;
        let host = origin.split_once("://").map_or("", |(_, host)| host);
        let refused = |error| match tls::refusal(host, error, ROOTS_WORD) {
            Refusal::Lost(error) => Failure::Passing(format!("{host}: {error}")),
            Refusal::Unfit(why) => Failure::Lasting(failed(what, &why)),
        };
        match error {
            ureq::Error::Io(error) => refused(error),
            ureq::Error::Rustls(error) => refused(std::io::Error::other(error)),
            error => Failure::Passing(format!("{host}: {error}")),
        }
    }
}

/// The body of an answer, up to so many bytes.
fn received(body: &mut Body, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    body.as_reader().take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A moment as signatures have it.
fn time_of(seconds: i64) -> Result<String> {
    let moment = jiff::Timestamp::from_second(seconds);
    let moment = moment.map_err(|_| Error::Invalid("the clock of this host is wrong".into()))?;
    Ok(moment.strftime("%Y%m%dT%H%M%SZ").to_string())
}

/// Only a service that proves its name is spoken to.
fn verified(access: &Access) -> Result<TlsConfig> {
    let roots = access.roots.clone().or_else(tls::system_roots).ok_or_else(|| {
        let text = format!("this system has no file of trusted roots: name one with {ROOTS_WORD}");
        Error::Invalid(text)
    })?;
    let certificates = tls::certificates(&roots).map_err(|refusal| match refusal {
        Refusal::Lost(error) => Error::Io(error.to_string()),
        Refusal::Unfit(why) => Error::Invalid(why),
    })?;
    if certificates.is_empty() {
        return Err(Error::Invalid(format!("{} has no certificate", roots.display())));
    }
    let own = |it: &rustls::pki_types::CertificateDer<'_>| Certificate::from_der(it).to_owned();
    let certificates: Vec<_> = certificates.iter().map(own).collect();
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
