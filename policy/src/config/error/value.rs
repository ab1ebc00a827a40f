//! policy.toml's values for serde. What a value is and what is wanted in its place is known here, so that an error can say both.

use super::fault::{Fault, Found, Kind, Wanted};
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_spanned::de::{SpannedDeserializer, is_spanned};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};
use toml_datetime::de::{DatetimeDeserializer, is_datetime};

type Result<T> = std::result::Result<T, Fault>;

/// A value, and its place in the text.
pub(super) struct Value<'a> {
    value: DeValue<'a>,
    at: Range<usize>,
}

impl<'a> Value<'a> {
    pub(super) fn of_file(table: Spanned<DeTable<'a>>) -> Self {
        let at = table.span();
        let value = DeValue::Table(table.into_inner());
        Self { value, at }
    }

    fn from_spanned(value: Spanned<DeValue<'a>>) -> Self {
        let at = value.span();
        let value = value.into_inner();
        Self { value, at }
    }

    fn found(&self) -> Found {
        match &self.value {
            DeValue::String(text) => Found::Plain(format!("{text:?}")),
            DeValue::Integer(number) => Found::Plain(number.to_string()),
            DeValue::Float(number) => Found::Plain(number.to_string()),
            DeValue::Boolean(value) => Found::Plain(value.to_string()),
            DeValue::Datetime(time) => Found::Plain(time.to_string()),
            DeValue::Array(_) => Found::List,
            DeValue::Table(_) => Found::Table,
        }
    }

    fn unfit(&self, wanted: Wanted) -> Fault {
        Fault::unfit(self.found(), wanted).at(&self.at)
    }

    fn number<'de, V: Visitor<'de>>(self, most: u64, visitor: V) -> Result<V::Value> {
        let number = match &self.value {
            DeValue::Integer(number) => whole(number).filter(|number| *number <= most),
            _ => None,
        };
        match number {
            Some(number) => visitor.visit_u64(number),
            None => Err(self.unfit(Wanted::Whole(most))),
        }
    }

    fn map<'de, V: Visitor<'de>>(self, wanted: Wanted, visitor: V) -> Result<V::Value> {
        match self.value {
            DeValue::Table(table) => {
                let at = self.at;
                let (pairs, value) = (table.into_iter(), None);
                let visited = visitor.visit_map(Pairs { pairs, value });
                visited.map_err(|fault: Fault| fault.at(&at))
            }
            _ => Err(self.unfit(wanted)),
        }
    }
}

fn whole(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

macro_rules! numbers {
    ($($name:ident $type:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.number(u64::from($type::MAX), visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Fault;

    numbers! { deserialize_u8 u8 deserialize_u16 u16 deserialize_u32 u32 deserialize_u64 u64 }
    // policy.toml has no such values. The visitor says which ones it takes.
    forward_to_deserialize_any! {
        i8 i16 i32 i64 f32 f64 char bytes byte_buf unit identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let at = self.at.clone();
        let visited = match &self.value {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            DeValue::Integer(number) => match whole(number) {
                Some(number) => visitor.visit_u64(number),
                None => Err(self.unfit(Wanted::Own((&visitor as &dyn Expected).to_string()))),
            },
            DeValue::Array(_) => return self.deserialize_seq(visitor),
            DeValue::Table(_) => return self.map(Wanted::Map, visitor),
            DeValue::Float(_) | DeValue::Datetime(_) => {
                Err(self.unfit(Wanted::Own((&visitor as &dyn Expected).to_string())))
            }
        };
        visited.map_err(|fault| fault.at(&at))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.value {
            DeValue::Boolean(value) => visitor.visit_bool(value),
            _ => Err(self.unfit(Wanted::Bool)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match &self.value {
            DeValue::String(text) => {
                let visited = visitor.visit_str(text);
                visited.map_err(|fault: Fault| fault.at(&self.at))
            }
            _ => Err(self.unfit(Wanted::Text)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.value {
            DeValue::Array(list) => visitor.visit_seq(Items(list.into_iter())),
            _ => Err(self.unfit(Wanted::List)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.map(Wanted::Map, visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        self.map(Wanted::Table, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        if is_spanned(name) {
            let at = self.at.clone();
            return visitor.visit_map(SpannedDeserializer::new(self, at));
        }
        if is_datetime(name) {
            return match self.value {
                DeValue::Datetime(time) => visitor.visit_map(DatetimeDeserializer::new(time)),
                _ => Err(self.unfit(Wanted::Time)),
            };
        }
        self.map(Wanted::Table, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match &self.value {
            DeValue::String(text) if words.contains(&text.as_ref()) => {
                let word: StrDeserializer<'_, Fault> = text.as_ref().into_deserializer();
                word.deserialize_enum(name, words, visitor)
            }
            DeValue::String(text) => Err(Fault::unknown_variant(text, words).at(&self.at)),
            _ => Err(self.unfit(Wanted::Word(words))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }
}

impl IntoDeserializer<'_, Fault> for Value<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct Items<I>(I);

impl<'de, 'a, I: Iterator<Item = Spanned<DeValue<'a>>>> SeqAccess<'de> for Items<I> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let next = self.0.next();
        next.map(|value| seed.deserialize(Value::from_spanned(value)))
            .transpose()
    }
}

struct Pairs<'a, I> {
    pairs: I,
    value: Option<Spanned<DeValue<'a>>>,
}

impl<'de, 'a, I> MapAccess<'de> for Pairs<'a, I>
where
    I: Iterator<Item = (Spanned<DeString<'a>>, Spanned<DeValue<'a>>)>,
{
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some((key, value)) = self.pairs.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let name: StrDeserializer<'_, Fault> = key.get_ref().as_ref().into_deserializer();
        let found = seed.deserialize(name);
        found.map(Some).map_err(|fault| fault.at(&key.span()))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        // serde asks for a value only after its key.
        let value = self.value.take().ok_or(Kind::Missing("a value"))?;
        let at = value.span();
        let found = seed.deserialize(Value::from_spanned(value));
        found.map_err(|fault| fault.at(&at))
    }
}
