//! Metrics of the parent process. `ZooKeeper` has its own metrics on another port.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// Metrics of the parent process.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Starts of `ZooKeeper`.
    pub(crate) starts: Counter,
    /// 1 while `ZooKeeper` runs.
    pub(crate) running: Gauge,
    /// 1 if `ZooKeeper` served a session at the last observation.
    pub(crate) serving: Gauge,
    /// Epoch of the newest server list that this server knows.
    pub(crate) list_epoch: Gauge,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("mczk_server_zookeeper_starts", "Starts of ZooKeeper", metrics.starts.clone());
        registry.register("mczk_server_zookeeper_running", "1 while ZooKeeper's process runs", metrics.running.clone());
        registry.register(
            "mczk_server_serving",
            "1 if ZooKeeper served a session at the last observation; the server observes every 2 seconds",
            metrics.serving.clone(),
        );
        registry.register(
            "mczk_server_list_epoch",
            "Epoch of the newest server list that this server knows",
            metrics.list_epoch.clone(),
        );
        metrics
    }
}
