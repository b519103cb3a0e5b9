//! A small table of places: airport, city, state, country, the first three digits of its ZIP
//! codes, latitude, longitude. Facts of common knowledge, to some hundredths of a degree: enough
//! to say which of two depots is nearer.

use crate::location::Point;

struct Place {
    airport: &'static str,
    city: &'static str,
    state: &'static str,
    country: &'static str,
    zips: &'static [u16],
    latitude: f64,
    longitude: f64,
}

macro_rules! places {
    ($($airport:literal $city:literal $state:literal $country:literal [$($zip:literal),*] $latitude:literal $longitude:literal;)*) => {
        &[$(Place {
            airport: $airport,
            city: $city,
            state: $state,
            country: $country,
            zips: &[$($zip),*],
            latitude: $latitude,
            longitude: $longitude,
        }),*]
    };
}

const PLACES: &[Place] = places! {
    "ATL" "Atlanta" "GA" "US" [300, 303, 311] 33.75 -84.39;
    "AUS" "Austin" "TX" "US" [786, 787] 30.27 -97.74;
    "BNA" "Nashville" "TN" "US" [370, 372] 36.16 -86.78;
    "BOS" "Boston" "MA" "US" [21, 22] 42.36 -71.06;
    "CHA" "Chattanooga" "TN" "US" [373, 374] 35.05 -85.31;
    "CLE" "Cleveland" "OH" "US" [440, 441] 41.50 -81.69;
    "CLL" "College Station" "TX" "US" [778] 30.63 -96.33;
    "CMI" "Urbana" "IL" "US" [618] 40.11 -88.21;
    "DCA" "Washington" "DC" "US" [200, 203] 38.91 -77.04;
    "DEN" "Denver" "CO" "US" [800, 802] 39.74 -104.99;
    "DFW" "Dallas" "TX" "US" [750, 752] 32.78 -96.80;
    "DTW" "Detroit" "MI" "US" [480, 482] 42.33 -83.05;
    "GNV" "Gainesville" "FL" "US" [326] 29.65 -82.32;
    "HNL" "Honolulu" "HI" "US" [967, 968] 21.31 -157.86;
    "IAH" "Houston" "TX" "US" [770, 772] 29.76 -95.37;
    "IND" "Indianapolis" "IN" "US" [460, 462] 39.77 -86.16;
    "JFK" "New York" "NY" "US" [100, 101, 102] 40.71 -74.01;
    "LAS" "Las Vegas" "NV" "US" [889, 891] 36.17 -115.14;
    "LAX" "Los Angeles" "CA" "US" [900, 902] 34.05 -118.24;
    "MCI" "Kansas City" "MO" "US" [640, 641] 39.10 -94.58;
    "MEM" "Memphis" "TN" "US" [380, 381] 35.15 -90.05;
    "MIA" "Miami" "FL" "US" [330, 331] 25.76 -80.19;
    "MSN" "Madison" "WI" "US" [535, 537] 43.07 -89.40;
    "MSP" "Minneapolis" "MN" "US" [553, 554] 44.98 -93.27;
    "MSY" "New Orleans" "LA" "US" [700, 701] 29.95 -90.07;
    "ORD" "Chicago" "IL" "US" [600, 606] 41.88 -87.63;
    "PDX" "Portland" "OR" "US" [970, 972] 45.52 -122.68;
    "PHL" "Philadelphia" "PA" "US" [190, 191] 39.95 -75.17;
    "PHX" "Phoenix" "AZ" "US" [850, 852] 33.45 -112.07;
    "PIT" "Pittsburgh" "PA" "US" [150, 152] 40.44 -80.00;
    "RDU" "Raleigh" "NC" "US" [275, 276, 277] 35.78 -78.64;
    "SAN" "San Diego" "CA" "US" [919, 920, 921] 32.72 -117.16;
    "SBA" "Santa Barbara" "CA" "US" [931] 34.42 -119.70;
    "SEA" "Seattle" "WA" "US" [980, 981] 47.61 -122.33;
    "SFO" "San Francisco" "CA" "US" [940, 941] 37.77 -122.42;
    "SJC" "San Jose" "CA" "US" [950, 951] 37.34 -121.89;
    "SLC" "Salt Lake City" "UT" "US" [840, 841] 40.76 -111.89;
    "STL" "Saint Louis" "MO" "US" [630, 631] 38.63 -90.20;
    "TYS" "Knoxville" "TN" "US" [377, 378, 379] 35.96 -83.92;
    "YUL" "Montreal" "QC" "CA" [] 45.50 -73.57;
    "YVR" "Vancouver" "BC" "CA" [] 49.28 -123.12;
    "YYZ" "Toronto" "ON" "CA" [] 43.65 -79.38;
    "AMS" "Amsterdam" "" "NL" [] 52.37 4.90;
    "ARN" "Stockholm" "" "SE" [] 59.33 18.07;
    "ATH" "Athens" "" "GR" [] 37.98 23.73;
    "BCN" "Barcelona" "" "ES" [] 41.39 2.17;
    "BER" "Berlin" "" "DE" [] 52.52 13.41;
    "BLQ" "Bologna" "" "IT" [] 44.49 11.34;
    "BRU" "Brussels" "" "BE" [] 50.85 4.35;
    "CDG" "Paris" "" "FR" [] 48.86 2.35;
    "CPH" "Copenhagen" "" "DK" [] 55.68 12.57;
    "DUB" "Dublin" "" "IE" [] 53.35 -6.26;
    "FCO" "Rome" "" "IT" [] 41.90 12.50;
    "FRA" "Frankfurt" "" "DE" [] 50.11 8.68;
    "GVA" "Geneva" "" "CH" [] 46.20 6.14;
    "HAM" "Hamburg" "" "DE" [] 53.55 9.99;
    "HEL" "Helsinki" "" "FI" [] 60.17 24.94;
    "LHR" "London" "" "GB" [] 51.51 -0.13;
    "LIS" "Lisbon" "" "PT" [] 38.72 -9.14;
    "LYS" "Lyon" "" "FR" [] 45.76 4.84;
    "MAD" "Madrid" "" "ES" [] 40.42 -3.70;
    "MUC" "Munich" "" "DE" [] 48.14 11.58;
    "OSL" "Oslo" "" "NO" [] 59.91 10.75;
    "PRG" "Prague" "" "CZ" [] 50.08 14.44;
    "TRN" "Turin" "" "IT" [] 45.07 7.69;
    "VIE" "Vienna" "" "AT" [] 48.21 16.37;
    "WAW" "Warsaw" "" "PL" [] 52.23 21.01;
    "ZRH" "Zurich" "" "CH" [] 47.37 8.54;
    "BLR" "Bangalore" "" "IN" [] 12.97 77.59;
    "BOM" "Mumbai" "" "IN" [] 19.08 72.88;
    "DEL" "Delhi" "" "IN" [] 28.61 77.21;
    "EZE" "Buenos Aires" "" "AR" [] -34.60 -58.38;
    "GRU" "Sao Paulo" "" "BR" [] -23.55 -46.63;
    "HKG" "Hong Kong" "" "HK" [] 22.32 114.17;
    "ICN" "Seoul" "" "KR" [] 37.57 126.98;
    "JNB" "Johannesburg" "" "ZA" [] -26.20 28.05;
    "MEX" "Mexico City" "" "MX" [] 19.43 -99.13;
    "NRT" "Tokyo" "" "JP" [] 35.68 139.69;
    "PEK" "Beijing" "" "CN" [] 39.90 116.41;
    "SIN" "Singapore" "" "SG" [] 1.35 103.82;
    "SYD" "Sydney" "NSW" "AU" [] -33.87 151.21;
    "TPE" "Taipei" "" "TW" [] 25.03 121.57;
};

