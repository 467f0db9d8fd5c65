//! Certificates for tests: roots, and servers and clients that they vouch for.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, IsCa, Issuer,
    KeyPair,
};

/// A root.
pub(crate) struct Root {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

/// A certificate and its key, as files have them.
pub(crate) struct Proof {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Proof {
    /// Both in one file.
    pub(crate) fn whole(&self) -> String {
        format!("{}{}", self.certificate, self.key)
    }
}

impl Root {
    pub(crate) fn new() -> Root {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = named("a root of the tests");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Root { issuer: Issuer::new(params, key), certificate }
    }

    /// The root itself, as a file has it.
    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A proof for some names, which holds now or did once.
    pub(crate) fn proof(&self, names: &[&str], is_expired: bool) -> Proof {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        // With the name of its root it would count as one that vouches for itself.
        params.distinguished_name = named("one that a root vouches for");
        if is_expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Proof { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}
