//! One series of measurements, and its forecast.
//!
//! After the Network Weather Service: simple predictors run beside each other; each is judged
//! by how far off it was when the next measurement came, recent ones counting more, and the best
//! one answers.

use std::collections::VecDeque;

/// Measurements that are kept.
const HISTORY_MAX: usize = 64;

/// What an error of before counts when the next one comes.
const RECENT: f64 = 0.8;

/// Windows of the fixed predictors, in measurements.
const WINDOWS: [usize; 2] = [5, 21];

/// Gains of exponential smoothing.
const GAINS: [f64; 4] = [0.05, 0.2, 0.5, 0.8];

/// How a forecast is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// The last value.
    Last,
    /// The mean of all.
    RunningMean,
    /// The mean of the last so many.
    Mean(usize),
    /// The median of the last so many.
    Median(usize),
    /// The mean of a window that grows while what it has is steady and shrinks when it changes.
    AdaptiveMean,
    /// The median of such a window.
    AdaptiveMedian,
    /// Exponential smoothing with this gain.
    Smoothing(f64),
}

/// What is to be expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The next value.
    pub value: f64,
    /// How far off forecasts were lately: mean absolute error.
    pub error: f64,
    /// Who says so.
    pub method: Method,
    /// Of how many measurements.
    pub measurements: u64,
}

/// Forecasts one series.
#[derive(Clone, Debug)]
pub struct Forecaster {
    /// The last measurements, the newest last.
    history: VecDeque<f64>,
    count: u64,
    sum: f64,
    predictors: Vec<Predictor>,
}

#[derive(Clone, Debug)]
struct Predictor {
    method: Method,
    /// What it says of the next measurement.
    next: f64,
    /// Errors so far, and their weights.
    error: f64,
    weight: f64,
    /// Window of the adaptive ones.
    window: usize,
}

impl Default for Forecaster {
    fn default() -> Self {
        Self::new()
    }
}

impl Forecaster {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        let fixed = WINDOWS.into_iter();
        let windows = fixed.flat_map(|window| [Method::Mean(window), Method::Median(window)]);
        let methods = [Method::Last, Method::RunningMean]
            .into_iter()
            .chain(windows)
            .chain([Method::AdaptiveMean, Method::AdaptiveMedian])
            .chain(GAINS.map(Method::Smoothing));
        Self {
            history: VecDeque::new(),
            count: 0,
            sum: 0.0,
            predictors: methods.map(Predictor::new).collect(),
        }
    }

    /// Takes a measurement; what is no number is passed over.
    pub fn observe(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(value);
        self.count += 1;
        self.sum += value;
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let mean = self.sum / self.count as f64;
        for predictor in &mut self.predictors {
            predictor.observe(value, &self.history, mean, self.count);
        }
    }

    /// What comes next; none before the first measurement.
    #[must_use]
    pub fn forecast(&self) -> Option<Forecast> {
        if self.count == 0 {
            return None;
        }
        let by_error = |a: &&Predictor, b: &&Predictor| a.mean_error().total_cmp(&b.mean_error());
        let best = self.predictors.iter().min_by(by_error)?;
        Some(Forecast {
            value: best.next,
            error: best.mean_error(),
            method: best.method,
            measurements: self.count,
        })
    }

    /// The last measurements, the oldest first.
    pub fn history(&self) -> impl Iterator<Item = f64> {
        self.history.iter().copied()
    }
}

impl Predictor {
    fn new(method: Method) -> Self {
        Self {
            method,
            next: 0.0,
            error: 0.0,
            weight: 0.0,
            window: WINDOWS[0],
        }
    }

    fn mean_error(&self) -> f64 {
        if self.weight == 0.0 {
            return 0.0;
        }
        self.error / self.weight
    }

    fn observe(&mut self, value: f64, history: &VecDeque<f64>, mean: f64, count: u64) {
        if count > 1 {
            self.error = self.error * RECENT + (value - self.next).abs();
            self.weight = self.weight * RECENT + 1.0;
            self.adapt(value, history);
        }
        self.next = match self.method {
            Method::Last => value,
            Method::RunningMean => mean,
            Method::Mean(window) => mean_of(history, window),
            Method::Median(window) => median_of(history, window),
            Method::AdaptiveMean => mean_of(history, self.window),
            Method::AdaptiveMedian => median_of(history, self.window),
            Method::Smoothing(_) if count == 1 => value,
            Method::Smoothing(gain) => self.next + gain * (value - self.next),
        };
    }

