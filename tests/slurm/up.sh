#!/usr/bin/env bash
# A slurm of one machine, for tests: munged, slurmctld and slurmd without systemd, cgroups or accounting. As root:
#   apt-get install -y --no-install-recommends slurm-wlm munge     # Debian, Ubuntu
#   tests/slurm/up.sh up|down|status
# All state lies in $SLURM_LAB (default: /tmp/slurm-lab). $LAB_CPUS, $LAB_MEMORY (MiB) and $LAB_GPUS pretend so much;
# defaults: the machine's cores, most of its memory, no GPU. /etc/slurm has links to that folder while it is up: Snakemake's
# jobs look nowhere else.
set -euo pipefail
lab=${SLURM_LAB:-/tmp/slurm-lab}
gpus=${LAB_GPUS:-0}
cpus=${LAB_CPUS:-$(nproc)}
memory=${LAB_MEMORY:-$(awk '/MemTotal/ {printf "%d", $2 / 1024 * 0.9}' /proc/meminfo)}
host=$(hostname -s)
socket=$lab/munge/munge.socket
configs=(slurm.conf gres.conf cgroup.conf)

alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

stop() { # the daemons of pid files, at once, and wait until all are gone
  local file pids=()
  for file; do
    if alive "$file"; then
      pids+=("$(cat "$file")")
      kill "${pids[-1]}" || true
    fi
  done
  for _ in $(seq 100); do
    kill -0 "${pids[@]}" 2>/dev/null || break
    sleep 0.1
  done
  rm -f "$@"
}

down() {
  [ -e "$lab/slurm.conf" ] || { echo "no slurm in $lab"; return; }
  if [ "$(readlink -f /etc/slurm/slurm.conf)" = "$(readlink -f "$lab")/slurm.conf" ]; then
    if alive "$lab/slurmctld.pid"; then
      timeout 10 scancel --full --signal=KILL --state=RUNNING --user=root || true
      timeout 10 scancel --user=root || true
      for _ in $(seq 100); do # jobs report their end to a slurmctld that is there
        [ -n "$(timeout 10 squeue -h)" ] || break
        sleep 0.1
      done
    fi
    for name in "${configs[@]}"; do rm -f "/etc/slurm/$name"; done
  fi
  stop "$lab/slurmd.pid"
  stop "$lab"/{slurmctld,munge/munged}.pid
  echo "slurm in $lab is down"
}

munged_up() {
  local key=$lab/munge/munge.key
  [ -s "$key" ] || (umask 077 && head -c 1024 /dev/urandom >"$key")
  alive "$lab/munge/munged.pid" || munged --force --key-file="$key" --socket="$socket" \
    --pid-file="$lab/munge/munged.pid" --log-file="$lab/munge/munged.log" --seed-file="$lab/munge/munged.seed"
  munge --socket="$socket" --no-input | unmunge --socket="$socket" >/dev/null
}

configure() {
  # cred_expire: a job that is put back into the queue may start again so many seconds later (default 120); a machine that
  # is too busy to start a step meanwhile fails its job.
  cp "$(dirname "$(readlink -f "$0")")/common.conf" "$lab/slurm.conf"
  cat >>"$lab/slurm.conf" <<CONF
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
AuthInfo=socket=$socket,cred_expire=10
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/spool
SlurmctldPidFile=$lab/slurmctld.pid
SlurmdPidFile=$lab/slurmd.pid
SlurmctldLogFile=$lab/log/slurmctld.log
SlurmdLogFile=$lab/log/slurmd.log
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
$([ "$gpus" = 0 ] || echo "GresTypes=gpu")
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus Sockets=1 CoresPerSocket=$cpus RealMemory=$memory State=UNKNOWN$([ "$gpus" = 0 ] || echo " Gres=gpu:$gpus")
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
PartitionName=second Nodes=$host MaxTime=INFINITE State=UP
CONF
  # A pretended GPU is a null device: slurm gives no ids for plain files.
  echo "AutoDetect=off" >"$lab/gres.conf"
  for ((i = 0; i < gpus; i++)); do
    [ -e "$lab/gpu$i" ] || mknod "$lab/gpu$i" c 1 3
    echo "NodeName=$host Name=gpu File=$lab/gpu$i" >>"$lab/gres.conf"
  done
  echo "CgroupPlugin=autodetect" >"$lab/cgroup.conf"
}

up() {
  [ "$(id -u)" = 0 ] || { echo "tests/slurm/up.sh: must be run by root" >&2; exit 1; }
  for program in munged slurmctld slurmd; do
    command -v "$program" >/dev/null || {
      echo "tests/slurm/up.sh: no $program; apt-get install -y --no-install-recommends slurm-wlm munge" >&2
      exit 1
    }
  done
  mkdir -p "$lab"/{munge,state,spool,log} /etc/slurm
  for name in "${configs[@]}"; do
    if [ -e "/etc/slurm/$name" ] && [ "$(readlink "/etc/slurm/$name")" != "$lab/$name" ]; then
      echo "tests/slurm/up.sh: /etc/slurm/$name is another slurm's; it is left alone" >&2
      exit 1
    fi
  done
  chmod 755 "$lab" "$lab/munge" "$lab/spool"
  munged_up
  configure
  for name in "${configs[@]}"; do ln -sfn "$lab/$name" "/etc/slurm/$name"; done
  alive "$lab/slurmctld.pid" || slurmctld
  alive "$lab/slurmd.pid" || slurmd -N "$host"
  for _ in $(seq 60); do
    case $(sinfo -h -o %T 2>/dev/null) in idle | mixed | allocated) echo "slurm in $lab is up" && return ;; esac
    sleep 0.5
  done
  echo "tests/slurm/up.sh: the node does not come up; logs in $lab/log" >&2
  exit 1
}

case ${1:-} in
  up | down) "$1" ;;
  status) sinfo && squeue ;;
  *)
    echo "usage: $0 up|down|status" >&2
    exit 2
    ;;
esac
