//! What users see of ensembles, for the command line and the dashboard: pure, from objects of the control plane and plans.

pub(crate) mod findings;
pub(crate) mod status;
pub(crate) mod steps;
pub(crate) mod why;
