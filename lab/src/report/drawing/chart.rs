//! A chart of some curves over named places, as SVG.
//!
//! ```text
//!    y |        o----o        a mark for each point; a bar through it from the smallest to the
//!      |   o----|             largest of its runs
//!      +---64--128--256--     places are the same distance apart
//! ```
//!
//! Invariant: marks are the only circles of the drawing, one for each point.

use crate::ground::LabError;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::{
    ChartBuilder, Circle, Color, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, RGBColor,
    SVGBackend,
};
use std::fmt::Display;

/// Points of a curve.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) points: Vec<Point>,
}

/// Whose figures a curve has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Published,
    Kernel,
    Ours,
}

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// The place on the axis, by its number.
    pub(crate) at: usize,
    pub(crate) value: f64,
    /// The smallest and the largest of its runs; `None` where one figure is all there is.
    pub(crate) spread: Option<(f64, f64)>,
    /// The record that it is from, or the table.
    pub(crate) source: String,
}

/// What the axes say.
pub(crate) struct Axes<'a> {
    pub(crate) places: &'a [String],
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) logarithmic: bool,
}

pub(crate) const WIDTH: u32 = 760;
pub(crate) const HEIGHT: u32 = 400;
const MARK: i32 = 4;

/// Colours that readers of all kinds tell apart (Okabe and Ito, 2008); the page has their forms for
/// a dark ground.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x8B, 0x5A, 0x2B),
    RGBColor(0x6A, 0x3D, 0x9A),
];

/// Published curves are grey on every chart.
const GREYS: [RGBColor; 2] = [RGBColor(0x59, 0x59, 0x59), RGBColor(0x94, 0x94, 0x94)];

/// A colour for each curve.
fn colours(curves: &[Curve]) -> impl Iterator<Item = (&Curve, RGBColor)> {
    let (mut greys, mut others) = (GREYS.iter().cycle(), COLOURS.iter().cycle());
    curves.iter().filter_map(move |curve| {
        let published = curve.origin == Origin::Published;
        let next = if published { greys.next() } else { others.next() };
        Some((curve, *next?))
    })
}

/// The same as HTML writes them.
pub(crate) fn named(curves: &[Curve]) -> impl Iterator<Item = (&Curve, String)> {
    colours(curves).map(|(curve, RGBColor(red, green, blue))| {
        (curve, format!("#{red:02X}{green:02X}{blue:02X}"))
    })
}

/// The chart as an `svg` element.
pub(crate) fn draw(axes: &Axes, curves: &[Curve]) -> Result<String, LabError> {
    let (low, high) = bounds(curves);
    let mut svg = String::new();
    let drawn = if axes.logarithmic {
        let low = low.max(f64::MIN_POSITIVE);
        draw_over(&mut svg, axes, curves, (low / 1.5..high * 1.5).log_scale())
    } else {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let margin = ((high - low) * 0.06).max(f64::MIN_POSITIVE);
        let low = if low < 0.0 { low - margin } else { 0.0 };
        draw_over(&mut svg, axes, curves, low..high + margin)
    };
    drawn.map_err(|why| LabError::Wrong(format!("a chart that cannot be drawn: {why}")))?;
    Ok(svg)
}

/// The bounds of all figures and their bars.
fn bounds(curves: &[Curve]) -> (f64, f64) {
    let points = curves.iter().flat_map(|curve| &curve.points);
    let ends = points.flat_map(|point| {
        let (low, high) = point.spread.unwrap_or((point.value, point.value));
        [low, high, point.value]
    });
    ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)))
}

/// Draws over a range of values, which is in equal steps or in decades.
fn draw_over<Y>(svg: &mut String, axes: &Axes, curves: &[Curve], range: Y) -> Result<(), String>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..axes.places.len() as f64 - 0.5, range)
        .map_err(text)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .x_labels(axes.places.len() + 1)
        .x_label_formatter(&|x| place(axes.places, *x))
        .y_label_formatter(&|y| short(*y))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .draw()
        .map_err(text)?;
    for (curve, colour) in colours(curves) {
        let line = curve.points.iter().map(|point| (point.at as f64, point.value));
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2))).map_err(text)?;
        let bars = curve.points.iter().filter_map(|point| {
            let (low, high) = point.spread?;
            let x = point.at as f64;
            Some(PathElement::new([(x, low), (x, high)], colour.stroke_width(2)))
        });
        chart.draw_series(bars).map_err(text)?;
        // Hollow marks are other people's figures.
        let style = colour.stroke_width(2);
        let style = if curve.origin == Origin::Ours { style.filled() } else { style };
        let marks = curve
            .points
            .iter()
            .map(|point| Circle::new((point.at as f64, point.value), MARK, style));
        chart.draw_series(marks).map_err(text)?;
    }
    root.present().map_err(text)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// The name of a place; nothing between two of them.
fn place(places: &[String], x: f64) -> String {
    let near = x.round();
    let is_place = (x - near).abs() < 0.01 && near >= 0.0;
    places.get(near as usize).filter(|_| is_place).cloned().unwrap_or_default()
}

/// A number with three digits that count.
pub(crate) fn short(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if size == 0.0 => "0".into(),
        _ if size >= 1e6 => format!("{}M", short(number / 1e6)),
        _ if size >= 1e4 => format!("{}k", short(number / 1e3)),
        _ => {
            let decimals = (2.0 - size.log10().floor()).clamp(0.0, 6.0) as usize;
            let text = format!("{number:.decimals$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(origin: Origin, values: &[f64]) -> Curve {
        let point = |(at, &value): (usize, &f64)| Point {
            at,
            value,
            spread: (origin == Origin::Ours).then_some((value * 0.9, value * 1.1)),
            source: "a.json".into(),
        };
        let points = values.iter().enumerate().map(point).collect();
        Curve { name: "c".into(), origin, points }
    }

    #[test]
    fn a_mark_is_a_circle_and_nothing_else_is() {
        let places: Vec<String> = ["64", "128", "256"].map(str::to_owned).to_vec();
        for logarithmic in [false, true] {
            let axes = Axes { places: &places, x: "MiB", y: "ms", logarithmic };
            let curves =
                [curve(Origin::Published, &[14.0, 29.0]), curve(Origin::Ours, &[0.5, 1.0, 2.0])];
            let svg = draw(&axes, &curves).unwrap();
            assert_eq!(svg.matches("<circle").count(), 5, "{svg}");
            assert!(places.iter().all(|place| svg.contains(&format!("\n{place}\n"))), "{svg}");
        }
    }

    #[test]
    fn figures_of_any_sign_are_drawn() {
        let places = vec!["a".to_owned()];
        let axes = Axes { places: &places, x: "", y: "", logarithmic: false };
        for value in [-3.0, 0.0, 1e12] {
            assert!(draw(&axes, &[curve(Origin::Kernel, &[value])]).is_ok(), "{value}");
        }
    }

    #[test]
    fn numbers_are_short() {
        let said = [0.0, 0.018117, 1.0, 57.01, 239.9, 5818.4, 171_867.3, 13_932_800.6].map(short);
        assert_eq!(said, ["0", "0.0181", "1", "57", "240", "5818", "172k", "13.9M"]);
    }
}
