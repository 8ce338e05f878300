#!/bin/bash
# Runs in the guest of systemd_test.sh, started by systemd: drives the installed service through its socket.
set -euo pipefail
socket=/run/hutch/hutchd.sock

say() { echo "-- $*"; }
fail() {
  echo "FAILED: $*"
  systemctl --no-pager --full status hutchd.service hutchd.socket hutch-sandboxes.service || true
  journalctl --no-pager -n 60 || true
  find /sys/fs/cgroup -path '*hutch*' -name cgroup.procs -exec sh -c 'echo "$1: $(tr "\n" " " <"$1")"' sh {} \; || true
  exit 1
}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR

api() {  # api METHOD PATH [JSON]: the reply on stdout; an error's on stderr
  local reply
  reply=$(curl --silent --show-error --fail-with-body --max-time 60 --unix-socket $socket -X "$1" "http://hutch$2" ${3:+-d "$3"}) || {
    echo "$1 $2: $reply" >&2
    return 1
  }
  echo "$reply"
}
main_pid() { systemctl show -P MainPID hutchd.service; }

say "the socket is there before the daemon"
[ "$(stat -c '%a %U %G' $socket)" = "660 root hutch" ]
[ "$(systemctl is-active hutchd.service || true)" = inactive ]

say "the first request starts it"
api GET /v1/health | jq -e '.status == "ok"' >/dev/null
systemctl is-active --quiet hutchd.service
[ "$(cat "/proc/$(main_pid)/oom_score_adj")" -ge 0 ]
api GET /v1/info >/dev/null

say "an image of one program"
api POST /v1/images/import '{"path": "/srv/busybox", "reference": "tiny"}' | jq -e '.id' >/dev/null

say "a sandbox with limits that bite"
id=$(api POST /v1/sandboxes '{"image": "tiny", "workdir": "/", "limits": {"pids": 32}}' | jq -er .id)
[ "$(api POST "/v1/sandboxes/$id/exec" '{"command": ["/bin/sh", "-c", "echo kept >/tmp/f; echo $((6*7))"]}' | jq -er .stdout)" = 42 ]

say "a host port of it is kept through both"
host_port=$(api POST "/v1/sandboxes/$id/ports" '{"port": 3000}' | jq -er .host_port)
# Knocks until the file is there; a refused connection ends it with an error. (Nobody answers inside: the connection itself is what counts.)
knock() {
  until [ -e /tmp/enough ]; do
    (exec 3<>"/dev/tcp/127.0.0.1/$host_port") 2>/tmp/knock || ! grep -q "refused" /tmp/knock || return 1
    api GET /v1/health >/dev/null || return 1
  done
}
knock &
knocker=$!

for way in restart kill; do
  say "$way: the sandbox lives on and answers the next daemon"
  before=$(main_pid)
  if [ $way = restart ]; then
    systemctl restart hutchd.service
  else
    kill -KILL "$before"
    for _ in $(seq 100); do
      [ "$(main_pid)" = 0 ] || [ "$(main_pid)" = "$before" ] || break
      sleep 0.1
    done
  fi
  api GET /v1/health >/dev/null
  [ "$(main_pid)" != "$before" ]
  api GET "/v1/sandboxes/$id" | jq -e '.state == "running"' >/dev/null
  [ "$(api POST "/v1/sandboxes/$id/exec" '{"command": ["/bin/sh", "-c", "read x </tmp/f; echo $x"]}' | jq -er .stdout)" = kept ]
done

touch /tmp/enough
wait "$knocker"
api GET "/v1/sandboxes/$id/ports" | jq -e ".ports[0].host_port == $host_port and .ports[0].error == null" >/dev/null
[ "$(systemctl show -P NFileDescriptorStore hutchd.service)" = 1 ]

say "a takeover: systemd is told of the successor, and nothing is refused"
before=$(main_pid)
rm /tmp/enough
knock &
knocker=$!
systemd-run --quiet --collect --unit hutchd-next --property=KillMode=process /usr/sbin/hutchd --takeover --cgroup-parent /system.slice/hutch-sandboxes.service
for _ in $(seq 200); do
  [ "$(main_pid)" = "$before" ] || break
  sleep 0.1
done
[ "$(main_pid)" != "$before" ]
touch /tmp/enough
wait "$knocker"
systemctl is-active --quiet hutchd.service
[ "$(api POST "/v1/sandboxes/$id/exec" '{"command": ["/bin/sh", "-c", "read x </tmp/f; echo $x"]}' | jq -er .stdout)" = kept ]

say "stop leaves the sandbox, start takes it up"
systemctl stop hutchd.service hutchd.socket
[ -n "$(find /sys/fs/cgroup -path "*/$id/agent/cgroup.procs" -exec cat {} +)" ]
systemctl start hutchd.socket
api GET "/v1/sandboxes/$id" | jq -e '.state == "running"' >/dev/null

say "delete leaves nothing"
api DELETE "/v1/sandboxes/$id"
[ -z "$(find /sys/fs/cgroup -path "*/$id*" -print -quit)" ]
[ ! -e "/run/hutch/sandboxes/$id" ]

say "stopping the sandboxes' unit ends what is in it"
id=$(api POST /v1/sandboxes '{"image": "tiny", "workdir": "/"}' | jq -er .id)
systemctl stop hutch-sandboxes.service hutchd.service
[ -z "$(find /sys/fs/cgroup -path "*/$id/*" -name cgroup.procs -exec cat {} + 2>/dev/null)" ]
say "systemd makes the scopes of OCI containers"
/usr/lib/hutch-tests/kernel_cgroups_test --gtest_filter='ContainerScopeTest.*'

say "hutch-oci: a container is a scope, with limits that systemd knows"
cd /srv/bundle
hutch-oci spec
jq '.process.terminal = false | .process.args = ["/bin/busybox", "sleep", "600"] | .linux.cgroupsPath = "system.slice:oci:c1"
  | .linux.resources += {memory: {limit: 67108864}, pids: {limit: 20}}' config.json >config.new
mv config.new config.json
hutch-oci --systemd-cgroup run --detach c1 </dev/null >/dev/null 2>&1
scope() { systemctl show -P "$1" oci-c1.scope; }
[ "$(scope ActiveState) $(scope MemoryMax) $(scope TasksMax)" = "active 67108864 20" ]
grep -q '/system.slice/oci-c1.scope$' "/proc/$(hutch-oci state c1 | jq .pid)/cgroup"
[ "$(hutch-oci --systemd-cgroup exec c1 /bin/busybox cat /proc/self/cgroup)" = "0::/" ]

say "hutch-oci: an update outlives a reload of systemd"
hutch-oci --systemd-cgroup update --memory 33554432 c1
systemctl daemon-reload
[ "$(scope MemoryMax) $(cat /sys/fs/cgroup/system.slice/oci-c1.scope/memory.max)" = "33554432 33554432" ]
hutch-oci --systemd-cgroup pause c1
[ "$(hutch-oci state c1 | jq -r .status)" = paused ]
hutch-oci --systemd-cgroup resume c1

say "hutch-oci: the scope goes with the container"
hutch-oci --systemd-cgroup delete --force c1
[ "$(scope ActiveState)" = inactive ]
[ ! -e /sys/fs/cgroup/system.slice/oci-c1.scope ]
say "all is well"
