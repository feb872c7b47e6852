#!/usr/bin/env python3
"""How long writes pause while real ZooKeeper processes elect a leader: five servers in network namespaces of their own.

  measure.py power    the leader and another server lose power; their addresses are silent, and so is the DNS server for their
                      names. With --dns answers, the names still have their addresses.
  measure.py stop     one leader stops as `mczk server` stops it, another one by kill -9; the ratio of the pauses.
  measure.py forgets  as power, behind a firewall that forgets connections to the election port when they are idle for --idle
                      seconds, and drops the packets of connections that it does not know. Every server is behind it.

Settings and flags are those of `mczk server`, read from its source. --set, --security, --resolver and --last-words replace
them, for example to measure former ones. Needs root. It stops its own processes alone, and removes its namespaces.
"""

import argparse
import atexit
import ctypes
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src"
SERVERS = range(1, 6)
RUN = f"mz{os.getpid() % 4096:x}"
ROUTER = f"{RUN}r"
CLONE_NEWNET = 0x40000000
# Like the writer of the stories.
PATIENCE, BETWEEN = 2.0, 0.02


def source(file, pattern):
    return re.findall(pattern, (SOURCE / file).read_text(), re.S)


def defaults():
    return dict(re.findall(r'\("([\w.]+)", "([^"]*)"\)', source("rules/src/server/zoo_cfg.rs", r"const DEFAULTS.*?\];")[0]))


def arguments():
    security = source("rules/src/server/jvm.rs", r'SECURITY_PROPERTIES: &str = "([^"]*)"')[0].replace("\\n", "\n")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["power", "stop", "forgets"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--dns", choices=["silent", "answers"], default="silent")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of zoo.cfg")
    parser.add_argument("--security", default=security, help="the security properties")
    parser.add_argument("--resolver", default=source("rules/src/server/jvm.rs", r'ONE_ATTEMPT: &str = "([^"]*)"')[0], help="RES_OPTIONS")
    words = int(source("server/src/process.rs", r"LAST_WORDS: Duration = Duration::from_millis\((\d+)\)")[0])
    parser.add_argument("--last-words", type=int, default=words, help="milliseconds from SIGTERM to SIGKILL")
    parser.add_argument("--idle", type=int, default=40, help="seconds after which the firewall forgets an idle connection")
    parser.add_argument("--sysctl", action="append", metavar="NAME=VALUE", help="of the pod, in place of its own ones")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    return parser.parse_args()


ARGS = arguments()
HOME = pathlib.Path(os.environ.get("MCZK_CACHE", pathlib.Path.home() / ".cache/mczk")) / "zookeeper/3.9.5"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="mczk-elections-"))
processes, dead = {}, set()


def run(*command, text=None, check=True):
    return subprocess.run(command, input=text, text=True, check=check, capture_output=True)


def inside(name, *command, text=None):
    return run("ip", "netns", "exec", name, *command, text=text)


def address(server):
    return f"10.99.{server}.2"


def pod_sysctls():
    """The kernel's parameters in a pod of mczk, or those that replace them."""
    rendered = source("api/src/contract/pod_layout.rs", r'\("(net\.[\w.]+)", "(\d+)"\)')
    return ["=".join(pair) for pair in rendered] if ARGS.sysctl is None else [pair for pair in ARGS.sysctl if pair]


