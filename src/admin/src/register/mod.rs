//! Objects that Karmada's control plane needs for ensembles: definitions, rights, policies, the webhook, and agents.
//!
//! [`Part::objects`] builds them without a client, [`apply`](apply::apply) writes them, and [`remove`](apply::remove)
//! deletes them. `manifests/` holds the same objects for `kubectl`.

pub(crate) mod agents;
pub mod apply;
pub mod credential;
pub mod expiry_notice;
pub(crate) mod host;
pub mod interpreter;
pub(crate) mod issued;
mod object;
pub(crate) mod ownership;
pub(crate) mod pods;
pub(crate) mod propagation;
pub mod rbac;
pub mod renewal;

use std::collections::BTreeSet;

use mczk_api::crd;

use agents::Agents;
use interpreter::Registration;
use rbac::Identity;

pub(crate) use object::NAME;
pub use object::Object;

/// A part of the registration, in the order in which parts are applied: a part comes after those that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Part {
    /// CustomResourceDefinitions of both kinds
    Crds,
    /// Rights of the operator's user
    Rbac,
    /// Policies that propagate the CustomResourceDefinitions to the member clusters
    Propagation,
    /// Registration of the interpreter webhook
    Interpreter,
    /// Agents of the member clusters
    Agents,
}

/// Input of the objects.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Identity of the operator.
    pub operator: Identity,
    /// Namespaces of ensembles, in which the operator may read and create Secrets.
    pub namespaces: BTreeSet<String>,
    /// True for the rights of an operator that serves the web page.
    pub dashboard: bool,
    /// Registration of the webhook. Without it, [`Part::Interpreter`] is empty.
    pub interpreter: Option<Registration>,
    /// Settings of the agents. Without them, [`Part::Agents`] is empty.
    pub agents: Option<Agents>,
}

impl Part {
    /// All parts, in the order in which they are applied.
    pub const ALL: [Self; 5] = [Self::Crds, Self::Rbac, Self::Propagation, Self::Interpreter, Self::Agents];

    /// The objects of this part.
    ///
    /// # Errors
    /// Never for the types of this crate.
    pub fn objects(self, settings: &Settings) -> serde_json::Result<Vec<Object>> {
        match self {
            Self::Crds => crd::definitions()?.iter().map(Object::of).collect(),
            Self::Rbac => {
                let mut objects = rbac::objects(&settings.operator, &settings.namespaces)?;
                if settings.dashboard {
                    objects.extend(rbac::dashboard_objects(&settings.operator)?);
                }
                Ok(objects)
            }
            Self::Propagation => propagation::policies().iter().map(Object::of).collect(),
            Self::Interpreter => settings.interpreter.iter().map(Registration::object).collect(),
            Self::Agents => settings.agents.as_ref().map_or(Ok(Vec::new()), agents::objects),
        }
    }
}
