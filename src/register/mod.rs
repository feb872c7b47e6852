//! What Karmada must be told before it can run ensembles: definitions, rights, where definitions go, and the webhook.
//!
//! [`Part::objects`] builds the objects, without a client; [`apply`](apply::apply) brings them into Karmada's control
//! plane, and [`remove`](apply::remove) takes them out again. `manifests/` holds the same objects for `kubectl`.

pub mod agents;
pub mod apply;
pub mod interpreter;
pub mod propagation;
pub mod rbac;

use kube::{
    Resource,
    core::{ApiResource, DynamicObject},
};
use serde::Serialize;

use crate::api::crd;
use interpreter::Registration;
use rbac::Identity;

/// Field manager of everything that is registered. One, and always the same: a second one would leave fields behind.
pub const FIELD_MANAGER: &str = "mczk-register";
/// Name of the objects that exist once.
pub const NAME: &str = "mczk";

/// An object of any kind, and under which path the API server has it.
#[derive(Clone, Debug)]
pub struct Object {
    /// Kind and plural.
    pub resource: ApiResource,
    /// The object itself.
    pub body: DynamicObject,
}

impl Object {
    /// An object of a type that knows its own kind.
    fn of<K>(object: &K) -> serde_json::Result<Self>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        Self::new(ApiResource::erase::<K>(&()), object)
    }

    fn new(resource: ApiResource, object: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self { resource, body: serde_json::from_value(serde_json::to_value(object)?)? })
    }

    /// Its name, with the namespace before it if it has one.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.body.metadata.name.as_deref().unwrap_or_default();
        self.body.metadata.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
    }
}

/// A part of what is registered. The order is the one in which the parts are applied: what others need comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Part {
    /// The CustomResourceDefinitions of both kinds
    Crds,
    /// The rights of the operator's user
    Rbac,
    /// The policies that bring definitions to the member clusters
    Propagation,
    /// The registration of the interpreter webhook
    Interpreter,
    /// The agents of the member clusters
    Agents,
}

/// Everything that the objects depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who the operator is.
    pub operator: Identity,
    /// Where the webhook listens. Without it, [`Part::Interpreter`] is empty.
    pub interpreter: Option<Registration>,
    /// Image of the agents. Without it, [`Part::Agents`] is empty.
    pub agent_image: Option<String>,
}

impl Part {
    /// All parts, in the order in which they are applied.
    pub const ALL: [Self; 5] = [Self::Crds, Self::Rbac, Self::Propagation, Self::Interpreter, Self::Agents];

    /// The objects of this part.
    ///
    /// # Errors
    /// Never for the types of this crate; the error is serde's.
    pub fn objects(self, settings: &Settings) -> serde_json::Result<Vec<Object>> {
        match self {
            Self::Crds => crd::definitions()?.iter().map(Object::of).collect(),
            Self::Rbac => rbac::objects(&settings.operator),
            Self::Propagation => propagation::policies().iter().map(Object::of).collect(),
            Self::Interpreter => settings.interpreter.iter().map(Registration::object).collect(),
            Self::Agents => settings.agent_image.as_deref().map_or(Ok(Vec::new()), agents::objects),
        }
    }
}
