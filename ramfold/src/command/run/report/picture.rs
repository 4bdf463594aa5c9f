//! The picture of a report: three panels over one axis of time, as SVG.
//!
//! ```text
//!   memory           unfolded, resident, held, limit
//!   faults           a second, that fetched pages from the store
//!   waiting          percent of the time in which threads waited for room
//! ```
//!
//! A line has a colour and a dash of its own, so that it is told apart without colours. The colours
//! are those of the reader's scheme, light or dark.
//!
//! Invariant: all that is drawn lies in the frame, whatever the figures are. Locks: none.

mod scale;

use std::fmt::Write;

use super::document::Facts;
use super::series::Sample;
use crate::line::size::{human, short};
use scale::{Panel, RIGHT, WIDTH, ticks, time_label, time_step};

const HEIGHT: f64 = 520.0;
const STYLE: &str = include_str!("picture/style.css");

/// The panels: the top, the height.
const MEMORY: (f64, f64) = (78.0, 210.0);
const FAULTS: (f64, f64) = (324.0, 62.0);
const WAITING: (f64, f64) = (428.0, 62.0);

/// A line of the panel of memory.
struct Curve {
    name: &'static str,
    class: &'static str,
    of: fn(&Sample) -> u64,
}

const CURVES: [Curve; 4] = [
    Curve { name: "without folding", class: "unfolded", of: |it| it.moment.unfolded },
    Curve { name: "limit", class: "limit", of: |it| it.moment.limit },
    Curve { name: "resident", class: "resident", of: |it| it.moment.resident },
    Curve { name: "of it compressed", class: "held", of: |it| it.moment.held },
];

/// A file of its own. The figures are inside.
pub(super) fn alone(facts: &Facts, samples: &[Sample], figures: &str) -> String {
    drawn(facts, samples, &format!("<metadata>{}</metadata>\n", escaped(figures)))
}

/// A page with the picture, and the figures for programs.
pub(super) fn page(facts: &Facts, samples: &[Sample], figures: &str) -> String {
    let title = escaped(&title(facts));
    // In JSON these stand in strings alone, and a page's reader would take them for tags.
    let figures = figures.replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>html {{ color-scheme: light dark; }} svg {{ max-width: 100%; }}</style>\n{}\
         <script type=\"application/json\" id=\"figures\">\n{figures}</script>\n</html>\n",
        drawn(facts, samples, "")
    )
}

fn drawn(facts: &Facts, samples: &[Sample], metadata: &str) -> String {
    let until = samples.last().map_or(0.0, |last| last.at.as_secs_f64()).max(0.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\n<title>{}</title>\n{metadata}\
         <style>\n{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        escaped(&title(facts))
    );
    text(&mut svg, (16.0, 24.0), "title", &shortened(&title(facts), 90));
    text(&mut svg, (16.0, 44.0), "note", &summary(facts));
    legend(&mut svg);
    memory(&mut svg, samples, until);
    faults(&mut svg, samples, until);
    waiting(&mut svg, samples, until);
    times(&mut svg, until);
    svg.push_str("</svg>\n");
    svg
}

fn title(facts: &Facts) -> String {
    format!("ramfold run -- {}", facts.command.join(" "))
}

fn summary(facts: &Facts) -> String {
    let (peak, limit) = (human(facts.tally.peak), human(facts.limit));
    let unfolded = human(facts.tally.unfolded);
    let end = facts.end.as_deref().unwrap_or("running");
    format!(
        "{peak} at most, with a limit of {limit}, instead of {unfolded}; {}; {:.1} s, {end}",
        facts.algorithm,
        facts.at.as_secs_f64()
    )
}

/// The first characters of a text that is too long for the picture.
fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most).chain("...".chars()).collect(),
        false => text.to_owned(),
    }
}

fn legend(svg: &mut String) {
    for (curve, place) in CURVES.iter().zip(0_u32..) {
        let x = 16.0 + 150.0 * f64::from(place);
        let (class, end) = (curve.class, x + 24.0);
        put(svg, format_args!("<path class=\"{class}\" d=\"M{x} 61H{end}\"/>"));
        text(svg, (end + 6.0, 65.0), "note", curve.name);
    }
}

