//! Encrypted connections: the server proves by a certificate that it is the one that was named.
//!
//! Between hosts nothing else is taken: a connection that is encrypted and not verified can be read
//! and changed by each host on the way, and so can the password.

use super::url::{encoded, wrong};
use marram_store::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fmt;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where systems have the roots that they trust, as one file.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The word of a URL that names a file of roots.
const ROOTS_WORD: &str = "tls-ca=FILE";

/// What a URL says of encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    is_wanted: Option<bool>,
    roots: Option<PathBuf>,
    own: Option<PathBuf>,
}

/// A connection that is encrypted and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    /// A file with the roots that are trusted.
    pub(crate) roots: PathBuf,
    /// A file with the certificate and the key by which this client proves itself.
    pub(crate) own: Option<PathBuf>,
}

/// Why there is no encrypted connection.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The connection is lost, or there is none.
    Lost(io::Error),
    /// It is of no use to try: the text says why, and what to do.
    Unfit(String),
}

impl Words {
    /// Takes a word of a URL; none if it says something else.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Option<Result<()>> {
        let file = |to: &mut Option<PathBuf>| match value.starts_with('/') {
            true => {
                *to = Some(PathBuf::from(value));
                Ok(())
            }
            false => Err(wrong("a file of tls-ca= or tls-cert= is named by its whole path")),
        };
        Some(match (name, value) {
            ("tls", "verify") => {
                self.is_wanted = Some(true);
                Ok(())
            }
            ("tls", "off") => {
                self.is_wanted = Some(false);
                Ok(())
            }
            ("tls", _) => Err(wrong("behind tls= goes verify or off")),
            ("tls-ca", _) => file(&mut self.roots),
            ("tls-cert", _) => file(&mut self.own),
            _ => return None,
        })
    }

    /// The words as they are always written.
    pub(crate) fn written(&self) -> Vec<String> {
        let said = self.is_wanted.map(|is| if is { "verify" } else { "off" });
        let path =
            |file: &PathBuf| file.to_string_lossy().split('/').map(encoded).collect::<Vec<_>>();
        let named = |name: &str, file: &Option<PathBuf>| {
            file.as_ref().map(|file| format!("{name}={}", path(file).join("/")))
        };
        let files = [named("tls-ca", &self.roots), named("tls-cert", &self.own)];
        said.map(|said| format!("tls={said}"))
            .into_iter()
            .chain(files.into_iter().flatten())
            .collect()
    }

    /// Words that contradict each other are refused.
    pub(crate) fn checked(&self) -> Result<()> {
        match self.is_wanted == Some(false) && (self.roots.is_some() || self.own.is_some()) {
            true => Err(wrong("tls=off has no use for tls-ca= and tls-cert=")),
            false => Ok(()),
        }
    }

    /// Whether anything is said of encryption but that there is to be none.
    pub(crate) fn asks_for_it(&self) -> bool {
        self.is_wanted == Some(true) || self.roots.is_some() || self.own.is_some()
    }

    /// How a host is reached: encrypted between hosts in any case, here if that is asked for.
    ///
    /// # Errors
    /// None is wanted with another host, or no root is trusted.
    pub(crate) fn to(&self, host: &str, is_here: bool) -> Result<Option<Verified>> {
        if !is_here && self.is_wanted == Some(false) {
            return Err(Error::Invalid(format!(
                "{host} is another host: what goes there can be read and changed on its way, so \
                 tls=off is only for this one"
            )));
        }
        if is_here && !self.asks_for_it() {
            return Ok(None);
        }
        let roots = self.roots.clone().or_else(system_roots).ok_or_else(|| {
            let text = "this system has no file of trusted roots: name one with tls-ca=FILE";
            Error::Invalid(text.to_owned())
        })?;
        Ok(Some(Verified { roots, own: self.own.clone() }))
    }
}

/// The file of roots that this system trusts; none if there is none.
pub(crate) fn system_roots() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = || SYSTEM_ROOTS.iter().map(PathBuf::from).find(|file| file.exists());
    named.or_else(known)
}

