//! Voters lose their votes while they are down, come back without them, and get them again under the same ids.
//!
//! This is what a demotion does to `ZooKeeper` (docs/lab/measurements.md). Five servers speak TLS with each other. In each round
//! two are lost, and the three others take their votes, one after the other.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mczk_agent::control_client::{Error, Servers, dial};
use mczk_api::{
    contract::{
        control_api::{Configuration, Mode, Reconfiguration, ServerReport},
        server_list::with_hash,
    },
    zookeeper::{Ensemble, Role},
};
use mczk_rules::agent::render::Material;

use crate::{
    authority::Authority,
    world::{TIMEOUT, World, bootstrap, joiner, list},
    writer::Writer,
};

/// If set, so many rounds are played instead of one of each kind.
const ROUNDS: &str = "DEMOTION_ROUNDS";
const ALL: [i32; 5] = [1, 2, 3, 4, 5];
/// Time in which a leader without its followers, or two servers without a majority, would show that they serve.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

/// What happens in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The leader and another server lose power.
    Leader,
    /// The servers with the lowest ids lose power. The others must dial them when they return.
    Lowest,
    /// The servers with the highest ids stand still and continue later, as processes that believe to vote.
    StandStill,
    /// The leader has logged writes that no other server has, and loses power with another server.
    Unconfirmed,
    /// The lost servers return while one of the three others runs: they are no majority of the newest configuration.
    TooFew,
}

const KINDS: [Kind; 5] = [Kind::Leader, Kind::Lowest, Kind::StandStill, Kind::Unconfirmed, Kind::TooFew];

struct Five {
    world: World,
    servers: Arc<dyn Servers>,
    epoch: i64,
}

/// Seconds that a round's steps took.
#[derive(Debug, Default)]
struct Times {
    demoted: f64,
    follows: f64,
    follows_again: f64,
    votes: f64,
}

