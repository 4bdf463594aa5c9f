//! The lines of a look: devices of servers, running programs, and what is wrong.
//!
//! ```text
//!   DEVICE    SIZE STORED HELD LIMIT RATIO             [bar of the limit]  held, look by look
//!   PROGRAM PID LIMIT RESIDENT HELD FAULTS STALL       [bar of the limit]  faults, look by look
//!   ! notes
//! ```
//!
//! The figures are those of `stat`, in the same words.
//!
//! Invariant: a line has at most the columns that it was given. Locks: none.

use super::model::{History, Known, Model, Program};
use crate::command::stat::list::{Row, shortened};
use crate::command::stat::run_table::Figures;
use crate::line::output::one_line;
use crate::line::size::{count, short};

/// Columns of the figures of a device, and of a program, without their names.
const DEVICE_FIGURES: usize = 36;
const PROGRAM_FIGURES: usize = 47;
/// The least and the most columns of a name.
const NAMES: (usize, usize) = (10, 40);
/// With fewer columns to the right of the figures there are no pictures.
const PICTURES_MIN: usize = 14;
/// The least and the most columns of a bar.
const BARS: (usize, usize) = (12, 40);
/// Columns of a bar's number and its brackets.
const BAR_WORDS: usize = 7; // "[" "] 100%"
/// Parts of a limit from which a bar is yellow, and red.
const HIGH: f64 = 0.75;
const VERY_HIGH: f64 = 0.9;
/// Heights of a figure among others, with and without letters beyond ASCII.
const BLOCKS: [char; 8] = [
    '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}',
];
const SIGNS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// How a part of a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Plain,
    Title,
    Header,
    Low,
    High,
    VeryHigh,
    Note,
}

impl Tone {
    /// The tone in the language of terminals.
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Title => "\x1b[1m",
            Tone::Header => "\x1b[7m",
            Tone::Low => "\x1b[32m",
            Tone::High | Tone::Note => "\x1b[33m",
            Tone::VeryHigh => "\x1b[31m",
        }
    }
}

/// A line that fits.
#[derive(Debug)]
pub(super) struct Line {
    /// Parts with their tones.
    parts: Vec<(Tone, String)>,
    /// Heights of the figures at its end, 0 to 7.
    heights: Vec<usize>,
}

impl Line {
    fn of(tone: Tone, text: &str, columns: usize) -> Line {
        Line { parts: vec![(tone, shortened(text, columns))], heights: Vec::new() }
    }

    /// The line without colours, in ASCII.
    pub(super) fn plain(&self) -> String {
        self.shown(false, false).trim_end().to_owned()
    }

    /// The line for a terminal.
    pub(super) fn shown(&self, has_colours: bool, has_blocks: bool) -> String {
        let mut text = String::new();
        for (tone, part) in &self.parts {
            match tone.code() {
                code if has_colours && !code.is_empty() => {
                    text.push_str(&format!("{code}{part}\x1b[0m"));
                }
                _ => text.push_str(part),
            }
        }
        let signs = if has_blocks { BLOCKS } else { SIGNS };
        text.extend(self.heights.iter().map(|&height| signs[height]));
        text
    }
}

/// Everything that is known, in at most so many lines.
pub(super) fn render(model: &Model, columns: usize, rows: usize) -> Vec<Line> {
    let mut lines = vec![title(model, columns)];
    let devices: Vec<_> = model.servers.values().flat_map(devices_of).collect();
    if !devices.is_empty() {
        lines.push(Line::of(Tone::Plain, "", columns));
        lines.push(device_header(columns));
        lines.extend(devices.iter().map(|(row, held)| device(row, held, columns)));
    }
    if !model.programs.is_empty() {
        lines.push(Line::of(Tone::Plain, "", columns));
        lines.push(program_header(columns));
        lines.extend(model.programs.iter().map(|program| self::program(program, columns)));
    }
    if devices.is_empty() && model.programs.is_empty() && !model.is_waiting() {
        lines.extend(nothing(model, columns));
    }
    let silent = model.servers.values().filter_map(|known| known.silent.as_ref());
    let notes: Vec<_> = silent.chain(&model.notes).chain(&model.past).collect();
    lines.extend(notes.iter().map(|note| Line::of(Tone::Note, &format!("! {note}"), columns)));
    fit(&mut lines, rows, columns);
    lines
}

/// Leaves out what does not fit, and says how much.
fn fit(lines: &mut Vec<Line>, rows: usize, columns: usize) {
    if lines.len() > rows {
        let left = lines.len() - rows.saturating_sub(1);
        lines.truncate(rows.saturating_sub(1));
        let text = format!("and {}; a higher window shows them", count(left as u64, "line"));
        lines.push(Line::of(Tone::Note, &text, columns));
    }
}

