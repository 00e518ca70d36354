//! NumPy's element types and their checked conversion to Rust types.

use std::fmt;

use bytemuck::Pod;
use half::f16;
use rayon::prelude::*;

/// Interpretation of an element's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `f`: IEEE float.
    Float,
    /// `i`: signed integer.
    Int,
    /// `u`: unsigned integer.
    Uint,
    /// `b`: one byte, 0 or 1.
    Bool,
    /// `S`: bytes, padded with zeros.
    Bytes,
    /// `U`: UTF-32 text, padded with zeros.
    Unicode,
}

/// Element type: `<f4` is `{Float, 4, little endian}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype {
    /// Interpretation of the bytes.
    pub kind: Kind,
    /// Bytes per element.
    pub size: usize,
    /// True if the most significant byte comes first.
    pub big_endian: bool,
}

impl Dtype {
    const fn little(kind: Kind, size: usize) -> Self {
        Self { kind, size, big_endian: false }
    }

    /// Parses NumPy's notation (`<f4`, `|b1`, `>i8`, `|S3`, `<U33`); `None` for unsupported types
    /// (objects, records, dates, complex numbers, long doubles).
    pub fn parse(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        let big_endian = match chars.next()? {
            '<' | '|' | '=' => false,
            '>' => true,
            _ => return None,
        };
        let code = chars.next()?;
        let digits = chars.as_str();
        if digits.is_empty() || digits.len() > 6 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let count: usize = digits.parse().ok()?;
        let (kind, size) = match (code, count) {
            ('f', 2 | 4 | 8) => (Kind::Float, count),
            ('i', 1 | 2 | 4 | 8) => (Kind::Int, count),
            ('u', 1 | 2 | 4 | 8) => (Kind::Uint, count),
            ('b', 1) => (Kind::Bool, 1),
            ('S', _) => (Kind::Bytes, count),
            ('U', _) => (Kind::Unicode, count * 4),
            _ => return None,
        };
        Some(Self { kind, size, big_endian: big_endian && size > 1 && kind != Kind::Bytes })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match (self.big_endian, self.size, self.kind) {
            (true, ..) => '>',
            (_, 1, _) | (.., Kind::Bytes) => '|',
            _ => '<',
        };
        let (code, count) = match self.kind {
            Kind::Float => ('f', self.size),
            Kind::Int => ('i', self.size),
            Kind::Uint => ('u', self.size),
            Kind::Bool => ('b', self.size),
            Kind::Bytes => ('S', self.size),
            Kind::Unicode => ('U', self.size / 4),
        };
        write!(f, "{order}{code}{count}")
    }
}

/// Intermediate value of a type conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// From a signed integer.
    Int(i64),
    /// From an unsigned integer or a bool.
    Uint(u64),
    /// From a float.
    Float(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(x) => x.fmt(f),
            Self::Uint(x) => x.fmt(f),
            Self::Float(x) => x.fmt(f),
        }
    }
}

/// Rust type that arrays can be read as and written from.
///
/// ```
/// use graphmill_data::npy::{Element, Number};
///
/// assert_eq!(i32::DTYPE.to_string(), "<i4");
/// assert_eq!(i32::from_number(Number::Float(2.0)), Some(2));
/// assert_eq!(i32::from_number(Number::Float(2.5)), None);
/// ```
pub trait Element: Pod + Send + Sync {
    /// Corresponding NumPy type.
    const DTYPE: Dtype;

    /// Converts a number if it fits: integers must be whole and in range; floats may round, but a
    /// finite value must stay finite.
    fn from_number(number: Number) -> Option<Self>;

    /// Returns true if the value is finite, as every integer is.
    #[inline(always)]
    fn finite(&self) -> bool {
        true
    }
}

macro_rules! float {
    ($type:ty, $size:literal, $from:expr) => {
        impl Element for $type {
            const DTYPE: Dtype = Dtype::little(Kind::Float, $size);

            #[inline(always)]
            fn from_number(number: Number) -> Option<Self> {
                let wide = match number {
                    Number::Int(x) => x as f64,
                    Number::Uint(x) => x as f64,
                    Number::Float(x) => x,
                };
                let narrow: Self = $from(wide);
                (narrow.is_finite() || !wide.is_finite()).then_some(narrow)
            }

            #[inline(always)]
            fn finite(&self) -> bool {
                self.is_finite()
            }
        }
    };
}

