//! Requests and answers of FUSE as bytes: what a request says, and what an answer looks like.
//!
//! ```text
//!   request   len.4 opcode.4 unique.8 node.8 uid.4 gid.4 pid.4 pad.4 | body | name or data
//!   answer    len.4 error.4  unique.8                                | body or data
//! ```
//!
//! Fields are in the machine's own byte order. The layouts are those of protocol 7.31 and later
//! (linux/fuse.h, the user interface). An older kernel is refused in the greeting.
//!
//! Invariant: a request of any content is either parsed or refused, and nothing here panics.
//! Locks: none.

use rustix::io::Errno;

/// Bytes before the body of a request.
const REQUEST_HEADER: usize = 40;
/// Bytes before the body of an answer.
pub(crate) const ANSWER_HEADER: usize = 16;
/// Bytes of a write request before its data: its header and its body.
pub(crate) const WRITE_HEADERS: usize = REQUEST_HEADER + 40; // 80

/// The root directory's node.
pub(crate) const ROOT: u64 = 1;

/// The thread that asks, and the node it asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The request's number, which the answer repeats.
    pub(crate) unique: u64,
    /// The node that the request is about.
    pub(crate) node: u64,
    /// The thread that waits for the answer. It is 0 if the kernel asks for itself.
    pub(crate) thread: u32,
}

/// A range of a file, read through an open handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The handle that the answer to `Open` gave.
    pub(crate) handle: u64,
    /// The first byte.
    pub(crate) offset: u64,
    /// The number of bytes.
    pub(crate) len: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call<'a> {
    /// The first request: protocol version, and what the kernel can do.
    Init(Hello),
    /// The node of this name in a directory.
    Lookup(&'a [u8]),
    /// Size, mode and times.
    GetAttr,
    /// Changes mode, owner, length or times. The bits say which; the other number is the length.
    SetAttr(u32, u64),
    /// Opens a file with the flags of open(2).
    Open(u32),
    /// Reads a file.
    Read(Range),
    /// Writes to a file. The range is as long as the data.
    Write(Range, &'a [u8]),
    /// Says that the last descriptor of an open file is gone.
    Close(u64),
    /// Makes what was written durable.
    Fsync,
    /// Opens a directory.
    OpenDir,
    /// Closes one.
    CloseDir,
    /// Reads a directory from a cookie on.
    ReadDir(Range),
    /// Asks about the file system.
    StatFs,
    /// Gives up or zeroes a range. The number is the mode of fallocate(2).
    Fallocate(Range, u32),
    /// Finds data or a hole from an offset on. The number is that of lseek(2).
    Lseek(Range, u32),
    /// Would make a file.
    Create,
    /// Would make or remove a name in another way.
    ChangeNames,
    /// Says that the file system ends.
    Destroy,
    /// Tells something. It has no answer.
    Note,
    /// Any other request.
    Unknown,
}

/// What the kernel says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Protocol version.
    pub(crate) major: u32,
    /// Minor version.
    pub(crate) minor: u32,
    /// The most it reads ahead.
    pub(crate) max_readahead: u32,
    /// What it can do, one bit each.
    pub(crate) flags: u64,
}

/// Bits of what `SetAttr` changes. Its other bits say how.
pub(crate) mod change {
    /// Permissions.
    pub(crate) const MODE: u32 = 1 << 0;
    /// The owner.
    pub(crate) const UID: u32 = 1 << 1;
    /// The group.
    pub(crate) const GID: u32 = 1 << 2;
    /// The length.
    pub(crate) const SIZE: u32 = 1 << 3;
}

/// Cuts a request's bytes into fields. The second part begins where the first one ends, and no
/// field lies in both.
struct Fields<'a>(&'a [u8], &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        let (taken, rest) = self.part().split_at_checked(len).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(taken)
    }

    /// What is left of the part where the next field is.
    fn part(&mut self) -> &'a [u8] {
        if self.0.is_empty() {
            self.0 = std::mem::take(&mut self.1);
        }
        self.0
    }

    fn word<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        self.take(N)?.try_into().map_err(|_| Errno::INVAL)
    }

    fn u32(&mut self) -> Result<u32, Errno> {
        self.word().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Errno> {
        self.word().map(u64::from_ne_bytes)
    }

    /// A name, which a NUL ends.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.part().iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
        self.take(end)
    }

    /// The beginning of a read or write: handle, offset, length of 32 bits.
    fn range(&mut self) -> Result<Range, Errno> {
        let (handle, offset) = (self.u64()?, self.u64()?);
        Ok(Range { handle, offset, len: u64::from(self.u32()?) })
    }
}

