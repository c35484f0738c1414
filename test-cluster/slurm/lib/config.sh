# config.sh: sourced by up.sh; writes every configuration file of a new cluster under $D
if [ ! -e "$D/etc/slurm/slurm.conf" ]; then
for ((i = 0; i < 8; i++)); do [ -e "$D/dev/nvidia$i" ] || mknod "$D/dev/nvidia$i" c 1 3 2>/dev/null || : > "$D/dev/nvidia$i"; done
{ echo "127.0.0.1 localhost"; echo "$SUBNET.1 head-node"; for n in "${NODES[@]}"; do echo "${IP[$n]} $n"; done; } > "$D/etc/hosts"
for f in passwd group shadow; do cp "$CLUSTER_ROOT/etc/$f" "$D/etc/$f"; done
grep -q '^researcher:' "$D/etc/passwd" || {
  echo "researcher:x:2001:2001:ML researcher:/home/researcher:/bin/bash" >> "$D/etc/passwd"
  echo "slurmrest:x:2002:2002:slurmrestd:/nonexistent:/usr/sbin/nologin" >> "$D/etc/passwd"
  echo "outsider:x:2003:2003:no association:/home/outsider:/bin/bash" >> "$D/etc/passwd"
  printf 'researcher:x:2001:\nslurmrest:x:2002:\noutsider:x:2003:\n' >> "$D/etc/group"
  printf 'researcher:*:19000::::::\nslurmrest:*:19000::::::\noutsider:*:19000::::::\n' >> "$D/etc/shadow"; }
chmod 600 "$D/etc/shadow"
head -c 1024 /dev/urandom > "$D/etc/munge.key"; head -c 32 /dev/urandom > "$D/etc/slurm/jwt_hs256.key"
if [ "$CLUSTER_ACCOUNTING" = dbd ]; then ACCT="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$DBD_PORT
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5"
else ACCT="AccountingStorageType=accounting_storage/none"
  # from 23.11 on the plugin is called by leaving the line out
  [ -e "$CLUSTER_ROOT/usr/lib/x86_64-linux-gnu/slurm-wlm/accounting_storage_none.so" ] || ACCT="# no accounting"; fi
JOB_SUBMIT="# no job_submit plugin"
if [ "$CLUSTER_JOB_SUBMIT" = lua ]; then JOB_SUBMIT=JobSubmitPlugins=lua; cp "$HERE/lib/job_submit.lua" "$D/etc/slurm/"; fi
cat > "$D/etc/slurm/slurm.conf" <<E
ClusterName=parallelcluster
SlurmctldHost=head-node
SlurmctldPort=$CTLD_PORT
SlurmdPort=6818
SlurmUser=slurm
AuthType=auth/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=$D/etc/slurm/jwt_hs256.key
StateSaveLocation=$D/head/state
SlurmdSpoolDir=$D/nodes/%n/spool
SlurmctldPidFile=$D/head/run/slurmctld.pid
SlurmdPidFile=$D/nodes/%n/slurmd.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
PlugStackConfig=$D/etc/slurm/plugstack.conf
ReturnToService=2
SlurmdTimeout=$CLUSTER_SLURMDTIMEOUT
KillWait=5
MinJobAge=$CLUSTER_MINJOBAGE
InactiveLimit=0
JobRequeue=1
# Partitions of a higher tier take nodes from others; all have the same tier until a test makes one.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
$ACCT
$NODE_LINES
$PARTITION_LINES
$JOB_SUBMIT
E
cat > "$D/etc/slurm/gres.conf" <<E
AutoDetect=off
$GRES_LINES
E
echo "include $D/etc/slurm/plugstack.conf.d/*.conf" > "$D/etc/slurm/plugstack.conf"
cat > "$D/etc/slurm/slurmdbd.conf" <<E
DbdHost=localhost
DbdPort=$DBD_PORT
SlurmUser=slurm
AuthType=auth/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=$D/etc/slurm/jwt_hs256.key
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
LogFile=$D/log/slurmdbd.log
PidFile=$D/head/run/slurmdbd.pid
E
cat > "$D/etc/my.cnf" <<E
[mariadbd]
user=mysql
datadir=$D/head/mysql
socket=/run/mysqld/mysqld.sock
pid-file=/run/mysqld/mysqld.pid
log-error=$D/log/mariadb.log
skip-networking
skip-name-resolve
skip-log-bin
innodb_buffer_pool_size=64M
innodb_log_file_size=16M
innodb_flush_log_at_trx_commit=0
innodb_lock_wait_timeout=900
innodb_doublewrite=0
performance_schema=off
E
# ssh: host key, one client key, a client configuration for the 'laptop'
[ -e "$D/ssh/host_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$D/ssh/host_ed25519" -C head-node
[ -e "$D/ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$D/ssh/id_ed25519" -C laptop
for u in root researcher outsider; do cp "$D/ssh/id_ed25519.pub" "$D/ssh/authorized_keys.$u"; done
echo "[127.0.0.1]:$SSH_PORT $(cut -d' ' -f1,2 "$D/ssh/host_ed25519.pub")" > "$D/ssh/known_hosts"
cat > "$D/ssh/sshd_config" <<E
Port $SSH_PORT
ListenAddress 127.0.0.1
HostKey $D/ssh/host_ed25519
AuthorizedKeysFile $D/ssh/authorized_keys.%u
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AcceptEnv LANG LC_*
MaxSessions 20
MaxStartups 50:30:100
PrintMotd no
Subsystem sftp internal-sftp
PidFile /run/sshd.pid
E
cat > "$D/ssh/config" <<E
Host head-node
  HostName 127.0.0.1
  Port $SSH_PORT
  User researcher
  IdentityFile $D/ssh/id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile $D/ssh/known_hosts
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 10
  LogLevel ERROR
E
chmod 644 "$D"/ssh/*.pub "$D"/ssh/authorized_keys.*
mkdir -p "$D/home/outsider"; chown -R 2001:2001 "$D/home/researcher" "$D/shared/fsx"; chown 2003:2003 "$D/home/outsider"
[ -e "$D/home/researcher/.bashrc" ] || : > "$D/home/researcher/.bashrc"
fi

