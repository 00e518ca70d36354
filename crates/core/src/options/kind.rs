//! Kinds of values that options take, from the types of their struct's fields.

use std::cell::Cell;

use serde::{
    Deserializer,
    de::{self, DeserializeOwned, IntoDeserializer, MapAccess, Visitor},
};

use super::Fault;

/// Kind of value that an option takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Switch,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Any text, such as a path or the name of a row of a table.
    Text,
    /// One of these names.
    Choice(&'static [&'static str]),
    /// A word that the option's type parses, a number, or an array of them.
    #[default]
    Word,
}

/// Kind of the option `name` of the struct `T`.
pub(super) fn kind_of<T: DeserializeOwned>(name: &str) -> Kind {
    let found = Cell::new(Kind::default());
    // the probe ends the reading at the field
    let _ = T::deserialize(Probe { name: Some(name), found: &found });
    found.get()
}

/// Struct with a single field, or the value of that field, which records its type instead of giving
/// a value.
struct Probe<'a> {
    /// Name of the field until it has been read.
    name: Option<&'a str>,
    found: &'a Cell<Kind>,
}

impl Probe<'_> {
    /// Records the kind and ends the reading.
    fn record<T>(&self, kind: Kind) -> Result<T, Fault> {
        self.found.set(kind);
        Err(de::Error::custom("the probe has no value"))
    }
}

impl<'de> MapAccess<'de> for Probe<'_> {
    type Error = Fault;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.name.take().map(|name| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        seed.deserialize(Probe { name: None, found: self.found })
    }
}

/// Records `kind` for the types of some methods.
macro_rules! record {
    ($($kind:ident: $($method:ident)+;)+) => {$($(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fault> {
            self.record(Kind::$kind)
        }
    )+)+};
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Fault;

    record! {
        Switch: deserialize_bool;
        Integer: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
            deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128;
        Number: deserialize_f32 deserialize_f64;
        Text: deserialize_char deserialize_str deserialize_string;
        Word: deserialize_any;
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_map(self)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
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
        _: V,
    ) -> Result<V::Value, Fault> {
        self.record(Kind::Choice(names))
    }

    serde::forward_to_deserialize_any! {
        bytes byte_buf unit unit_struct seq tuple tuple_struct identifier ignored_any
    }
}
