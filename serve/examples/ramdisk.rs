//! Serves a plain RAM disk until its standard input ends:
//! `cargo run --release -p ramfold-serve --example ramdisk -- /tmp/ram.sock 1073741824`

use disk::RamDisk;
use ramfold_serve::{Server, ServerConfig};
use std::error::Error;
use std::io::{Read, stdin};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(socket), Some(size)) = (args.next(), args.next()) else {
        return Err("usage: ramdisk SOCKET BYTES".into());
    };
    let mut config = ServerConfig::new("ram");
    config.unix.push(socket.into());
    let server = Server::start(Arc::new(RamDisk::new(size.parse()?)?), config)?;
    println!("{}", server.uris().join("\n"));
    stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    Ok(())
}
