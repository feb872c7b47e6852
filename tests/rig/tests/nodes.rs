//! Tests of a rig with nodes: pods, names, failures, a ZooKeeper ensemble over three clusters, and that nothing stays on the
//! machine. `make test-nodes` runs them as root. They need some packages, and that no other rig with nodes runs.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rig::{Rig, ZOOKEEPER};

const CLUSTERS: [&str; 4] = ["host", "m1", "m2", "m3"];
const MEMBERS: [&str; 3] = ["m1", "m2", "m3"];

/// A pod with a name and a volume. Its user may write to the volume only by its group.
const POD: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: s}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: s}
spec:
  serviceName: s
  selector: {matchLabels: {app: s}}
  template:
    metadata: {labels: {app: s}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {kubernetes.io/hostname: NODE}
      securityContext: {runAsUser: 1000, fsGroup: 2000}
      containers:
      - {name: c, image: "rig.local/busybox:1", command: [sleep, "10000"], volumeMounts: [{name: d, mountPath: /d}]}
  volumeClaimTemplates:
  - {metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}
"#;

/// A pod in each member cluster, through Karmada.
const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, labels: {app: d}}
spec:
  replicas: 1
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "rig.local/busybox:1", command: [sleep, "10000"]}]
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: d}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: d}]
  placement: {replicaScheduling: {replicaSchedulingType: Duplicated}}
"#;

struct Test {
    start: Instant,
    rig: Rig,
}

/// A starter, killed when the test ends or fails.
struct Starter(Child);

impl Starter {
    fn new(dir: &Path, more: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_rig"))
            .args(["up", "--nodes", "--foreground", "--dir"])
            .arg(dir)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("rig");
        Self(child)
    }

    async fn wait(&mut self, dir: &Path) -> Rig {
        // The first build of the programs takes 15 minutes.
        for _ in 0..6000 {
            if let Ok(rig) = Rig::attach(Some(dir)) {
                return rig;
            }
            if let Ok(Some(status)) = self.0.try_wait() {
                panic!("rig up: {status}");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("no rig after 20 minutes");
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes the rig down when the test ends or fails.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let keep = std::env::temp_dir().join("rig-nodes-failed-logs");
            let _ = fs::remove_dir_all(&keep);
            let _ = Command::new("cp").arg("-r").arg(self.0.join("log")).arg(&keep).status();
            eprintln!("the logs are kept in {}", keep.display());
        }
        if let Err(e) = Rig::down_at(Some(&self.0)) {
            eprintln!("{e:#}");
        }
    }
}

impl Test {
    fn say(&self, what: &str) {
        eprintln!("{:6.1} s  test: {what}", self.start.elapsed().as_secs_f64());
    }

