//! What a service says, and what follows from it.

use super::KEYS_HINT;
use marram_store::Error;

/// What the service has answered.
pub(super) struct Answer {
    pub(super) status: u16,
    /// The region in which the bucket is, where that is said.
    pub(super) region: Option<String>,
    pub(super) body: Vec<u8>,
}

/// Why there is no answer that helps.
pub(super) enum Failure {
    /// It may be another time.
    Passing(String),
    /// The keys hold no longer.
    Expired(String),
    /// It is of no use to try again.
    Lasting(Error),
}

/// What follows from an answer.
pub(super) enum Judged {
    /// It was done.
    Done(Vec<u8>),
    /// The object is not there.
    Missing,
    /// Another one is there already.
    Taken,
}

impl Answer {
    /// What follows from it. What was tried stands in `what`.
    pub(super) fn judged(self, what: &str) -> Result<Judged, Failure> {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        let code = first(&text, "Code").unwrap_or_default();
        let lasting = |why: String| Err(Failure::Lasting(failed(what, &why)));
        match (self.status, code.as_str()) {
            (200..=299, _) => Ok(Judged::Done(self.body)),
            (_, "NoSuchBucket") => {
                lasting("the bucket is not there; make it, or bring it back".to_owned())
            }
            (404, _) => Ok(Judged::Missing),
            (412, _) => Ok(Judged::Taken),
            (507, _)
            | (_, "QuotaExceeded" | "XMinioStorageFull" | "XMinioAdminBucketQuotaExceeded") => {
                Err(Failure::Lasting(Error::NoSpace))
            }
            (_, "ExpiredToken" | "TokenRefreshRequired") => {
                Err(Failure::Expired(format!("the session of the keys has ended; {KEYS_HINT}")))
            }
            (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken") => {
                let said = self.said(&text, &code);
                Err(Failure::Expired(format!("{said}: the keys are wrong; {KEYS_HINT}")))
            }
            (_, "RequestTimeTooSkewed") => {
                let there = first(&text, "ServerTime").unwrap_or_else(|| "another one".to_owned());
                lasting(format!(
                    "the clocks of this host and of the service differ by too much (there it is \
                     {there}): set the clock"
                ))
            }
            (408 | 429 | 500 | 502..=504 | 508..=599, _)
            | (409, "ConditionalRequestConflict" | "OperationAborted")
            | (400, "RequestTimeout" | "IncompleteBody" | "BadDigest")
            | (_, "SlowDown" | "XAmzContentSHA256Mismatch") => {
                Err(Failure::Passing(self.said(&text, &code)))
            }
            _ => lasting(self.refusal(&text, &code)),
        }
    }

    /// Why it is refused, and what to do.
    fn refusal(&self, text: &str, code: &str) -> String {
        let region = self.region.clone().or_else(|| first(text, "Region"));
        let said = self.said(text, code);
        match code {
            "AuthorizationHeaderMalformed"
            | "PermanentRedirect"
            | "IllegalLocationConstraintException"
                if region.is_some() =>
            {
                let region = region.unwrap_or_default();
                format!(
                    "the bucket is in the region {region}: make the home with AWS_REGION={region}"
                )
            }
            _ if (300..400).contains(&self.status) => format!(
                "{said}: it is elsewhere; name its region by AWS_REGION, or its service by \
                 AWS_ENDPOINT_URL, when the home is made"
            ),
            _ if self.status == 403 => format!(
                "{said}: the keys need the rights to get, put, delete and list objects there \
                 (s3:GetObject, s3:PutObject, \
                 s3:DeleteObject, s3:ListBucket); {KEYS_HINT}"
            ),
            _ => said,
        }
    }

    /// What it says, in short.
    fn said(&self, text: &str, code: &str) -> String {
        let message = first(text, "Message").unwrap_or_default();
        let message: String = message.chars().filter(|it| !it.is_control()).take(200).collect();
        match code {
            "" => format!("the service answers with status {}", self.status),
            _ => format!("the service says {code} ({}): {message}", self.status),
        }
    }
}

/// The error for something that cannot be done.
pub(super) fn failed(what: &str, why: &str) -> Error {
    Error::Io(format!("cannot {what}: {why}"))
}

/// The text of the first element of that name; none if there is none.
pub(super) fn first(text: &str, name: &str) -> Option<String> {
    texts(text, name).into_iter().next()
}

/// The texts of all elements of that name, which have no others in them and no attributes.
pub(super) fn texts(text: &str, name: &str) -> Vec<String> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let inner = |part: &str| part.split_once(&end).map(|(inner, _)| plain(inner));
    text.split(&begin).skip(1).filter_map(inner).collect()
}

/// A text with the letters that XML writes by names.
fn plain(text: &str) -> String {
    let names = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#34;", "\"")];
    let text = names.iter().fold(text.to_owned(), |text, (name, is)| text.replace(name, is));
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::{first, texts};

    #[test]
    fn elements_are_found_and_nonsense_is_none() {
        let text = "<R><Key>a&amp;lt;</Key><Key>b</Key><Token>x&quot;=</Token><Key>c";
        assert_eq!(texts(text, "Key"), ["a&lt;", "b"]);
        assert_eq!(first(text, "Token").unwrap(), "x\"=");
        assert_eq!(first("", "Key"), None);
        assert_eq!(first("</Key><Key>", "Key"), None);
    }
}
