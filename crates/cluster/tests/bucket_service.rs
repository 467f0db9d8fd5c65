//! A service of buckets for tests, in this process: it has what it was given, and does to requests
//! what a test says.

use crate::certificates::Proof;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The bucket that is there.
pub(crate) const BUCKET: &str = "team";
/// The user that may do everything.
pub(crate) const USER: &str = "MARRAMTEST";
/// Names on a page of a list: few, so that there are many pages.
const PAGE_NAMES: usize = 3;
/// With this byte TLS begins.
const TLS: u8 = 0x16;
/// How long a connection is silent at most.
const SILENCE: Duration = Duration::from_secs(20);

/// What happens to a request.
#[derive(Clone)]
pub(crate) enum Fate {
    /// It is done, and the answer is lost.
    Lost,
    /// It is done, and the answer is cut off.
    Cut,
    /// It is refused, with a status, a code, and more elements of the answer.
    Refused(u16, &'static str, &'static str),
    /// It is done, and something else is the answer.
    Answered(&'static str),
}

/// Says what happens to a request, by its method and its path.
type Fates = Box<dyn FnMut(&str, &str) -> Option<Fate> + Send>;

struct State {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    fates: Mutex<Fates>,
    asked: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

/// The service.
pub(crate) struct Service {
    state: Arc<State>,
    port: u16,
}

struct Asked {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Service {
    pub(crate) fn start() -> Service {
        Service::start_with(None)
    }

    /// One that is spoken to by TLS, and proves its name so.
    pub(crate) fn start_with(proof: Option<&Proof>) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            objects: Mutex::default(),
            fates: Mutex::new(Box::new(|_, _| None)),
            asked: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let config = proof.map(|proof| Arc::new(encrypted(proof)));
        let all = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if all.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (state, config, stream) = (Arc::clone(&all), config.clone(), stream.unwrap());
                stream.set_read_timeout(Some(SILENCE)).unwrap();
                std::thread::spawn(move || match config {
                    None => state.serve(stream),
                    Some(config) => {
                        let connection = ServerConnection::new(config).unwrap();
                        state.serve(StreamOwned::new(connection, stream));
                    }
                });
            }
        });
        Service { state, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What is in the bucket.
    pub(crate) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.state.objects.lock().unwrap().clone()
    }

    /// Puts an object there, or takes it away.
    pub(crate) fn set(&self, key: &str, bytes: Option<Vec<u8>>) {
        let mut objects = self.state.objects.lock().unwrap();
        match bytes {
            Some(bytes) => objects.insert(key.to_owned(), bytes),
            None => objects.remove(key),
        };
    }

    /// What happens to requests from now on.
    pub(crate) fn plan(&self, fates: impl FnMut(&str, &str) -> Option<Fate> + Send + 'static) {
        *self.state.fates.lock().unwrap() = Box::new(fates);
    }

    /// All that was asked, each as its method, its path with the query, and the session's token.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.asked.lock().unwrap().clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        let _has_heard = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn encrypted(proof: &Proof) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(proof.certificate.as_bytes());
    let chain = chain.map(|it| it.unwrap()).collect();
    let key = PrivateKeyDer::from_pem_slice(proof.key.as_bytes()).unwrap();
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

/// Reads a request; none if there is no other.
fn read(stream: &mut impl BufRead) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let len = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
    let mut body = vec![0; len];
    stream.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    Some(Asked { method, path, query, headers, body })
}

fn error(code: &str, more: &str) -> Vec<u8> {
    format!("<Error><Code>{code}</Code><Message>as the test has it</Message>{more}</Error>").into()
}

impl State {
    fn serve(&self, stream: impl Read + Write) {
        let mut stream = BufReader::new(stream);
        if stream.fill_buf().is_ok_and(|first| first.first() == Some(&TLS)) {
            let _was_heard = stream.get_mut().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            return;
        }
        while let Some(asked) = read(&mut stream) {
            let token = asked.headers.get("x-amz-security-token").cloned().unwrap_or_default();
            let what = format!("{} {}?{} {token}", asked.method, asked.path, asked.query);
            self.asked.lock().unwrap().push(what);
            let fate = (self.fates.lock().unwrap())(&asked.method, &asked.path);
            let (status, body) = match &fate {
                Some(Fate::Refused(status, code, more)) => (*status, error(code, more)),
                _ => self.done(&asked),
            };
            let head = format!("HTTP/1.1 {status} so\r\ncontent-length: {}\r\n\r\n", body.len());
            let answer = match fate {
                Some(Fate::Lost) => return,
                Some(Fate::Cut) => [head.as_bytes(), &body[..body.len() / 2]].concat(),
                Some(Fate::Answered(text)) => text.into(),
                _ => [head.as_bytes(), &body].concat(),
            };
            let is_whole = !matches!(fate, Some(Fate::Cut));
            if stream.get_mut().write_all(&answer).is_err() || !is_whole {
                return;
            }
        }
    }

    fn done(&self, asked: &Asked) -> (u16, Vec<u8>) {
        let header = |name: &str| asked.headers.get(name).map(String::as_str).unwrap_or_default();
        let hash: String =
            Sha256::digest(&asked.body).iter().map(|byte| format!("{byte:02x}")).collect();
        let user = format!("AWS4-HMAC-SHA256 Credential={USER}/");
        if !header("authorization").starts_with(&user) {
            return (403, error("InvalidAccessKeyId", ""));
        }
        if header("x-amz-content-sha256") != hash {
            return (400, error("XAmzContentSHA256Mismatch", ""));
        }
        let path = asked.path.strip_prefix('/').unwrap();
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        if bucket != BUCKET {
            return (404, error("NoSuchBucket", ""));
        }
        let mut objects = self.objects.lock().unwrap();
        match (&*asked.method, key) {
            ("GET", "") => (200, page(&objects, &asked.query)),
            ("GET", _) => match objects.get(key) {
                Some(bytes) => (200, bytes.clone()),
                None => (404, error("NoSuchKey", "")),
            },
            ("PUT", _) if header("if-none-match") == "*" && objects.contains_key(key) => {
                (412, error("PreconditionFailed", ""))
            }
            ("PUT", _) => {
                objects.insert(key.to_owned(), asked.body.clone());
                (200, Vec::new())
            }
            ("DELETE", _) => {
                objects.remove(key);
                (204, Vec::new())
            }
            _ => (405, error("MethodNotAllowed", "")),
        }
    }
}

/// A page of a list. The token is the last name, with letters that have to be written otherwise.
fn page(objects: &BTreeMap<String, Vec<u8>>, query: &str) -> Vec<u8> {
    let word = |name: &str| {
        let found = query.split('&').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().replace("%2F", "/").replace("%26", "&").replace("%3C", "<")
    };
    let (prefix, token) = (word("prefix"), word("continuation-token"));
    let from = token.strip_suffix("&<").unwrap_or_default();
    let names = objects.keys().filter(|key| key.starts_with(&prefix) && key.as_str() > from);
    let names: Vec<&String> = names.take(PAGE_NAMES + 1).collect();
    let shown: String =
        names.iter().take(PAGE_NAMES).map(|key| format!("<Key>{key}</Key>")).collect();
    let next = match names.len() > PAGE_NAMES {
        true => format!(
            "<IsTruncated>true</IsTruncated>\
             <NextContinuationToken>{}&amp;&lt;</NextContinuationToken>",
            names[PAGE_NAMES - 1]
        ),
        false => "<IsTruncated>false</IsTruncated>".to_owned(),
    };
    format!("<ListBucketResult>{next}{shown}</ListBucketResult>").into()
}