async fn until<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> (T, f64) {
    let began = Instant::now();
    loop {
        if let Some(result) = poll().await {
            return (result, began.elapsed().as_secs_f64());
        }
        assert!(began.elapsed() < TIMEOUT, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

impl Five {
    async fn start() -> Self {
        let mut world = World::new("demotion", true);
        let authority = Authority::new();
        for n in ALL {
            world.assign(n, &bootstrap(5));
            authority.write_identity(&world.path(n, "quorum"));
            world.start(n);
        }
        let (certificate, key) = authority.issue();
        let material = Material { certificate, key, authorities: authority.0.pem() };
        let five = Self { world, servers: dial(8443)(Some(&material)).unwrap(), epoch: 1 };
        five.all_serve(&ALL).await;
        five
    }

    async fn report(&self, n: i32) -> Option<ServerReport> {
        self.servers.view(&self.address(n)).await.ok()
    }

    fn address(&self, n: i32) -> String {
        format!("{}.{n}", self.world.net)
    }

    async fn serving(&self, n: i32) -> (ServerReport, f64) {
        let known = |report: &ServerReport| report.serving && report.mode.is_some() && report.configuration.is_some();
        until(&format!("server {n} serves"), async || self.report(n).await.filter(known)).await
    }

    async fn all_serve(&self, servers: &[i32]) {
        for n in servers {
            self.serving(*n).await;
        }
    }

    async fn leader(&self, among: &[i32]) -> i32 {
        let leads = async || {
            for n in among {
                if self.report(*n).await.is_some_and(|r| r.mode == Some(Mode::Leader) && r.serving) {
                    return Some(*n);
                }
            }
            None
        };
        until("one of them leads", leads).await.0
    }

    /// The list of all servers, which lose their votes after a minute.
    fn demoting(&mut self) -> Ensemble {
        self.epoch += 1;
        let list = list(self.epoch, &ALL.map(|n| (n, n)));
        with_hash(Ensemble { demote_after_seconds: Some(60), ..list }).unwrap()
    }

    /// Asks a server to take the vote of another one. Returns the words of a refusal.
    async fn take_vote(&self, through: i32, id: i32) -> Result<Configuration, String> {
        let from_version = self.serving(through).await.0.configuration.unwrap().version;
        let step = Reconfiguration { epoch: self.epoch, from_version, add: None, remove: Some(id) };
        self.servers.reconfigure(&self.address(through), &step).await.map_err(|error| error.to_string())
    }

    /// Publishes a list of these servers under the next epoch. The agents of `assigned` bring it to their servers.
    async fn publish(&mut self, servers: &[i32], through: i32, assigned: &[i32]) -> Ensemble {
        self.epoch += 1;
        let list = list(self.epoch, &servers.iter().map(|n| (*n, *n)).collect::<Vec<_>>());
        let address = self.address(through);
        until("the list is published", async || self.servers.publish(&address, &list).await.ok()).await;
        for n in assigned {
            self.world.assign(*n, &list);
        }
        list
    }

    /// Takes or gives a vote, as often as the leader refuses.
    async fn change(&self, through: i32, id: i32, votes: bool) -> f64 {
        let address = self.address(through);
        let step = async || {
            let at: Configuration = self.report(through).await?.configuration?;
            if at.voters().any(|voter| voter == id) == votes {
                return Some(());
            }
            let step = Reconfiguration {
                epoch: self.epoch,
                from_version: at.version,
                add: votes.then(|| joiner(id, Role::Voter)),
                remove: (!votes).then_some(id),
            };
            match self.servers.reconfigure(&address, &step).await {
                Ok(after) => (after.voters().any(|voter| voter == id) == votes).then_some(()),
                Err(Error::Refused { problem, .. }) if problem.reason != "version" => {
                    println!("    {}: {}", problem.reason, problem.message);
                    None
                }
                Err(_) => None,
            }
        };
        until(&format!("the vote of server {id} is {votes}"), step).await.1
    }

    /// The leader logs writes that no other server gets.
    async fn log_alone(&self, leader: i32) {
        let others: Vec<_> = ALL.into_iter().filter(|n| *n != leader).collect();
        let client = self.world.client(leader).await;
        for n in &others {
            self.world.signal(*n, "STOP");
        }
        let options = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
        for number in 0..5 {
            let path = format!("/unconfirmed-{}-{number}", self.epoch);
            let write = client.create(&path, b"", &options);
            let answer = tokio::time::timeout(Duration::from_millis(300), write).await;
            assert!(!matches!(answer, Ok(Ok(_))), "a leader without followers acknowledges a write");
        }
    }

    async fn lose(&mut self, kind: Kind, round: usize) -> [i32; 2] {
        let leader = self.leader(&ALL).await;
        let other = ALL.into_iter().filter(|n| *n != leader).nth(round % 4).unwrap();
        let lost = match kind {
            Kind::Lowest => [1, 2],
            Kind::StandStill => [4, 5],
            Kind::Leader | Kind::Unconfirmed | Kind::TooFew => [leader, other],
        };
        if kind == Kind::Unconfirmed {
            self.log_alone(leader).await;
        }
        for n in lost {
            if kind == Kind::StandStill {
                self.world.signal(n, "STOP");
                self.world.signal_parent(n, "STOP");
            } else {
                self.world.kill(n);
            }
        }
        if kind == Kind::Unconfirmed {
            ALL.iter().filter(|n| !lost.contains(n)).for_each(|n| self.world.signal(*n, "CONT"));
        }
        lost
    }

    /// Starts the lost servers. They follow without a vote, also after another start.
    async fn back_without_votes(&mut self, kind: Kind, lost: [i32; 2], times: &mut Times) {
        for n in lost {
            if kind == Kind::StandStill {
                self.world.signal(n, "CONT");
                self.world.signal_parent(n, "CONT");
            } else {
                self.world.start(n);
            }
        }
        for n in lost {
            times.follows = times.follows.max(self.follows_without_vote(n).await);
            self.world.kill(n);
            self.world.start(n);
            times.follows_again = times.follows_again.max(self.follows_without_vote(n).await);
        }
    }

    async fn follows_without_vote(&self, n: i32) -> f64 {
        let follows = async || {
            let report = self.report(n).await?;
            let votes = report.configuration.as_ref()?.voters().any(|voter| voter == n);
            (report.serving && report.mode == Some(Mode::Follower) && !votes).then_some(())
        };
        until(&format!("server {n} follows without a vote"), follows).await.1
    }

    async fn round(&mut self, kind: Kind, round: usize) -> Times {
        let mut times = Times::default();
        let identity = self.report(3).await.unwrap().volume;
        let lost = self.lose(kind, round).await;
        let stay: Vec<i32> = ALL.into_iter().filter(|n| !lost.contains(n)).collect();
        let began = Instant::now();
        self.leader(&stay).await;
        self.publish(&stay, stay[0], &stay).await;
        for id in lost {
            self.change(stay[0], id, false).await;
        }
        times.demoted = began.elapsed().as_secs_f64();
        self.publish(&ALL, stay[1], &stay).await;
        let at = self.serving(stay[0]).await.0.configuration.unwrap();
        assert_eq!(at.voters().collect::<Vec<_>>(), stay);
        // One more loss is survived.
        let third = stay[round % 3];
        self.world.kill(third);
        let rest: Vec<i32> = stay.iter().copied().filter(|n| *n != third).collect();
        self.world.write(rest[0], &format!("with-two-{}", self.epoch)).await;
        if kind == Kind::TooFew {
            self.world.kill(rest[1]);
            for n in lost {
                self.world.start(n);
            }
            let began = Instant::now();
            while began.elapsed() < LONG_ENOUGH {
                for n in [rest[0], lost[0], lost[1]] {
                    let serves =
                        self.report(n).await.is_some_and(|report| report.serving && began.elapsed().as_secs() > 5);
                    assert!(!serves, "{rest:?} with {lost:?} are no majority of {stay:?}");
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            for n in lost {
                self.world.kill(n);
            }
            self.world.start(rest[1]);
        }
        self.world.start(third);
        self.all_serve(&stay).await;
        let all = list(self.epoch, &ALL.map(|n| (n, n)));
        self.back_without_votes(kind, lost, &mut times).await;
        for n in lost {
            self.world.assign(n, &all);
        }
        for id in lost {
            times.votes = times.votes.max(self.change(stay[0], id, true).await);
        }
        self.all_serve(&ALL).await;
        assert_eq!(self.report(3).await.unwrap().volume, identity);
        times
    }

    /// Every server has all acknowledged writes, and all have the same. Removes them: the next round writes others.
    async fn check(&self, written: &[String]) {
        let mut content: Option<BTreeSet<String>> = None;
        for n in ALL {
            assert_eq!(self.world.missing(n, written).await, Vec::<String>::new(), "server {n}");
            let client = self.world.client(n).await;
            client.sync("/").await.unwrap();
            let names: BTreeSet<String> = client.list_children("/").await.unwrap().into_iter().collect();
            assert_eq!(*content.get_or_insert_with(|| names.clone()), names, "server {n}");
            let (report, _) = self.serving(n).await;
            assert_eq!((report.id, report.lost, report.corrupt), (Some(n), false, false));
            let names = fs::read_dir(self.world.path(n, "data")).unwrap().map(|entry| entry.unwrap().file_name());
            let aside: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("aside")).collect();
            assert!(aside.is_empty(), "server {n}: {aside:?}");
        }
        let client = self.world.client(1).await;
        for name in content.into_iter().flatten().filter(|name| !["mczk", "zookeeper"].contains(&name.as_str())) {
            client.delete(&format!("/{name}"), None).await.unwrap();
        }
    }
}

/// The control port takes the vote of a listed voter only through the leader, after the leader's own measure, and if the voter does
/// not answer.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_leader_takes_the_votes_of_servers_that_it_has_missed() {
    let mut five = Five::start().await;
    let list = five.demoting();
    five.servers.publish(&five.address(1), &list).await.unwrap();
    for n in ALL {
        five.world.assign(n, &list);
    }
    let leader = five.leader(&ALL).await;
    let others: Vec<i32> = ALL.into_iter().filter(|n| *n != leader).collect();
    let refused = async |five: &Five, through: i32, id: i32, because: &str| {
        let why = five.take_vote(through, id).await.unwrap_err();
        assert!(why.contains("(demotion)") && why.contains(because), "{why}");
    };
    refused(&five, leader, others[0], "0 of 40 s").await;
    let began = Instant::now();
    for n in &others[..2] {
        five.world.kill(*n);
    }
    let short = async || {
        let seconds = five.report(leader).await?.short_seconds?;
        (1..40).contains(&seconds).then_some(())
    };
    until("the leader misses voters", short).await;
    refused(&five, leader, others[0], "of 40 s").await;
    let measured = async || five.report(leader).await?.short_seconds.filter(|seconds| *seconds >= 40);
    until("the leader has missed voters for long", measured).await;
    assert!(began.elapsed() >= Duration::from_secs(40));
    refused(&five, others[2], others[0], "only the server that leads").await;
    refused(&five, leader, others[2], "it answers").await;
    let at = five.take_vote(leader, others[0]).await.unwrap();
    assert_eq!(at.voters().count(), 4);
    let at = five.take_vote(leader, others[1]).await.unwrap();
    assert!(at.voters().all(|id| ![others[0], others[1]].contains(&id)) && at.voters().count() == 3, "{at:?}");
    refused(&five, leader, others[2], "keeps its vote").await;
    println!("demoted after {:.1} s", began.elapsed().as_secs_f64());
    for n in &others[..2] {
        five.world.start(*n);
        five.follows_without_vote(*n).await;
        five.change(leader, *n, true).await;
    }
    five.all_serve(&ALL).await;
    assert_eq!(five.report(leader).await.unwrap().short_seconds, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn lost_voters_lose_their_votes_and_get_them_again() {
    let mut five = Five::start().await;
    let rounds = std::env::var(ROUNDS).ok().map_or(KINDS.len(), |text| text.parse().unwrap());
    let mut acknowledged = 0;
    for round in 0..rounds {
        let kind = KINDS[round % KINDS.len()];
        let began = Instant::now();
        let writer = Writer::start(&five.world, &ALL);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let times = five.round(kind, round).await;
        let (written, pause) = writer.stop().await;
        five.check(&written).await;
        acknowledged += written.len();
        println!(
            "round {round} {kind:?}: demoted {:.1} s, follows {:.1} s, again {:.1} s, votes {:.1} s; {} writes, pause {:.1} s, \
             {:.0} s in all",
            times.demoted,
            times.follows,
            times.follows_again,
            times.votes,
            written.len(),
            pause.as_secs_f64(),
            began.elapsed().as_secs_f64()
        );
    }
    println!("{rounds} rounds, {acknowledged} acknowledged writes, none lost");
}
