//! Places and properties, as clients write them: blank-separated words, of which each keyword
//! ends with `=` and is followed by its value; the first of each counts.

use std::time::Duration;

use crossdock_lbone::Depot;

use crate::directory::Record;
use crate::places;

/// How often depots of elsewhere are asked.
const POLL_EVERY: Duration = Duration::from_secs(60);

/// A place on the earth, in degrees; north and east are positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Latitude.
    pub latitude: f64,
    /// Longitude.
    pub longitude: f64,
}

/// Something that a depot has or has not, on an ordered scale of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// Which scale.
    kind: usize,
    /// How far up.
    level: usize,
}

/// Scales, each from the least to the most.
const SCALES: [(&str, &[&str]); 5] = [
    ("connection=", &["cable/dsl", "t1", "t3"]),
    ("monitoring=", &["9-5", "24-7"]),
    ("power=", &["minutes", "hours", "generator"]),
    ("backup=", &["daily-single copy", "daily-multiple copies"]),
    ("firewall=", &["yes"]),
];

/// What a text says of a place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Location {
    /// Where it is, if it was found.
    pub point: Option<Point>,
    /// Where a host is.
    pub host: Option<String>,
    /// What is there, or has to be.
    pub requirements: Vec<Requirement>,
}

impl Location {
    /// Reads a text. What is not understood says nothing.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // Up to the next keyword.
        let value = |keywords: &[&str]| -> Option<String> {
            let is_it = |word: &&&str| keywords.iter().any(|it| word.eq_ignore_ascii_case(it));
            let at = words.iter().position(|word| is_it(&word))? + 1;
            let rest = words[at..].iter().take_while(|word| !word.ends_with('='));
            let rest: Vec<&str> = rest.copied().collect();
            (!rest.is_empty()).then(|| rest.join(" "))
        };
        let number = |keyword: &str| value(&[keyword])?.parse::<f64>().ok();
        let state = value(&["state=", "st="]);
        let country = value(&["country=", "c="]);
        let city = value(&["city="]);
        let of_coordinates = || {
            let (latitude, longitude) = (number("lat=")?, number("lon=")?);
            let is_on_earth = latitude.abs() <= 90.0 && longitude.abs() <= 180.0;
            is_on_earth.then_some(Point {
                latitude,
                longitude,
            })
        };
        let point = of_coordinates()
            .or_else(|| places::of_zip(&value(&["zip=", "zipcode="])?))
            .or_else(|| places::of_airport(&value(&["airport="])?))
            .or_else(|| places::of_city(city.as_deref(), state.as_deref(), country.as_deref()));
        let requirement = |(kind, (keyword, scale)): (usize, &(&str, &[&str]))| {
            let value = value(&[keyword])?.to_ascii_lowercase();
            let level = scale.iter().position(|level| *level == value)?;
            Some(Requirement { kind, level })
        };
        Self {
            point,
            host: value(&["hostname="]),
            requirements: SCALES.iter().enumerate().filter_map(requirement).collect(),
        }
    }

    /// Whether all that is wanted is here, or better.
    pub(crate) fn has_all(&self, wanted: &Self) -> bool {
        let has = |wanted: &Requirement| {
            let of_kind = |it: &&Requirement| it.kind == wanted.kind;
            let here = self.requirements.iter().find(of_kind);
            here.is_some_and(|here| here.level >= wanted.level)
        };
        wanted.requirements.iter().all(has)
    }
}

/// Depots of elsewhere, from a file: on each line `HOST:PORT` and the words of its place;
/// `#` begins a comment.
///
/// # Errors
/// The first line that is wrong, and why.
pub fn parse_depots(text: &str) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (address, place) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let wrong = || format!("line {}: {address:?} is not HOST:PORT", number + 1);
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        if host.is_empty() || host.len() > 255 || host.contains('/') {
            return Err(wrong());
        }
        let host = host.to_owned();
        records.push(Record {
            depot: Depot { host, port },
            location: Location::parse(place),
            poll_every: POLL_EVERY,
        });
    }
    Ok(records)
}

/// The way over the surface of the earth, in miles.
pub(crate) fn miles(from: Point, to: Point) -> f64 {
    const EARTH_RADIUS_MILES: f64 = 3958.8;
    let (a, b) = (from.latitude.to_radians(), to.latitude.to_radians());
    let across = (b - a) / 2.0;
    let along = (to.longitude - from.longitude).to_radians() / 2.0;
    let half = across.sin().powi(2) + a.cos() * b.cos() * along.sin().powi(2);
    2.0 * EARTH_RADIUS_MILES * half.sqrt().min(1.0).asin()
}
