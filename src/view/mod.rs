//! What users see of ensembles, for the command line and the dashboard: pure, from objects of the control plane.

pub(crate) mod findings;
pub(crate) mod status;
pub(crate) mod why;
