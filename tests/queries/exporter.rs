//! Serves the metrics of all programs on loopback, as each registers them.

use std::net::SocketAddr;

use axum::Router;
use mczk_operator::{controller, interpreter};
use mczk_runtime::{api_requests, election, http_server, telemetry, tls};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::world::World;

/// Serves until it is dropped.
pub struct Exporter {
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Exporter {
    /// Serves `/mczk`, `/mczk-agent` and `/server`.
    pub fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let programs = [("/mczk", operator()), ("/mczk-agent", agent()), ("/server", server())];
        let router = programs
            .into_iter()
            .fold(Router::new(), |router, (path, registry)| router.route(path, telemetry::pages(registry)));
        runtime.spawn(async { axum::serve(listener, router).await });
        Self { address, _runtime: runtime }
    }
}

/// An operator of one ensemble whose rollout is finished.
fn operator() -> Registry {
    let mut registry = Registry::default();
    let metrics = controller::Metrics::new(&mut registry);
    let world = World::done(&json!({}));
    metrics.show("n", "zk", world.plan().measures);
    let _ = election::Metrics::new(&mut registry, "mczk");
    let _ = api_requests::Metrics::new(&mut registry, "mczk");
    let _ = interpreter::Metrics::new(&mut registry);
    let _ = http_server::Metrics::new(&mut registry);
    let _ = tls::Metrics::new(&mut registry);
    registry
}

fn agent() -> Registry {
    let mut registry = Registry::default();
    let _ = mczk_agent::Metrics::new(&mut registry);
    let _ = election::Metrics::new(&mut registry, "mczk_agent");
    let _ = api_requests::Metrics::new(&mut registry, "mczk_agent");
    registry
}

fn server() -> Registry {
    let mut registry = Registry::default();
    let _ = mczk_server::metrics::Metrics::new(&mut registry);
    registry
}