def connect_network():
    run("ip", "netns", "add", ROUTER)
    inside(ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    rules = "set dead { type ipv4_addr; }\n"
    for hook in ["forward", "output"]:
        rules += f"chain {hook} {{ type filter hook {hook} priority 0; ip saddr @dead drop; ip daddr @dead drop; }}\n"
    inside(ROUTER, "nft", "-f", "-", text=f"table inet power {{\n{rules}}}\n")
    if ARGS.case == "forgets":
        # A packet that opens no connection and belongs to none is invalid, unless conntrack is loose.
        conntrack = [f"net.netfilter.nf_conntrack_tcp_{name}" for name in ["loose=0", f"timeout_established={ARGS.idle}"]]
        inside(ROUTER, "sysctl", "-qw", *conntrack)
        rules = "".join(f"tcp {side} 3888 ct state invalid counter drop; " for side in ["sport", "dport"])
        inside(ROUTER, "nft", "-f", "-", text=f"table inet firewall {{\nchain forward {{ type filter hook forward priority 1; {rules}}}\n}}\n")
    for server in SERVERS:
        name, link = f"{RUN}{server}", f"{RUN}v{server}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", link, "netns", ROUTER, "type", "veth", "peer", "name", "eth0", "netns", name)
        for place, device, last in [(ROUTER, link, 1), (name, "eth0", 2)]:
            inside(place, "ip", "addr", "add", f"10.99.{server}.{last}/24", "dev", device)
            inside(place, "ip", "link", "set", device, "up")
        inside(name, "ip", "link", "set", "lo", "up")
        if pod_sysctls():
            inside(name, "sysctl", "-qw", *pod_sysctls())
        inside(name, "ip", "route", "add", "default", "via", f"10.99.{server}.1")
        # `ip netns exec` mounts it over the machine's own. The options are those of a pod of mczk.
        etc = pathlib.Path("/etc/netns") / name
        etc.mkdir(parents=True)
        (etc / "resolv.conf").write_text(f"nameserver 10.99.{server}.1\noptions timeout:1 attempts:2 ndots:5\n")


def clean():
    for process in processes.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for server in SERVERS:
        run("ip", "netns", "del", f"{RUN}{server}", check=False)
        shutil.rmtree(f"/etc/netns/{RUN}{server}", ignore_errors=True)
    run("ip", "netns", "del", ROUTER, check=False)
    if not ARGS.keep:
        shutil.rmtree(FOLDER)


def names():
    """A DNS server that says nothing about servers without power, as if it had forwarded the question to their cluster."""
    port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    port.bind(("0.0.0.0", 53))
    while True:
        query, asker = port.recvfrom(2048)
        end = query.index(b"\0", 12) + 5
        server = re.match(rb"\x03zk(\d)\x04test\0", query[12:])
        server = int(server[1]) if server else 0
        if server in dead and ARGS.dns == "silent":
            continue
        kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
        code, answer = (0x8183, b"") if not server else (0x8180, b"")
        if server and kind == 1:
            answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 2, 4) + socket.inet_aton(address(server))
        counts = struct.pack(">HHHHH", code, 1, bool(answer), 0, 0)
        port.sendto(query[:2] + counts + query[12:end] + answer, asker)


def prepare():
    identity = FOLDER / "identity.pem"
    run(*"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=x".split(),
        "-keyout", str(FOLDER / "key.pem"), "-out", str(FOLDER / "trust.pem"))
    identity.write_text((FOLDER / "key.pem").read_text() + (FOLDER / "trust.pem").read_text())
    settings = defaults() | {
        "metricsProvider.className": "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
        "reconfigEnabled": "true", "standaloneEnabled": "false", "db.autocreate": "false", "quorumListenOnAllIPs": "true",
        "4lw.commands.whitelist": "srvr", "admin.enableServer": "false", "sslQuorum": "true",
        "ssl.quorum.protocol": "TLSv1.3", "ssl.quorum.enabledProtocols": "TLSv1.3",
        "ssl.quorum.keyStore.location": identity, "ssl.quorum.keyStore.type": "PEM",
        "ssl.quorum.trustStore.location": FOLDER / "trust.pem", "ssl.quorum.trustStore.type": "PEM",
        "ssl.quorum.hostnameVerification": "false",
    }
    settings |= dict(entry.split("=", 1) for entry in ARGS.set)
    pattern = "%d{HH:mm:ss.SSS} %-5p [%t:%C{1}@%L] - %m%n"
    logback = (f"<configuration><appender name='C' class='ch.qos.logback.core.ConsoleAppender'><encoder><pattern>{pattern}"
               "</pattern></encoder></appender><root level='INFO'><appender-ref ref='C'/></root></configuration>")
    dynamic = "".join(f"server.{n}=zk{n}.test:2888:3888:participant;0.0.0.0:2181\n" for n in SERVERS)
    for server in SERVERS:
        folder = FOLDER / str(server)
        (folder / "data").mkdir(parents=True)
        own = settings | {"dataDir": folder / "data", "dynamicConfigFile": folder / "dynamic"}
        files = {"data/myid": str(server), "data/initialize": "", "logback.xml": logback, "security": ARGS.security,
                 "dynamic": dynamic, "zoo.cfg": "".join(f"{name}={value}\n" for name, value in own.items())}
        for name, text in files.items():
            (folder / name).write_text(text)


