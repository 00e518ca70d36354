//! Options as typed structs: what a struct that derives [`clap::Args`], `Serialize` and
//! `Deserialize` needs to be read from the command line, from TOML files and from Python alike.
//!
//! All three give a table of [`Values`]. A struct is read from it once, by [`read`]: words are
//! taken where numbers are wanted, so that `"15,10"` of a command line and `[15, 10]` of a file
//! mean the same. The names, help texts and places in the help come from the struct itself, by
//! [`keys`].

#![forbid(unsafe_code)]

mod kind;
mod sets;

use std::{fmt, str::FromStr};

use clap::{ArgAction, Args, Command, ValueEnum};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeOwned, IntoDeserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value as Json;

pub use kind::Kind;
pub use sets::{OptionGroup, OptionSet, OwnOptions, probability, range};

/// Options by name: numbers, words, arrays.
pub type Values = serde_json::Map<String, Json>;

/// An option that a struct declares.
#[derive(Clone, Debug)]
pub struct Key {
    /// Name in files; the flag is the same with dashes.
    pub name: String,
    /// Earlier names, which files, the command line and Python still accept.
    pub former: Vec<String>,
    /// Placeholder of the value in help texts: `N`, `NAME`, ...
    pub value: String,
    /// Heading of the option in help texts, if the struct names one.
    pub heading: Option<String>,
    /// First paragraph of the field's doc comment, without the period at its end.
    pub help: String,
    /// Other paragraphs, one per line; may be empty.
    pub details: String,
    /// True if the short help shows the option.
    pub is_common: bool,
    /// True for a switch, whose value may be left out.
    pub is_switch: bool,
    /// Kind of value.
    pub kind: Kind,
}

/// Options that a struct declares, in its order.
pub fn keys<A: Args + DeserializeOwned>() -> Vec<Key> {
    let command = A::augment_args(Command::new("options"));
    let key = |arg: &clap::Arg| {
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
        let value = arg.get_value_names().and_then(|names| names.first());
        Key {
            name: arg.get_id().to_string(),
            former: arg.get_all_aliases().unwrap_or_default().iter().map(|a| a.replace('-', "_")).collect(),
            value: if is_switch { "BOOL".into() } else { value.map_or("VALUE".into(), |v| v.to_string()) },
            heading: arg.get_help_heading().map(str::to_string),
            details: arg
                .get_long_help()
                .map(ToString::to_string)
                .map_or_else(String::new, |long| details(&long)),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            is_common: !arg.is_hide_short_help_set(),
            is_switch,
            kind: kind::kind_of::<A>(arg.get_id().as_str()),
        }
    };
    command.get_arguments().map(key).collect()
}

/// Paragraphs of a long help text after the first.
fn details(long: &str) -> String {
    long.split_once("\n\n").map_or_else(String::new, |(_, rest)| rest.replace("\n\n", "\n"))
}

/// An invalid value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the option, if known.
    pub option: Option<String>,
    /// Reason, with the value.
    pub message: String,
}

impl Fault {
    /// Creates the fault of an invalid `value` of `option`; `wanted` describes valid values.
    pub fn of(option: &str, value: impl fmt::Display, wanted: impl fmt::Display) -> Self {
        Self { option: Some(option.into()), message: format!("'{}': {wanted}", shortened(value.to_string())) }
    }
}

/// Longest number that a message spells out.
const MAX_DIGITS: usize = 24;

/// A value in a message: a number of many digits in scientific notation.
fn shortened(text: String) -> String {
    match text.parse::<f64>() {
        Ok(number) if text.len() > MAX_DIGITS => format!("{number:e}"),
        _ => text,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.option {
            Some(option) => write!(f, "{option}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { option: None, message: message.to_string() }
    }
}

/// Reads a struct of options from the values of its fields, and ignores other values.
///
/// # Errors
/// A value is invalid; the fault has the option's name.
pub fn read<T: DeserializeOwned>(values: &Values) -> Result<T, Fault> {
    T::deserialize(Table(values))
}

/// Values of a struct of options, in the order of its fields.
///
/// # Panics
/// `options` is not a struct, or a field has no JSON form: a mistake in its definition.
pub fn write<T: Serialize>(options: &T) -> Values {
    match serde_json::to_value(options) {
        Ok(Json::Object(values)) => values,
        other => panic!("options are a struct of values, not {other:?}"),
    }
}

/// Message about a `word` that names no value of `T`.
pub fn no_choice<T: ValueEnum>(word: &str) -> String {
    let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    no_choice_of(word, &names.map(|value| value.get_name().to_string()).collect::<Vec<_>>())
}

/// Message about a `word` that is none of `names`: the word, the names, and the nearest of them.
pub fn no_choice_of<S: AsRef<str>>(word: &str, names: &[S]) -> String {
    format!("'{word}': {}{}", one_of(names), suggestion(word, names))
}

/// The suffix `; did you mean 'X'?` of a message about an unknown `word`; empty if none of `names`
/// is near.
pub fn suggestion<S: AsRef<str>>(word: &str, names: &[S]) -> String {
    let near = nearest(word, names.iter().map(AsRef::as_ref));
    near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"))
}

/// Joins names: `a`, `a or b`, `a, b or c`.
pub fn one_of<S: AsRef<str>>(names: &[S]) -> String {
    match names {
        [] => String::new(),
        [one] => one.as_ref().to_string(),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", first.join(", "), last.as_ref())
        }
    }
}

pub use crate::error::nearest;

/// Gives an enum that derives [`ValueEnum`] the `FromStr` and `Display` of its names.
#[macro_export]
macro_rules! by_name {
    ($($choice:ty),+ $(,)?) => {$(
        impl std::str::FromStr for $choice {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                <Self as clap::ValueEnum>::from_str(word, false)
                    .map_err(|_| $crate::options::no_choice::<Self>(word))
            }
        }

        impl std::fmt::Display for $choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let value = clap::ValueEnum::to_possible_value(self);
                f.write_str(value.as_ref().map_or("", |value| value.get_name()))
            }
        }
    )+};
}

