#!/bin/bash
# head-init.sh: pid 1 of the head node; starts the daemons in order, reaps, stops them in reverse order
. "$(dirname "$0")/env"; export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin
unset SLURM_CONF; PIDS=()
say() { echo "$(date +%H:%M:%S.%3N) $*" >> "$D/log/head-init.log"; }
stop() { trap '' TERM; say stopping
  for ((i = ${#PIDS[@]} - 1; i >= 0; i--)); do p=${PIDS[i]}; kill -TERM "$p" 2>/dev/null || continue
    for ((k = 0; k < 100; k++)); do kill -0 "$p" 2>/dev/null || break; sleep 0.05; done; done
  say stopped; exit 0; }
trap stop TERM
start() { local n=$1; shift; "$@" >> "$D/log/$n.out" 2>&1 & PIDS+=($!); say "$n started"; }
until_ok() { local n=$1 k; shift; for ((k = 0; k < 600; k++)); do "$@" >/dev/null 2>&1 && return 0; sleep 0.05; done; say "$n: gave up: $*"; return 1; }
mkdir -p /run/munge /run/mysqld /run/sshd "$D/log"; ln -sfn mysqld /run/mariadbd   # newer clients look there
chmod 755 /run/munge /run/sshd
MU=$(id -u munge); chown munge: /run/munge "$D/etc/munge.key"; chmod 400 "$D/etc/munge.key"
chown slurm: "$D/head/state" "$D/head/run" "$D/etc/slurm/jwt_hs256.key" "$D/etc/slurm/slurmdbd.conf"
chmod 600 "$D/etc/slurm/jwt_hs256.key" "$D/etc/slurm/slurmdbd.conf"; chmod 700 "$D/head/state"
touch "$D"/log/{slurmctld,slurmdbd,munged,mariadb}.log; chown slurm: "$D"/log/slurm{ctld,dbd}.log
mkdir -p "$D/head/munge"; chown munge: "$D/head/munge" "$D/log/munged.log"; chmod 700 "$D/head/munge"
start munged setpriv --reuid "$MU" --regid "$(id -g munge)" --clear-groups munged -F --force --num-threads=4 --key-file="$D/etc/munge.key" \
  --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid --log-file="$D/log/munged.log" --seed-file="$D/head/munge/seed"
start sshd /usr/sbin/sshd -D -e -f "$D/ssh/sshd_config"
if [ "$ACC" = dbd ]; then
  if [ ! -d "$D/head/mysql/mysql" ]; then mkdir -p "$D/head/mysql"; chown mysql: "$D/head/mysql"
    mariadb-install-db --defaults-file="$D/etc/my.cnf" --user=mysql --datadir="$D/head/mysql" --skip-test-db --auth-root-authentication-method=socket > "$D/log/mariadb-install.out" 2>&1; say "mariadb-install-db done"; fi
  chown mysql: /run/mysqld "$D/log/mariadb.log"
  start mariadb mariadbd --defaults-file="$D/etc/my.cnf"
  until_ok mariadb mariadb -S /run/mysqld/mysqld.sock -e 'select 1'
  mariadb -S /run/mysqld/mysqld.sock -e "create database if not exists slurm_acct_db; create user if not exists 'slurm'@'localhost' identified by 'slurm'; grant all on slurm_acct_db.* to 'slurm'@'localhost'" >> "$D/log/mariadb.out" 2>&1
  say "mariadb ready"
  start slurmdbd setpriv --reuid slurm --regid slurm --init-groups slurmdbd -D
  port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }   # a refused sacctmgr would pause for seconds
  until_ok slurmdbd port_open "$DBD_PORT"; say "slurmdbd listens"
  if [ ! -e "$D/head/accounts-made" ]; then
    sacctmgr -i >> "$D/log/sacctmgr.out" 2>&1 <<'Q'
add cluster parallelcluster
add qos high set priority=100
add account ml-research Description=ml Organization=lab cluster=parallelcluster
add user researcher account=ml-research defaultaccount=ml-research qos=normal,high defaultqos=normal
add user root account=ml-research
Q
    : > "$D/head/accounts-made"; fi
  say "accounting ready"
fi
start slurmctld setpriv --reuid slurm --regid slurm --init-groups slurmctld -D
until_ok slurmctld bash -c "exec 3<>/dev/tcp/127.0.0.1/$CTLD_PORT"; until_ok slurmctld scontrol ping; : > /run/ctld-up
if [ "$REST" = 1 ]; then
  # its accounting plugins are fatal on a cluster without slurmdbd: then name the others
  RESTOPT=; if [ "$ACC" != dbd ]; then if [ -e /usr/lib/x86_64-linux-gnu/slurm-wlm/openapi_v0_0_38.so ]; then RESTOPT="-s openapi/v0.0.38,openapi/v0.0.37,openapi/v0.0.36"; else RESTOPT="-s openapi/slurmctld"; fi; fi
  start slurmrestd env SLURM_JWT=daemon setpriv --reuid 2002 --regid 2002 --clear-groups slurmrestd -a rest_auth/jwt $RESTOPT 127.0.0.1:$REST_PORT; fi
say "head up"; : > /run/up
while :; do wait -n 2>/dev/null; sleep 0.2 & wait $!; done
