#!/bin/bash
# Draws docs/images/demo.svg from a real run of the demo in a terminal of its own. Needs tmux and python3.
#   docs/images/make.sh [weftrun]
set -euo pipefail
cd "$(dirname "$0")/../.."
weftrun=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/weftrun}")
home=$(mktemp -d); session=weftrun-picture-$$
trap 'tmux -L "$session" kill-server 2>/dev/null || true; rm -rf "$home"' EXIT
tmux -L "$session" -f /dev/null new-session -d -x 140 -y "${LINES_SHOWN:-46}" \
  "env -u TMUX HOME=$home TERM=screen-256color sh -c 'clear; printf \"\\033[1m$ weftrun demo\\033[0m\\n\"; \"$weftrun\" demo --replay --color always; touch $home/done; sleep 600'"
for _ in $(seq 600); do [ -e "$home/done" ] && break; sleep 0.1; done
sleep 0.3
tmux -L "$session" capture-pane -e -p | python3 docs/images/ansi_to_svg.py "weftrun demo" > docs/images/demo.svg
echo "docs/images/demo.svg: $(wc -c < docs/images/demo.svg) bytes; look at it before you keep it"
