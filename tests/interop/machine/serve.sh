# shellcheck shell=bash
# Functions for the end of a test in a machine: see programs.sh. The working directory is the shared one.
#
# serve LISTENS: runs the commands that N.command have, N = 1, 2, ...: their output goes to N.log, their exit status to
# N.status. If there is N.serves, N.ready appears when the command listens: by TCP on the port that the file `port` has, or if
# LISTENS, a command, says so.
serve() {
  local n pids=()
  touch ready
  for ((n = 1;; n++)); do
    until [[ -e $n.command ]]; do
      if [[ -e end ]]; then
        kill -9 "${pids[@]}" 2>/dev/null || true  # what still runs
        return 0
      fi
      sleep 0.1
    done
    execute "$n" "$1" &
    pids+=($!)
  done
}
execute() { # N LISTENS
  local pid status=0 waits=
  bash "$1.command" >"$1.log" 2>&1 </dev/null &
  pid=$!
  if [[ -e $1.serves ]]; then
    (
      while kill -0 $pid && ! { [[ -n $(ss -Hltn "sport = :$(<port)") ]] || $2; }; do sleep 0.1; done 2>/dev/null
      touch "$1.ready"
    ) &
    waits=$!
  fi
  wait $pid || status=$?
  [[ -z $waits ]] || kill $waits 2>/dev/null || true
  echo $status >"$1.new"
  mv "$1.new" "$1.status"
}
