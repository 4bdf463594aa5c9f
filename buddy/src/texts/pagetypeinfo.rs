//! `/proc/pagetypeinfo`: free blocks by order and migratetype, and pageblocks by migratetype.
//!
//! ```text
//! Page block order: 9                       each node repeats everything from here on
//! Pages per block:  512
//!
//! Free pages count per migrate type at order       0      1  ..     10      (blocks, not pages)
//! Node    0, zone   Normal, type    Unmovable      0      0  ..      0
//! Node    0, zone   Normal, type      Movable >100000      1  ..   2174     (a count cut short)
//!
//! Number of blocks type     Unmovable      Movable  ..      Isolate
//! Node 0, zone   Normal           48         5584  ..            0
//! ```
//!
//! The kernel stops counting at 100000 because it counts under its lock. Here the number is known.
//! The mark stays, so that a program that reads the kernel's text can read this one.
//! [`TextForm::Exact`] has no mark.
//!
//! Invariant: rendering what was parsed from a kernel's text gives that text, byte for byte.

use super::buddyinfo::zone_head;
use super::column;
use super::parse::{Lines, ParseError, ParseProblem};
use crate::lists::ZoneCounts;
use crate::numbers::{Migratetype, ORDERS, PAGEBLOCK_FRAMES, PAGEBLOCK_ORDER};

/// The kernel counts no further than this: the cell then says "or more".
const COUNT_MAX: u64 = 100_000;

const FREE_HEAD: &str = "Free pages count per migrate type at order";
const BLOCKS_HEAD: &str = "Number of blocks type ";
const MIXED_HEAD: &str = "Number of mixed blocks ";

/// Whether counts end at the kernel's cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// From 100000 on, a cell is `>100000` and its line one column longer: the kernel's bytes.
    Kernel,
    /// Every count in full.
    Exact,
}

/// What the file says of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonePageTypes {
    /// The node the zone lies in.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// Its counts. From a kernel's text, 100000 means that many or more.
    pub counts: ZoneCounts,
    /// Pageblocks that hold runs of another type than their own, by type: only from a kernel that
    /// tracks the owners of its pages.
    pub mixed: Option<[u64; Migratetype::COUNT]>,
}

/// What the file says of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePageTypes {
    /// The order of a pageblock.
    pub pageblock_order: u64,
    /// Frames in a pageblock.
    pub pageblock_frames: u64,
    /// The migratetypes that have lines and columns, in their order.
    pub types: Vec<Migratetype>,
    /// The zones.
    pub zones: Vec<ZonePageTypes>,
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTypeInfo {
    /// The nodes that have memory.
    pub nodes: Vec<NodePageTypes>,
}

impl NodePageTypes {
    /// What to say of a node with one zone of this crate. CMA is there only if pageblocks are.
    pub fn new(node: u32, zone: &str, counts: ZoneCounts) -> NodePageTypes {
        let cma = counts.pageblocks[Migratetype::Cma.index()] > 0;
        let types = Migratetype::ALL.into_iter().filter(|mt| cma || *mt != Migratetype::Cma);
        NodePageTypes {
            pageblock_order: PAGEBLOCK_ORDER.into(),
            pageblock_frames: PAGEBLOCK_FRAMES.into(),
            types: types.collect(),
            zones: vec![ZonePageTypes { node, zone: zone.into(), counts, mixed: None }],
        }
    }

    /// Appends the text, as the kernel's `pagetypeinfo_show` prints it.
    pub fn render(&self, form: TextForm, out: &mut String) {
        out.push_str("Page block order: ");
        out.push_str(column::decimal(self.pageblock_order, &mut Default::default()));
        out.push_str("\nPages per block:  ");
        out.push_str(column::decimal(self.pageblock_frames, &mut Default::default()));
        out.push_str("\n\n");
        self.render_free(form, out);
        self.render_table(BLOCKS_HEAD, |zone| Some(&zone.counts.pageblocks), out);
        if self.zones.iter().any(|zone| zone.mixed.is_some()) {
            self.render_table(MIXED_HEAD, |zone| zone.mixed.as_ref(), out);
        }
    }

    /// The kernel's `pagetypeinfo_showfree`.
    fn render_free(&self, form: TextForm, out: &mut String) {
        column::left_word(out, FREE_HEAD, 43);
        out.push(' ');
        (0..ORDERS as u64).for_each(|order| column::number(out, order, 6));
        out.push('\n');
        for zone in &self.zones {
            for mt in &self.types {
                zone.render_free(*mt, form, out);
            }
        }
    }

    /// The kernel's `pagetypeinfo_showblockcount`, and of mixed blocks the same.
    fn render_table<'a>(
        &'a self,
        head: &str,
        cells: impl Fn(&'a ZonePageTypes) -> Option<&'a [u64; Migratetype::COUNT]>,
        out: &mut String,
    ) {
        out.push('\n');
        column::left_word(out, head, 23);
        for mt in &self.types {
            column::word(out, mt.name(), 12);
            out.push(' ');
        }
        out.push('\n');
        for zone in &self.zones {
            let Some(cells) = cells(zone) else { continue };
            zone_head(out, zone.node, &zone.zone);
            self.types.iter().for_each(|mt| column::number(out, cells[mt.index()], 12));
            out.push('\n');
        }
    }

