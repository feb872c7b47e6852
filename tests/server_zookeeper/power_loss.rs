//! Servers lose power, and their disks lose what was not synced.
//!
//! A disk freezes after some operation of `mczk server` or `ZooKeeper`. The processes die, the disk keeps what was synced and
//! a part of the rest, and a new process starts on it. Every acknowledged write must then be on every server.
//! `src/server/src/launch/power_loss.rs` takes every operation, without real processes.

use std::time::Instant;

use disk::{Order, Recording, Survivors, Tree};
use mczk_api::{
    contract::control_api::{Configuration, ConfiguredServer, Reconfiguration},
    zookeeper::Role,
};

use crate::{
    world::{World, bootstrap, list},
    writer::Writer,
};

/// If set, the power goes off at each of so many first operations, and then at every tenth.
const EVERY: &str = "MCZK_POWER_LOSS_EVERY";

/// Some of the moments of a sequence of `total` operations: the last one and `few` others, evenly.
fn moments(total: usize, few: usize) -> Vec<usize> {
    match std::env::var(EVERY).ok().and_then(|text| text.parse().ok()) {
        Some(first) => (1..=total).filter(|count| *count <= first || count % 10 == 0).collect(),
        None => (1..=few).map(|number| total * number / (few + 1)).collect(),
    }
}

/// What survives the loss at a moment.
fn survivors(count: usize) -> Survivors {
    let all = [Survivors::Names, Survivors::None, Survivors::Sizes, Survivors::Random(count as u64)];
    all[count % all.len()]
}

fn left(recording: &Recording, survivors: Survivors) -> Tree {
    recording.after_power_loss(recording.operations().len(), Order::Journal, survivors)
}

/// Three servers form an ensemble. The first ones `losing` lose power once the first disk has done `count` operations, or when
/// all serve. Returns the operations until then.
async fn first_start(losing: i32, count: Option<usize>, survivors: Survivors) -> usize {
    let began = Instant::now();
    let mut world = World::new(&format!("power-{losing}"), false);
    for n in 1..=3 {
        world.assign(n, &bootstrap(3));
        if n <= losing {
            world.insert_disk(n, &Tree::default(), count.filter(|_| n == 1));
        }
        world.start(n);
    }
    let writer = Writer::start(&world, &[1, 2, 3]);
    world.until("the disk freezes", || {
        let serve = || (1..=3).all(|n| world.report(n).is_some_and(|report| report.serving));
        (world.disk(1).is_frozen() || serve()).then_some(())
    });
    let total = world.disk(1).count();
    (1..=losing).for_each(|n| world.disk(n).freeze());
    let disks: Vec<_> = (1..=losing).map(|n| left(&world.remove_disk(n), survivors)).collect();
    for (n, content) in (1..).zip(disks) {
        world.insert_disk(n, &content, None);
        world.start(n);
    }
    for n in 1..=3 {
        world.serving(n);
    }
    let (written, _) = writer.stop().await;
    for n in 1..=3 {
        assert_eq!(world.missing(n, &written).await, Vec::<String>::new(), "server {n}, {survivors:?} after {total}");
    }
    world.write(1, "after").await;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{losing} of 3 lost power, {survivors:?} after {total} operations: {} writes, {seconds:.0} s",
        written.len()
    );
    total
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java, ZooKeeper's jars and FUSE: make test-zookeeper"]
async fn a_voter_loses_power_during_its_first_start() {
    let total = first_start(1, None, Survivors::None).await;
    for count in moments(total, 3) {
        first_start(1, Some(count), survivors(count)).await;
    }
}

/// `ZooKeeper` does not sync its first snapshot, but needs one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java, ZooKeeper's jars and FUSE: make test-zookeeper"]
async fn all_voters_lose_power_after_their_first_start() {
    for survivors in [Survivors::Names, Survivors::None] {
        first_start(3, None, survivors).await;
    }
}

/// When the power goes off.
#[derive(Clone, Copy)]
enum Moment {
    WhenItServes,
    AfterOperations(usize),
    /// `ZooKeeper` has copied the data of the leader, and not yet entered its epoch.
    BeforeItsEpoch,
}

/// The living ensemble of servers 1 to 3, and server 4, whose place gets one id after another.
struct Place {
    world: World,
    id: i32,
    survivors: Survivors,
}

