//! A chart as a file of its own, for a document.
//!
//! ```text
//!   the drawing of the page, and below it the names of the curves
//!   <desc>   machine, and the records that it is drawn from
//!   <style>  light or dark, as the reader's page is
//! ```
//!
//! Invariant: it is drawn from nothing but the records in its `<desc>` and the published tables, so
//! that drawing it again gives the same bytes.

use super::chart;
use super::page::{Section, escaped};
use crate::ground::LabError;

const STYLE: &str = "svg { background: #fff } text { fill: #1a1a1a; font-family: sans-serif } \
    @media (prefers-color-scheme: dark) { svg { background: #16181d } text { fill: #e6e6e6 } \
    [stroke=\"#000000\"] { stroke: #e6e6e6 } [stroke=\"#595959\"] { stroke: #b0b0b0 } \
    [fill=\"#595959\"] { fill: #b0b0b0 } }";

/// Height of a line of the key, and of what it has to the left.
const LINE: u32 = 22;
const LEFT: u32 = 76;

/// The chart of a section as an SVG file.
pub(crate) fn file(section: &Section) -> Result<String, LabError> {
    let svg = chart::draw(&section.axes(), &section.curves)?;
    let height = chart::HEIGHT + LINE * section.curves.len() as u32 + LINE / 2;
    let old = format!("height=\"{0}\" viewBox=\"0 0 {1} {0}\"", chart::HEIGHT, chart::WIDTH);
    let new = format!("height=\"{height}\" viewBox=\"0 0 {} {height}\"", chart::WIDTH);
    let svg = svg.replacen(&old, &new, 1);
    let (title, about) = (escaped(section.title), escaped(&about(section)));
    let head = format!("<title>{title}</title>\n<desc>{about}</desc>\n<style>{STYLE}</style>\n");
    let start = svg.find('>').map_or(0, |at| at + 1);
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    Ok(format!("{}\n{head}{}{}</svg>\n", &svg[..start], &svg[start..end], key(section)))
}

/// The machine and the records.
fn about(section: &Section) -> String {
    let mut records: Vec<&str> = section.records().collect();
    records.sort_unstable();
    records.dedup();
    format!("{}: {}", section.machine, records.join(", "))
}

fn key(section: &Section) -> String {
    let lines = chart::named(&section.curves).enumerate().map(|(number, (curve, colour))| {
        let y = chart::HEIGHT + LINE * number as u32;
        let (top, base, name) = (y, y + 11, escaped(&curve.name));
        format!(
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n\
             <text x=\"{}\" y=\"{base}\" font-size=\"15\">{name}</text>\n",
            LEFT + 20
        )
    });
    lines.collect()
}
