//! Certificates for a test, and a client that goes on inside TLS.
//!
//! Invariant: the client trusts the authority of these files and no other.

use crate::client::{Client, Line, OPT_STARTTLS, REP_ACK, bad};
use crate::fixture::{Fixture, Scratch};
use disk::Disk;
use ramfold_serve::{ServerConfig, TlsConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// An authority, and a server that it knows as localhost.
const MAKE: &str = r#"
key() { certtool --generate-privkey --key-type rsa --bits 2048 --outfile "$1"; }
printf 'cn = "authority"\nca\ncert_signing_key\nexpiration_days = 3\n' > ca.info
printf 'cn = "server"\ndns_name = "localhost"\ntls_www_server\n' > server.info
printf 'signing_key\nencryption_key\nexpiration_days = 3\n' >> server.info
key ca-key.pem
certtool --generate-self-signed --load-privkey ca-key.pem --template ca.info --outfile ca-cert.pem
key server-key.pem
certtool --generate-certificate --load-ca-certificate ca-cert.pem --load-ca-privkey ca-key.pem \
    --load-privkey server-key.pem --template server.info --outfile server-cert.pem
"#;

/// A directory with the files of a server.
pub(crate) struct Certificates {
    scratch: Scratch,
}

impl Certificates {
    /// New ones. `None` without certtool, which CI has.
    pub(crate) fn make() -> Option<Self> {
        if Command::new("certtool").arg("--version").output().is_err() {
            println!("skipped: needs certtool");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI has certtool");
            return None;
        }
        let scratch = Scratch::new();
        let mut shell = Command::new("sh");
        shell.arg("-ec").arg(MAKE).current_dir(scratch.path(""));
        let output = shell.output().expect("there is a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { scratch })
    }

    fn directory(&self) -> PathBuf {
        self.scratch.path("")
    }

    /// Serves a disk over TLS, which clients must use or may use.
    pub(crate) fn serve(
        &self,
        disk: Arc<dyn Disk>,
        required: bool,
        adjust: impl FnOnce(&mut ServerConfig),
    ) -> Fixture {
        Fixture::with(disk, |config| {
            let directory = self.directory();
            config.tls = Some(TlsConfig { directory, required, verify_peer: false });
            adjust(config);
        })
    }

    /// A client's side of TLS, in these versions.
    pub(crate) fn session(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConnection {
        let authority = CertificateDer::from_pem_file(self.scratch.path("ca-cert.pem"));
        let mut roots = RootCertStore::empty();
        roots.add(authority.expect("certtool wrote it")).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("rustls has the version");
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        ClientConnection::new(Arc::new(config), name).expect("a complete configuration")
    }

    /// Goes on inside TLS.
    pub(crate) fn secure(
        &self,
        mut client: Client,
        versions: &[&'static SupportedProtocolVersion],
    ) -> io::Result<Client> {
        let replies = client.option(OPT_STARTTLS, &[])?;
        if replies != [(REP_ACK, Vec::new())] {
            return Err(bad(format!("STARTTLS: {replies:?}")));
        }
        let line = std::mem::replace(&mut client.line, Box::new(io::empty()));
        client.line = Box::new(StreamOwned::new(self.session(versions), line));
        Ok(client)
    }
}

impl Line for io::Empty {}
impl Line for StreamOwned<ClientConnection, Box<dyn Line>> {}
impl Line for StreamOwned<ClientConnection, UnixStream> {}
impl Line for StreamOwned<ClientConnection, TcpStream> {}
