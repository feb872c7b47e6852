//! The agent's connection to simulated servers.

use std::{sync::Arc, time::Instant};

use futures::future::BoxFuture;
use mczk_agent::control_client::{Dial, Error, Servers};
use mczk_api::{
    contract::{
        control_api::{Configuration, Reconfiguration, RestartLock, ServerReport},
        loaded_certificates::Loaded,
    },
    zookeeper::{Ensemble as ServerList, FirstStart},
};

use crate::{Simulator, world::Failure};

/// Servers that have loaded the certificates with which the agent connects.
struct Connection {
    simulator: Simulator,
    loaded: Option<Loaded>,
}

pub(crate) fn dial(simulator: Simulator) -> Dial {
    Arc::new(move |material| {
        let loaded = material.and_then(|m| Loaded::of(m.certificate.as_bytes(), m.authorities.as_bytes()));
        Ok(Arc::new(Connection { simulator: simulator.clone(), loaded }) as Arc<dyn Servers>)
    })
}

fn error(host: &str, failure: Failure) -> Error {
    let server = host.to_owned();
    match failure {
        Failure::Down => Error::Unreachable { server, why: "it does not run".to_owned() },
        Failure::Refused(problem) => Error::Refused { server, problem },
    }
}

fn answer<'a, T: Send + 'a>(host: &'a str, result: Result<T, Failure>) -> BoxFuture<'a, Result<T, Error>> {
    Box::pin(std::future::ready(result.map_err(|failure| error(host, failure))))
}

impl Servers for Connection {
    fn view<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<ServerReport, Error>> {
        let view = self.simulator.read(|world| world.view(host));
        answer(host, view.map(|view| ServerReport { loaded: self.loaded.clone(), ..view }))
    }

    fn reconfigure<'a>(
        &'a self,
        host: &'a str,
        step: &'a Reconfiguration,
    ) -> BoxFuture<'a, Result<Configuration, Error>> {
        answer(host, self.simulator.change(|world| world.reconfigure(host, step)))
    }

    fn publish<'a>(&'a self, host: &'a str, list: &'a ServerList) -> BoxFuture<'a, Result<Configuration, Error>> {
        answer(host, self.simulator.change(|world| world.publish(host, list)))
    }

    fn record_first_start<'a>(&'a self, host: &'a str, _: &'a FirstStart) -> BoxFuture<'a, Result<(), Error>> {
        answer(host, Ok(()))
    }

    fn acquire_lock<'a>(&'a self, host: &'a str, lock: &'a RestartLock) -> BoxFuture<'a, Result<(), Error>> {
        answer(host, self.simulator.change(|world| world.take_lock(host, lock, Instant::now())))
    }

    fn release_lock<'a>(&'a self, host: &'a str, lock: &'a RestartLock) -> BoxFuture<'a, Result<(), Error>> {
        answer(host, self.simulator.change(|world| world.release_lock(host, lock)))
    }
}
