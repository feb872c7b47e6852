//! Metrics of the parent process. `ZooKeeper` has its own metrics on another port.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use mczk_api::contract::control_api::Disk;
use mczk_rules::server::paths::Paths;
use mczk_runtime::{pki, telemetry::register_family};

/// Metrics of the parent process.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Starts of `ZooKeeper`.
    pub starts: Counter,
    /// 1 while `ZooKeeper` runs.
    pub running: Gauge,
    /// 1 if `ZooKeeper` served a session at the last observation.
    pub serving: Gauge,
    /// Epoch of the newest server list that this server knows.
    pub(crate) list_epoch: Gauge,
    volume_size: Gauge,
    volume_available: Gauge,
    set_aside: Gauge,
    not_after: Family<CertificateLabel, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: &'static str,
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
        register_family(
            registry,
            "mczk_server_certificate_not_after_timestamp_seconds",
            "End of the validity of the server's certificate, in seconds since 1970, by use: `quorum` or `client`",
            metrics.not_after.clone(),
        );
        metrics
    }

    /// Sets the metrics of the certificates that `ZooKeeper` reads. A server may have none.
    pub(super) fn set_certificates(&self, paths: &Paths) {
        for (certificate, path) in [("quorum", paths.quorum_identity()), ("client", paths.client_identity())] {
            let pem = std::fs::read_to_string(path).unwrap_or_default();
            if let Ok(not_after) = pki::not_after(&pem) {
                self.not_after.get_or_create(&CertificateLabel { certificate }).set(not_after.as_second());
            }
        }
    }

    /// Sets the metrics of the volume.
    pub(super) fn set_disk(&self, disk: &Disk) {
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.volume_size.set(number(disk.size));
        self.volume_available.set(number(disk.available));
        self.set_aside.set(number(disk.set_aside.len() as u64));
    }
}