/// Gives a type with `FromStr` the `Deserialize` that reads a word, a number, or an array of them.
#[macro_export]
macro_rules! by_word {
    ($($value:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $value {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <$crate::options::Word as serde::Deserialize>::deserialize(deserializer)?;
                word.0.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

/// A value as a word: arrays are joined by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(pub String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word, a number, or an array of them")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Word, E> {
                Ok(Word(word.into()))
            }

            fn visit_bool<E: de::Error>(self, yes: bool) -> Result<Word, E> {
                Ok(Word(yes.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Word, A::Error> {
                let mut words = Vec::new();
                while let Some(Word(word)) = seq.next_element()? {
                    words.push(word);
                }
                Ok(Word(words.join(",")))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// A value with the spelling in which it was given, which is what files and messages show.
#[derive(Clone, Debug)]
pub struct Spelled<T> {
    text: String,
    value: T,
}

impl<T> Spelled<T> {
    /// Returns the spelling.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<T> std::ops::Deref for Spelled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Display> From<T> for Spelled<T> {
    fn from(value: T) -> Self {
        Self { text: value.to_string(), value }
    }
}

impl<T: FromStr> FromStr for Spelled<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        Ok(Self { text: text.into(), value: text.parse()? })
    }
}

impl<T> fmt::Display for Spelled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> PartialEq for Spelled<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T> PartialEq<&str> for Spelled<T> {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

impl<T> Serialize for Spelled<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Spelled<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Word::deserialize(deserializer)?.0.parse().map_err(de::Error::custom)
    }
}

/// A struct from its fields' values.
struct Table<'a>(&'a Values);

impl<'de> Deserializer<'de> for Table<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(Fields { rest: self.0.iter(), value: None })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Fields of a table, one after the other.
struct Fields<'a> {
    rest: serde_json::map::Iter<'a>,
    value: Option<(&'a str, &'a Json)>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some((name, value));
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (name, value) = self.value.take().ok_or_else(|| de::Error::custom("a value without its name"))?;
        seed.deserialize(Value(value)).map_err(|fault: Fault| Fault { option: Some(name.into()), ..fault })
    }
}

/// A value, possibly as a word.
#[derive(Clone, Copy)]
struct Value<'a>(&'a Json);

impl Value<'_> {
    /// Returns the value as a single word.
    fn word(self) -> Result<String, Fault> {
        match self.0 {
            Json::String(word) => Ok(word.clone()),
            Json::Number(number) => Ok(number.to_string()),
            Json::Bool(yes) => Ok(yes.to_string()),
            other => Err(de::Error::custom(format_args!("{other} is not a single value"))),
        }
    }

    /// Parses the value as `T`, which messages call `kind`.
    fn parse<T: FromStr>(self, kind: &str) -> Result<T, Fault> {
        let word = self.word()?;
        word.parse().map_err(|_| de::Error::custom(format_args!("'{word}' is not {kind}")))
    }
}

