//! The last words: a process ends if going on would mean wrong bytes, or waiting for ever.
//!
//! ```text
//!   die("why")                ramfold: why
//!   die_at("why", address)    ramfold: why at 0x00007f3a5c007000
//! ```
//!
//! Invariant: nothing here allocates or takes a lock, so a signal handler may end the process. An
//! address is always one of the process, never an offset.

/// Writes `why` to standard error and aborts the process. May be called in a signal handler.
pub fn die(why: &str) -> ! {
    end([why.as_bytes(), b"\n"])
}

/// Writes `why` and `address` to standard error and aborts the process. May be called in a signal
/// handler.
pub fn die_at(why: &str, address: usize) -> ! {
    end([why.as_bytes(), &at(address)])
}

fn at(address: usize) -> [u8; 23] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut at = *b" at 0x0000000000000000\n";
    for digit in 0..16 {
        at[21 - digit] = DIGITS[address >> (4 * digit) & 0xF];
    }
    at
}

fn end(words: [&[u8]; 2]) -> ! {
    for part in [b"ramfold: ", words[0], words[1]] {
        // SAFETY: writes bytes that are there; whether anybody reads them changes nothing.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    std::process::abort()
}

/// A guard of a thread that others cannot do without: if it is dropped, which a panic does, the
/// process ends.
#[derive(Debug)]
pub struct Vital(&'static str);

impl Vital {
    /// A guard that ends the process with `words`.
    pub fn new(words: &'static str) -> Vital {
        Vital(words)
    }

    /// Removes the guard: the thread ends as it should.
    pub fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        die(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_in_hexadecimal() {
        assert_eq!(&at(0x7f3a_5c00_7000), b" at 0x00007f3a5c007000\n");
        assert_eq!(&at(usize::MAX), b" at 0xffffffffffffffff\n");
    }
}