fn memory(svg: &mut String, samples: &[Sample], until: f64) {
    let of = |sample: &Sample| CURVES.iter().map(|curve| (curve.of)(sample)).max().unwrap_or(0);
    let most = samples.iter().map(of).max().unwrap_or(0).max(1);
    let panel = Panel::new(MEMORY, most as f64 * 1.05, until);
    let step = (most / 4).max(1).next_power_of_two();
    grid(svg, &panel, step as f64, |bytes| short(bytes as u64));
    for curve in &CURVES {
        let points = samples.iter().map(|it| (it.at.as_secs_f64(), (curve.of)(it) as f64));
        line(svg, &panel, curve.class, points);
    }
}

fn faults(svg: &mut String, samples: &[Sample], until: f64) {
    let rates = rates(samples);
    let most = rates.iter().copied().fold(1.0, f64::max);
    let panel = Panel::new(FAULTS, most * 1.05, until);
    text(svg, (16.0, FAULTS.0 - 14.0), "note", "faults a second that fetched pages from the store");
    grid(svg, &panel, scale::step(most / 2.0), |rate| format!("{rate:.0}"));
    line(svg, &panel, "faults", seconds(samples).zip(rates));
}

fn waiting(svg: &mut String, samples: &[Sample], until: f64) {
    let panel = Panel::new(WAITING, 100.0, until);
    text(
        svg,
        (16.0, WAITING.0 - 14.0),
        "note",
        "percent of the time in which threads waited for room",
    );
    grid(svg, &panel, 50.0, |percent| format!("{percent:.0}"));
    line(svg, &panel, "waiting", seconds(samples).zip(shares(samples)));
}

fn seconds(samples: &[Sample]) -> impl Iterator<Item = f64> {
    samples.iter().map(|sample| sample.at.as_secs_f64())
}

/// Each sample with the one before it; the first with the beginning.
fn steps(samples: &[Sample]) -> impl DoubleEndedIterator<Item = (Sample, Sample)> {
    let before = (0..samples.len()).map(|at| match at.checked_sub(1) {
        Some(before) => samples[before],
        None => Sample::default(),
    });
    before.zip(samples.iter().copied())
}

/// Faults a second that fetched pages from the store.
fn rates(samples: &[Sample]) -> Vec<f64> {
    let rate = |(before, sample): (Sample, Sample)| {
        let seconds = (sample.at - before.at).as_secs_f64().max(0.001);
        let [from, to] = [before, sample].map(|it| it.moment.counts.stored_faults);
        to.saturating_sub(from) as f64 / seconds
    };
    steps(samples).map(rate).collect()
}

/// Percent of the time in which threads waited. A wait is counted when it ends; the part of it that
/// does not fit one sample belongs to those before.
fn shares(samples: &[Sample]) -> Vec<f64> {
    let mut carried = 0.0;
    let mut shares: Vec<f64> = Vec::with_capacity(samples.len());
    for (before, sample) in steps(samples).rev() {
        let seconds = (sample.at - before.at).as_secs_f64().max(0.001);
        let whole = seconds * sample.moment.processes.max(1) as f64;
        let [from, to] = [before, sample].map(|it| it.moment.counts.stall_ns);
        let waited = to.saturating_sub(from) as f64 / 1e9 + carried;
        carried = (waited - whole).max(0.0);
        shares.push((waited - carried) / whole * 100.0);
    }
    shares.reverse();
    shares
}

/// Horizontal lines, each with what it stands for.
fn grid(svg: &mut String, panel: &Panel, step: f64, label: impl Fn(f64) -> String) {
    for value in ticks(panel.most, step) {
        let (y, left, right) = (panel.y(value), panel.x(0.0), WIDTH - RIGHT);
        put(svg, format_args!("<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"));
        text(svg, (left - 6.0, y + 4.0), "value", &label(value));
    }
}

/// The axis of time, under all panels.
fn times(svg: &mut String, until: f64) {
    let panel = Panel::new(WAITING, 1.0, until);
    let step = time_step(until);
    for at in ticks(until, step) {
        text(svg, (panel.x(at), HEIGHT - 12.0), "time", &time_label(at, step));
    }
}

