//! Edge lists whose lines begin with time, source and destination, and features of airports.

use graphmill_core::Result;

use super::super::{
    events::header,
    files::Files,
    ids::Ids,
    lines::{finite, for_each_line, whole, wrong},
    raw::TypedReport,
    streams::Events,
    times::MICROS,
};
use crate::typed::FeatureTable;

/// Characters of a call sign and of a type of aircraft.
const FLIGHT_WIDTH: usize = 8;
/// Characters of the region of an airport.
const REGION_WIDTH: usize = 7;
/// Maximum number of types, and of continents, of airports.
const MAX_KINDS: usize = 16;
/// Number of words of a comment that counts as 1.
const MAX_WORDS: f64 = 5000.0;

/// Columns behind time, source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// A weight, whose feature is its logarithm to base 2; of 0 it is that of 1.
    Weight,
    /// Number of words, whose feature is a fraction of 5,000, and score. TGB stores the first
    /// feature twice.
    Comment,
    /// Call sign and type of aircraft, whose features are their characters as numbers.
    Flight,
}

impl Columns {
    /// Names of the features.
    fn names(self) -> Vec<String> {
        match self {
            Self::Weight => vec!["log2_weight".into()],
            Self::Comment => vec!["words".into(), "score".into()],
            Self::Flight => {
                let of =
                    |name: &str| (0..FLIGHT_WIDTH).map(move |i| format!("{name}_{i}")).collect::<Vec<_>>();
                [of("callsign"), of("typecode")].concat()
            }
        }
    }

    /// Number of columns in the file.
    fn count(self) -> usize {
        if self == Self::Weight { 4 } else { 5 }
    }

    /// Adds the features of a line, whose fields behind the destination are `fields`, to `out`.
    fn push(self, fields: &[&str], out: &mut Vec<f32>) -> Result<(), String> {
        match self {
            Self::Weight => {
                let field = fields[0].trim();
                let weight = field.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0);
                let weight = weight.ok_or_else(|| {
                    format!("the weight '{}' is not a number of at least 0", field.escape_debug())
                })?;
                out.push(if weight == 0.0 { 0.0 } else { weight.log2() as f32 });
            }
            Self::Comment => {
                let (words, score) =
                    (whole::<i64>("num_words", fields[0])?, whole::<i64>("score", fields[1])?);
                out.extend([(words as f64 / MAX_WORDS) as f32, score as f32]);
            }
            Self::Flight => {
                // TGB leaves out types that are too long
                let kind = Some(fields[1]).filter(|kind| kind.chars().count() <= FLIGHT_WIDTH);
                let codes = [codes(fields[0], FLIGHT_WIDTH)?, codes(kind.unwrap_or_default(), FLIGHT_WIDTH)?];
                out.extend(codes.concat());
            }
        }
        Ok(())
    }

    /// Reads the events of the file `name`. Ids are numbered by their first occurrence.
    ///
    /// # Errors
    /// The file cannot be read, or lines have faults.
    pub(super) fn read(
        self,
        files: &Files,
        name: &str,
        ids: &mut Ids,
        report: &mut TypedReport,
    ) -> Result<Events> {
        let header = header(files, name)?;
        let count = self.count();
        if header.len() < count {
            let message = format!(
                "the header '{}' has {} columns; {count} expected, which begin with time, source and \
                 destination",
                header.join(",").escape_debug(),
                header.len()
            );
            return Err(wrong(files, name, message));
        }
        header[count..].iter().for_each(|column| report.ignore(format!("column {column}")));
        let mut events = Events { name: "links".into(), ..Events::default() };
        let (mut features, mut first) = (Vec::new(), true);
        for_each_line(files, name, |line| {
            if std::mem::take(&mut first) {
                return Ok(());
            }
            let fields = split(line)?;
            if fields.len() != header.len() {
                return Err(format!("{} fields, but the header has {}", fields.len(), header.len()));
            }
            let time = seconds(fields[0])?;
            let before = features.len();
            self.push(&fields[3..], &mut features).inspect_err(|_| features.truncate(before))?;
            events.src.push(ids.id(fields[1])?);
            events.dst.push(ids.id(fields[2])?);
            events.time.push(time);
            Ok(())
        })?;
        let mut table = FeatureTable::dense(self.names().len(), features);
        table.names = self.names();
        events.features = Some(table);
        Ok(events)
    }
}

