//! Reading the kernel's tables line by line.
//!
//! Invariant: whatever the text, the answer is values or a [`ParseError`] that names the line.
//! Spaces may be any number where the kernel pads; words and numbers must be the kernel's.

use std::error::Error;
use std::fmt;
use std::iter::{Enumerate, Peekable};
use std::str::SplitAsciiWhitespace;

use crate::numbers::ORDERS;

/// Where a text stops being one of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: ParseProblem,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseProblem {
    /// It is not the line that belongs there.
    Expected(&'static str),
    /// A number is missing, or is none, or does not fit 64 bits.
    BadNumber,
    /// It goes on after its last column.
    TooLong,
    /// No migratetype has that name.
    UnknownType,
    /// Its migratetypes or its zone are not those of the table before.
    OtherTable,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.problem {
            ParseProblem::Expected(what) => write!(f, "expected \"{what}\""),
            ParseProblem::BadNumber => f.write_str("a number is missing or is none"),
            ParseProblem::TooLong => f.write_str("more columns than expected"),
            ParseProblem::UnknownType => f.write_str("an unknown migratetype"),
            ParseProblem::OtherTable => f.write_str("types or zones of another table"),
        }
    }
}

impl Error for ParseError {}

/// The lines of a text that are still to be read.
pub(crate) struct Lines<'a> {
    lines: Peekable<Enumerate<std::str::Lines<'a>>>,
    line: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Lines<'a> {
        Lines { lines: text.lines().enumerate().peekable(), line: 0 }
    }

    /// An error on the line that was read last.
    pub(crate) fn error<T>(&self, problem: ParseProblem) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, problem })
    }

    pub(crate) fn peek(&mut self) -> Option<&'a str> {
        self.lines.peek().map(|(_, line)| *line)
    }

    /// The rest of the next line, which starts with `prefix`.
    pub(crate) fn after(&mut self, prefix: &'static str) -> Result<&'a str, ParseError> {
        let (index, line) = self.lines.next().unwrap_or((self.line, ""));
        self.line = index + 1;
        match line.strip_prefix(prefix) {
            Some(rest) => Ok(rest),
            None => self.error(ParseProblem::Expected(prefix)),
        }
    }

    /// An empty line.
    pub(crate) fn blank(&mut self) -> Result<(), ParseError> {
        let rest = self.after("")?;
        if rest.is_empty() { Ok(()) } else { self.error(ParseProblem::Expected("an empty line")) }
    }

    /// A line that starts with `Node N, zone NAME`, where the name ends before `end`; gives the
    /// node, the name and the rest.
    pub(crate) fn zone(
        &mut self,
        end: &'static str,
    ) -> Result<(u32, &'a str, &'a str), ParseError> {
        let rest = self.after("Node")?;
        let Some((node, rest)) = rest.split_once(", zone") else {
            return self.error(ParseProblem::Expected(", zone"));
        };
        let node = self.number(node.trim_start())?;
        let Some((name, rest)) = rest.trim_start().split_once(end) else {
            return self.error(ParseProblem::Expected(end));
        };
        match u32::try_from(node) {
            Ok(node) => Ok((node, name, rest)),
            Err(_) => self.error(ParseProblem::BadNumber),
        }
    }

    /// Only digits are a number: no sign, no separator.
    pub(crate) fn number(&self, word: &str) -> Result<u64, ParseError> {
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        match word.parse() {
            Ok(number) if digits => Ok(number),
            _ => self.error(ParseProblem::BadNumber),
        }
    }

    /// The only number that is left of a line.
    pub(crate) fn last_number(&self, rest: &str) -> Result<u64, ParseError> {
        let mut words = rest.split_ascii_whitespace();
        let number = self.number(words.next().unwrap_or_default())?;
        self.end(words)?;
        Ok(number)
    }

    /// One cell for each order, and nothing after them. `>` before a number is the kernel's "or
    /// more".
    pub(crate) fn orders(
        &self,
        mut words: SplitAsciiWhitespace<'_>,
    ) -> Result<[u64; ORDERS], ParseError> {
        let mut cells = [0; ORDERS];
        for cell in &mut cells {
            let word = words.next().unwrap_or_default();
            *cell = self.number(word.strip_prefix('>').unwrap_or(word))?;
        }
        self.end(words)?;
        Ok(cells)
    }

    pub(crate) fn end(&self, mut words: SplitAsciiWhitespace<'_>) -> Result<(), ParseError> {
        match words.next() {
            None => Ok(()),
            Some(_) => self.error(ParseProblem::TooLong),
        }
    }
}