    fn parse(lines: &mut Lines<'_>) -> Result<NodePageTypes, ParseError> {
        let order = lines.after("Page block order: ")?;
        let pageblock_order = lines.last_number(order)?;
        let frames = lines.after("Pages per block:  ")?;
        let pageblock_frames = lines.last_number(frames)?;
        lines.blank()?;
        let (types, zones) = (Vec::new(), Vec::new());
        let mut node = NodePageTypes { pageblock_order, pageblock_frames, types, zones };
        node.parse_free(lines)?;
        node.parse_table(lines, BLOCKS_HEAD, |zone| &mut zone.counts.pageblocks)?;
        if lines.peek() == Some("") {
            node.parse_table(lines, MIXED_HEAD, |zone| zone.mixed.get_or_insert_default())?;
        }
        Ok(node)
    }

    fn parse_free(&mut self, lines: &mut Lines<'_>) -> Result<(), ParseError> {
        let orders = lines.after(FREE_HEAD)?;
        let orders = lines.orders(orders.split_ascii_whitespace())?;
        if orders != std::array::from_fn(|order| order as u64) {
            return lines.error(ParseProblem::Expected("the orders 0 to 10"));
        }
        let mut row = 0;
        while self.zones.is_empty() || lines.peek() != Some("") {
            let (node, zone, mt, free) = free_line(lines)?;
            if self.zones.last().is_none_or(|last| (last.node, &*last.zone) != (node, zone)) {
                self.all_types_read(row, lines)?;
                self.zones.push(ZonePageTypes::empty(node, zone));
                row = 0;
            }
            if self.zones.len() == 1 && !self.types.contains(&mt) {
                self.types.push(mt);
            }
            let zone = self.zones.last_mut().filter(|_| self.types.get(row) == Some(&mt));
            let Some(zone) = zone else { return lines.error(ParseProblem::OtherTable) };
            zone.counts.free_blocks[mt.index()] = free;
            row += 1;
        }
        self.all_types_read(row, lines)
    }

    /// The first zone says which types there are; each other one has the same.
    fn all_types_read(&self, rows: usize, lines: &Lines<'_>) -> Result<(), ParseError> {
        if rows == self.types.len() { Ok(()) } else { lines.error(ParseProblem::OtherTable) }
    }

    fn parse_table(
        &mut self,
        lines: &mut Lines<'_>,
        head: &'static str,
        cells: impl Fn(&mut ZonePageTypes) -> &mut [u64; Migratetype::COUNT],
    ) -> Result<(), ParseError> {
        lines.blank()?;
        let names = lines.after(head)?.split_ascii_whitespace();
        if !names.eq(self.types.iter().map(|mt| mt.name())) {
            return lines.error(ParseProblem::OtherTable);
        }
        for zone in &mut self.zones {
            let (node, name, rest) = lines.zone(" ")?;
            if (node, name) != (zone.node, &zone.zone) {
                return lines.error(ParseProblem::OtherTable);
            }
            let mut words = rest.split_ascii_whitespace();
            for mt in &self.types {
                cells(zone)[mt.index()] = lines.number(words.next().unwrap_or_default())?;
            }
            lines.end(words)?;
        }
        Ok(())
    }
}

impl ZonePageTypes {
    fn empty(node: u32, zone: &str) -> ZonePageTypes {
        ZonePageTypes { node, zone: zone.into(), counts: ZoneCounts::default(), mixed: None }
    }

    fn render_free(&self, mt: Migratetype, form: TextForm, out: &mut String) {
        out.push_str("Node ");
        let mut digits = Default::default();
        column::word(out, column::decimal(self.node.into(), &mut digits), 4);
        out.push_str(", zone ");
        column::word(out, &self.zone, 8);
        out.push_str(", type ");
        column::word(out, mt.name(), 12);
        out.push(' ');
        for blocks in self.counts.free_blocks[mt.index()] {
            if form == TextForm::Kernel && blocks >= COUNT_MAX {
                out.push('>');
                column::number(out, COUNT_MAX, 6);
            } else {
                column::number(out, blocks, 6);
            }
        }
        out.push('\n');
    }
}

impl PageTypeInfo {
    /// Reads a kernel's text, of any number of nodes and zones.
    pub fn parse(text: &str) -> Result<PageTypeInfo, ParseError> {
        let mut lines = Lines::new(text);
        let mut nodes = Vec::new();
        while nodes.is_empty() || lines.peek().is_some() {
            nodes.push(NodePageTypes::parse(&mut lines)?);
        }
        Ok(PageTypeInfo { nodes })
    }

    /// Appends the text.
    pub fn render(&self, form: TextForm, out: &mut String) {
        self.nodes.iter().for_each(|node| node.render(form, out));
    }
}

/// `Node    0, zone   Normal, type      Movable      0 ...`
fn free_line<'a>(
    lines: &mut Lines<'a>,
) -> Result<(u32, &'a str, Migratetype, [u64; ORDERS]), ParseError> {
    let (node, zone, rest) = lines.zone(", type ")?;
    let mut words = rest.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    match Migratetype::ALL.into_iter().find(|mt| mt.name() == name) {
        Some(mt) => Ok((node, zone, mt, lines.orders(words)?)),
        None => lines.error(ParseProblem::UnknownType),
    }
}