    /// Takes a shorter or longer window if that would have forecast `value` better.
    fn adapt(&mut self, value: f64, history: &VecDeque<f64>) {
        let of: fn(&VecDeque<f64>, usize) -> f64 = match self.method {
            Method::AdaptiveMean => mean_of,
            Method::AdaptiveMedian => median_of,
            _ => return,
        };
        // What the windows said before `value` came.
        let mut before = history.clone();
        before.pop_back();
        let error = |window: usize| (value - of(&before, window)).abs();
        let (shorter, longer) = (self.window.div_ceil(2), self.window + 1);
        let here = error(self.window);
        if error(shorter) < here {
            self.window = shorter;
        } else if error(longer) < here && longer <= HISTORY_MAX {
            self.window = longer;
        }
    }
}

fn mean_of(history: &VecDeque<f64>, window: usize) -> f64 {
    let count = history.len().min(window).max(1);
    #[expect(clippy::cast_precision_loss, reason = "at most HISTORY_MAX")]
    let divisor = count as f64;
    history.iter().rev().take(count).sum::<f64>() / divisor
}

fn median_of(history: &VecDeque<f64>, window: usize) -> f64 {
    let mut values: Vec<f64> = history.iter().rev().take(window).copied().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(values: impl IntoIterator<Item = f64>) -> Forecast {
        let mut forecaster = Forecaster::new();
        values
            .into_iter()
            .for_each(|value| forecaster.observe(value));
        forecaster.forecast().unwrap()
    }

    /// Goal: nothing is said of nothing; one measurement is the forecast.
    #[test]
    fn the_first_measurement_is_the_forecast() {
        let mut forecaster = Forecaster::new();
        assert_eq!(forecaster.forecast(), None);
        forecaster.observe(f64::NAN);
        assert_eq!(forecaster.forecast(), None);
        forecaster.observe(7.0);
        assert_eq!(forecaster.forecast().unwrap().value, 7.0);
    }

    /// Goal: each kind of series is forecast by a method that suits it: single outliers do not
    /// move a median, noise is averaged, a level that has changed is followed.
    #[test]
    fn the_method_with_the_least_recent_error_answers() {
        let outliers = (0..40).map(|n| if n % 7 == 3 { 90.0 } else { 10.0 });
        let found = after(outliers);
        assert!((found.value - 10.0).abs() < 1.0, "{found:?}");
        let noise = (0..60).map(|n| 100.0 + f64::from((n * 37) % 11) - 5.0);
        let found = after(noise);
        assert!((found.value - 100.0).abs() < 2.5, "{found:?}");
        let step = (0..60).map(|n| if n < 50 { 5.0 } else { 50.0 });
        let found = after(step);
        assert!((found.value - 50.0).abs() < 1.0, "{found:?}");
        let ramp = (0..60).map(f64::from);
        let found = after(ramp);
        assert_eq!((found.method, found.value), (Method::Last, 59.0));
    }

    /// Goal: what answers is never much worse than the best single method in the long run.
    #[test]
    fn forecasts_keep_up_with_the_best_method() {
        let series = |n: u32| 50.0 + 30.0 * (f64::from(n) / 9.0).sin() + f64::from((n * 13) % 7);
        let mut forecaster = Forecaster::new();
        let (mut ours, mut last, mut mean) = (0.0, 0.0, 0.0);
        let mut sum = 0.0;
        for n in 0..400 {
            let value = series(n);
            if let Some(found) = forecaster.forecast() {
                ours += (found.value - value).abs();
                last += (series(n - 1) - value).abs();
                mean += (sum / f64::from(n) - value).abs();
            }
            sum += value;
            forecaster.observe(value);
        }
        assert!(
            ours < 1.1 * last && ours < 0.5 * mean,
            "{ours} {last} {mean}"
        );
    }
}