float!(f16, 2, f16::from_f64);
float!(f32, 4, |x| x as f32);
float!(f64, 8, |x| x);

macro_rules! integer {
    ($type:ty, $kind:ident, $size:literal) => {
        impl Element for $type {
            const DTYPE: Dtype = Dtype::little(Kind::$kind, $size);

            #[inline(always)]
            fn from_number(number: Number) -> Option<Self> {
                match number {
                    Number::Int(x) => Self::try_from(x).ok(),
                    Number::Uint(x) => Self::try_from(x).ok(),
                    // 2^53: above it a float cannot represent every integer.
                    Number::Float(x) if x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0 => {
                        Self::try_from(x as i64).ok()
                    }
                    Number::Float(_) => None,
                }
            }
        }
    };
}

integer!(u8, Uint, 1);
integer!(u16, Uint, 2);
integer!(u32, Uint, 4);
integer!(u64, Uint, 8);
integer!(i8, Int, 1);
integer!(i16, Int, 2);
integer!(i32, Int, 4);
integer!(i64, Int, 8);

/// Appends the converted elements of `bytes` (a whole number of them) to `out`; in parallel if
/// there are many.
///
/// # Errors
/// A message with the index of the first element that does not fit, counted from `first`.
pub(crate) fn convert<T: Element>(
    bytes: &[u8],
    dtype: Dtype,
    first: usize,
    out: &mut Vec<T>,
) -> Result<(), String> {
    macro_rules! from {
        ($type:ty, $wide:expr) => {{
            const N: usize = size_of::<$type>();
            let read = |raw: &[u8]| -> Result<T, Number> {
                let raw: [u8; N] = raw.try_into().expect("chunks of the element's size");
                let value =
                    if dtype.big_endian { <$type>::from_be_bytes(raw) } else { <$type>::from_le_bytes(raw) };
                let number = $wide(value);
                T::from_number(number).ok_or(number)
            };
            let piece = |from: &[u8], to: &mut [T]| {
                to.iter_mut().zip(from.chunks_exact(N)).enumerate().find_map(|(i, (to, from))| {
                    match read(from) {
                        Ok(value) => {
                            *to = value;
                            None
                        }
                        Err(number) => Some((i, number)),
                    }
                })
            };
            run(bytes, N, first, out, &piece)
        }};
    }
    let int = |x: i64| Number::Int(x);
    let uint = |x: u64| Number::Uint(x);
    match (dtype.kind, dtype.size) {
        (Kind::Float, 2) => from!(f16, |x: f16| Number::Float(x.to_f64())),
        (Kind::Float, 4) => from!(f32, |x: f32| Number::Float(f64::from(x))),
        (Kind::Float, 8) => from!(f64, Number::Float),
        (Kind::Int, 1) => from!(i8, |x: i8| int(x.into())),
        (Kind::Int, 2) => from!(i16, |x: i16| int(x.into())),
        (Kind::Int, 4) => from!(i32, |x: i32| int(x.into())),
        (Kind::Int, 8) => from!(i64, int),
        (Kind::Uint, 1) => from!(u8, |x: u8| uint(x.into())),
        (Kind::Uint, 2) => from!(u16, |x: u16| uint(x.into())),
        (Kind::Uint, 4) => from!(u32, |x: u32| uint(x.into())),
        (Kind::Uint, 8) => from!(u64, uint),
        (Kind::Bool, _) => {
            if let Some(i) = bytes.iter().position(|&b| b > 1) {
                return Err(format!("element {} is the byte {}, not a bool", first + i, bytes[i]));
            }
            from!(u8, |x: u8| uint(x.into()))
        }
        _ => Err(format!("the type {dtype} is text, numbers were expected")),
    }
}