fn point(place: &Place) -> Point {
    Point {
        latitude: place.latitude,
        longitude: place.longitude,
    }
}

/// An airport, by its code of three letters.
pub(crate) fn of_airport(code: &str) -> Option<Point> {
    let mut places = PLACES.iter();
    places
        .find(|place| place.airport.eq_ignore_ascii_case(code))
        .map(point)
}

/// A ZIP code: the place whose first three digits are nearest, since neighbours have them.
pub(crate) fn of_zip(zip: &str) -> Option<Point> {
    let digits = zip.get(..5)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let wanted: u16 = digits[..3].parse().ok()?;
    let all = PLACES
        .iter()
        .flat_map(|place| place.zips.iter().map(move |zip| (zip, place)));
    let nearest = all.min_by_key(|(zip, _)| zip.abs_diff(wanted));
    nearest.map(|(_, place)| point(place))
}

/// A city of a state or country; without a city, one of the state or country.
pub(crate) fn of_city(
    city: Option<&str>,
    state: Option<&str>,
    country: Option<&str>,
) -> Option<Point> {
    if state.is_none() && country.is_none() {
        return None;
    }
    let is = |wanted: Option<&str>, found: &str| {
        wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(found))
    };
    let fits = |place: &&Place| {
        is(city, place.city) && is(state, place.state) && is(country, place.country)
    };
    PLACES.iter().find(fits).map(point)
}
