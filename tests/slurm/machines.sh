#!/usr/bin/env bash
# A slurm of several machines, for tests: a controller, `ctl`, and three nodes, `node1` to `node3`, on one Linux host. As root:
#   apt-get install -y --no-install-recommends slurm-wlm munge iproute2     # Debian, Ubuntu
#   tests/slurm/machines.sh up                       # all four; `tests/slurm/machines.sh down` ends them
#   tests/slurm/machines.sh run ctl sinfo            # run a command on a machine
#   tests/slurm/machines.sh cut node1                # pull its cable; `heal node1` plugs it in
#   tests/slurm/machines.sh off node1                # pull its power plug; `on node1` starts it again
# A machine is a set of namespaces: network (a veth to a bridge, an address of its own), processes, host name, and mounts,
# with a /tmp, /dev/shm, /etc, munged and slurmd of its own. All see the folder $LAB_SHARED (default: $SLURM_LAB/shared) and, as
# a cluster's nodes do, the same programs and homes. $SLURM_LAB (default: /tmp/slurm-machines) has state and logs; the host's
# own slurm, network and /etc are not touched. `LAB_CLOCK=-60 tests/slurm/machines.sh on node1` starts a machine whose clock is
# that many seconds from the others' (needs a C compiler). $LAB_CPUS, $LAB_MEMORY (MiB) and $LAB_GPUS are what a node pretends to have.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
lab=${SLURM_LAB:-/tmp/slurm-machines}
shared=${LAB_SHARED:-$lab/shared}
cpus=${LAB_CPUS:-2} memory=${LAB_MEMORY:-100000} gpus=${LAB_GPUS:-2}
switch=tandem-lab
declare -A addresses=([ctl]=10.213.77.1 [node1]=10.213.77.11 [node2]=10.213.77.12 [node3]=10.213.77.13)
own=/tmp/slurm # a machine's own folder, as it sees it: $lab/<machine>

fail() { echo "tests/slurm/machines.sh: $*" >&2; exit 1; }

alive() { [ -s "$lab/$1/pid" ] && kill -0 "$(cat "$lab/$1/pid")" 2>/dev/null; }

configure() {
  {
    cat "$here/common.conf"
    # A node that does not answer for SlurmdTimeout seconds is down, and its jobs go back into the queue. cred_expire: such
    # a job may start again so many seconds later.
    cat <<CONF
ClusterName=machines
SlurmctldHost=ctl(${addresses[ctl]})
SlurmdTimeout=${LAB_TIMEOUT:-15}
AuthInfo=socket=$own/munge.socket,cred_expire=10
StateSaveLocation=$own/state
SlurmdSpoolDir=$own/spool
SlurmctldPidFile=$own/slurmctld.pid
SlurmdPidFile=$own/slurmd.pid
SlurmctldLogFile=$own/slurmctld.log
SlurmdLogFile=$own/slurmd.log
GresTypes=gpu
CONF
    for node in node1 node2 node3; do
      echo "NodeName=$node NodeAddr=${addresses[$node]} CPUs=$cpus Sockets=1 CoresPerSocket=$cpus RealMemory=$memory Gres=gpu:$gpus"
    done
    echo "PartitionName=main Nodes=node[1-3] Default=YES MaxTime=INFINITE State=UP"
  } >"$lab/slurm.conf"
  # A pretended GPU is a null device: slurm gives no ids for plain files.
  echo "AutoDetect=off" >"$lab/gres.conf"
  for ((i = 0; i < gpus; i++)); do echo "NodeName=node[1-3] Name=gpu File=$own/gpu$i" >>"$lab/gres.conf"; done
  echo "CgroupPlugin=autodetect" >"$lab/cgroup.conf"
  [ -s "$lab/munge.key" ] || (umask 077 && head -c 1024 /dev/urandom >"$lab/munge.key")
}

