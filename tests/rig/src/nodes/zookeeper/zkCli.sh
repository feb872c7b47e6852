#!/bin/sh
# zkCli.sh [-server HOST:PORT] [COMMAND...]
home=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck disable=SC2086 # the variable holds several flags
exec "${JAVA_HOME:-/jre}/bin/java" -Dzookeeper.log.level=WARN ${CLIENT_JVMFLAGS:-} \
  -cp "${ZOOCFGDIR:-/conf}:$home/conf:$home/lib/*" org.apache.zookeeper.ZooKeeperMain "$@"
