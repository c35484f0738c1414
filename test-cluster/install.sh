#!/bin/bash
# install.sh FILE - the Debian packages that FILE names, on a machine or CI image that may have none of them. Idempotent: a second run does
# nothing and needs no network. Needs root. No daemon is started by the installation.
set -euo pipefail
read -ra PACKAGES < "$1"
missing=(); for p in "${PACKAGES[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p"); done
if [ ${#missing[@]} -eq 0 ]; then echo "the packages of $1 are installed"; exit 0; fi
# Debian packages start their daemons on installation unless this policy says no; one that is there already is left alone.
policy=/usr/sbin/policy-rc.d; made=
if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' > $policy; chmod 755 $policy; made=1; fi
trap '[ -z "$made" ] || rm -f $policy' EXIT
export DEBIAN_FRONTEND=noninteractive
nice -n 10 apt-get -qq update
nice -n 10 apt-get -qq install -y --no-install-recommends "${missing[@]}" > /dev/null