/// Converts the bytes of a chunk; returns the first element that does not fit.
type ConvertChunk<'a, T> = dyn Fn(&[u8], &mut [T]) -> Option<(usize, Number)> + Sync + 'a;

/// Conversion loop of [`convert`] over chunks of `size` bytes an element. All source types share
/// it, because one instance each would duplicate the thread pool's code.
fn run<T: Element>(
    bytes: &[u8],
    size: usize,
    first: usize,
    out: &mut Vec<T>,
    piece: &ConvertChunk<'_, T>,
) -> Result<(), String> {
    const CHUNK_LEN: usize = 1 << 16;
    let start = out.len();
    let count = bytes.len() / size;
    out.try_reserve(count).map_err(|e| format!("cannot reserve memory for {count} values: {e}"))?;
    out.resize(start + count, T::zeroed());
    if count <= CHUNK_LEN {
        return match piece(bytes, &mut out[start..]) {
            None => Ok(()),
            Some((element, number)) => Err(unfit::<T>(first + element, number)),
        };
    }
    let pieces = out[start..].par_chunks_mut(CHUNK_LEN).zip(bytes.par_chunks(CHUNK_LEN * size)).enumerate();
    let bad = pieces.find_map_first(|(i, (to, from))| {
        piece(from, to).map(|(element, number)| (first + i * CHUNK_LEN + element, number))
    });
    match bad {
        None => Ok(()),
        Some((i, number)) => Err(unfit::<T>(i, number)),
    }
}

fn unfit<T: Element>(i: usize, number: Number) -> String {
    format!("element {i} is {number}, which does not fit the type {}", T::DTYPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_round_trip() {
        for text in
            ["<f2", "<f4", "<f8", "|i1", "<i2", "<i8", "|u1", "<u4", "|b1", ">f4", ">i8", "|S3", "<U33"]
        {
            assert_eq!(Dtype::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "<", "<f", "<f16", "<c8", "|O", "<M8[ns]", "f4", "<f4x", "<i3", "<S9999999"] {
            assert_eq!(Dtype::parse(text), None, "{text}");
        }
        assert_eq!(Dtype::parse(">u1").unwrap().to_string(), "|u1");
    }

    fn to<T: Element>(bytes: &[u8], dtype: &str) -> Result<Vec<T>, String> {
        let mut out = Vec::new();
        convert(bytes, Dtype::parse(dtype).unwrap(), 10, &mut out).map(|()| out)
    }

    #[test]
    fn values_convert_when_they_fit() {
        assert_eq!(to::<u32>(&[1, 0, 0, 0, 255, 1, 0, 0], "<i4").unwrap(), [1, 511]);
        assert_eq!(to::<i64>(&[0, 0, 1, 2], ">i4").unwrap(), [258]);
        assert_eq!(to::<f32>(&1.5f64.to_le_bytes(), "<f8").unwrap(), [1.5]);
        assert_eq!(to::<f32>(&[1, 0], "|b1").unwrap(), [1.0, 0.0]);
        assert_eq!(to::<i32>(&3f32.to_le_bytes(), "<f4").unwrap(), [3]);
        assert!(to::<f32>(&f64::NAN.to_le_bytes(), "<f8").unwrap()[0].is_nan());
    }

    #[test]
    fn values_that_do_not_fit_are_reported() {
        let error = to::<u32>(&[1, 0, 0, 0, 255, 255, 255, 255], "<i4").unwrap_err();
        assert!(error.contains("element 11 is -1") && error.contains("<u4"), "{error}");
        assert!(to::<i32>(&0.5f32.to_le_bytes(), "<f4").unwrap_err().contains("0.5"));
        assert!(to::<i64>(&f32::NAN.to_le_bytes(), "<f4").is_err());
        assert!(to::<i32>(&u64::MAX.to_le_bytes(), "<u8").is_err());
        assert!(to::<f32>(&1e300f64.to_le_bytes(), "<f8").is_err());
        assert!(to::<u8>(&[2], "|b1").is_err());
        assert!(to::<u8>(&[2], "|S1").is_err());
    }
}
