//! Nothing: only the dependencies of this package matter.
