//! TLS for NBD: what a server shows and asks of its clients, and a connection that is encrypted.
//!
//! ```text
//!   DIR/ca-cert.pem, server-cert.pem, server-key.pem --> credentials (Tls)
//!                                                            |  STARTTLS
//!   Link: plain bytes <--> session: records <--> Socket  <---'
//! ```
//!
//! rustls does the protocol, with the cryptography of ring. There are X.509 certificates and no
//! shared keys, because rustls has none.
//!
//! Invariant: this room knows no NBD. Locks: none, because each connection has one thread.

mod credentials;
mod session;

pub(crate) use credentials::Tls;
pub use credentials::TlsConfig;
pub(crate) use session::{Broken, Received, Session};