fn title(model: &Model, columns: usize) -> Line {
    let rows = model.servers.values().flat_map(|known| &known.rows);
    let (mut devices, mut stored, mut held) = (0, 0, 0);
    for row in rows {
        let [_, of_row, taken, _] = row.figures();
        (devices, stored, held) = (devices + 1, stored + of_row, held + taken);
    }
    let text = format!(
        "ramfold top: {}, {}; {} stored in {}{}",
        count(devices, "device"),
        count(model.programs.len() as u64, "program"),
        short(stored),
        short(held),
        model.quits
    );
    Line::of(Tone::Title, &text, columns)
}

/// What to do where nothing runs.
fn nothing(model: &Model, columns: usize) -> Vec<Line> {
    let words: &[&str] = match model.servers.is_empty() {
        true => &[
            "",
            "Nothing of this user runs. A server and a program are started by",
            "  ramfold serve --size 4G &",
            "  ramfold run --limit 256M -- PROGRAM",
        ],
        false => &["", "No device has a size yet."],
    };
    words.iter().map(|text| Line::of(Tone::Plain, text, columns)).collect()
}

fn devices_of(known: &Known) -> impl Iterator<Item = (&Row, &History)> {
    static NONE: History = History::new();
    known.rows.iter().map(|row| (row, known.held.get(row.name()).unwrap_or(&NONE)))
}

fn device_header(columns: usize) -> Line {
    let header = ["SIZE", "STORED", "HELD", "LIMIT", "RATIO"].map(str::to_owned);
    let text = device_figures("DEVICE", &header, columns);
    header_line(&text, "HELD OVER TIME", columns)
}

fn device_figures(name: &str, cells: &[String; 5], columns: usize) -> String {
    let width = name_width(DEVICE_FIGURES, columns);
    let [size, stored, held, limit, ratio] = cells;
    let name = shortened(name, width);
    format!("{name:<width$} {size:>6} {stored:>6} {held:>6} {limit:>6} {ratio:>7}")
}

fn device(row: &Row, held: &History, columns: usize) -> Line {
    let text = device_figures(row.name(), &row.cells(), columns);
    let [.., limit] = row.figures();
    with_pictures(text, row.used(), limit, held, columns)
}

fn program_header(columns: usize) -> Line {
    let names = ["PID", "LIMIT", "RESIDENT", "HELD", "FAULTS", "STALL"];
    header_line(&program_figures("PROGRAM", names, columns), "FAULTS OVER TIME", columns)
}

fn program_figures(name: &str, cells: [&str; 6], columns: usize) -> String {
    let width = name_width(PROGRAM_FIGURES, columns);
    let [pid, limit, resident, held, faults, stall] = cells;
    let name = shortened(name, width);
    format!("{name:<width$} {pid:>7} {limit:>5} {resident:>8} {held:>6} {faults:>8} {stall:>7}",)
}

fn program(program: &Program, columns: usize) -> Line {
    let (run, figures) = (&program.run, Figures::of_run(&program.run));
    let words = run.about.command.iter().skip(1).map(String::as_str);
    let words: Vec<&str> = std::iter::once(run.about.name()).chain(words).collect();
    let pid = run.about.pid.to_string();
    let Figures { limit, resident, held, faults, stall, .. } = &figures;
    let cells = [&pid, limit, resident, held, faults, stall].map(String::as_str);
    let text = program_figures(&words.join(" "), cells, columns);
    with_pictures(text, run.moment.resident, run.moment.limit, &program.faults, columns)
}

/// Columns of a name, so that a screen of 80 has pictures, and a wider one longer names.
fn name_width(figures: usize, columns: usize) -> usize {
    let (least, most) = NAMES;
    (columns.saturating_sub(figures + PICTURES_MIN) / 2).clamp(least, most)
}

fn header_line(text: &str, picture: &str, columns: usize) -> Line {
    let (bar, history) = pictures(text.chars().count(), columns);
    let text = match history {
        0 => text.to_owned(),
        _ => format!("{text}  {:<bar$} {}", "USED", shortened_or_none(picture, history)),
    };
    Line::of(Tone::Header, &format!("{:<columns$}", shortened(&text, columns)), columns)
}

/// Words only if they fit.
fn shortened_or_none(text: &str, width: usize) -> &str {
    let first = text.split(' ').next().unwrap_or_default();
    if text.len() <= width {
        text
    } else if first.len() <= width {
        first
    } else {
        ""
    }
}

/// Columns of the bar and of the history, or zeros.
fn pictures(taken: usize, columns: usize) -> (usize, usize) {
    let left = columns.saturating_sub(taken + 2);
    if left < PICTURES_MIN {
        return (0, 0);
    }
    let bar = (left / 2).clamp(BARS.0, BARS.1);
    (bar, (left - bar).saturating_sub(1))
}