/// Who asks, and for what. The error is for the kernel.
pub(crate) type Parsed<'a> = (Caller, Result<Call<'a>, Errno>);

/// Reads a request. If its header could be read, the inner error is for the kernel.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed<'_>, Errno> {
    let (header, body) = bytes.split_at_checked(REQUEST_HEADER).ok_or(Errno::INVAL)?;
    parse_parts(header, body, &[])
}

/// Reads a request that comes as a header, the fields of the operation, and names or data.
pub(crate) fn parse_parts<'a>(
    header: &[u8],
    body: &'a [u8],
    data: &'a [u8],
) -> Result<Parsed<'a>, Errno> {
    let mut fields = Fields(header, &[]);
    let (len, opcode) = (fields.u32()?, fields.u32()?);
    let (unique, node) = (fields.u64()?, fields.u64()?);
    fields.take(8)?; // uid, gid: the kernel has compared them with the modes
    let thread = fields.u32()?;
    fields.take(4)?;
    let caller = Caller { unique, node, thread };
    let is_whole = len as usize == REQUEST_HEADER + body.len() + data.len();
    let call = if is_whole { call(opcode, Fields(body, data)) } else { Err(Errno::INVAL) };
    Ok((caller, call))
}

fn call<'a>(opcode: u32, mut fields: Fields<'a>) -> Result<Call<'a>, Errno> {
    Ok(match opcode {
        1 => Call::Lookup(fields.name()?),
        3 => Call::GetAttr,
        4 => set_attr(fields)?,
        14 => Call::Open(fields.u32()?),
        15 => Call::Read(fields.range()?),
        16 => write(fields)?,
        17 => Call::StatFs,
        18 => Call::Close(fields.u64()?),
        20 => Call::Fsync,
        26 => Call::Init(hello(fields)?),
        27 => Call::OpenDir,
        29 => Call::CloseDir,
        28 => Call::ReadDir(fields.range()?),
        43 => fallocate(fields)?,
        46 => lseek(fields)?,
        35 => Call::Create,
        // symlink, mknod, mkdir, unlink, rmdir, rename, link, rename2, tmpfile
        6 | 8..=13 | 45 | 51 => Call::ChangeNames,
        38 => Call::Destroy,
        // forget, interrupt, notify_reply, batch_forget
        2 | 36 | 41 | 42 => Call::Note,
        _ => Call::Unknown,
    })
}

