//! Which bucket has the blocks, and where in it.

use super::Fields;
use super::fields::put_counted;
use marram_store::{Error, Result};
use std::fmt;
use std::net::IpAddr;

/// How the URL of a bucket begins.
const SCHEME: &str = "s3://";
/// Letters of the name of a bucket.
const BUCKET_LETTERS: std::ops::RangeInclusive<usize> = 3..=63;
/// Letters of a prefix at most: names of objects stand behind it, and 1024 are allowed in all.
const PREFIX_LETTERS_MAX: usize = 512;
/// Letters of a region at most.
const REGION_LETTERS_MAX: usize = 64;
/// Letters of an endpoint at most.
const ENDPOINT_LETTERS_MAX: usize = 256;

/// A bucket of a service that speaks the protocol of S3, and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPlace {
    bucket: String,
    prefix: String,
    region: String,
    endpoint: String,
}

impl BucketPlace {
    /// The place of a URL `s3://BUCKET/PREFIX`; without an endpoint it is one of Amazon's.
    ///
    /// # Errors
    /// It is no such URL, or what it says, the region or the endpoint can be none.
    pub fn new(url: &str, region: &str, endpoint: &str) -> Result<BucketPlace> {
        let wrong = |why: &str| Error::Invalid(format!("the place of the blocks: {why}"));
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| wrong("it is no s3://BUCKET/PREFIX"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let owned = |text: &str| text.trim_end_matches('/').to_owned();
        let place = BucketPlace {
            bucket: bucket.to_owned(),
            prefix: owned(prefix),
            region: region.to_owned(),
            endpoint: owned(endpoint),
        };
        match place.fault() {
            None => Ok(place),
            Some(why) => Err(wrong(why)),
        }
    }

    /// Why there can be no such place.
    fn fault(&self) -> Option<&'static str> {
        let BucketPlace { bucket, prefix, region, endpoint } = self;
        let is_small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = [bucket.as_bytes().first(), bucket.as_bytes().last()];
        let is_bucket = BUCKET_LETTERS.contains(&bucket.len())
            && bucket.bytes().all(|byte| is_small(byte) || b".-".contains(&byte))
            && ends.into_iter().flatten().all(|byte| is_small(*byte))
            && !bucket.contains("..");
        if bucket.contains(['@', ':']) {
            return Some("no key and no port stands in it: keys come from the environment");
        }
        if !is_bucket {
            return Some(
                "the name of a bucket has 3 to 63 small letters, digits, dots and hyphens",
            );
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_part = |part: &str| !["", ".", ".."].contains(&part) && part.bytes().all(is_plain);
        if prefix.len() > PREFIX_LETTERS_MAX
            || !(prefix.is_empty() || prefix.split('/').all(is_part))
        {
            return Some("a prefix has letters, digits, hyphens, dots and _ between its slashes");
        }
        let is_region = (1..=REGION_LETTERS_MAX).contains(&region.len())
            && region.bytes().all(|byte| is_small(byte) || byte == b'-');
        if !is_region {
            return Some("a region has small letters, digits and hyphens, as eu-central-1 has");
        }
        if endpoint.is_empty() { None } else { endpoint_fault(endpoint) }
    }

    /// The region that signatures name.
    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    /// Where an object lies in the bucket.
    pub(crate) fn key(&self, name: &str) -> String {
        match self.prefix.is_empty() {
            true => name.to_owned(),
            false => format!("{}/{name}", self.prefix),
        }
    }

    /// The host that is asked, with its scheme, and what stands before a key there. The host has
    /// the name of the bucket where it is one of Amazon's and a certificate can have that name.
    pub(crate) fn origin(&self) -> (String, String) {
        let BucketPlace { bucket, region, endpoint, .. } = self;
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        match (endpoint.is_empty(), bucket.contains('.')) {
            (false, _) => (endpoint.clone(), format!("/{bucket}")),
            (true, true) => (format!("https://s3.{region}.{domain}"), format!("/{bucket}")),
            (true, false) => (format!("https://{bucket}.s3.{region}.{domain}"), String::new()),
        }
    }

    /// An object, for people.
    pub(crate) fn locate(&self, name: &str) -> String {
        format!("{SCHEME}{}/{}", self.bucket, self.key(name))
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let BucketPlace { bucket, prefix, region, endpoint } = self;
        [bucket, prefix, region, endpoint].iter().for_each(|it| put_counted(out, it.as_bytes()));
    }

    pub(super) fn take(fields: &mut Fields<'_>) -> Result<BucketPlace> {
        let place = BucketPlace {
            bucket: fields.text()?,
            prefix: fields.text()?,
            region: fields.text()?,
            endpoint: fields.text()?,
        };
        match place.fault() {
            None => Ok(place),
            Some(why) => fields.refuse(why),
        }
    }
}

/// Why something can be no endpoint. What is not encrypted stays on this host.
fn endpoint_fault(endpoint: &str) -> Option<&'static str> {
    let form = "an endpoint is https://HOST:PORT, with nothing behind it";
    let (scheme, authority) = endpoint.split_once("://").unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if authority.is_empty()
        || endpoint.len() > ENDPOINT_LETTERS_MAX
        || !authority.bytes().all(is_plain)
    {
        return Some(form);
    }
    match scheme {
        "https" => None,
        "http" if is_here(authority) => None,
        "http" => Some(
            "what goes to another host is encrypted: an endpoint is https://HOST, and http:// \
             only on localhost",
        ),
        _ => Some(form),
    }
}

