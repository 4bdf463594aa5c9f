//! Certificates that a test makes with certtool, as an operator does.
//!
//! Invariant: each directory has an authority of its own, which no other knows.

use std::path::Path;
use std::process::Command;

use super::{needs, succeed, tool};

/// How the files are made, with the dates of the server and the client.
const MAKE: &str = r#"
key() { certtool --generate-privkey --key-type rsa --bits 2048 --outfile "$1"; }
dates() { printf 'activation_date = "%s"\nexpiration_date = "%s"\n' "$BEGIN" "$END"; }
printf 'cn = "authority"\nca\ncert_signing_key\ncrl_signing_key\nexpiration_days = 3\n' > ca.info
key ca-key.pem
certtool --generate-self-signed --load-privkey ca-key.pem --template ca.info --outfile ca-cert.pem
for one in server client; do
    { printf 'cn = "%s"\ndns_name = "localhost"\nip_address = "127.0.0.1"\n' $one
      printf 'tls_www_%s\nsigning_key\nencryption_key\n' $one; dates; } > $one.info
    key $one-key.pem
    certtool --generate-certificate --load-ca-certificate ca-cert.pem --load-ca-privkey ca-key.pem \
        --load-privkey $one-key.pem --template $one.info --outfile $one-cert.pem
done
"#;

/// Makes a directory with an authority, a server and a client that it knows. False without
/// certtool, which CI has.
#[track_caller]
pub(crate) fn certificates(directory: &Path) -> bool {
    certificates_within(directory, "2020-01-01 00:00:00", "2090-01-01 00:00:00")
}

/// The same with dates of the server and the client.
#[track_caller]
pub(crate) fn certificates_within(directory: &Path, begin: &str, end: &str) -> bool {
    let there = needs(&["certtool"]);
    if there {
        std::fs::create_dir_all(directory).expect("a directory can be made");
        let mut shell = shell_in(directory, MAKE);
        succeed(shell.env("BEGIN", begin).env("END", end));
    }
    there
}

/// A shell that runs a script in a directory.
pub(crate) fn shell_in(directory: &Path, script: &str) -> Command {
    let mut shell = tool("sh");
    shell.arg("-ec").arg(script).current_dir(directory);
    shell
}