fn set_attr(mut fields: Fields<'_>) -> Result<Call<'_>, Errno> {
    let what = fields.u32()?;
    fields.take(12)?;
    Ok(Call::SetAttr(what, fields.u64()?))
}

fn write(mut fields: Fields<'_>) -> Result<Call<'_>, Errno> {
    let range = fields.range()?;
    fields.take(20)?; // flags, of which none concerns a file without set-user-ID bits
    let data = fields.take(range.len as usize)?;
    Ok(Call::Write(range, data))
}

fn fallocate(mut fields: Fields<'_>) -> Result<Call<'_>, Errno> {
    let range = Range { handle: fields.u64()?, offset: fields.u64()?, len: fields.u64()? };
    Ok(Call::Fallocate(range, fields.u32()?))
}

fn lseek(mut fields: Fields<'_>) -> Result<Call<'_>, Errno> {
    let range = Range { handle: fields.u64()?, offset: fields.u64()?, len: 0 };
    Ok(Call::Lseek(range, fields.u32()?))
}

fn hello(mut fields: Fields<'_>) -> Result<Hello, Errno> {
    let (major, minor) = (fields.u32()?, fields.u32()?);
    let (max_readahead, low) = (fields.u32()?, fields.u32()?);
    // Kernels before 5.17 send no second word.
    let high = fields.u32().unwrap_or(0);
    Ok(Hello { major, minor, max_readahead, flags: u64::from(high) << 32 | u64::from(low) })
}

/// What a file is, as `stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    /// The node.
    pub(crate) node: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Bytes of storage, for programs that look for holes.
    pub(crate) held: u64,
    /// Type and permissions, as in `st_mode`.
    pub(crate) mode: u32,
    /// The number of its names.
    pub(crate) links: u32,
    /// The best length of a read, in bytes.
    pub(crate) block_size: u32,
    /// The numbers of its user and its group.
    pub(crate) owner: (u32, u32),
    /// The value of all three times, in seconds.
    pub(crate) time: u64,
}

/// The body of an answer, under construction.
#[derive(Debug, Default)]
pub(crate) struct Body(Vec<u8>);

impl Body {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_ne_bytes())
    }

    pub(crate) fn zeros(&mut self, len: usize) -> &mut Self {
        self.0.resize(self.0.len() + len, 0);
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A name that was found. The kernel must remember neither the name nor the attributes, because
    /// sizes and devices change, and looking a name up need not be fast.
    pub(crate) fn entry(&mut self, attr: &Attr) {
        self.u64(attr.node).u64(0).zeros(24).attr_fields(attr);
    }

    /// Attributes, which the kernel must not remember either.
    pub(crate) fn attr(&mut self, attr: &Attr) {
        self.zeros(16).attr_fields(attr);
    }

    fn attr_fields(&mut self, attr: &Attr) {
        self.u64(attr.node).u64(attr.size).u64(attr.held.div_ceil(512));
        self.u64(attr.time).u64(attr.time).u64(attr.time).zeros(12);
        self.u32(attr.mode).u32(attr.links).u32(attr.owner.0).u32(attr.owner.1);
        self.u32(0).u32(attr.block_size).u32(0);
    }

    pub(crate) fn opened(&mut self, handle: u64, flags: u32) {
        self.u64(handle).u32(flags).u32(0);
    }

    /// A directory entry, unless the answer would exceed `room` bytes.
    pub(crate) fn dirent(
        &mut self,
        node: u64,
        next: u64,
        dir: bool,
        name: &str,
        room: u64,
    ) -> bool {
        const DIRECTORY: u32 = 4;
        const REGULAR: u32 = 8;
        let len = (24 + name.len()).next_multiple_of(8);
        if (self.0.len() + len) as u64 > room {
            return false;
        }
        let kind = if dir { DIRECTORY } else { REGULAR };
        self.u64(node).u64(next).u32(name.len() as u32).u32(kind).raw(name.as_bytes());
        self.zeros(len - 24 - name.len());
        true
    }

    /// A file system that counts neither blocks nor files.
    pub(crate) fn statfs(&mut self) {
        const NAME_MAX: u32 = 255;
        self.zeros(40).u32(4096).u32(NAME_MAX).u32(4096).zeros(28);
    }
}

/// The header of an answer whose body has `len` bytes.
pub(crate) fn answer_header(unique: u64, outcome: Result<usize, Errno>) -> [u8; ANSWER_HEADER] {
    let len = (ANSWER_HEADER + outcome.unwrap_or(0)) as u32;
    let error = outcome.err().map_or(0, |errno| -errno.raw_os_error());
    let mut header = [0; ANSWER_HEADER];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(
            opcode in 0..60_u32,
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if bytes.len() >= 8 {
                let len = bytes.len() as u32;
                bytes[..4].copy_from_slice(&len.to_ne_bytes());
                bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
            }
            let parsed = parse(&bytes);
            prop_assert_eq!(parsed.is_ok(), bytes.len() >= REQUEST_HEADER);
            if let Ok((_, Ok(Call::Write(range, data)))) = parsed {
                prop_assert_eq!(range.len, data.len() as u64);
            }
        }
    }

    fn header(opcode: u32, len: usize) -> [u8; REQUEST_HEADER] {
        let mut header = [0; REQUEST_HEADER];
        header[..4].copy_from_slice(&((REQUEST_HEADER + len) as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&opcode.to_ne_bytes());
        header
    }

    #[test]
    fn a_request_in_parts_is_the_same_request() {
        let mut range = [7_u64.to_ne_bytes(), 8_u64.to_ne_bytes(), 3_u64.to_ne_bytes()].concat();
        range.extend([0; 16]);
        let expected = Range { handle: 7, offset: 8, len: 3 };
        let rows: [(u32, &[u8], &[u8], Call<'_>); 3] = [
            (1, &[], b"name\0", Call::Lookup(b"name")),
            (16, &range, b"abc", Call::Write(expected, b"abc")),
            (15, &range, &[], Call::Read(expected)),
        ];
        for (opcode, body, data, call) in rows {
            let header = header(opcode, body.len() + data.len());
            let parsed = parse_parts(&header, body, data);
            assert_eq!(parsed, parse(&[&header, body, data].concat()));
            assert_eq!(parsed.unwrap().1, Ok(call));
        }
        let parsed = parse_parts(&header(16, range.len() + 3), &range, b"ab").unwrap();
        assert_eq!(parsed.1, Err(Errno::INVAL), "the length is another");
    }

    #[test]
    fn a_directory_entry_that_does_not_fit_is_left_for_later() {
        let mut body = Body::default();
        assert!(body.dirent(2, 1, true, "zram-control", 80));
        assert_eq!(body.bytes().len(), 40, "a multiple of 8");
        assert!(body.dirent(256, 2, true, "zram0", 80));
        assert!(!body.dirent(512, 3, true, "zram1", 80), "80 bytes are full at 72");
        assert_eq!(body.bytes().len(), 72);
    }
}
