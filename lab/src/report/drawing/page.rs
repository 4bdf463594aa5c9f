//! The report as one HTML page that loads nothing.
//!
//! ```text
//!   head: styles, for light, dark and paper
//!   a list of the charts
//!   each chart: drawing, key, note, records, and the drawn rows as a table
//! ```
//!
//! Invariant: the table of a chart has a row for each mark.

use super::chart::{self, Axes, Curve, Origin, Point};
use crate::ground::LabError;
use std::fmt::Write;

/// One chart with what stands around it.
pub(crate) struct Section {
    /// Unique on the page.
    pub(crate) id: String,
    pub(crate) title: &'static str,
    /// The machine that ours and the kernel's figures are from.
    pub(crate) machine: String,
    pub(crate) places: Vec<String>,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) logarithmic: bool,
    pub(crate) curves: Vec<Curve>,
    pub(crate) note: &'static str,
}

impl Section {
    pub(crate) fn axes(&self) -> Axes<'_> {
        let (x, y, logarithmic) = (self.x, self.y, self.logarithmic);
        Axes { places: &self.places, x, y, logarithmic }
    }

    /// The records that measured points are from.
    pub(crate) fn records(&self) -> impl Iterator<Item = &str> {
        let measured = self.curves.iter().filter(|curve| curve.origin != Origin::Published);
        measured.flat_map(|curve| &curve.points).map(|point| &*point.source)
    }
}

const STYLE: &str = include_str!("report.css");

/// The whole page.
pub(crate) fn page(sections: &[Section]) -> Result<String, LabError> {
    let mut html =
        String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.push_str("<link rel=\"icon\" href=\"data:,\">\n<title>ramfold: the studies</title>\n");
    html.push_str(&format!("<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"));
    html.push_str(HEAD);
    html.push_str("<nav>\n<ul>\n");
    for section in sections {
        let (id, title, machine) = (&section.id, escaped(section.title), escaped(&section.machine));
        html.push_str(&format!("<li><a href=\"#{id}\">{title}</a> ({machine})</li>\n"));
    }
    html.push_str("</ul>\n</nav>\n");
    for section in sections {
        html.push_str(&section_html(section)?);
    }
    html.push_str("</main>\n</body>\n</html>\n");
    Ok(html)
}

const HEAD: &str = "<h1>ramfold: the studies</h1>\n\
    <p>A filled mark is a figure of ramfold's: the median of its runs, with a bar from the \
    smallest to the largest. A hollow mark is the kernel's, measured on the same machine, or was \
    published. Each chart names its machine and its records, and its table has every figure \
    that is drawn.</p>\n";

fn section_html(section: &Section) -> Result<String, LabError> {
    let svg = chart::draw(&section.axes(), &section.curves)?;
    let title = escaped(section.title);
    let named = format!("<svg role=\"img\" aria-label=\"{title}\" ");
    let svg = svg.replacen("<svg ", &named, 1);
    let (id, machine, note) = (&section.id, escaped(&section.machine), escaped(section.note));
    let (key, rows) = (key(&section.curves), table(section));
    Ok(format!(
        "<section id=\"{id}\">\n<h2>{title}</h2>\n<p class=\"machine\">{machine}</p>\n\
         <figure>\n{svg}\n<figcaption>{key}</figcaption>\n</figure>\n<p>{note}</p>\n{rows}\
         </section>\n"
    ))
}

/// The names of the curves beside their colours.
fn key(curves: &[Curve]) -> String {
    let items = chart::named(curves).map(|(curve, colour)| {
        let kind = if curve.origin == Origin::Ours { "filled" } else { "hollow" };
        let name = escaped(&curve.name);
        format!("<li><span class=\"{kind}\" style=\"--colour: {colour}\"></span>{name}</li>")
    });
    format!("<ul class=\"key\">{}</ul>", items.collect::<String>())
}

fn table(section: &Section) -> String {
    let mut rows = String::new();
    for curve in &section.curves {
        for point in &curve.points {
            let cells = [
                escaped(&curve.name),
                escaped(section.places.get(point.at).map_or("", String::as_str)),
                chart::short(point.value),
                spread(point),
                escaped(&point.source),
            ];
            let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
            // Writing to a string does not fail.
            let _ = writeln!(rows, "<tr>{cells}</tr>");
        }
    }
    let heads = ["curve", section.x, section.y, "smallest to largest", "from"];
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    format!(
        "<details>\n<summary>The figures</summary>\n<table>\n<thead><tr>{heads}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n</details>\n"
    )
}

fn spread(point: &Point) -> String {
    point.spread.map_or_else(String::new, |(low, high)| {
        format!("{} to {}", chart::short(low), chart::short(high))
    })
}

/// Text as HTML and SVG write it.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let point = |at, value| Point { at, value, spread: None, source: "a.json".into() };
        let curve = Curve {
            name: "<ours>".into(),
            origin: Origin::Ours,
            points: vec![point(0, 1.0), point(1, 2.0)],
        };
        Section {
            id: "x".into(),
            title: "T & t",
            machine: "m".into(),
            places: vec!["a".into(), "b".into()],
            x: "x",
            y: "y",
            logarithmic: false,
            curves: vec![curve],
            note: "",
        }
    }

    #[test]
    fn a_chart_has_as_many_rows_as_marks() {
        let html = page(&[section()]).unwrap();
        let rows = html.matches("<tr><td>").count();
        assert_eq!((html.matches("<circle").count(), rows), (2, 2), "{html}");
    }

    #[test]
    fn names_are_text_and_nothing_is_loaded() {
        let html = page(&[section()]).unwrap();
        assert!(html.contains("&lt;ours&gt;") && html.contains("T &amp; t"), "{html}");
        let addresses = html.matches("://").count();
        let namespaces = html.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(addresses, namespaces, "an address that is not the name of SVG's elements");
    }
}
