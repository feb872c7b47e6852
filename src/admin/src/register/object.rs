//! Objects of any kind, as they are registered.

use kube::{
    Resource,
    core::{ApiResource, DynamicObject},
};
use serde::Serialize;
use serde_json::Value;

use mczk_reading::kinds;

/// Field manager of everything that is registered. It never changes: a second one would leave fields behind.
pub(crate) const FIELD_MANAGER: &str = "mczk-register";
/// Name of objects that exist once.
pub(crate) const NAME: &str = "mczk";

/// An object of any kind.
#[derive(Clone, Debug)]
pub struct Object {
    /// Kind and plural.
    pub resource: ApiResource,
    /// The object itself.
    pub body: DynamicObject,
}

impl Object {
    /// An object of a type that knows its kind.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub fn of<K>(object: &K) -> serde_json::Result<Self>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        Self::new(ApiResource::erase::<K>(&()), object)
    }

    /// An object of a manifest, with its own `apiVersion` and `kind`.
    pub(super) fn of_manifest(value: &Value) -> serde_json::Result<Self> {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        Self::new(kinds::resource(text("apiVersion"), text("kind")), value)
    }

    /// An object of this resource.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub fn new(resource: ApiResource, object: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self { resource, body: serde_json::from_value(serde_json::to_value(object)?)? })
    }

    /// Name of the object, after its namespace if it has one.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.body.metadata.name.as_deref().unwrap_or_default();
        self.body.metadata.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
    }
}