fn with_pictures(text: String, used: u64, limit: u64, past: &History, columns: usize) -> Line {
    let (bar, history) = pictures(text.chars().count(), columns);
    if bar == 0 {
        return Line::of(Tone::Plain, &text, columns);
    }
    let (tone, picture) = bar_of(used, limit, bar);
    let parts = vec![
        (Tone::Plain, format!("{}  ", one_line(&text))),
        (tone, picture),
        (Tone::Plain, " ".to_owned()),
    ];
    Line { parts, heights: heights(past, history) }
}

/// How much of a limit is used.
fn bar_of(used: u64, limit: u64, columns: usize) -> (Tone, String) {
    if limit == 0 {
        return (Tone::Plain, " ".repeat(columns));
    }
    let part = (used as f64 / limit as f64).clamp(0.0, 1.0);
    let inner = columns - BAR_WORDS;
    let full = (part * inner as f64).round() as usize;
    let tone = match part {
        part if part >= VERY_HIGH => Tone::VeryHigh,
        part if part >= HIGH => Tone::High,
        _ => Tone::Low,
    };
    let percent = part * 100.0;
    (tone, format!("[{}{}] {percent:>3.0}%", "|".repeat(full), " ".repeat(inner - full)))
}

/// The last figures as heights, of which the largest is the highest.
fn heights(past: &History, columns: usize) -> Vec<usize> {
    let shown = past.iter().skip(past.len().saturating_sub(columns));
    let most = shown.clone().copied().max().unwrap_or(0).max(1);
    let top = BLOCKS.len() - 1;
    shown.map(|&figure| (figure as f64 / most as f64 * top as f64).round() as usize).collect()
}

const _: () = assert!(BARS.0 > BAR_WORDS, "a bar has at least one place");
const _: () = assert!(PICTURES_MIN > BARS.0, "a history has at least one place");
const _: () = assert!(BLOCKS.len() == SIGNS.len(), "each height has a sign of both kinds");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::stat::run_table::example;
    use serde_json::json;
    use std::sync::mpsc::channel;

    fn model() -> Model {
        let mut model = Model::new(channel().0);
        for name in ["zram0", "a-very-long-name-that-fits-no-column-of-a-table"] {
            let stat = json!({
                "name": name, "disksize": 8_u64 << 40, "orig_data_size": (1_u64 << 40) - 1,
                "accounted_bytes": (1 << 30) - 1, "mem_limit": 1 << 30,
                "object_bytes_resident": 1 << 29,
            });
            model.servers.insert(name.into(), Known::default());
            (0..500).for_each(|_| model.answered(name, Ok(stat.clone())));
        }
        (0..500).for_each(|_| model.found(vec![example(&["sort", "\x1b[2J", "file"])], Vec::new()));
        model.past.push_back("word ".repeat(50));
        model
    }

    #[test]
    fn no_line_is_longer_than_the_screen_and_no_column_is_lost_at_eighty() {
        let model = model();
        for columns in (1..300).chain([2000]) {
            for line in render(&model, columns, usize::MAX) {
                let text = line.shown(false, false);
                assert!(text.chars().count() <= columns, "{columns}: {text:?}");
            }
        }
        let lines = render(&model, 80, usize::MAX);
        let text: String = lines.iter().map(|line| line.plain() + "\n").collect();
        for word in ["8.0T", "1024G", "1024M", "1.0G", "1024.00", "50%", "###"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        for word in ["256M", "250M", "31.0M", "4320", "12.3 s", " 98%"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
    }

    #[test]
    fn a_low_screen_says_what_it_leaves_out() {
        let model = model();
        let all = render(&model, 80, usize::MAX).len();
        for rows in 1..all {
            let lines = render(&model, 80, rows);
            assert_eq!(lines.len(), rows);
            let last = lines.last().map(Line::plain).unwrap_or_default();
            let left = count((all - rows + 1) as u64, "line");
            assert!(last.contains(&left), "{rows}: {last}");
        }
        assert_eq!(render(&model, 80, all).len(), all);
    }

    #[test]
    fn a_bar_is_full_at_the_limit_and_empty_without_one() {
        let bar = |used, limit| bar_of(used, limit, 17);
        assert_eq!(bar(0, 10), (Tone::Low, "[          ]   0%".into()));
        assert_eq!(bar(8, 10), (Tone::High, "[||||||||  ]  80%".into()));
        assert_eq!(bar(20, 10), (Tone::VeryHigh, "[||||||||||] 100%".into()));
        assert_eq!(bar(7, 0), (Tone::Plain, " ".repeat(17)));
    }

    #[test]
    fn heights_are_of_the_last_figures() {
        let past: History = [9, 0, 7, 14].into();
        assert_eq!(heights(&past, 3), [0, 4, 7]);
        assert_eq!(heights(&History::from([0, 0]), 9), [0, 0]);
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        let line = &render(&model(), 80, usize::MAX)[0];
        assert!(line.shown(true, true).contains("\x1b[1m"));
        assert!(!line.shown(false, true).contains('\x1b'));
    }
}
