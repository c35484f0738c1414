#!/bin/bash
# install.sh - the Debian packages of the bed. Idempotent: a second run does nothing and needs no network. Needs root. No daemon is started.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -ra PACKAGES < "$HERE/packages"
missing=(); for p in "${PACKAGES[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p"); done
if [ ${#missing[@]} -eq 0 ]; then echo "the packages of the hosts bed are installed"; exit 0; fi
policy=/usr/sbin/policy-rc.d; made=
if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' > $policy; chmod 755 $policy; made=1; fi
trap '[ -z "$made" ] || rm -f $policy' EXIT
export DEBIAN_FRONTEND=noninteractive
nice -n 10 apt-get -qq update
nice -n 10 apt-get -qq install -y --no-install-recommends "${missing[@]}" > /dev/null