/// Reads a number.
macro_rules! numbers {
    ($($method:ident $visit:ident $kind:literal;)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            visitor.$visit(self.parse($kind)?)
        }
    )+};
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Json::Array(values) => {
                visitor.visit_seq(de::value::SeqDeserializer::new(values.iter().map(Value)))
            }
            Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Json::Bool(yes) => visitor.visit_bool(*yes),
            _ => visitor.visit_string(self.word()?),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let word = self.word()?;
        match word.as_str() {
            "true" | "yes" | "on" => visitor.visit_bool(true),
            "false" | "no" | "off" => visitor.visit_bool(false),
            _ => Err(de::Error::custom(format_args!("'{word}' is neither true nor false"))),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let number: f64 = self.parse("a number")?;
        if !number.is_finite() {
            return Err(de::Error::custom(format_args!("'{}' is not a number", self.word()?)));
        }
        visitor.visit_f64(number)
    }

    numbers! {
        deserialize_u8 visit_u8 "a whole number from 0 to 255";
        deserialize_u16 visit_u16 "a whole number from 0 to 65535";
        deserialize_u32 visit_u32 "a whole number from 0 to 4294967295";
        deserialize_u64 visit_u64 "a whole number from 0";
        deserialize_i64 visit_i64 "a whole number";
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_string(self.word()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_string(self.word()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let word = self.word()?;
        if !names.contains(&word.as_str()) {
            return Err(de::Error::custom(no_choice_of(&word, names)));
        }
        visitor.visit_enum(word.into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

impl IntoDeserializer<'_, Fault> for Value<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Speed {
        #[default]
        AsFastAsLight,
        Slow,
    }
    by_name!(Speed);

    #[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
    #[serde(default)]
    struct Travel {
        /// Speed of the journey.
        ///
        /// Slow is cheaper.
        #[arg(long, value_name = "NAME", help_heading = "Journey", hide_short_help = true)]
        speed: Speed,
        /// Days under way
        #[arg(long, value_name = "N")]
        days: usize,
        #[arg(long)]
        return_ticket: bool,
        #[arg(long)]
        price: f64,
    }

    fn of(values: Json) -> Result<Travel, String> {
        let Json::Object(values) = values else { panic!("{values}") };
        read(&values).map_err(|fault| fault.to_string())
    }

    #[test]
    fn long_numbers_are_short_in_messages() {
        assert_eq!(Fault::of("rate", 1e300, "below 1").message, "'1e300': below 1");
        assert_eq!(Fault::of("rate", 1.5, "below 1").message, "'1.5': below 1");
        assert_eq!(
            Fault::of("name", "a".repeat(30), "short").message,
            format!("'{}': short", "a".repeat(30))
        );
    }

    #[test]
    fn words_and_values_mean_the_same() {
        let travel = Travel { speed: Speed::Slow, days: 3, return_ticket: true, price: 1.5 };
        assert_eq!(
            of(json!({"speed": "slow", "days": "3", "return_ticket": "yes", "price": "1.5"})).unwrap(),
            travel
        );
        assert_eq!(read::<Travel>(&write(&travel)).unwrap(), travel);
        assert_eq!(of(json!({"else": 1})).unwrap(), Travel::default());
    }

    #[test]
    fn faults_name_the_option_and_the_value() {
        let fault = |values| of(values).unwrap_err();
        assert_eq!(fault(json!({"days": "wide"})), "days: 'wide' is not a whole number from 0");
        assert_eq!(fault(json!({"days": -3})), "days: '-3' is not a whole number from 0");
        assert_eq!(fault(json!({"days": [1]})), "days: [1] is not a single value");
        assert_eq!(fault(json!({"price": "inf"})), "price: 'inf' is not a number");
        assert_eq!(fault(json!({"return_ticket": 2})), "return_ticket: '2' is neither true nor false");
        assert_eq!(fault(json!({"speed": "fast"})), "speed: 'fast': as-fast-as-light or slow");
    }

    #[test]
    fn keys_come_from_the_struct() {
        let keys = keys::<Travel>();
        let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(names, ["speed", "days", "return_ticket", "price"]);
        assert_eq!(
            (keys[0].heading.as_deref(), keys[0].help.as_str()),
            (Some("Journey"), "Speed of the journey")
        );
        assert_eq!((keys[0].details.as_str(), keys[0].is_common), ("Slow is cheaper.", false));
        assert!(keys[1].is_common);
        assert!(keys[2].is_switch && !keys[1].is_switch);
        let kinds: Vec<Kind> = keys.iter().map(|key| key.kind).collect();
        let speeds = Kind::Choice(&["as-fast-as-light", "slow"]);
        assert_eq!(kinds, [speeds, Kind::Integer, Kind::Switch, Kind::Number]);
    }

    #[test]
    fn slips_get_a_suggestion() {
        assert_eq!(nearest("hiden", ["hidden", "heads"]), Some("hidden"));
        assert_eq!(nearest("zzz", ["hidden", "heads"]), None);
        assert_eq!("slow".parse(), Ok(Speed::Slow));
        assert_eq!(Speed::AsFastAsLight.to_string(), "as-fast-as-light");
        assert_eq!("x".parse::<Speed>().unwrap_err(), "'x': as-fast-as-light or slow");
        let message = "'slwo': as-fast-as-light or slow; did you mean 'slow'?";
        assert_eq!("slwo".parse::<Speed>().unwrap_err(), message);
        assert_eq!(of(json!({"speed": "slwo"})).unwrap_err(), format!("speed: {message}"));
    }
}