fn line(svg: &mut String, panel: &Panel, class: &str, points: impl Iterator<Item = (f64, f64)>) {
    let mut list = String::new();
    for (x, y) in points {
        // Writing to a string cannot fail.
        let _ = write!(list, "{:.1},{:.1} ", panel.x(x), panel.y(y));
    }
    put(svg, format_args!("<polyline class=\"{class}\" points=\"{}\"/>", list.trim_end()));
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, text: &str) {
    let text = escaped(text);
    put(svg, format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
}

fn put(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "{element}");
}

/// Text that stands in XML. Control characters cannot, except those between words.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => shown.extend(c.escape_debug()),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::document::{self, example};
    use super::*;

    fn picture(looks: u64) -> String {
        let (facts, samples) = example(looks);
        alone(&facts, &samples, &document::text(&facts, &samples))
    }

    /// The values of an attribute.
    fn values<'a>(svg: &'a str, name: &str) -> Vec<&'a str> {
        let start = format!(" {name}=\"");
        let rest = svg.split(&*start).skip(1);
        rest.filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn every_line_has_a_point_for_each_sample_inside_the_frame() {
        let svg = picture(40);
        let lines = values(&svg, "points");
        assert_eq!(lines.len(), CURVES.len() + 2);
        for line in lines {
            let points: Vec<&str> = line.split(' ').collect();
            assert_eq!(points.len(), 40, "{line}");
            for point in points {
                let (x, y) = point.split_once(',').expect("a pair");
                let inside = |text: &str, most: f64| {
                    text.parse::<f64>().is_ok_and(|value| (0.0..=most).contains(&value))
                };
                assert!(inside(x, WIDTH) && inside(y, HEIGHT), "{point}");
            }
        }
    }

    #[test]
    fn a_picture_is_xml_with_the_figures_and_two_schemes_in_it() {
        let svg = picture(3);
        let opened = svg.matches("<text").count() + svg.matches("<style").count();
        assert_eq!(opened, svg.matches("</text>").count() + svg.matches("</style>").count());
        assert!(svg.contains("sort a&lt;b&gt;&amp;\"c\"") && !svg.contains("a<b"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
        assert!(svg.contains("<metadata>{\"command\"") && svg.ends_with("</svg>\n"), "{svg}");
        for curve in &CURVES {
            let rule = format!(".{} {{", curve.class);
            assert!(STYLE.contains(&rule), "{rule}");
        }
    }

    #[test]
    fn a_page_has_picture_and_figures() {
        let (facts, samples) = example(3);
        let figures = document::text(&facts, &samples);
        let html = page(&facts, &samples, &figures);
        let inner = html.split("id=\"figures\">").nth(1).expect("the figures");
        let inner = inner.split("</script>").next().expect("their end");
        assert!(!inner.contains('<'), "{inner}");
        let [read, expected] = [inner, &figures]
            .map(|text| serde_json::from_str::<serde_json::Value>(text).expect("JSON"));
        assert_eq!(read, expected);
        assert!(html.contains("<svg") && !html.contains("<metadata>"), "{html}");
    }

    #[test]
    fn figures_of_any_size_are_drawn() {
        for looks in [0, 1, 2] {
            let svg = picture(looks);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let (facts, mut samples) = example(2);
        samples[1].moment.resident = u64::MAX;
        samples[1].moment.counts.stored_faults = u64::MAX;
        samples[1].moment.counts.stall_ns = u64::MAX;
        let svg = alone(&facts, &samples, "{}");
        assert!(!svg.contains("NaN") && svg.len() < 100_000, "{}", svg.len());
    }

    #[test]
    fn a_wait_that_ends_belongs_to_the_time_before_it() {
        let (_, mut samples) = example(4);
        samples.iter_mut().for_each(|sample| sample.moment.counts.stall_ns = 0);
        samples[3].moment.counts.stall_ns = 250_000_000;
        let rounded = shares(&samples).iter().map(|share| share.round()).collect::<Vec<f64>>();
        assert_eq!(rounded, [0.0, 50.0, 100.0, 100.0]);
        assert_eq!(rates(&samples).iter().map(|rate| rate.round()).sum::<f64>(), 4000.0);
    }
}
