//! Reads over NBD, several at a time, with simple replies.
//!
//! Invariant: a place is asked for again only after its answer.

use super::client::Client;
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;

/// A connection to the default export of a server.
pub(super) struct Reader {
    output: UnixStream,
    input: BufReader<UnixStream>,
    page: Box<[u8; PAGE_SIZE]>,
}

impl Reader {
    pub(super) fn connect(path: &Path, depth: u16) -> Result<Reader, LabError> {
        let failed = LabError::io(path.display());
        Self::greet(path, depth).map_err(failed)
    }

    fn greet(path: &Path, depth: u16) -> std::io::Result<Reader> {
        let mut output = UnixStream::connect(path)?;
        // All answers that can be under way, in one call.
        let room = usize::from(depth) * (PAGE_SIZE + 16);
        let mut input = BufReader::with_capacity(room, output.try_clone()?);
        input.read_exact(&mut [0; 18])?;
        let mut said = 3_u32.to_be_bytes().to_vec(); // fixed newstyle, no zeroes
        said.extend(b"IHAVEOPT");
        said.extend(1_u32.to_be_bytes()); // the export of ..
        said.extend(0_u32.to_be_bytes()); // .. no name
        output.write_all(&said)?;
        input.read_exact(&mut [0; 10])?;
        Ok(Reader { output, input, page: Box::new([0; PAGE_SIZE]) })
    }
}

impl Client for Reader {
    fn ask(&mut self, place: usize, page: usize) -> Result<(), LabError> {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&REQUEST.to_be_bytes());
        request[6..8].copy_from_slice(&READ.to_be_bytes());
        request[8..16].copy_from_slice(&(place as u64).to_be_bytes());
        request[16..24].copy_from_slice(&((page * PAGE_SIZE) as u64).to_be_bytes());
        request[24..].copy_from_slice(&(PAGE_SIZE as u32).to_be_bytes());
        self.output.write_all(&request).map_err(LabError::io("asking over NBD"))
    }

    fn answer(&mut self) -> Result<(usize, &[u8]), LabError> {
        let failed = || LabError::io("an answer over NBD");
        let mut head = [0; 16];
        self.input.read_exact(&mut head).map_err(failed())?;
        let place = u64::from_be_bytes(std::array::from_fn(|at| head[8 + at]));
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|by| head[at + by]));
        if (word(0), word(4)) != (REPLY, 0) {
            let why = format!("NBD answered {:#x}, error {}", word(0), word(4));
            return Err(LabError::Store { what: "the disk".into(), why });
        }
        self.input.read_exact(&mut self.page[..]).map_err(failed())?;
        Ok((place as usize, &self.page[..]))
    }
}
