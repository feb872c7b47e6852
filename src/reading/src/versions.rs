//! Versions of observed objects, in a form that is small to keep.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Kind of the template's binding, as versions name it.
pub const BINDING: &str = "ResourceBinding";

/// Kind and name of a watched object, as a number: there may be 100,000 of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u64);

impl Id {
    /// The number of this object.
    #[must_use]
    pub fn of(kind: &str, name: &str) -> Self {
        Self(hash(&(kind, name)))
    }
}

/// A value as a number, which stands for it within this process.
pub fn hash<T: Hash>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The resource version as a number. Versions of one kind rise.
#[must_use]
pub fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_ref()?.parse().ok()
}

/// A version of an object. `None` if the API server does not number its versions.
pub type ObjectVersion = (Id, Option<u64>);

/// What a watch says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// It changed, or was deleted.
    Changed,
    /// It is part of a new list. After a restore of the API server's storage, its version may be lower than before.
    Listed,
}
