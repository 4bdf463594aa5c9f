//! The decoder's naive twin, which reads byte by byte as the description of the stream says.

use ramfold_codec::PAGE_LEN_MAX;

/// What `blob` says a page of `len` bytes is.
pub(crate) fn decompress(blob: &[u8], len: usize) -> Option<Vec<u8>> {
    any_length(blob).filter(|page| page.len() == len)
}

/// What `blob` says a page of any length is.
pub(crate) fn any_length(blob: &[u8]) -> Option<Vec<u8>> {
    let (runs, rest) = match blob {
        [17, version, rest @ ..] if blob.len() >= 5 && *version < 2 => (*version == 1, rest),
        [17, ..] if blob.len() >= 5 => return None,
        _ => (false, blob),
    };
    let mut twin = Twin { bytes: rest.iter().copied(), page: Vec::new(), runs };
    twin.read()?;
    twin.bytes.next().is_none().then_some(twin.page)
}

struct Twin<I> {
    bytes: I,
    page: Vec<u8>,
    runs: bool,
}

impl<I: Iterator<Item = u8> + Clone> Twin<I> {
    fn read(&mut self) -> Option<()> {
        let mut state = 0;
        if let Some(first @ 18..) = self.bytes.clone().next() {
            self.bytes.next();
            self.literals(usize::from(first) - 17)?;
            state = usize::from(first - 17).min(4);
        }
        loop {
            let code = usize::from(self.bytes.next()?);
            match code {
                0..16 if state == 0 => {
                    let count = if code == 0 { self.extended(15)? } else { code };
                    self.literals(3 + count)?;
                    state = 4;
                    continue;
                }
                0..16 => {
                    let high = usize::from(self.bytes.next()?);
                    let distance = (high << 2) + (code >> 2) + 1;
                    match state {
                        4 => self.copy(distance + 2048, 3)?,
                        _ => self.copy(distance, 2)?,
                    }
                    state = code & 3;
                }
                16..32 => match self.special(code)? {
                    Some(after) => state = after,
                    None => return Some(()),
                },
                32..64 => {
                    let len = if code == 32 { self.extended(31)? } else { code & 31 };
                    let pair = self.pair()?;
                    self.copy((pair >> 2) + 1, len + 2)?;
                    state = pair & 3;
                }
                _ => {
                    let high = usize::from(self.bytes.next()?);
                    self.copy((high << 3) + ((code >> 2) & 7) + 1, (code >> 5) + 1)?;
                    state = code & 3;
                }
            }
            self.literals(state)?;
        }
    }

    /// A run or the end. Copies from so far back that they share the code find no source in a page.
    fn special(&mut self, code: usize) -> Option<Option<usize>> {
        let pair = self.pair()?;
        if self.runs && code >= 24 && pair >> 2 == 0x3fff {
            let len = (usize::from(self.bytes.next()?) << 3) + (code & 7) + 4;
            self.push_all(std::iter::repeat_n(0, len))?;
            return Some(Some(pair & 3));
        }
        (code == 17 && pair == 0).then_some(None)
    }

    fn extended(&mut self, full: usize) -> Option<usize> {
        let mut len = full;
        loop {
            match self.bytes.next()? {
                0 => len += 255,
                more => return Some(len + usize::from(more)),
            }
        }
    }

    fn pair(&mut self) -> Option<usize> {
        Some(usize::from(self.bytes.next()?) | usize::from(self.bytes.next()?) << 8)
    }

    fn literals(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| {
            let byte = self.bytes.next()?;
            self.push_all([byte])
        })
    }

    fn copy(&mut self, distance: usize, len: usize) -> Option<()> {
        (0..len).try_for_each(|_| {
            let byte = self.page[self.page.len().checked_sub(distance)?];
            self.push_all([byte])
        })
    }

    fn push_all(&mut self, bytes: impl IntoIterator<Item = u8>) -> Option<()> {
        self.page.extend(bytes);
        (self.page.len() <= PAGE_LEN_MAX).then_some(())
    }
}
