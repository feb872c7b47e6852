//! The znodes that servers and agents share belong to the servers alone.
//!
//! A client could create `/mczk` first, open to itself, and then own the server list and the restart lock. So every session
//! of a superuser begins with a look at the access list of `/mczk`.

use futures::future::BoxFuture;
use tracing::warn;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error as ZkError, Permission};

use mczk_api::contract::pod_layout::ZNODE;

/// Where a client would forbid writes of `/mczk` by a quota. `ZooKeeper` exempts no superuser.
const QUOTA_ZNODE: &str = "/zookeeper/quota/mczk";
/// The znode of `ZooKeeper`'s own configuration.
const CONFIGURATION_ZNODE: &str = "/zookeeper/config";

/// Creates `/mczk`, and the znode of its quota. If a client has created one of them, removes everything below it and closes it
/// to clients.
///
/// # Errors
/// If `ZooKeeper` does not answer, or another server does the same at this moment.
pub(super) async fn protect(client: &Client) -> Result<(), ZkError> {
    // A quota may forbid to create the other one.
    protect_znode(client, QUOTA_ZNODE).await?;
    protect_znode(client, ZNODE).await
}

async fn protect_znode(client: &Client, znode: &str) -> Result<(), ZkError> {
    ensure(client, znode).await?;
    let (acls, stat) = client.get_acl(znode).await?;
    if acls[..] == Acls::anyone_read()[..] {
        return Ok(());
    }
    warn!(znode, "a client has created a znode of mczk: removing what is below it");
    // If this server stops now, the next session sees an access list that is not mczk's.
    let stat = client.set_acl(znode, &closed(), Some(stat.aversion)).await?;
    remove_below(client, znode.to_owned()).await?;
    client.set_acl(znode, &Acls::anyone_read(), Some(stat.aversion)).await.map(drop)
}

/// Shows `ZooKeeper`'s configuration to clients, or hides it. If clients must use TLS, it names addresses that only a pod itself
/// can use. Curator would replace the addresses of its client by them; it ignores a configuration that it may not read.
///
/// # Errors
/// If `ZooKeeper` does not answer.
pub(super) async fn show_configuration(client: &Client, visible: bool) -> Result<(), ZkError> {
    let wanted = if visible { Acls::anyone_read().to_vec() } else { closed().to_vec() };
    let (acls, stat) = client.get_acl(CONFIGURATION_ZNODE).await?;
    if acls == wanted {
        return Ok(());
    }
    match client.set_acl(CONFIGURATION_ZNODE, &wanted, Some(stat.aversion)).await {
        // Another server does the same.
        Ok(_) | Err(ZkError::BadVersion) => Ok(()),
        Err(error) => Err(error),
    }
}

/// An access list that only the superuser passes: no client has this identity.
fn closed() -> [Acl; 1] {
    [Acl::new(Permission::READ, AuthId::new("digest", "mczk:none"))]
}

/// Creates the znode above those that agents share, if it does not exist.
pub(super) async fn ensure_folder(client: &Client) -> Result<(), ZkError> {
    ensure(client, ZNODE).await
}

async fn ensure(client: &Client, znode: &str) -> Result<(), ZkError> {
    let readable = CreateMode::Persistent.with_acls(Acls::anyone_read());
    match client.create(znode, b"", &readable).await {
        Ok(_) | Err(ZkError::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}

fn remove_below(client: &Client, path: String) -> BoxFuture<'_, Result<(), ZkError>> {
    Box::pin(async move {
        for name in client.list_children(&path).await? {
            let child = format!("{path}/{name}");
            remove_below(client, child.clone()).await?;
            match client.delete(&child, None).await {
                Ok(()) | Err(ZkError::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}
