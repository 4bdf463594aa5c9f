//! Options whose values are words.
//!
//! Invariant: each word is one variant. Locks: none.

use std::path::PathBuf;

use serve::TlsConfig;

use super::failure::Failure;

/// Whether NBD clients use TLS, in the words of nbdkit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Encryption {
    /// Nobody.
    Off,
    /// Those that ask for it.
    On,
    /// All.
    Require,
}

/// How NBD clients use TLS.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct Tls {
    /// Encrypt NBD with the certificates in this directory: ca-cert.pem, server-cert.pem and
    /// server-key.pem, and ca-crl.pem if it is there. The names are nbdkit's
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Which clients use TLS: none (off), those that ask for it (on), or all (require)
    /// [default: require with --tls-certificates, else off]
    #[arg(long, value_name = "WHO")]
    tls: Option<Encryption>,
    /// Serve over TLS only clients with a certificate of an authority in ca-cert.pem
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
}

impl Tls {
    /// Whether anything was said about it.
    pub(crate) fn is_given(&self) -> bool {
        self.tls_certificates.is_some() || self.tls.is_some()
    }

    /// What the server is started with.
    pub(crate) fn config(&self) -> Result<Option<TlsConfig>, Failure> {
        let directory = match (&self.tls_certificates, self.tls) {
            (_, Some(Encryption::Off)) | (None, None) => return Ok(None),
            (Some(directory), _) => directory,
            (None, Some(_)) => {
                let why = "--tls: the server needs certificates; give --tls-certificates DIR";
                return Err(Failure::Usage(why.to_owned()));
            }
        };
        // It is a part of addresses, which are to be right in every directory.
        let directory = std::path::absolute(directory)
            .map_err(|error| Failure::about("--tls-certificates", error))?;
        let required = self.tls != Some(Encryption::On);
        Ok(Some(TlsConfig { directory, required, verify_peer: self.tls_verify_peer }))
    }
}

/// When pages go to the backing disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Writeback {
    /// When an attribute asks for it.
    Asked,
    /// By their age as well.
    Auto,
}

/// Whether pages are shuffled before they are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shuffle {
    /// No page is shuffled.
    #[default]
    Off,
    /// Pages that gain by it are, as samples say.
    Auto,
}

/// Whether a mounted tree takes requests by io_uring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IoUring {
    /// If the system allows it.
    #[default]
    Auto,
    /// Never.
    Off,
}