    /// Runs kubectl on the machine, and returns its output.
    fn try_kubectl(&self, cluster: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new(self.rig.tool("kubectl"))
            .arg("--kubeconfig")
            .arg(self.rig.kubeconfig(cluster))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("input");
        let output = child.wait_with_output().expect("kubectl");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr) + &text(&output.stdout))
        }
    }

    fn kubectl(&self, cluster: &str, arguments: &[&str], input: &str) -> String {
        self.try_kubectl(cluster, arguments, input)
            .unwrap_or_else(|e| panic!("kubectl {} in {cluster}: {e}", arguments.join(" ")))
    }

    fn shell(&self, cluster: &str, pod: &str, script: &str) -> Result<String, String> {
        self.try_kubectl(cluster, &["exec", pod, "--", "sh", "-c", script], "")
    }

    fn until(&self, what: &str, seconds: u64, mut test: impl FnMut() -> bool) -> f64 {
        let start = Instant::now();
        while !test() {
            assert!(start.elapsed() < Duration::from_secs(seconds), "not after {seconds} s: {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
        let took = start.elapsed().as_secs_f64();
        self.say(&format!("{what} ({took:.1} s)"));
        took
    }

    fn pod_address(&self, cluster: &str) -> String {
        self.kubectl(cluster, &["get", "pod", "s-0", "-o", "jsonpath={.status.podIP}"], "")
    }

    /// Pings from a node. Returns the number of answers to five pings, and the shortest time in milliseconds.
    async fn ping(&self, node: &str, address: &str) -> (u32, f64) {
        let output =
            self.rig.exec(node, ["ping", "-q", "-c", "5", "-i", "0.1", "-W", "1", address]).await.expect("ping");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |text: &str, before: &str| -> Option<String> {
            Some(text.split(before).next()?.rsplit([' ', '/']).next()?.to_owned())
        };
        let received = number(&text, " received").and_then(|n| n.parse().ok()).unwrap_or(0);
        let shortest = text.split(" = ").nth(1).and_then(|times| times.split('/').next()).and_then(|t| t.parse().ok());
        (received, shortest.unwrap_or(f64::NAN))
    }

    /// Applies an ensemble with a server in each member cluster. `name` returns the name of a server.
    fn ensemble(&self, namespace: &str, name: impl Fn(&str) -> String) {
        let servers: Vec<_> =
            (1..).zip(MEMBERS).map(|(id, member)| format!("server.{id}={}:2888:3888;2181", name(member))).collect();
        for (id, member) in (1..).zip(MEMBERS) {
            let text = include_str!("ensemble.yaml")
                .replace("@SERVERS@", &servers.join("\n    "))
                .replace("@SELF@", &name(member))
                .replace("@NAMESPACE@", namespace)
                .replace("@NODE@", member)
                .replace("@ID@", &format!("{id}"));
            self.kubectl(member, &["apply", "-f", "-"], &text);
        }
    }

    /// Runs commands in one session with the server in a member cluster, and returns the output of the client.
    fn session(&self, namespace: &str, member: &str, commands: &str) -> Result<String, String> {
        self.try_kubectl(member, &["exec", "-i", "-n", namespace, "zk-0", "--", "zkCli.sh"], commands)
    }

    fn serves(&self, namespace: &str, member: &str) -> bool {
        self.try_kubectl(
            member,
            &["exec", "-n", namespace, "zk-0", "--", "sh", "-c", "echo srvr | nc -w 2 127.0.0.1 2181"],
            "",
        )
        .is_ok_and(|answer| answer.contains("Mode: "))
    }

    /// Writes through the server of the first of these member clusters, and reads through the servers of all. After a leader
    /// stops to answer, this takes up to half a minute, and more on a busy machine.
    fn prove(&self, namespace: &str, node: &str, members: &[&str]) {
        let proof = format!("proof-{node}");
        for (i, member) in members.iter().enumerate() {
            let (verb, write) =
                if i == 0 { ("written", format!("create /{node} {proof}\n")) } else { ("read", String::new()) };
            let commands = format!("{write}sync /{node}\nget /{node}\n");
            self.until(&format!("{namespace}: {node} is {verb} through {member}"), 120, || {
                self.session(namespace, member, &commands).is_ok_and(|text| text.lines().any(|line| line == proof))
            });
        }
    }
}

/// All traces that a rig could leave on this machine.
fn traces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let list = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    found.extend(list("/sys/class/net").map(|path| format!("link {}", path.display())));
    for hierarchy in list("/sys/fs/cgroup") {
        let groups = list(&hierarchy.to_string_lossy()).filter(|path| path.is_dir());
        found
            .extend(groups.filter(|g| g.to_string_lossy().contains("/rig-")).map(|g| format!("group {}", g.display())));
    }
    found.extend(list("/run/lock").map(|path| format!("lock {}", path.display())));
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    found.extend(mounts.lines().map(|line| format!("mount {}", line.split(' ').nth(4).unwrap_or_default())));
    for process in list("/proc") {
        for kind in ["net", "mnt", "pid", "uts", "ipc"] {
            if let Ok(namespace) = fs::read_link(process.join("ns").join(kind)) {
                found.insert(format!("namespace {}", namespace.display()));
            }
        }
    }
    for setting in ["fs/inotify/max_user_instances", "vm/overcommit_memory", "kernel/panic", "net/ipv4/ip_forward"] {
        let value = fs::read_to_string(Path::new("/proc/sys").join(setting)).expect("a setting");
        found.insert(format!("setting {setting} {}", value.trim()));
    }
    let routes = Command::new("ip").args(["route"]).output().expect("ip");
    found.extend(String::from_utf8_lossy(&routes.stdout).lines().map(|line| format!("route {}", line.trim())));
    found
}