/// Fields of a line, which has no quotes.
fn split(line: &str) -> Result<Vec<&str>, String> {
    if line.contains('"') {
        return Err("quoted fields are not read; write the file without quotes".into());
    }
    Ok(line.split(',').collect())
}

/// Whole seconds, in microseconds.
fn seconds(field: &str) -> Result<i64, String> {
    let text = field.trim();
    let is_date = text.len() == 10 && text.bytes().filter(|&b| b == b'-').count() == 2;
    if is_date {
        return Err(format!(
            "the time '{}' is a date, whose second depends on a time zone; download a later version of the \
             set, which has seconds",
            text.escape_debug()
        ));
    }
    let time: i64 = whole("time", text)?;
    time.checked_mul(MICROS).ok_or_else(|| format!("the time {time} is out of range"))
}

/// Characters as numbers, padded to `width`: digits are themselves, A is 30, and padding is -1.
///
/// # Errors
/// A message: the text is longer, or has other characters than ASCII.
fn codes(text: &str, width: usize) -> Result<Vec<f32>, String> {
    if !text.is_ascii() || text.len() > width {
        return Err(format!("'{}' does not have at most {width} ASCII characters", text.escape_debug()));
    }
    let code = |b: u8| match b {
        b'0'..=b'9' => f32::from(b - b'0'),
        b'!' => -1.0,
        _ => f32::from(b.to_ascii_uppercase()) - 35.0,
    };
    Ok(text.bytes().chain(std::iter::repeat(b'!')).take(width).map(code).collect())
}

/// Feature rows of the known airports in the file `name`, each with its preliminary id: their type
/// and continent as one-hot columns, in the order of their first occurrence, the characters of
/// their region, and their longitude and latitude.
///
/// # Errors
/// The file cannot be read, or lines have faults.
pub(super) fn airports(files: &Files, name: &str, ids: &Ids) -> Result<Vec<(u32, Vec<f32>)>> {
    let (mut rows, mut first) = (Vec::new(), true);
    let mut known: [Vec<String>; 2] = Default::default();
    for_each_line(files, name, |line| {
        if std::mem::take(&mut first) {
            return Ok(());
        }
        let fields = split(line)?;
        let &[airport, kind, continent, region, longitude, latitude] = &fields[..] else {
            return Err(format!(
                "{} fields; airport, type, continent, region, longitude and latitude expected",
                fields.len()
            ));
        };
        let Some(id) = ids.get(airport) else { return Ok(()) };
        let mut row = codes(region, REGION_WIDTH)?;
        row.extend([finite("longitude", longitude)?, finite("latitude", latitude)?]);
        let mut number = |of: usize, text: &str| match known[of].iter().position(|known| known == text) {
            Some(number) => Ok(number),
            None if known[of].len() == MAX_KINDS => {
                Err(format!("more than {MAX_KINDS} types or continents: '{}'", text.escape_debug()))
            }
            None => {
                known[of].push(text.into());
                Ok(known[of].len() - 1)
            }
        };
        rows.push((id, [number(0, kind)?, number(1, continent)?], row));
        Ok(())
    })?;
    let [kinds, continents] = known.map(|of| of.len());
    let complete = |(id, [kind, continent], rest): (u32, [usize; 2], Vec<f32>)| {
        let mut row = vec![0.0; kinds + continents];
        row[kind] = 1.0;
        row[kinds + continent] = 1.0;
        row.extend(rest);
        (id, row)
    };
    Ok(rows.into_iter().map(complete).collect())
}
