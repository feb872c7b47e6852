//! What is counted of a server's parent process. `ZooKeeper` has its own numbers, on a port of its own.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// The numbers.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Starts of `ZooKeeper`.
    pub starts: Counter,
    /// 1 while its process runs.
    pub running: Gauge,
    /// 1 if a session was served at the last look.
    pub serving: Gauge,
    /// Epoch of the newest list of servers that is known.
    pub list_epoch: Gauge,
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("mczk_server_zookeeper_starts", "Starts of ZooKeeper", metrics.starts.clone());
        registry.register("mczk_server_zookeeper_running", "1 while ZooKeeper's process runs", metrics.running.clone());
        registry.register(
            "mczk_server_serving",
            "1 if a session was served at the last look, which comes every 2 seconds",
            metrics.serving.clone(),
        );
        registry.register(
            "mczk_server_list_epoch",
            "Epoch of the newest list of servers that this server knows",
            metrics.list_epoch.clone(),
        );
        metrics
    }
}
