//! Signatures of requests, version 4, by which a service of the protocol of S3 knows its users.
//!
//! What is signed is the request with the hash of its body. So nothing on the way changes either,
//! and a service that got another body refuses it. The secret itself is never sent.

use super::Keys;
use crate::server::url::encoded;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// How it is done.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A request, as it is to be signed.
pub(super) struct Unsigned<'a> {
    pub(super) method: &'a str,
    /// The path, of letters that no URL encodes.
    pub(super) path: &'a str,
    pub(super) query: &'a [(&'a str, String)],
    /// The headers that are signed, by their names in small letters.
    pub(super) headers: BTreeMap<&'a str, String>,
    pub(super) body: &'a [u8],
    pub(super) region: &'a str,
    /// The time, as `20130524T000000Z`.
    pub(super) time: String,
}

impl<'a> Unsigned<'a> {
    /// The headers with the signature.
    pub(super) fn signed(mut self, keys: &Keys) -> BTreeMap<&'a str, String> {
        self.headers.insert("x-amz-content-sha256", hexadecimal(&Sha256::digest(self.body)));
        self.headers.insert("x-amz-date", self.time.clone());
        if let Some(token) = &keys.token {
            self.headers.insert("x-amz-security-token", token.clone());
        }
        let date = &self.time[..8];
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let names = self.headers.keys().copied().collect::<Vec<_>>().join(";");
        let text = format!(
            "{ALGORITHM}\n{}\n{scope}\n{}",
            self.time,
            hexadecimal(&Sha256::digest(self.canonical(&names)))
        );
        let first = format!("AWS4{}", keys.secret);
        let steps = [date, self.region, "s3", "aws4_request", &text];
        let signature =
            steps.iter().fold(first.into_bytes(), |key, step| authenticated(&key, step.as_bytes()));
        let authorization = format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={}",
            keys.id,
            hexadecimal(&signature)
        );
        self.headers.insert("authorization", authorization);
        self.headers
    }

    /// The request in the one way in which both sides write it.
    fn canonical(&self, names: &str) -> String {
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let hash = &self.headers["x-amz-content-sha256"];
        let query = written(self.query);
        format!("{}\n{}\n{query}\n{headers}\n{names}\n{hash}", self.method, self.path)
    }
}

/// A query as it is sent and signed: sorted by its names.
pub(super) fn written(query: &[(&str, String)]) -> String {
    let sorted: BTreeMap<_, _> = query.iter().map(|(name, value)| (*name, value)).collect();
    let one = |(name, value): (&str, &String)| format!("{}={}", encoded(name), encoded(value));
    sorted.into_iter().map(one).collect::<Vec<_>>().join("&")
}

fn authenticated(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key has any length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Keys, Unsigned};
    use std::collections::BTreeMap;

    /// The examples that Amazon has published, with their keys.
    fn signature(query: &[(&str, String)], path: &str, more: &[(&'static str, &str)]) -> String {
        let keys = Keys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        };
        let mut headers = BTreeMap::from([("host", "examplebucket.s3.amazonaws.com".to_owned())]);
        headers.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let unsigned = Unsigned {
            method: "GET",
            path,
            query,
            headers,
            body: b"",
            region: "us-east-1",
            time: "20130524T000000Z".to_owned(),
        };
        let signed = unsigned.signed(&keys);
        signed["authorization"].rsplit_once('=').unwrap().1.to_owned()
    }

    #[test]
    fn requests_are_signed_as_in_the_examples_of_amazon() {
        assert_eq!(
            signature(&[], "/test.txt", &[("range", "bytes=0-9")]),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let query = [("prefix", "J".to_owned()), ("max-keys", "2".to_owned())];
        assert_eq!(
            signature(&query, "/", &[]),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }
}
