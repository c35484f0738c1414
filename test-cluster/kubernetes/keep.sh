#!/bin/bash
# keep.sh PROGRAM [ARGS]: starts a program again whenever it ends, as a kubelet does in a real control plane. Schedulers, controllers
# and operators end themselves when they lose their lease, which happens whenever the API server is away for some seconds.
child=
stop() {
  kill -TERM "$child" 2>/dev/null
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$child" 2>/dev/null || exit 0; sleep 0.1; done
  kill -KILL "$child" 2>/dev/null
  exit 0
}
trap stop TERM INT
while :; do "$@" & child=$!; wait "$child"; echo "keep.sh: ended with $?, started again"; sleep 1; done