def start(server):
    folder = FOLDER / str(server)
    log = (folder / "log").open("a")
    processes[server] = subprocess.Popen(
        ["ip", "netns", "exec", f"{RUN}{server}", "java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
         f"-Djava.security.properties={folder}/security", "-cp", f"{folder}:{HOME}/lib/*",
         "org.apache.zookeeper.server.quorum.QuorumPeerMain", f"{folder}/zoo.cfg"],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        env=os.environ | {"RES_OPTIONS": ARGS.resolver})


def mode(server):
    try:
        with socket.create_connection((address(server), 2181), 1) as connection:
            connection.settimeout(1)
            connection.sendall(b"srvr")
            text = b""
            while part := connection.recv(65536):
                text += part
            found = re.search(rb"Mode: (\w+)", text)
            return found[1].decode() if found else ""
    except OSError:
        return ""


def until(what, holds):
    end = time.time() + 600
    while not holds():
        if time.time() > end:
            sys.exit(f"timed out: {what}")
        time.sleep(0.25)


class Session:
    """A session of the client, with the part of the protocol that it needs."""

    def __init__(self, server):
        self.number = 0
        self.socket = socket.create_connection((address(server), 2181), 1)
        self.socket.settimeout(PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(struct.pack(">iqiqi", 0, 0, 10000, 0, 16) + bytes(17))
        self.receive()

    def send(self, message):
        self.socket.sendall(struct.pack(">i", len(message)) + message)

    def read(self, count):
        read = b""
        while len(read) < count:
            part = self.socket.recv(count - len(read))
            if not part:
                raise OSError("the server closed the connection")
            read += part
        return read

    def receive(self):
        return self.read(struct.unpack(">i", self.read(4))[0])

    def create(self, path):
        self.number += 1
        texts = [struct.pack(">i", len(text)) + text for text in [path.encode(), b"", b"world", b"anyone"]]
        head = struct.pack(">ii", self.number, 1)
        self.send(head + texts[0] + texts[1] + struct.pack(">ii", 1, 31) + texts[2] + texts[3] + struct.pack(">i", 0))
        number = 0
        while number != self.number:
            number, _, error = struct.unpack(">iqi", self.receive()[:16])
        if error not in (0, -110):
            raise OSError(f"error {error}")


class Writer(threading.Thread):
    """A client that writes all the time, and continues with the next server if one is gone."""

    def __init__(self):
        super().__init__(daemon=True)
        self.written, self.longest = 0, 0.0
        self.start()

    def run(self):
        session, last, server = None, None, 0
        while True:
            try:
                if session is None:
                    server = server % len(SERVERS) + 1
                    session = Session(server)
                    session.create("/written")
                session.create(f"/written/{self.written}")
                now = time.time()
                self.longest = max(self.longest, now - (last or now))
                self.written, last = self.written + 1, now
            except OSError:
                session = None
            time.sleep(BETWEEN)

    def writes(self, count):
        enough = self.written + count
        until("no write was acknowledged", lambda: self.written >= enough)


def logged(servers, offsets, text):
    """How many lines of the servers' logs contain a text, and the seconds of the day of the last one."""
    lines = []
    for server in servers:
        with (FOLDER / str(server) / "log").open() as log:
            log.seek(offsets[server])
            lines += [line for line in log if text in line]
    times = [re.match(r"(\d+):(\d+):([\d.]+)", line) for line in lines]
    return len(lines), max((int(t[1]) * 3600 + int(t[2]) * 60 + float(t[3]) for t in times), default=0)


def fails(writer, victims, end):
    """Ends servers and starts them again. Returns the pause of writes, and the time until a leader had its quorum."""
    live = [server for server in SERVERS if server not in victims]
    offsets = {server: (FOLDER / str(server) / "log").stat().st_size for server in live}
    writer.longest, begun = 0.0, time.time()
    now = time.localtime(begun)
    end(victims)
    until("no server leads", lambda: any(mode(server) == "leader" for server in live))
    writer.writes(5)
    pause = writer.longest
    elections = logged(live, offsets, " - LOOKING")[0]
    led = logged(live, offsets, "Have quorum of supporters")[1]
    led -= now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec + begun % 1
    dead.clear()
    run("nft", "flush", "set", "inet", "power", "dead")
    for server in victims:
        processes[server].wait()
        start(server)
    until("not all servers serve", lambda: all(mode(server) for server in SERVERS))
    writer.writes(100)
    return pause, led, elections


def power(victims):
    dead.update(victims)
    run("nft", "add", "element", "inet", "power", "dead", "{" + ",".join(map(address, victims)) + "}")
    kill(victims)


def kill(victims):
    for server in victims:
        os.killpg(processes[server].pid, signal.SIGKILL)


def stop(victims):
    for server in victims:
        os.killpg(processes[server].pid, signal.SIGTERM)
    time.sleep(ARGS.last_words / 1000)
    kill([server for server in victims if processes[server].poll() is None])


def summary(name, values):
    print(f"{name}: {len(values)} times, median {statistics.median(values):.2f}, least {min(values):.2f}, most {max(values):.2f}")


def leader():
    return next(server for server in SERVERS if mode(server) == "leader")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    atexit.register(clean)
    connect_network()
    with open(f"/var/run/netns/{ROUTER}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            sys.exit("cannot enter the network namespace")
    threading.Thread(target=names, daemon=True).start()
    prepare()
    for server in SERVERS:
        start(server)
    until("not all servers serve", lambda: all(mode(server) for server in SERVERS))
    writer = Writer()
    writer.writes(100)
    pauses, others, killed = [], [], []
    for number in range(1, ARGS.rounds + 1):
        first = leader()
        if ARGS.case == "forgets":
            time.sleep(ARGS.idle + 10)
        if ARGS.case in ("power", "forgets"):
            victims = [first, random.choice([server for server in SERVERS if server != first])]
            pause, led, elections = fails(writer, victims, power)
            others.append(led)
            print(f"round {number}: pause {pause:.2f} s, a leader after {led:.2f} s, servers looked {elections} times", flush=True)
        else:
            # The second leader of a round is a process that has just started, and slower: each way is first every other time.
            ways = [stop, kill] if number % 2 else [kill, stop]
            taken = {ways[0]: fails(writer, [first], ways[0])[0]}
            taken[ways[1]] = fails(writer, [leader()], ways[1])[0]
            pause, other = taken[stop], taken[kill]
            others.append(pause / other)
            print(f"round {number}: stopped {pause:.2f} s, killed {other:.2f} s, ratio {others[-1]:.2f}", flush=True)
            killed.append(other)
        pauses.append(pause)
    summary("pause", pauses)
    if killed:
        summary("pause after kill -9", killed)
    summary("ratio" if ARGS.case == "stop" else "until a leader has its quorum", others)


main()
