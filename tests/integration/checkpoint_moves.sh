#!/bin/bash
# checkpoint_moves.sh FLOW: a program with an open vdevice is dumped on one host and restored on another one, with its queue
# pairs, keys and PSNs; its peer on a third host notices a pause only. Then back; then after the end of its vdevice, and
# of vrdmad. The programs check each message, WRITE, READ and atomic that they exchange.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/criu.sh"
setup
need_worker_processes
need_criu
cp "$1" "$T/lib/flow"

. "$(dirname "$0")/moves.sh"

begin() { # NAME HOW
  mkfifo "$T/$1.a" "$T/$1.b"
  go_to a
  ENVIRONMENT+=(FLOW_TIMEOUT=18 VRDMA_RUN_DIR="$T/run")  # 8 s
  begin_end "$1-a" a va 10.0.0.1 "$T/$1" "$2"
  host 3
  ENVIRONMENT+=(VRDMA_RUN_DIR="$R")
  begin_end "$1-b" b vb 10.0.0.2 "$T/$1" "$2" client
  host 1
}
begin_end() { # NAME NAMESPACE VDEVICE ADDRESS PIPES HOW [client]
  head -c 24 /dev/zero >"$T/$1.progress"
  spawn "$1" "$2" root setsid "$T/lib/flow" "$3" "$(gid_index "$2" "$3" "$4")" "$5" "$T/$1.progress" "$6" "${@:7}"
}

for how in poll all shared; do
  begin $how $how
  goes_on $how-a $how-b
  say "$how: it goes to another host, and back"
  for to in c a; do
    from=a
    [[ $to == c ]] || from=c
    host "${HOST_OF[$from]}"
    take $how-a $from
    go_to $to
    bring $how-a $to
    goes_on $how-a $how-b
    [[ $(ctl vdev list | awk '$1 == "va" { print $2, $NF }') == 'ACTIVE 1' ]] || fail "vdev list: $(ctl vdev list)"
    host "${HOST_OF[$from]}"
    ctl checkpoint abandon "${PID[$how-a]}"
    goes_on $how-a $how-b
  done
  over $how
done

begin left all
goes_on left-a left-b
say "its vdevice is deleted and created meanwhile, and its vrdmad is killed"
take left-a a
ctl vdev delete va
vdev_at 1 va a
bring left-a a
goes_on left-a left-b
take left-a a
WORKERS_END=1
kill_daemon
begin_host 1
bring left-a a
goes_on left-a left-b

say "an image is restored once"
used_once left-a a

say "a vdevice without its address refuses it, and so does a namespace without a vdevice"
host 3
refused_in b left-a 'vdevice .*/vb: a queue pair of the program names GID ::ffff:10.0.0.1 by index'
refused_in net left-a 'its network namespace has no vdevice'
host 1
bring left-a a
goes_on left-a left-b
over left
