//! Two gaps between serde's derive and the readers in the runtimes.
//!
//! `null` stands for an absent list or object there, and an annotation key that is written twice is an
//! error there, while a plain map would silently keep the last one.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, de};

/// `null` becomes the empty value.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A string map that refuses a repeated key; `null` becomes the empty map.
pub(crate) fn annotations<'de, D>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(Option::<UniqueKeys>::deserialize(deserializer)?
        .map(|keys| keys.0)
        .unwrap_or_default())
}

struct UniqueKeys(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = BTreeMap<String, String>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut keys = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if keys.contains_key(&key) {
                        return Err(<A::Error as Error>::custom(format_args!(
                            "duplicate annotation `{key}`"
                        )));
                    }
                    keys.insert(key, value);
                }
                Ok(keys)
            }
        }
        deserializer.deserialize_map(Keys).map(Self)
    }
}

/// Charges every scalar and container of a document, aliases expanded, against a limit.
///
/// A few kilobytes of YAML aliases can stand for gigabytes; this walk allocates nothing, so it runs
/// before the real parse.
pub(crate) struct Budget<'a> {
    /// What may still be spent, in bytes.
    pub(crate) left: &'a mut usize,
}

/// Charged per value besides its text, so that many empty values cost something.
const PER_VALUE: usize = 16;

impl Budget<'_> {
    fn charge<E: de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        match self.left.checked_sub(bytes + PER_VALUE) {
            Some(left) => {
                *self.left = left;
                Ok(())
            }
            None => Err(E::custom(
                "the document expands to more than the accepted size",
            )),
        }
    }
}

impl<'de> de::DeserializeSeed<'de> for Budget<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! charge_scalars {
    ($($name:ident: $scalar:ty),*) => {
        $(fn $name<E: de::Error>(mut self, _: $scalar) -> Result<(), E> {
            self.charge(0)
        })*
    };
}

impl<'de> Visitor<'de> for Budget<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an untagged YAML value")
    }

    charge_scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128,
        visit_u128: u128, visit_f64: f64);

    fn visit_unit<E: de::Error>(mut self) -> Result<(), E> {
        self.charge(0)
    }

    fn visit_str<E: de::Error>(mut self, text: &str) -> Result<(), E> {
        self.charge(text.len())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.charge(0)?;
        while seq.next_element_seed(Budget { left: self.left })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.charge(0)?;
        while map.next_key_seed(Budget { left: self.left })?.is_some() {
            map.next_value_seed(Budget { left: self.left })?;
        }
        Ok(())
    }
}