/// Whether a host, perhaps with a port, is this one by its very name.
fn is_here(authority: &str) -> bool {
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl fmt::Display for BucketPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BucketPlace { bucket, prefix, endpoint, .. } = self;
        write!(out, "{SCHEME}{bucket}")?;
        if !prefix.is_empty() {
            write!(out, "/{prefix}")?;
        }
        if endpoint.is_empty() { Ok(()) } else { write!(out, " at {endpoint}") }
    }
}

#[cfg(test)]
mod tests {
    use super::BucketPlace;

    fn place(url: &str, endpoint: &str) -> Result<BucketPlace, String> {
        BucketPlace::new(url, "eu-central-1", endpoint).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bucket_is_asked_where_it_is() {
        let origin = |url, endpoint| place(url, endpoint).unwrap().origin();
        let amazon = "https://s3.eu-central-1.amazonaws.com".to_owned();
        let named = "https://team.s3.eu-central-1.amazonaws.com".to_owned();
        assert_eq!(origin("s3://team/home", ""), (named, String::new()));
        assert_eq!(origin("s3://team.x/home", ""), (amazon, "/team.x".to_owned()));
        let own = ("https://store.example:9000".to_owned(), "/team".to_owned());
        assert_eq!(origin("s3://team", "https://store.example:9000/"), own);
        let shown = place("s3://team/a/b/", "http://localhost:1").unwrap();
        assert_eq!(shown.to_string(), "s3://team/a/b at http://localhost:1");
        assert_eq!(shown.locate("marker"), "s3://team/a/b/marker");
    }

    #[test]
    fn what_can_be_no_place_is_refused() {
        for (url, endpoint, words) in [
            ("s4://team", "", "s3://BUCKET"),
            ("s3://Team", "", "small letters"),
            ("s3://key:secret@team", "", "keys come from the environment"),
            ("s3://te", "", "3 to 63"),
            ("s3://-team", "", "small letters"),
            ("s3://team/a//b", "", "prefix"),
            ("s3://team/../b", "", "prefix"),
            ("s3://team/a?b", "", "prefix"),
            ("s3://team", "http://store.example", "is encrypted"),
            ("s3://team", "http://localhost.example", "is encrypted"),
            ("s3://team", "https://", "https://HOST"),
            ("s3://team", "https://a@b", "https://HOST"),
            ("s3://team", "https://a/b", "https://HOST"),
            ("s3://team", "ftp://localhost", "https://HOST"),
        ] {
            let why = place(url, endpoint).unwrap_err();
            assert!(why.contains(words) && !why.contains("secret"), "{url} {endpoint}: {why}");
        }
        for endpoint in ["http://localhost:80", "http://127.0.0.1", "http://[::1]:9000"] {
            place("s3://team", endpoint).unwrap();
        }
        BucketPlace::new("s3://team", "EU", "").unwrap_err();
        BucketPlace::new("s3://team", "", "").unwrap_err();
    }
}