impl Verified {
    /// Encrypts a connection to a host, if that proves to be the one of this name.
    pub(crate) fn encrypt(
        &self,
        name: &str,
        mut stream: TcpStream,
    ) -> std::result::Result<StreamOwned<ClientConnection, TcpStream>, Refusal> {
        let config = Arc::new(self.config()?);
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            Refusal::Unfit(format!("{name} is no name that a certificate can have"))
        })?;
        let failed = |error: rustls::Error| Refusal::Unfit(format!("TLS: {error}"));
        let mut connection = ClientConnection::new(config, server).map_err(failed)?;
        while connection.is_handshaking() {
            connection
                .complete_io(&mut stream)
                .map_err(|error| refusal(name, error, ROOTS_WORD))?;
        }
        Ok(StreamOwned::new(connection, stream))
    }

    fn config(&self) -> std::result::Result<ClientConfig, Refusal> {
        let mut roots = RootCertStore::empty();
        let (taken, _not_understood) = roots.add_parsable_certificates(certificates(&self.roots)?);
        if taken == 0 {
            return Err(unreadable(&self.roots, &"it has no certificate"));
        }
        let failed = |error: rustls::Error| Refusal::Unfit(format!("TLS: {error}"));
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(failed)?
                .with_root_certificates(roots);
        let Some(own) = &self.own else { return Ok(builder.with_no_client_auth()) };
        let key = PrivateKeyDer::from_pem_file(own).map_err(|error| unreadable(own, &error))?;
        builder.with_client_auth_cert(certificates(own)?, key).map_err(failed)
    }
}

/// The certificates of a file.
pub(crate) fn certificates(
    file: &Path,
) -> std::result::Result<Vec<CertificateDer<'static>>, Refusal> {
    let all = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(file, &error))?;
    all.collect::<std::result::Result<_, _>>().map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, why: &dyn fmt::Display) -> Refusal {
    let file = file.display();
    Refusal::Unfit(format!("{file} cannot be taken as a file of certificates: {why}"))
}

/// Why the two did not come to an agreement.
///
/// What names the file of roots is said where no root is trusted.
pub(crate) fn refusal(name: &str, error: io::Error, names_roots: &str) -> Refusal {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let text = match inner {
        None => return Refusal::Lost(error),
        Some(rustls::Error::InvalidCertificate(reason)) => {
            format!("the certificate of {name} is refused: {}", said_of(reason, names_roots))
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            format!("{name} does not speak TLS, and nothing goes to it in the clear")
        }
        Some(other) => format!("TLS with {name}: {other}"),
    };
    Refusal::Unfit(text)
}

fn said_of(reason: &CertificateError, names_roots: &str) -> String {
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        // The second is that of another root with the name of one that is trusted.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!(
                "no root that is trusted has signed it; name the file of its root with \
                 {names_roots}"
            )
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::Words;

    fn words(all: &[(&str, &str)]) -> Words {
        let mut words = Words::default();
        all.iter().for_each(|(name, value)| words.set(name, value).unwrap().unwrap());
        words
    }

    #[test]
    fn between_hosts_all_is_encrypted_and_here_what_is_asked_for() {
        let roots = ("tls-ca", "/etc/roots.pem");
        assert!(words(&[roots]).to("db", false).unwrap().is_some());
        assert!(words(&[roots]).to("localhost", true).unwrap().is_some());
        assert_eq!(words(&[]).to("localhost", true), Ok(None));
        assert_eq!(words(&[("tls", "off")]).to("localhost", true), Ok(None));
        let error = words(&[("tls", "off")]).to("db", false).unwrap_err().to_string();
        assert!(error.contains("db is another host") && error.contains("tls=off"), "{error}");
    }

    #[test]
    fn words_are_written_in_one_way_and_nonsense_is_refused() {
        let all = words(&[("tls-cert", "/a b/c"), ("tls", "verify"), ("tls-ca", "/r")]);
        assert_eq!(all.written(), ["tls=verify", "tls-ca=/r", "tls-cert=/a%20b/c"]);
        assert!(Words::default().set("schema", "a").is_none());
        for (name, value) in [("tls", "require"), ("tls", ""), ("tls-ca", "roots.pem")] {
            assert!(Words::default().set(name, value).unwrap().is_err(), "{name}={value}");
        }
        assert!(words(&[("tls", "off"), ("tls-ca", "/r")]).checked().is_err());
    }
}