impl Place {
    /// Publishes a list with the next id, and removes the former one.
    fn next(&mut self) {
        let former = self.id;
        self.id += 1;
        let list = list(i64::from(self.id), &[(1, 1), (2, 2), (3, 3), (self.id, 4)]);
        let publish = || self.world.ask::<Configuration>(1, "POST", "/v1/server-list", &list).ok();
        let at = self.world.until("the list is published", publish);
        if former > 3 && at.voters().any(|voter| voter == former) {
            self.world.until("the former server leaves", || self.change(None, Some(former)));
        }
        (1..=4).for_each(|n| self.world.assign(n, &list));
    }

    /// Asks for one change of the membership, which the leader may refuse.
    fn change(&self, add: Option<&ConfiguredServer>, remove: Option<i32>) -> Option<Configuration> {
        let change = Reconfiguration {
            epoch: self.id.into(),
            from_version: self.world.configuration(1).version,
            add: add.cloned(),
            remove,
        };
        self.world.ask(1, "POST", "/v1/reconfigure", &change).ok()
    }

    /// Starts server 4 and gives it a vote. Returns early if its disk freezes, which may happen at each moment.
    fn join(&mut self, content: &Tree, moment: Moment) {
        let count = if let Moment::AfterOperations(count) = moment { Some(count) } else { None };
        self.world.insert_disk(4, content, count);
        if matches!(moment, Moment::BeforeItsEpoch) {
            // The first one belongs to the start without data.
            self.world.disk(4).freeze_at("currentEpoch.tmp", 2);
        }
        self.world.start(4);
        let (world, id) = (&self.world, self.id);
        let joiner = ConfiguredServer { id, host: "s4.test".to_owned(), role: Role::Voter };
        world.until(&format!("server {id} votes"), || {
            if world.disk(4).is_frozen() {
                return Some(());
            }
            let report = world.report(4).filter(|report| report.serving && report.id == Some(id))?;
            if !world.configuration(1).voters().any(|voter| voter == id) {
                self.change(Some(&joiner), None);
            }
            report.configuration?.voters().any(|voter| voter == id).then_some(())
        });
    }

    /// Joins, loses power and continues. Returns the operations until then, and the volume.
    async fn lose_power(&mut self, before: &Tree, moment: Moment) -> (usize, Tree) {
        let began = Instant::now();
        let former = self.id;
        self.next();
        self.join(before, moment);
        let recording = self.world.remove_disk(4);
        let total = recording.operations().len();
        self.join(&left(&recording, self.survivors), Moment::WhenItServes);
        self.world.write(4, &format!("after-{}", self.id)).await;
        let after = left(&self.world.remove_disk(4), Survivors::All);
        let is_aside = after.0.contains_key(&format!("aside-current-{former}-0/data/version-2/acceptedEpoch"));
        assert_eq!(is_aside, !before.0.is_empty(), "former data is kept");
        let (seconds, survivors) = (began.elapsed().as_secs_f64(), self.survivors);
        println!("joined, set aside {is_aside}: lost power, {survivors:?} after {total} operations: {seconds:.0} s");
        (total, after)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java, ZooKeeper's jars and FUSE: make test-zookeeper"]
async fn a_server_loses_power_while_it_joins_or_sets_data_aside() {
    let mut place = Place { world: World::of_three("power-join"), id: 3, survivors: Survivors::None };
    let writer = Writer::start(&place.world, &[1, 2, 3]);
    let (joined, volume) = place.lose_power(&Tree::default(), Moment::WhenItServes).await;
    let (replaced, _) = place.lose_power(&volume, Moment::WhenItServes).await;
    for (count, replaced) in moments(joined, 2).into_iter().zip(moments(replaced, 2)) {
        place.survivors = survivors(count);
        let (_, volume) = place.lose_power(&Tree::default(), Moment::AfterOperations(count)).await;
        place.survivors = survivors(replaced + 1);
        place.lose_power(&volume, Moment::AfterOperations(replaced)).await;
    }
    let (written, _) = writer.stop().await;
    assert!(!written.is_empty());
    for n in 1..=3 {
        assert_eq!(place.world.missing(n, &written).await, Vec::<String>::new());
    }
}

/// `ZooKeeper` alone never starts again: the epoch on its disk is older than its data.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java, ZooKeeper's jars and FUSE: make test-zookeeper"]
async fn a_server_loses_power_between_its_copy_and_the_epoch_of_the_copy() {
    let mut place = Place { world: World::of_three("power-epoch"), id: 3, survivors: Survivors::None };
    place.world.write(1, "before").await;
    for survivors in [Survivors::None, Survivors::Names] {
        place.survivors = survivors;
        place.lose_power(&Tree::default(), Moment::BeforeItsEpoch).await;
    }
}