/// The new traces. The kernel removes namespaces with a delay.
fn left_over(before: &BTreeSet<String>) -> Vec<String> {
    let mut left = vec![];
    for _ in 0..50 {
        left = traces().difference(before).cloned().collect();
        if left.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    left
}

/// True for root. Otherwise the check counts as skipped. No test captures the output of the script.
fn may_run(check: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../skipped.sh");
    let status = Command::new(script).args(["this is not root", check]).status();
    assert!(status.expect("the script").success(), "{check} is required");
    false
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts a federation with nodes, as root"]
async fn a_federation_with_nodes() {
    if !may_run("a federation with nodes") {
        return;
    }
    let before = traces();
    let folder = Folder(std::env::temp_dir().join(format!("rig-nodes-{}", std::process::id())));
    let dir = &folder.0;
    let start = Instant::now();
    let mut starter = Starter::new(dir, &["--members", "3", "--two-nodes", "m1"]);
    let rig = starter.wait(dir).await;
    let test = Test { start, rig };
    test.say("the rig is up");
    assert_eq!(test.rig.nodes(), ["host", "m1", "m1-2", "m2", "m3"]);
    assert!(test.rig.status().await.expect("status").healthy());

    pods_and_names(&test).await;
    test.ensemble("flat", |member| format!("zk-0.zk.flat.svc.{member}.local"));
    through_karmada(&test);
    network(&test).await;
    stretched(&test).await;
    control_plane_and_cluster(&test).await;

    // The refusal of a second rig names the first one.
    let second = Command::new(env!("CARGO_BIN_EXE_rig"))
        .args(["up", "--nodes", "--members", "1", "--dir"])
        .arg(dir.with_extension("second"))
        .output()
        .expect("rig");
    let output = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && output.contains(&format!("rig down --dir {}", dir.display())), "{output}");
    test.say("a second rig with nodes is refused");

    // The rig ends when its starter is killed.
    drop(starter);
    let Test { rig, .. } = test;
    tokio::time::timeout(Duration::from_secs(15), rig.ended()).await.expect("the rig ends with its starter");
    assert!(Rig::down_at(Some(dir)).expect("down"), "there was a rig");
    assert_eq!(left_over(&before), Vec::<String>::new());
    assert!(!dir.exists());
    eprintln!("{:6.1} s  test: down, and nothing is left", start.elapsed().as_secs_f64());
}

async fn pods_and_names(test: &Test) {
    for cluster in CLUSTERS {
        // In the cluster with two nodes, the pod is on the second one.
        let node = if cluster == "m1" { "m1-2" } else { cluster };
        test.kubectl(cluster, &["apply", "-f", "-"], &POD.replace("NODE", node));
    }
    for cluster in CLUSTERS {
        test.kubectl(cluster, &["rollout", "status", "statefulset", "s", "--timeout=60s"], "");
        test.shell(cluster, "s-0", "touch /d/x").expect("a volume that its group may write to");
    }
    test.say("pods run in every cluster, and write to their volumes");
    for from in CLUSTERS {
        for to in CLUSTERS {
            let address = test.pod_address(to);
            let domain = if to == "host" { "cluster" } else { to };
            for name in
                [format!("s-0.s.default.svc.{domain}.local"), format!("s-0.{to}.s.default.svc.clusterset.local")]
            {
                let answer = test.shell(from, "s-0", &format!("nslookup {name}")).expect("a name");
                assert!(answer.contains(&address), "{name} from {from} is not {address}: {answer}");
            }
        }
        let none = test.shell(from, "s-0", "nslookup s-0.s.default.svc.elsewhere.local").expect_err("no such name");
        assert!(none.contains("NXDOMAIN"), "{none}");
    }
    test.say("names of pods in both modes, from everywhere");
    let service = "wget -q -T 3 -O /dev/null --no-check-certificate https://kubernetes.default.svc:443/readyz 2>&1; \
                   nc -w 3 kubernetes.default.svc 443 </dev/null";
    test.shell("m1", "s-0", service).expect("the API server by its service");
    // The API server reaches the second node's kubelet too.
    assert!(test.kubectl("m1", &["logs", "s-0"], "").is_empty());
    let image = test.rig.exec("m1-2", ["ctr", "-n", "k8s.io", "images", "ls", "-q"]).await.expect("ctr");
    assert!(String::from_utf8_lossy(&image.stdout).contains(ZOOKEEPER));
}

fn through_karmada(test: &Test) {
    test.kubectl("karmada", &["apply", "-f", "-"], DEPLOYMENT);
    let ready = ["get", "deployment", "d", "-o", "jsonpath={.status.readyReplicas}"];
    test.until("a Deployment through Karmada runs in every member", 90, || test.kubectl("karmada", &ready, "") == "3");
    for member in MEMBERS {
        let pods = test.kubectl(member, &["get", "pods", "-l", "app=d", "--no-headers"], "");
        assert!(pods.lines().count() == 1 && pods.contains("Running"), "{member}: {pods}");
    }
}

async fn network(test: &Test) {
    let (m1, m2) = (test.pod_address("m1"), test.pod_address("m2"));
    assert_eq!(test.ping("m1", &m2).await.0, 5);
    // Its pod is on the other node.
    assert_eq!(test.ping("m1", &m1).await.0, 5);

    test.rig.delay("m1", "m2", 50.0).await.expect("delay");
    let (slow, fast) = (test.ping("m1-2", &m2).await.1, test.ping("m3", &m2).await.1);
    assert!((100.0..125.0).contains(&slow) && fast < 20.0, "delayed {slow} ms, not delayed {fast} ms");
    test.say(&format!("50 ms each way between m1 and m2: {slow:.1} ms there and back; m3 and m2 {fast:.1} ms"));
    test.rig.delay("m1", "m2", 0.0).await.expect("no delay");

    test.rig.lose("m2", "m1", 100.0).await.expect("lose");
    assert_eq!(test.ping("m1", &m2).await.0, 0);
    test.rig.lose("m2", "m1", 0.0).await.expect("lose nothing");

    test.rig.cut("m1", None).await.expect("cut");
    assert_eq!(test.ping("m1", &m2).await.0, 0);
    assert_eq!(test.ping("m1-2", &test.pod_address("host")).await.0, 0);
    assert_eq!(test.ping("m3", &m2).await.0, 5);
    test.rig.heal(Some("m1"), Some("m2")).await.expect("heal");
    assert_eq!(test.ping("m1", &m2).await.0, 5);
    assert_eq!(test.ping("m1", &test.pod_address("m3")).await.0, 0);
    test.rig.heal(None, None).await.expect("heal");
    assert_eq!(test.ping("m1", &test.pod_address("m3")).await.0, 5);
    test.say("cut, healed and lossy");
    test.rig.cut("m1", Some("m9")).await.expect_err("no such cluster");
}

async fn stretched(test: &Test) {
    let m2 = test.pod_address("m2");
    test.until("flat: all three servers serve", 120, || MEMBERS.iter().all(|member| test.serves("flat", member)));
    test.prove("flat", "one", &MEMBERS);

    test.rig.stop_node("m2").await.expect("stop-node");
    test.say("m2's node has lost its power");
    assert_eq!(test.ping("m1", &m2).await.0, 0, "a pod without power answers");
    test.until("flat: m1 and m3 serve", 30, || ["m1", "m3"].iter().all(|member| test.serves("flat", member)));
    test.prove("flat", "two", &["m3", "m1"]);
    let node = ["get", "node", "m2", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"];
    test.until("m2's node is not Ready", 60, || test.kubectl("m2", &node, "") == "Unknown");
    test.rig.start_node("m2").await.expect("start-node");
    test.until("m2's node is Ready", 90, || test.kubectl("m2", &node, "") == "True");
    test.until("flat: m2 serves again", 120, || test.serves("flat", "m2"));
    test.prove("flat", "three", &["m2", "m1", "m3"]);
    let have = test.session("flat", "m2", "get /one\nget /two\n").expect("a session");
    assert!(have.contains("proof-one") && have.contains("proof-two"), "{have}");
    for member in MEMBERS {
        test.kubectl(member, &["delete", "namespace", "flat", "--wait=false"], "");
    }

    test.ensemble("mcs", |member| format!("zk-0.{member}.zk.mcs.svc.clusterset.local"));
    test.until("mcs: all three servers serve", 120, || MEMBERS.iter().all(|member| test.serves("mcs", member)));
    test.prove("mcs", "one", &MEMBERS);
    for (a, b) in [("m1", "m2"), ("m1", "m3"), ("m2", "m3")] {
        test.rig.delay(a, b, 50.0).await.expect("delay");
        test.rig.lose(a, b, 1.0).await.expect("lose");
    }
    test.prove("mcs", "far", &MEMBERS);
    test.say("it serves with 50 ms and a loss of 1 % between clusters too");
    for (a, b) in [("m1", "m2"), ("m1", "m3"), ("m2", "m3")] {
        test.rig.delay(a, b, 0.0).await.expect("no delay");
        test.rig.lose(a, b, 0.0).await.expect("no loss");
    }
}

async fn control_plane_and_cluster(test: &Test) {
    test.rig.stop_control_plane("m3").await.expect("stop");
    assert!(test.try_kubectl("m3", &["get", "nodes", "--request-timeout=3s"], "").is_err());
    let answer = test.shell("m1", "s-0", "nslookup s-0.s.default.svc.m3.local").expect("DNS goes on");
    assert!(answer.contains("10.211.3."), "{answer}");
    test.prove("mcs", "two", &["m1", "m2"]);
    test.rig.start_control_plane("m3").await.expect("start");
    test.rig.ready("m3").await.expect("ready");
    test.prove("mcs", "three", &["m3", "m1"]);
    test.say("m3's control plane stopped and started; its pods kept running");

    let m3 = test.pod_address("m3");
    assert_eq!(test.ping("m1", &m3).await.0, 5);
    test.rig.stop_cluster("m3").await.expect("stop");
    assert_eq!(test.ping("m1", &m3).await.0, 0);
    assert_eq!(test.ping("m1", "10.210.3.2").await.0, 0);
    test.prove("mcs", "four", &["m1", "m2"]);
    test.rig.start_cluster("m3").await.expect("start");
    test.rig.ready("m3").await.expect("ready");
    test.until("mcs: m3 serves again", 120, || test.serves("mcs", "m3"));
    test.prove("mcs", "five", &["m3", "m2"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts a federation with nodes, as root"]
async fn the_next_start_removes_what_a_dead_one_left() {
    if !may_run("the start after a dead federation with nodes") {
        return;
    }
    let before = traces();
    let base = std::env::temp_dir().join(format!("rig-nodes-dead-{}", std::process::id()));
    let (first, second) = (Folder(base.with_extension("1")), Folder(base.with_extension("2")));
    let mut starter = Starter::new(&first.0, &["--members", "1"]);
    let rig = starter.wait(&first.0).await;
    // Both starter and supervisor are killed, so that neither removes anything.
    let record = fs::read_to_string(first.0.join("supervisor.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    let supervisor = record.pointer("/supervisor/pid").and_then(serde_json::Value::as_i64).expect("a number");
    starter.0.kill().expect("kill");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(supervisor).expect("a number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("kill");
    drop((starter, rig));
    assert!(traces().difference(&before).any(|trace| trace.starts_with("group")), "control groups stay for a while");

    let mut starter = Starter::new(&second.0, &["--members", "1"]);
    starter.wait(&second.0).await;
    assert!(!first.0.exists(), "what the first one left is gone");
    drop(starter);
    assert!(Rig::down_at(Some(&second.0)).expect("down"));
    assert_eq!(left_over(&before), Vec::<String>::new());
}
