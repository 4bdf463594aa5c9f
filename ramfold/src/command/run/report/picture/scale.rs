//! From figures to places in a panel, and the steps of its axes.
//!
//! Invariant: a place lies in its panel, and an axis has a bounded number of ticks. Locks: none.

/// Of the picture.
pub(super) const WIDTH: f64 = 760.0;
/// Left of the panels are the values, and right of them a margin.
const LEFT: f64 = 64.0;
pub(super) const RIGHT: f64 = 20.0;
/// Ticks of an axis, at most.
const TICKS: usize = 16;
/// Steps of an axis of time, in seconds. A longer run takes days.
const STEPS: [f64; 17] = [
    0.02, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    21600.0, 86400.0,
];
const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;

/// A part of the picture with an axis of its own.
pub(super) struct Panel {
    top: f64,
    height: f64,
    /// The value at the top.
    pub(super) most: f64,
    /// The time at the right.
    until: f64,
}

impl Panel {
    /// `most` and `until` are more than 0.
    pub(super) fn new((top, height): (f64, f64), most: f64, until: f64) -> Panel {
        Panel { top, height, most, until }
    }

    pub(super) fn x(&self, at: f64) -> f64 {
        LEFT + (at / self.until).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - (value / self.most).clamp(0.0, 1.0))
    }
}

/// The multiples of a step up to the most.
pub(super) fn ticks(most: f64, step: f64) -> impl Iterator<Item = f64> {
    (0..TICKS).map(move |tick| tick as f64 * step).take_while(move |&value| value <= most)
}

/// 1, 2 or 5 times a power of ten: at least the value, and at least 1.
pub(super) fn step(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    steps.into_iter().find(|&step| step >= value).unwrap_or(power * 10.0)
}

/// A step with which a run of this length has at most eight ticks.
pub(super) fn time_step(until: f64) -> f64 {
    let step = STEPS.into_iter().find(|&step| until / step <= 8.0);
    step.unwrap_or_else(|| (until / 8.0 / 86400.0).ceil() * 86400.0)
}

/// A time of the axis, in the unit of its step.
pub(super) fn time_label(at: f64, step: f64) -> String {
    match step {
        step if step >= HOUR => format!("{:.0} h", at / HOUR),
        step if step >= MINUTE => format!("{:.0} min", at / MINUTE),
        step if step >= 1.0 => format!("{at:.0} s"),
        step if step >= 0.1 => format!("{at:.1} s"),
        _ => format!("{at:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_in_the_panel() {
        let panel = Panel::new((100.0, 50.0), 10.0, 4.0);
        assert_eq!((panel.y(0.0), panel.y(10.0), panel.y(99.0)), (150.0, 100.0, 100.0));
        assert_eq!((panel.x(0.0), panel.x(4.0)), (LEFT, WIDTH - RIGHT));
        assert_eq!(panel.x(-1.0), LEFT);
    }

    #[test]
    fn steps_are_round_and_ticks_few() {
        let rows = [(0.0, 1.0), (1.0, 1.0), (1.5, 2.0), (3.0, 5.0), (7.0, 10.0), (4000.0, 5000.0)];
        for (value, expected) in rows {
            assert_eq!(step(value), expected, "{value}");
        }
        for until in [0.1, 0.3, 1.0, 9.0, 100.0, 5000.0, 1e5, 1e7, 1e12] {
            let count = ticks(until, time_step(until)).count();
            assert!((2..=9).contains(&count), "{until}: {count}");
        }
        assert_eq!(ticks(f64::MAX, 1.0).count(), TICKS);
    }

    #[test]
    fn times_have_a_unit() {
        let rows = [(0.04, 0.02, "0.04 s"), (0.5, 0.1, "0.5 s"), (20.0, 10.0, "20 s")];
        let long = [(120.0, 60.0, "2 min"), (7200.0, 3600.0, "2 h")];
        for (at, step, label) in rows.into_iter().chain(long) {
            assert_eq!(time_label(at, step), label);
        }
    }
}
