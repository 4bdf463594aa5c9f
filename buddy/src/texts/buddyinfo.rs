//! `/proc/buddyinfo`: how many blocks of each order are free.
//!
//! ```text
//! Node 0, zone    DMA32      1      2      4      2  ..  752      (one number for each order)
//! ```
//!
//! Invariant: rendering what was parsed from a kernel's text gives that text, byte for byte.

use super::column;
use super::parse::{Lines, ParseError};
use crate::lists::ZoneCounts;
use crate::numbers::ORDERS;

/// One line: a zone and its free blocks by order, all migratetypes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneTotals {
    /// The node the zone lies in.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// Free blocks by order.
    pub free_blocks: [u64; ORDERS],
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuddyInfo {
    /// Its lines.
    pub zones: Vec<ZoneTotals>,
}

impl ZoneTotals {
    /// The line of a zone with these counts.
    pub fn new(node: u32, zone: &str, counts: &ZoneCounts) -> ZoneTotals {
        ZoneTotals { node, zone: zone.into(), free_blocks: counts.blocks_by_order() }
    }

    /// Appends the line as the kernel's `frag_show` prints it.
    pub fn render(&self, out: &mut String) {
        zone_head(out, self.node, &self.zone);
        self.free_blocks.iter().for_each(|blocks| column::number(out, *blocks, 6));
        out.push('\n');
    }
}

impl BuddyInfo {
    /// Reads a kernel's text, of any number of nodes and zones.
    pub fn parse(text: &str) -> Result<BuddyInfo, ParseError> {
        let mut lines = Lines::new(text);
        let mut zones = Vec::new();
        while zones.is_empty() || lines.peek().is_some() {
            let (node, zone, rest) = lines.zone(" ")?;
            let free_blocks = lines.orders(rest.split_ascii_whitespace())?;
            zones.push(ZoneTotals { node, zone: zone.into(), free_blocks });
        }
        Ok(BuddyInfo { zones })
    }

    /// Appends the text.
    pub fn render(&self, out: &mut String) {
        self.zones.iter().for_each(|zone| zone.render(out));
    }
}

/// `Node 0, zone   Normal `, with which lines of several tables start.
pub(crate) fn zone_head(out: &mut String, node: u32, zone: &str) {
    let mut digits = Default::default();
    out.push_str("Node ");
    out.push_str(column::decimal(node.into(), &mut digits));
    out.push_str(", zone ");
    column::word(out, zone, 8);
    out.push(' ');
}
