//! The rules of the operator, without a client and without a clock.
//!
//! [`plan::plan`] takes everything [`observed`] and the time, and returns the [`outcome`]. `known` reads it once, and every
//! step reads what is known. Each rule is a file or a folder:
//!
//! | rule | file |
//! |---|---|
//! | phases of a plan, in order | [`plan`] |
//! | clusters that match `spec.placement`, the selected ones | `placement`, `cluster_selection` |
//! | kinds that a cluster must serve | `served_kinds` |
//! | places of the voters: at home, or at a spare | `failover` |
//! | network check before the first server | `advance/preflight` |
//! | schedule of Karmada, once it is settled | `binding` |
//! | start and order of a record | [`record`] |
//! | next cluster, pause, hold, server list | `advance`: its own table of contents |
//! | deadline | `stuck` |
//! | reports of clusters, completion, quorum, what may be lost | [`report`], `completion`, `quorum`, `tolerance` |
//! | server list: ids, reported lists | `server_ids`, `reported_list` |
//! | lost status or OverridePolicy | `recovery` |
//! | clusters in which Karmada may overwrite | `ownership` |
//! | Secrets that Karmada has not brought to a cluster | `missing_secrets` |
//! | template, cluster specs, OverridePolicy | [`render`], [`cluster_spec`], [`override_rules`] |
//! | other owned objects | [`desired`], [`services`], [`objects`] |
//! | writes that differ from live objects | [`as_written`], `object_change` |
//! | certificates of the quorum | [`certificates`] |
//! | incarnation of the ensemble, those that lived before | [`incarnation`], `former_incarnations` |
//! | rebootstrap, deletion | [`rebootstrap`], `teardown` |
//! | reports of the steps, status, events | [`steps`], [`status`], [`events`] |
//! | numbers of the metrics | [`measures`] |

mod advance;
pub mod as_written;
mod binding;
pub mod certificates;
pub mod cluster_interest;
mod cluster_selection;
pub mod cluster_spec;
mod completion;
pub mod desired;
mod division;
pub mod events;
mod failover;
mod fence;
mod former_incarnations;
pub mod incarnation;
pub mod known;
pub mod live;
pub mod measures;
mod missing_secrets;
mod name_conflict;
pub mod object_change;
pub mod objects;
pub mod observed;
pub mod outcome;
pub mod override_rules;
mod ownership;
mod placement;
pub mod plan;
mod quorum;
pub(crate) mod rebootstrap;
pub mod record;
mod recovery;
pub mod render;
pub mod report;
mod reported_list;
mod scheduled;
mod scheduler_words;
mod served_kinds;
mod server_ids;
pub mod services;
pub mod status;
pub mod steps;
mod stuck;
mod teardown;
mod tolerance;
