//! The member side: what runs in a member cluster.
//!
//! [`wire`] is what agents and servers say to each other, and [`layout`] where things lie in a server's pod. Pure, of the
//! agent: [`render`] what the cluster should hold, [`guard`] what is obeyed, [`membership`] the next step of a
//! reconfiguration, [`turn`] which server may be taken out, [`client_tls`] which certificates clients see, [`status`] what is
//! reported; [`decide`] puts them together.
//! [`server`] is what runs in a server's pod.

pub mod agent;
pub mod client;
pub mod client_tls;
pub mod decide;
pub mod guard;
pub mod layout;
pub mod loaded;
pub mod membership;
pub mod own;
pub mod render;
pub mod server;
pub mod status;
pub mod turn;
pub mod wire;
