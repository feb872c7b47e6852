//! A client that writes all the time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};
use std::time::{Duration, Instant};

use zookeeper_client::{Acls, Client, CreateMode};

use crate::world::World;

/// A client that writes all the time, and continues with another server if one is gone.
pub struct Writer {
    end: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(Vec<String>, Duration)>,
}

/// Two writers of one process write different names.
static WRITERS: AtomicU32 = AtomicU32::new(0);

impl Writer {
    /// Starts to write through these servers.
    pub fn start(world: &World, servers: &[i32]) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let (ended, servers) =
            (end.clone(), servers.iter().map(|n| format!("{}.{n}:2181", world.net)).collect::<Vec<_>>().join(","));
        let task = tokio::spawn(async move {
            let (mut written, mut pause, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            let (writer, mut number) = (WRITERS.fetch_add(1, Ordering::Relaxed), 0_u32);
            while !ended.load(Ordering::Relaxed) {
                let Ok(client) = Client::connect(&servers).await else { continue };
                while !ended.load(Ordering::Relaxed) {
                    number += 1;
                    let name = format!("w{writer}-{number}");
                    if client.create(&format!("/{name}"), b"", &options).await.is_err() {
                        break;
                    }
                    written.push(name);
                    pause = pause.max(last.elapsed());
                    last = Instant::now();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            (written, pause)
        });
        Self { end, task }
    }

    pub async fn stop(self) -> (Vec<String>, Duration) {
        self.end.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}
