#!/bin/bash
# down.sh DIR [--wipe] - stop what up.sh DIR started, by recorded pid (and start time) only. Each is the init of a pid namespace, so
# nothing that it started can outlive it.
set -u
[ $# -ge 1 ] || { echo "usage: $0 DIR [--wipe]" >&2; exit 2; }
D=$(cd "$1" 2>/dev/null && pwd -P) || exit 0
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
for n in a b c d; do
  read -r pid st 2>/dev/null < "$D/pids/$n" || continue
  [ "$(started_at "$pid")" != "$st" ] || kill -KILL "$pid"
  for ((k = 0; k < 100; k++)); do [ "$(started_at "$pid")" = "$st" ] || break; sleep 0.05; done
  rm -f "$D/pids/$n"
done
if [ -e "$D/pids/.bridge" ]; then ip link del "$(cat "$D/pids/.bridge")" 2>/dev/null; rm -f "$D/pids/.bridge"; fi
[ "${2:-}" != --wipe ] || rm -rf --one-file-system "$D"
