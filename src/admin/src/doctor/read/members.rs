//! The member clusters, and their objects through Karmada's proxy.

use futures::{StreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, storage::v1::StorageClass};
use kube::{Api, Client, Config, api::ListParams, core::DynamicObject};
use serde_json::Value;

use super::{incarnations::incarnations, karmada, reader::BoundedReader};
use crate::{
    doctor::observed::{MemberCluster, MemberObjects, Read},
    terminal::proxy::Proxy,
};
use mczk_api::karmada::cluster::{self, Cluster};
use mczk_reading::kinds::resource;

/// Member clusters that are read at a time.
const CONCURRENT: usize = 16;

/// All member clusters. Nothing is read in those that Karmada does not reach.
pub(super) async fn clusters(config: &Config, client: &Client, reader: &BoundedReader) -> Read<Vec<MemberCluster>> {
    let list = karmada::list(client, &resource(cluster::API_VERSION, "Cluster"), reader).await?;
    let proxy = &Proxy::new(config.clone());
    let all = list.iter().map(|object| async move {
        let mut member = member(object)?;
        if member.cluster.ready() {
            member.objects = Some(Box::pin(objects(proxy, member.cluster.name(), reader)).await);
        }
        Ok(member)
    });
    stream::iter(all).buffered(CONCURRENT).collect::<Vec<_>>().await.into_iter().collect()
}

fn member(object: &DynamicObject) -> Read<MemberCluster> {
    let parsed = serde_json::to_value(object).and_then(serde_json::from_value::<Cluster>);
    let cluster = parsed.map_err(|error| format!("a Cluster does not parse: {error}"))?;
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition.get("type") == Some(&Value::from("Ready")));
    let message = ready.and_then(|ready| ready.get("message")).and_then(Value::as_str);
    Ok(MemberCluster {
        cluster,
        ready_message: message.unwrap_or("Karmada has not checked it yet").to_owned(),
        objects: None,
    })
}

async fn objects(proxy: &Proxy, name: &str, reader: &BoundedReader) -> MemberObjects {
    let client = match proxy.client(name) {
        Ok(client) => client,
        Err(why) => {
            let unread = || why.to_string();
            return MemberObjects {
                definition: Err(unread()),
                agents: Err(unread()),
                storage_classes: Err(unread()),
                incarnations: Err(unread()),
            };
        }
    };
    let of = |what: &str| format!("{what} of cluster {name}");
    let agents: Api<Deployment> = Api::all(client.clone());
    let labelled = ListParams::default().labels("app.kubernetes.io/name=mczk-agent");
    let classes: Api<StorageClass> = Api::all(client.clone());
    let (definition_title, agents_title, classes_title) = (of("definition"), of("agents"), of("storage classes"));
    let every = ListParams::default();
    let (definition, agents, storage_classes, incarnations) = futures::join!(
        karmada::definition(&client, "zookeepers.mczk.io", &definition_title, reader),
        reader.read(&agents_title, agents.list(&labelled)),
        reader.read(&classes_title, classes.list(&every)),
        incarnations(&client, name, reader),
    );
    MemberObjects {
        definition,
        agents: agents.map(|list| list.items),
        storage_classes: storage_classes.map(|list| list.items),
        incarnations,
    }
}
