//! Metrics of the parent process. `ZooKeeper` has its own metrics on another port.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

use crate::contract::control_api::Disk;

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
    volume_size: Gauge,
    volume_available: Gauge,
    set_aside: Gauge,
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
        registry.register("mczk_server_volume_size_bytes", "Size of the volume", metrics.volume_size.clone());
        registry.register(
            "mczk_server_volume_available_bytes",
            "Bytes on the volume that ZooKeeper may still write",
            metrics.volume_available.clone(),
        );
        registry.register(
            "mczk_server_volume_set_aside",
            "Copies of former data that the server has set aside on the volume",
            metrics.set_aside.clone(),
        );
        metrics
    }

    /// Sets the metrics of the volume.
    pub(super) fn set_disk(&self, disk: &Disk) {
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.volume_size.set(number(disk.size));
        self.volume_available.set(number(disk.available));
        self.set_aside.set(number(disk.set_aside.len() as u64));
    }
}
