//! What users see of ensembles, for the command line and the dashboard: pure, from objects of the control plane and plans.

pub mod findings;
pub mod status;
pub mod steps;
pub mod why;
