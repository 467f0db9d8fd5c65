//! Buckets for blocks: where they are and by which keys they are reached, as the tools of Amazon
//! have it in the environment and in files of the home directory.

use super::password::secret;
use crate::timestamps::now_seconds;
use marram_cluster::bucket::{Access, Keys};
use marram_cluster::format::BucketPlace;
use marram_store::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The region where none is named.
const REGION: &str = "us-east-1";
/// Between the first two tries of a request.
const PAUSE: Duration = Duration::from_millis(100);
/// The part of a file with keys that counts where none is named.
const PROFILE: &str = "default";

/// The URL of a bucket, if something is one.
pub(super) fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with("s3://"))
}

/// The place of a URL, with the region and the endpoint of the environment: a home keeps them.
///
/// # Errors
/// There can be no such place.
pub(super) fn place(url: &str) -> Result<BucketPlace> {
    let region = variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
    let endpoint = variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]).unwrap_or_default();
    BucketPlace::new(url, region.as_deref().unwrap_or(REGION), &endpoint)
}

/// How buckets are reached.
pub(super) fn access() -> Access {
    Access {
        keys: Arc::new(keys),
        clock: Arc::new(now_seconds),
        roots: variable(&["AWS_CA_BUNDLE"]).map(PathBuf::from),
        pause: PAUSE,
    }
}

/// The first of some variables of the environment that is set, and not to nothing.
fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

fn keys() -> Result<Keys> {
    let id = variable(&["AWS_ACCESS_KEY_ID"]);
    if let Some((id, secret)) = id.zip(variable(&["AWS_SECRET_ACCESS_KEY"])) {
        return checked(Keys { id, secret, token: variable(&["AWS_SESSION_TOKEN"]) });
    }
    let named = variable(&["AWS_SHARED_CREDENTIALS_FILE"]).map(PathBuf::from);
    let own = || std::env::home_dir().map(|home| home.join(".aws/credentials"));
    let profile = variable(&["AWS_PROFILE"]).unwrap_or_else(|| PROFILE.to_owned());
    let file = named.or_else(own);
    let found = file.as_deref().map(|file| in_file(file, &profile)).transpose()?.flatten();
    let missing = || {
        let file = file.map_or_else(String::new, |it| format!(", and {} has none", it.display()));
        Error::Invalid(format!(
            "there are no keys for the bucket: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are \
             not set{file} for the profile {profile}"
        ))
    };
    checked(found.ok_or_else(missing)?)
}

/// Refuses keys that no header can have. They are not said.
fn checked(keys: Keys) -> Result<Keys> {
    let Keys { id, secret, token } = &keys;
    let is_plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_fit = [Some(id), Some(secret), token.as_ref()].into_iter().flatten().all(is_plain);
    match is_fit {
        true => Ok(keys),
        false => Err(Error::Invalid("the keys for the bucket have blanks in them".to_owned())),
    }
}

/// The keys of a profile in a file; none if it has none.
fn in_file(file: &Path, profile: &str) -> Result<Option<Keys>> {
    let Some(text) = secret(file)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&text);
    let mut is_it = false;
    let (mut id, mut secret, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_it = name.trim() == profile;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_it) else { continue };
        let field = match name.trim() {
            "aws_access_key_id" => &mut id,
            "aws_secret_access_key" => &mut secret,
            "aws_session_token" => &mut token,
            _ => continue,
        };
        *field = Some(value.trim().to_owned());
    }
    Ok(id.zip(secret).map(|(id, secret)| Keys { id, secret, token }))
}

#[cfg(test)]
mod tests {
    use super::in_file;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_profile_of_the_file_has_its_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        assert!(in_file(&file, "default").unwrap().is_none());
        let text = "# keys\n[default]\naws_access_key_id = A1\naws_secret_access_key=s/1=\n\n\
                    [team]\naws_access_key_id=A2\naws_secret_access_key=s2\n\
                    aws_session_token = t2\n[half]\naws_access_key_id=A3\n";
        write(&file, text).unwrap();
        set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let refused = in_file(&file, "default").map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("chmod 600") && !refused.contains("s/1"), "{refused}");
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let keys = in_file(&file, "default").unwrap().unwrap();
        assert_eq!((&*keys.id, &*keys.secret, keys.token), ("A1", "s/1=", None));
        let keys = in_file(&file, "team").unwrap().unwrap();
        assert_eq!((&*keys.id, &*keys.secret, keys.token.as_deref()), ("A2", "s2", Some("t2")));
        for profile in ["half", "none"] {
            assert!(in_file(&file, profile).unwrap().is_none());
        }
    }
}
