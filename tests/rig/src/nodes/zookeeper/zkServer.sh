#!/bin/sh
# What a container needs of the official script: zkServer.sh start-foreground|status [CONFIG]
home=$(cd "$(dirname "$0")/.." && pwd)
conf=${ZOOCFGDIR:-${ZOO_CONF_DIR:-/conf}}
config=${2:-$conf/${ZOOCFG:-zoo.cfg}}
case "$config" in
/*) ;;
*) config=$conf/$config ;;
esac
case "${1:-}" in
start-foreground)
  # shellcheck disable=SC2086 # the variables hold several flags
  exec "${JAVA_HOME:-/jre}/bin/java" -Dzookeeper.log.dir="${ZOO_LOG_DIR:-/logs}" ${SERVER_JVMFLAGS:-} ${JVMFLAGS:-} \
    -cp "$conf:$home/conf:$home/lib/*${CLASSPATH:+:$CLASSPATH}" \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$config"
  ;;
status)
  port=$(sed -n 's/^ *clientPort=//p' "$config")
  echo srvr | nc -w 2 127.0.0.1 "${port:-2181}" | grep '^Mode'
  ;;
*)
  echo "usage: $0 start-foreground|status [CONFIG]" >&2
  exit 1
  ;;
esac
