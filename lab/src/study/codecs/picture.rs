//! Class cost against time, both beside lz4's, as a picture: one half for each direction.
//!
//! ```text
//!   cost |  o lz4
//!        |   \                 the line joins the cases that no other beats in both
//!        |    o pagelz
//!        |         o deflate
//!        +---------- time
//! ```
//!
//! Invariant: each case with means is a circle in both halves. Locks: none.

use super::ratios::MEAN;
use crate::ground::LabError;
use crate::rows::Row;
use plotters::prelude::{
    ChartBuilder, Circle, Color, IntoDrawingArea, IntoLogRange, LineSeries, RGBColor, SVGBackend,
    Text,
};
use std::fmt::Display;
use std::path::Path;

const WIDTH: u32 = 1100;
const HEIGHT: u32 = 560;
const OURS: RGBColor = RGBColor(0xD5, 0x5E, 0x00);
const OTHERS: RGBColor = RGBColor(0x00, 0x72, 0xB2);
const FRONTIER: RGBColor = RGBColor(0x94, 0x94, 0x94);

/// A case with its place.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    name: String,
    time: f64,
    cost: f64,
}

/// Writes the picture of the rows of means.
pub(super) fn write(path: &Path, rows: &[Row]) -> Result<(), LabError> {
    let svg = draw(rows)
        .map_err(|why| LabError::Wrong(format!("a picture that cannot be drawn: {why}")))?;
    std::fs::write(path, svg).map_err(LabError::io(path.display()))
}

fn draw(rows: &[Row]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&RGBColor(255, 255, 255)).map_err(text)?;
        let halves = [
            ("compress_ratio", "time to compress, times lz4's"),
            ("decompress_ratio", "time to decompress, times lz4's"),
        ];
        for (area, (field, title)) in root.split_evenly((1, 2)).iter().zip(halves) {
            half(area, &points(rows, field), title)?;
        }
        root.present().map_err(text)?;
    }
    Ok(svg)
}

type Area<'a> = plotters::drawing::DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn half(area: &Area<'_>, points: &[Point], title: &str) -> Result<(), String> {
    let ends = |of: fn(&Point) -> f64| {
        let values = points.iter().map(of);
        values.fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)))
    };
    let ((fastest, slowest), (smallest, largest)) = (ends(|at| at.time), ends(|at| at.cost));
    let times = (fastest * 0.85..slowest * 1.6).log_scale();
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(times, smallest * 0.96..largest * 1.03)
        .map_err(text)?;
    let mesh = &mut chart.configure_mesh();
    mesh.max_light_lines(0).x_desc(title).y_desc("class cost, times lz4's").draw().map_err(text)?;
    let line = frontier(points).into_iter().map(|point| (point.time, point.cost));
    chart.draw_series(LineSeries::new(line, FRONTIER.stroke_width(2))).map_err(text)?;
    let colour = |point: &Point| if point.name.starts_with("pagelz") { OURS } else { OTHERS };
    let marks =
        points.iter().map(|point| Circle::new((point.time, point.cost), 4, colour(point).filled()));
    chart.draw_series(marks).map_err(text)?;
    let names = points.iter().map(|point| {
        Text::new(format!("  {}", point.name), (point.time, point.cost), ("sans-serif", 12))
    });
    chart.draw_series(names).map_err(text)?;
    Ok(())
}

fn points(rows: &[Row], field: &str) -> Vec<Point> {
    let means = rows.iter().filter(|row| row.is("corpus", MEAN));
    let point = |row: &Row| {
        let mut name = row.get("codec").as_str().unwrap_or_default().to_owned();
        match row.number("unit_kib") {
            Some(4.0) | None => {}
            Some(kib) => name += &format!(" {kib} KiB"),
        }
        name += if row.is("dictionary", "own") { " own" } else { "" };
        match row.number("shuffle") {
            Some(0.0) | None => {}
            Some(bytes) => name += &format!(" shuffled {bytes}"),
        }
        Some(Point { name, time: row.number(field)?, cost: row.number("cost_ratio")? })
    };
    means.filter_map(point).collect()
}

/// The points that no other is both faster and smaller than, from the fastest on.
fn frontier(points: &[Point]) -> Vec<Point> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|one, other| one.time.total_cmp(&other.time));
    let mut smallest = f64::INFINITY;
    sorted.retain(|point| {
        let better = point.cost < smallest;
        smallest = smallest.min(point.cost);
        better
    });
    sorted
}

fn text(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_circle_in_both_halves_and_the_frontier_has_the_best() {
        let row = |codec: &str, cost: f64, time: f64| {
            let mut row = Row::default();
            row.set("corpus", MEAN).set("codec", codec).set("unit_kib", 4).set("dictionary", "own");
            row.set("cost_ratio", cost).set("compress_ratio", time).set("decompress_ratio", time);
            row
        };
        let rows = [row("lz4", 1.0, 1.0), row("slow", 0.9, 9.0), row("pagelz", 0.7, 1.5)];
        let svg = draw(&rows).unwrap();
        assert_eq!(svg.matches("<circle").count(), 6);
        let best: Vec<String> =
            frontier(&points(&rows, "compress_ratio")).into_iter().map(|at| at.name).collect();
        assert_eq!(best, ["lz4 own", "pagelz own"]);
    }
}
