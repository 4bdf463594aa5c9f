//! The certificates of a server: read, and checked before the first client comes.
//!
//! ```text
//!   ca-cert.pem       whom to trust           needed
//!   ca-crl.pem        which of them no more   used if it is there, with clients' certificates
//!   server-cert.pem   the server's, then those between it and the authority
//!   server-key.pem    its private key, without a password
//! ```
//!
//! The names are those of nbdkit and of libvirt.
//!
//! Invariant: a [`Tls`] is complete. Its key belongs to its certificate, and on the day it was
//! made no certificate in its files was out of date.
//!
//! Locks: none.

use crate::terms::ServeError;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::{
    NoServerSessionStorage, ParsedCertificate, ServerConfig, WebPkiClientVerifier,
};
use rustls::{CertificateError, Error, RootCertStore};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AUTHORITY: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";

/// Whether and how NBD clients use TLS.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// The directory with `ca-cert.pem`, `server-cert.pem` and `server-key.pem`.
    pub directory: PathBuf,
    /// Clients without TLS are told that they need it. Otherwise they are served.
    pub required: bool,
    /// Clients over TLS must have a certificate of an authority in `ca-cert.pem`.
    pub verify_peer: bool,
}

/// The certificates of a server, ready for use.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(super) settings: Arc<ServerConfig>,
    required: bool,
    directory: PathBuf,
}

impl fmt::Debug for Tls {
    /// Says nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads and checks the files.
    pub(crate) fn load(config: &TlsConfig) -> Result<Self, ServeError> {
        let provider = Arc::new(ring::default_provider());
        let files = Files::read(&config.directory)?;
        files.check_dates(&provider)?;
        let settings = files.settings(&provider, config.verify_peer)?;
        let (required, directory) = (config.required, config.directory.clone());
        Ok(Self { settings: Arc::new(settings), required, directory })
    }

    /// Whether every client must use TLS.
    pub(crate) fn is_required(&self) -> bool {
        self.required
    }

    /// Where the certificates are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl TlsConfig {
    /// Whether an authority in `ca-cert.pem` has signed the server's certificate. If not, clients
    /// with that file will refuse the server. It may still be meant, if clients know another
    /// authority.
    ///
    /// # Errors
    ///
    /// [`ServeError::Tls`]: a file cannot be read, or has no certificate in it.
    pub fn is_signed(&self) -> Result<bool, ServeError> {
        let files = Files::read(&self.directory)?;
        let provider = ring::default_provider();
        let outcome = files.verify(&files.chain[0], &files.chain[1..], &provider);
        Ok(!matches!(
            outcome,
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer
                    | CertificateError::BadSignature
                    | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            ))
        ))
    }
}

/// What the files have in them.
struct Files {
    directory: PathBuf,
    authorities: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    /// The server's certificate, and those between it and an authority. There is at least one.
    chain: Vec<CertificateDer<'static>>,
}

