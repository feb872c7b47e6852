//! A live object: the view that the rules use, and the whole object as the API server returned it.

use std::ops::Deref;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;

/// A live object. It dereferences to the view; [`Live::whole`] also has the fields that the view does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct Live<T> {
    view: T,
    whole: Value,
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Live<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Value::deserialize(deserializer)?;
        Ok(Self { view: T::deserialize(&whole).map_err(D::Error::custom)?, whole })
    }
}

impl<T> Live<T> {
    /// The whole object.
    #[must_use]
    pub const fn whole(&self) -> &Value {
        &self.whole
    }
}

impl<T: Serialize> From<T> for Live<T> {
    fn from(view: T) -> Self {
        let whole = serde_json::to_value(&view).unwrap_or_default();
        Self { view, whole }
    }
}

impl<T> Deref for Live<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.view
    }
}