# What a machine's first process does, in its namespaces: private folders, then the daemons, then it waits.
boot() {
  local name=$1
  mount -t tmpfs tmpfs /mnt
  mkdir /mnt/shared /mnt/own
  if [ "$name" = "${LAB_LATE:-}" ]; then # sees what others write this many seconds late, as network file systems may
    late=${LAB_LATE_SECONDS:-5}
    bindfs --multithreaded --enable-lock-forwarding \
      -o "attr_timeout=$late,entry_timeout=$late,negative_timeout=$late" "$shared" /mnt/shared
  else
    mount --bind "$shared" /mnt/shared
  fi
  mount --bind "$lab/$name" /mnt/own
  mount -t tmpfs -o mode=1777 tmpfs /tmp
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  mkdir -p "$shared" "$own"
  mount --move /mnt/shared "$shared"
  mount --move /mnt/own "$own"
  umount /mnt
  mkdir -p /tmp/.etc/upper /tmp/.etc/work
  mount -t overlay overlay -o lowerdir=/etc,upperdir=/tmp/.etc/upper,workdir=/tmp/.etc/work /etc
  hostname "$name"
  echo "$name" >/etc/hostname
  { echo "127.0.0.1 localhost"; for each in "${!addresses[@]}"; do echo "${addresses[$each]} $each"; done; } >/etc/hosts
  mkdir -p /etc/slurm "$own/state" "$own/spool"
  cp --remove-destination "$own"/*.conf /etc/slurm/ # where a lab that was killed has left links
  for ((i = 0; i < gpus; i++)); do [ -e "$own/gpu$i" ] || mknod "$own/gpu$i" c 1 3; done
  if [ -n "${LAB_CLOCK:-}" ]; then
    # For all programs of this machine, whatever their environment.
    cc -shared -fPIC "-DSECONDS=$LAB_CLOCK" -o /etc/clock.so "$here/clock.c"
    echo /etc/clock.so >/etc/ld.so.preload
  fi
  rm -f "$own"/*.pid "$own"/munge.socket*
  munged --force --key-file="$own/munge.key" --socket="$own/munge.socket" --pid-file="$own/munged.pid" \
    --log-file="$own/munged.log" --seed-file="$own/munged.seed"
  if [ "$name" = ctl ]; then slurmctld; else slurmd; fi
  while :; do sleep 1; done # the shell reaps what daemons leave
}

on() {
  local name=$1 namespace=$switch-$1 launcher
  if alive "$name"; then return; fi
  mkdir -p "$lab/$name"
  install -m 600 "$lab/munge.key" "$lab/$name/munge.key"
  cp "$lab"/*.conf "$lab/$name/"
  ip netns add "$namespace"
  ip link add eth0 netns "$namespace" type veth peer name "$name" netns "$switch"
  ip -n "$namespace" addr add "${addresses[$name]}/24" dev eth0
  ip -n "$namespace" link set lo up
  ip -n "$namespace" link set eth0 up
  ip -n "$switch" link set "$name" master bridge up
  # Not by `ip netns exec`, which would mount another /sys, where slurmd misses cgroups.
  setsid nsenter --net="/run/netns/$namespace" unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc \
    "$0" boot "$name" </dev/null >"$lab/$name/boot.log" 2>&1 &
  launcher=$!
  for _ in $(seq 100); do
    # setsid and nsenter have become unshare, whose only child is the machine's first process.
    if cat "/proc/$launcher/task/$launcher/children" 2>/dev/null | grep -q .; then
      tr -d ' ' <"/proc/$launcher/task/$launcher/children" >"$lab/$name/pid"
      break
    fi
    sleep 0.1
  done
  alive "$name" || fail "$name does not start: $(tail -n 1 "$lab/$name/boot.log")"
}

off() {
  local name=$1 pid
  if alive "$name"; then
    pid=$(cat "$lab/$name/pid")
    kill -KILL "$pid" # the kernel ends every process of the machine with its first
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  fi
  rm -f "$lab/$name/pid"
  ip netns del "$switch-$name" 2>/dev/null || true
  ip -n "$switch" link del "$name" 2>/dev/null || true
}

cut() { ip -n "$switch" link set "$1" down; }

heal() { ip -n "$switch" link set "$1" up; }

run() {
  local name=$1
  shift
  alive "$name" || fail "$name is off"
  exec nsenter --target "$(cat "$lab/$name/pid")" --mount --uts --ipc --net --pid -- env -C "$PWD" "$@"
}

up() {
  [ "$(id -u)" = 0 ] || fail "must be run by root"
  for program in munged slurmctld slurmd ip nsenter unshare; do
    command -v "$program" >/dev/null || fail "no $program; apt-get install -y --no-install-recommends slurm-wlm munge iproute2"
  done
  if ip netns list | grep -q "^$switch\b"; then fail "machines are up already: tests/slurm/machines.sh down"; fi
  mkdir -p "$lab" "$shared"
  ip netns add "$switch" || fail "network namespaces are not allowed here"
  ip -n "$switch" link add bridge type bridge || fail "no bridge can be made here"
  ip -n "$switch" link set bridge up
  configure
  for name in ctl node1 node2 node3; do on "$name"; done
  for _ in $(seq 120); do
    [ "$("$0" run ctl sinfo -h -t idle -o %D 2>/dev/null)" = 3 ] && echo "machines of $lab are up" && return
    sleep 0.5
  done
  fail "the nodes do not come up; logs in $lab/*/*.log"
}

down() {
  for name in node1 node2 node3 ctl; do off "$name"; done
  ip netns del "$switch" 2>/dev/null || true
  echo "machines of $lab are down"
}

case ${1:-} in
  up | down) "$1" ;;
  boot | on | off | cut | heal | run)
    [ -n "${addresses[${2:-}]:-}" ] || fail "${2:-no name}: machines are ctl, node1, node2, node3"
    "$@"
    ;;
  *)
    echo "usage: $0 up|down, $0 on|off|cut|heal MACHINE, $0 run MACHINE COMMAND…" >&2
    exit 2
    ;;
esac