impl Files {
    fn read(directory: &Path) -> Result<Self, ServeError> {
        let authorities: Vec<CertificateDer<'_>> =
            items(&directory.join(AUTHORITY), "no certificate")?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots
                .add(authority.clone())
                .map_err(|why| wrong(directory, AUTHORITY, why.to_string()))?;
        }
        let chain = items(&directory.join(CERTIFICATE), "no certificate")?;
        let directory = directory.to_owned();
        Ok(Self { directory, authorities, roots: Arc::new(roots), chain })
    }

    /// What each connection is set up with.
    fn settings(
        &self,
        provider: &Arc<CryptoProvider>,
        verify_peer: bool,
    ) -> Result<ServerConfig, ServeError> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_safe_default_protocol_versions()
            .map_err(|why| wrong(&self.directory, CERTIFICATE, why.to_string()))?;
        let builder = if verify_peer {
            let roots = Arc::clone(&self.roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
                .with_crls(self.revoked()?)
                .build()
                .map_err(|why| wrong(&self.directory, REVOKED, why.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let key = self.key()?;
        let settings = builder.with_single_cert(self.chain.clone(), key);
        let mut settings = settings.map_err(|why| self.refused_key(&why))?;
        // A connection lasts for hours, so nothing is kept to shorten the next handshake.
        settings.session_storage = Arc::new(NoServerSessionStorage {});
        settings.send_tls13_tickets = 0;
        Ok(settings)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, ServeError> {
        let path = self.directory.join(KEY);
        let text = read(&path)?;
        PrivateKeyDer::from_pem_slice(&text).map_err(|why| {
            let why = match why {
                pem::Error::NoItemsFound if contains(&text, b"ENCRYPTED PRIVATE KEY") => {
                    "the key has a password; store it without one".to_owned()
                }
                pem::Error::NoItemsFound => "there is no private key in it".to_owned(),
                other => format!("not PEM: {other}"),
            };
            ServeError::Tls { path, why }
        })
    }

    fn refused_key(&self, why: &Error) -> ServeError {
        let why = match why {
            Error::InconsistentKeys(_) => format!("this is not the key of {CERTIFICATE}"),
            Error::InvalidCertificate(why) => {
                return wrong(&self.directory, CERTIFICATE, why.to_string());
            }
            // certtool writes every other EC key with a byte too many.
            _ => "not a key that can be used: take RSA of 2048 to 8192 bits, ECDSA on P-256 or \
                  P-384, or Ed25519; an EC key of certtool may need openssl pkey -in KEY -out NEW"
                .to_owned(),
        };
        wrong(&self.directory, KEY, why)
    }

    /// The list of certificates that are not to be trusted any more, if there is one. Other servers
    /// take it from this file. If it was not used, a certificate that was withdrawn would be good.
    fn revoked(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, ServeError> {
        let path = self.directory.join(REVOKED);
        if fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(Vec::new());
        }
        items(&path, "no list of revoked certificates")
    }

    /// Checks that each certificate may be used today. rustls does not look at its own.
    fn check_dates(&self, provider: &CryptoProvider) -> Result<(), ServeError> {
        let authorities = self.authorities.iter().map(|one| (one, AUTHORITY));
        let chain = self.chain.iter().map(|one| (one, CERTIFICATE));
        for (certificate, name) in authorities.chain(chain) {
            let Err(Error::InvalidCertificate(why)) = self.verify(certificate, &[], provider)
            else {
                continue;
            };
            let why = match why {
                CertificateError::BadEncoding => "not a certificate".to_owned(),
                CertificateError::ExpiredContext { time, not_after } => {
                    format!("it has expired, {}", ago(time, not_after))
                }
                CertificateError::Expired => "it has expired".to_owned(),
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "it is not valid yet; is the clock right?".to_owned()
                }
                // Whether it may be trusted is for clients to decide.
                _ => continue,
            };
            return Err(wrong(&self.directory, name, why));
        }
        Ok(())
    }

    /// Judges a certificate as a client would. Its dates are looked at before anything else.
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        provider: &CryptoProvider,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = provider.signature_verification_algorithms.all;
        let now = UnixTime::now();
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)
    }
}

/// How long ago a certificate has expired.
fn ago(now: UnixTime, not_after: UnixTime) -> String {
    const DAY: u64 = 24 * 60 * 60;
    match now.as_secs().saturating_sub(not_after.as_secs()) / DAY {
        0 => "today".to_owned(),
        1 => "a day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}

/// Every item of one kind in a file. There is at least one.
fn items<T: PemObject>(path: &Path, nothing: &str) -> Result<Vec<T>, ServeError> {
    let text = read(path)?;
    let found: Result<Vec<T>, pem::Error> = T::pem_slice_iter(&text).collect();
    let failed = |why| ServeError::Tls { path: path.to_owned(), why };
    match found {
        Ok(items) if items.is_empty() => Err(failed(format!("there is {nothing} in it"))),
        Ok(items) => Ok(items),
        Err(why) => Err(failed(format!("not PEM: {why}"))),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ServeError> {
    fs::read(path).map_err(|why| {
        let missing = why.kind() == io::ErrorKind::NotFound;
        let needed = format!("; needed are {AUTHORITY}, {CERTIFICATE} and {KEY}");
        let hint = if missing { &*needed } else { "" };
        ServeError::Tls { path: path.to_owned(), why: format!("{why}{hint}") }
    })
}

fn wrong(directory: &Path, name: &str, why: String) -> ServeError {
    ServeError::Tls { path: directory.join(name), why }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_people_do() {
        let at = |secs| UnixTime::since_unix_epoch(std::time::Duration::from_secs(secs));
        let rows = [(10, "today"), (90_000, "a day ago"), (180_000, "2 days ago")];
        for (now, expected) in rows {
            assert_eq!(ago(at(now), at(9)), expected);
        }
    }
}
