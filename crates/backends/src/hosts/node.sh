# Functions of one host: POSIX sh (dash, bash 4, busybox). Every program that weftrun sends begins with them, and so does the supervisor.
#
# $weftrun_root/claim-N       `ID ATTEMPT TOKEN`: the claims of this host. The highest one has the host; the next can be made (a hard link: by
#                             one program only) once this one is over for ever. It is the program that sees that, so nothing is given back
# $weftrun_root/jobs/ID/      appears whole, by a rename; ID is the submission
#     place  job              the job's hosts and numbers, and the rendered document; never changed
#     ready-TOKEN/            what a claim may start. Renamed to go-N by the start, or to expired-TOKEN, so that only one of them happens
#     go-N/                   attempt N was started
#     go-N/supervisor         who supervises it; made once (a hard link), also by who gives up waiting for a supervisor that never began
#     state                   what the supervisor says
#     requests/               what others ask of the supervisor: ATTEMPT.NAME, or any.NAME for whichever attempt runs
#     verdict                 how the whole job ended, once all hosts have
#     cancelled               no attempt is started any more
#     logs/N/NAME.log         what each process wrote in attempt N, by its own hand
umask 077

weftrun_up() { read -r up _ < /proc/uptime; up=${up%%.*}; }   # seconds of this boot: no clock is compared with another

# Sets $start: when process $1 was started, in ticks of this boot; empty if it has ended.
weftrun_start() {
  start=; stat=
  { read -r stat < "/proc/$1/stat"; } 2> /dev/null || return 0
  stat=${stat##*) }
  case $stat in Z* | X* | '') return 0 ;; esac
  set -f; set -- $stat; set +f
  shift 19; start=$1
}

weftrun_boot() { boot=; { read -r boot < /proc/sys/kernel/random/boot_id; } 2> /dev/null || :; }

# Writes the time of this boot to file $1.
weftrun_write_time() { weftrun_boot; weftrun_up; printf '%s %s\n' "$up" "$boot" > "$1.$$" && mv "$1.$$" "$1"; }

# Whether the time in file $1 is more than $2 seconds ago. One of another boot ($of) is, and so is a missing one.
weftrun_is_older() {
  at=; of=
  { read -r at of < "$1"; } 2> /dev/null || :
  weftrun_boot; weftrun_up
  case $at in '' | *[!0-9]*) return 0 ;; esac
  [ "$boot" != "$of" ] || [ $((up - at)) -gt "$2" ]
}

# Sets $last to the last attempt of the job in folder $1, -1 before the first.
weftrun_last() { last=-1; while [ -d "$1/go-$((last + 1))" ]; do last=$((last + 1)); done; }

# Makes process $2 of start time $3 and boot $4 the supervisor of the last attempt of the job in folder $1, unless there is one.
weftrun_supervise() {
  printf '%s %s %s\n' "$2" "$3" "$4" > "$1/go-$last/supervisor.$$" && ln "$1/go-$last/supervisor.$$" "$1/go-$last/supervisor" 2> /dev/null
  made=$?
  rm -f "$1/go-$last/supervisor.$$"
  return "$made"
}

# Sets $alive for the last attempt of the job in folder $1: yes, no, rebooted, or none where no supervisor began yet.
# With $2, one that did not begin after so many seconds never will.
weftrun_alive() {
  alive=none; pid=; was=; then=
  weftrun_last "$1"
  [ "$last" -ge 0 ] || return 0
  if [ ! -f "$1/go-$last/supervisor" ]; then
    weftrun_is_older "$1/go-$last/at" "${2-60}" || return 0
    weftrun_supervise "$1" 0 0 "${of:-$boot}" || :
  fi
  { read -r pid was then < "$1/go-$last/supervisor"; } 2> /dev/null || return 0
  weftrun_boot; weftrun_start "$pid"
  if [ "$boot" != "$then" ]; then alive=rebooted; elif [ -n "$start" ] && [ "$start" = "$was" ]; then alive=yes; else alive=no; fi
}

# Prints the processes of submission $1 and all that they started, found by the variable in their environment.
weftrun_marked() {
  # -z: variables end with a NUL, where busybox' grep stops reading.
  for marked in $(grep -lzxF "WEFTRUN_SUBMISSION=$1" /proc/[0-9]*/environ 2> /dev/null); do
    marked=${marked#/proc/}; printf '%s ' "${marked%/environ}"
  done
}

# Prints the supervisors of jobs: `[setsid] /bin/sh ./supervise N` in a job's folder, also their subshells, and `weftrun supervise DIR` of
# the local backend. Any process may have such arguments: the job's files prove it.
weftrun_supervisors() {
  for supervisor_ in $(grep -lzxF -e supervise -e ./supervise /proc/[0-9]*/cmdline 2> /dev/null | sed 's/[^0-9]//g'); do
    { tr '\n\0' ' \n' < "/proc/$supervisor_/cmdline"; } 2> /dev/null | {
      read -r _; read -r verb_; read -r of_
      case "$verb_ $of_" in
      './supervise '* | '/bin/sh ./supervise') [ -f "/proc/$supervisor_/cwd/place" ] ;;
      'supervise '*) [ -f "$of_/origin.json" ] && { [ ! -f "$of_/state.json" ] || grep -q "\"supervisor\":{\"pid\":$supervisor_," "$of_/state.json"; } ;;
      *) false ;;
      esac
    } && printf '%s ' "$supervisor_"
  done
}

# Prints, as PID:START, the living descendants of processes $@ and of those in $tree, and what still runs of $tree: processes that cleared
# their environment or began a session of their own are found while one that started them lives. A job that one of them submitted is another's.
weftrun_tree() {
  others=$(weftrun_supervisors)
  cat /proc/[0-9]*/stat 2> /dev/null | sed 's/^\([0-9]*\) (.*) /\1 /' | awk -v roots="$*" -v known="${tree-}" -v others="$others" '
    $2 != "Z" && $2 != "X" { parent[$1] = $3; start[$1] = $21 }
    END {
      count = split(others, other, " ")
      for (i = 1; i <= count; i++) delete parent[other[i]]
      count = split(roots, root, " ")
      for (i = 1; i <= count; i++) below[root[i]] = 1
      count = split(known, one, " ")
      for (i = 1; i <= count; i++) { split(one[i], part, ":"); if (start[part[1]] == part[2]) { below[part[1]] = 1; found[part[1]] = 1 } }
      do {
        more = 0
        for (pid in parent) if (!(pid in below) && (parent[pid] in below)) { below[pid] = 1; found[pid] = 1; more = 1 }
      } while (more)
      for (pid in found) printf "%s:%s ", pid, start[pid]
    }'
}

# Prints the processes of $tree that still run.
weftrun_still() {
  for known in ${tree-}; do
    weftrun_start "${known%:*}"
    [ -z "$start" ] || [ "$start" != "${known#*:}" ] || printf '%s ' "${known%:*}"
  done
}

# Prints what runs of submission $1 in folder $job: its processes, and its containers, whose processes may be another user's.
weftrun_running() {
  weftrun_marked "$1"
  ( weftrun_read_job; ! command -v weftrun_containers > /dev/null || weftrun_containers )
}

# Reads the document of the job in $job. One that is no shell would end this program.
weftrun_read_job() { ! /bin/sh -n "$job/job" 2> /dev/null || . "$job/job"; }

# Sets $phase of the job in folder $1 from its state file, and $said to the attempt that it speaks of; empty where that is not the last one.
weftrun_phase() {
  phase=; said=
  while read -r key value; do
    case $key in phase) phase=$value ;; attempt) said=$value ;; esac
  done 2> /dev/null < "$1/state" || :
  weftrun_last "$1"
  [ "${said:--1}" -ge "$last" ] || phase=
}

# Prints what is known of one job, or of all: `key value` lines, from `job ID` to `end`.
weftrun_look() {
  weftrun_up
  printf 'up %s\n' "$up"
  for job in "$weftrun_root"/jobs/${1:-*}; do
    [ -f "$job/place" ] || continue
    printf 'job %s\n' "${job##*/}"
    while read -r line; do printf '%s\n' "$line"; done < "$job/place"
    for go in "$job"/go-*; do [ ! -d "$go" ] || printf 'go %s\n' "${go##*-}"; done
    weftrun_phase "$job"
    if [ "$phase" != ended ]; then
      weftrun_alive "$job"
      printf 'alive %s\n' "$alive"
      # The program that started the attempt was cut off before its supervisor began.
      if [ "$alive" = none ] && [ "$last" -ge 0 ] && [ ! -e "$job/cancelled" ] && weftrun_is_older "$job/go-$last/at" 10; then
        weftrun_begin "${job##*/}" "$last"
      fi
      # A supervisor that ended since then has written its last state before.
      # Once its end is known, nothing of it runs.
      case $alive in no | rebooted) [ -e "$job/verdict" ] || printf 'orphans %s\n' "$(weftrun_running "${job##*/}" | wc -w)" ;; esac
    fi
    { while read -r line; do printf '%s\n' "$line"; done < "$job/state"; } 2> /dev/null || :
    [ ! -e "$job/cancelled" ] || printf 'asked cancel\n'
    { read -r verdict < "$job/verdict" && printf 'verdict %s\n' "$verdict"; } 2> /dev/null || :
    printf 'end\n'
  done
  weftrun_claim
  [ "$claim" = 0 ] || weftrun_is_over || printf 'busy %s\n' "$owner"
}

# Prints what a submission must know of the host: who it is, where the others reach it (over interface $1, if one is named, else where this
# connection came in), and the public keys of its sshd.
weftrun_survey() {
  weftrun_boot
  set -f; set -- "$1" ${SSH_CONNECTION-}; set +f
  address=${4-}
  [ -z "$1" ] || address=$(ip -4 -o addr show dev "$1" | sed -n 's/.* inet \([0-9.]*\).*/\1/p' | head -n 1)
  printf 'machine %s %s\naddress %s\nssh-port %s\nuser %s\n' "$(uname -n)" "$boot" "$address" "${5-22}" "$(id -un)"
  for public in /etc/ssh/ssh_host_*_key.pub; do
    { read -r type key _ < "$public" && printf 'key %s %s\n' "$type" "$key"; } 2> /dev/null || :
  done
}

# Prints the first port from $1 on that nothing listens on.
weftrun_free_port() {
  port=$1
  while grep -qi ":$(printf %04X "$port") [0-9A-F]*:[0-9A-F]* 0A" /proc/net/tcp /proc/net/tcp6 2> /dev/null; do port=$((port + 1)); done
  printf 'port %s\n' "$port"
}

# Sets $claim to the number of the newest claim of this host, 0 without one, and $owner, $owned and $token to what it holds.
weftrun_claim() {
  while :; do
    claim=0; owner=; owned=; token=
    for number in "$weftrun_root"/claim-*; do
      number=${number##*/claim-}
      case $number in *[!0-9]*) ;; *) [ "$number" -le "$claim" ] || claim=$number ;; esac
    done
    [ "$claim" != 0 ] || return 0
    # It is gone if a newer one was made since.
    { read -r owner owned token < "$weftrun_root/claim-$claim"; } 2> /dev/null && return 0
  done
}

# Whether the newest claim (as weftrun_claim read it) no longer holds the host. Once it is so, it stays so.
weftrun_is_over() {
  job=$weftrun_root/jobs/$owner
  if [ -d "$job/ready-$token" ]; then
    # Not started: its submission was cut off, unless it is young.
    weftrun_is_older "$job/ready-$token/at" 600 || return 1
    mv "$job/ready-$token" "$job/expired-$token" 2> /dev/null || :
  fi
  [ -d "$job/go-$owned" ] || return 0
  weftrun_phase "$job"
  [ "$phase" != ended ] || return 0
  weftrun_alive "$job"
  case $alive in yes | none) return 1 ;; esac
  [ -z "$(weftrun_running "$owner")" ]
}

# Takes the host for attempt $2 of submission $1, and sets $token to that of its claim; prints `busy ID` and fails if another has it.
weftrun_take() {
  weftrun_up
  mine=$up.$(exec sh -c 'echo $$')   # no token was there before
  ready=$weftrun_root/jobs/$1/ready-$mine
  if ! { mkdir "$ready" && weftrun_write_time "$ready/at" && printf '%s %s %s\n' "$1" "$2" "$mine" > "$ready/claim"; }; then
    rm -rf "$ready"; return 91
  fi
  tries=0
  while :; do
    weftrun_claim
    if [ "$owner $owned" = "$1 $2" ] && { [ -d "$weftrun_root/jobs/$1/ready-$token" ] || [ -d "$weftrun_root/jobs/$1/go-$2" ]; }; then
      rm -rf "$ready"; return 0
    fi
    if [ "$claim" != 0 ] && ! weftrun_is_over; then rm -rf "$ready"; printf 'busy %s\n' "$owner"; return 90; fi
    next=$((claim + 1))
    if ln "$ready/claim" "$weftrun_root/claim-$next" 2> /dev/null; then
      # Where a newer one was there, the number was free only because older claims are removed.
      weftrun_claim
      if [ "$claim" = "$next" ]; then break; fi
      rm -f "$weftrun_root/claim-$next"
    fi
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ]; then rm -rf "$ready"; echo "no hard link can be made in $weftrun_root" >&2; return 91; fi
  done
  for number in "$weftrun_root"/claim-*; do
    case ${number##*/claim-} in *[!0-9]*) ;; *) [ "${number##*/claim-}" -ge "$next" ] || rm -f "$number" ;; esac
  done
}

# Makes the folder of submission $1 whole and takes the host. `weftrun_write FOLDER` writes its files.
weftrun_prepare_job() {
  mkdir -p "$weftrun_root/jobs" || return 91
  if [ ! -d "$weftrun_root/jobs/$1" ]; then
    new=$weftrun_root/.new-$1.$$
    rm -rf "$new"; mkdir "$new" "$new/requests" "$new/logs" || return 91
    # The reserve is given up for the last state where the disk is full.
    if ! { weftrun_write "$new" && head -c 65536 /dev/zero > "$new/reserve"; }; then
      rm -rf "$new"
      # The shell's own message may name no reason.
      [ "$(df -Pk "$weftrun_root" | tail -n 1 | tr -s ' ' | cut -d' ' -f4)" -ge 512 ] || echo 'No space left on device' >&2
      return 91
    fi
    # A mistake in `setup` would end the supervisor.
    if ! /bin/sh -n "$new/job" > "$new/mistake" 2>&1; then
      sed "s|^.*/job: ||" "$new/mistake" | head -n 1 >&2
      rm -rf "$new"; return 92
    fi
    rm -f "$new/mistake"
    mv "$new" "$weftrun_root/jobs/$1" 2> /dev/null || rm -rf "$new"
    # Two programs of one submission: the second moved its folder into the first one's.
    rm -rf "$weftrun_root/jobs/$1/.new-$1.$$"
  fi
  weftrun_take "$1" 0 && return 0
  code=$?
  [ -d "$weftrun_root/jobs/$1/go-0" ] || weftrun_remove "$1"
  return "$code"
}

weftrun_remove() {
  weftrun_forget_key "$1"
  # The job disappears at once, even if the removal is interrupted.
  if mv "$weftrun_root/jobs/$1" "$weftrun_root/.del-$1.$$" 2> /dev/null; then rm -rf "$weftrun_root/.del-$1.$$"; return 0; fi
  [ ! -d "$weftrun_root/jobs/$1" ] || { echo "$weftrun_root/jobs/$1 cannot be removed" >&2; return 91; }
}

# Starts a supervisor for attempt $2 of submission $1. Of several, the first one stays.
weftrun_begin() {
  ( cd "$weftrun_root/jobs/$1" && exec setsid /bin/sh ./supervise "$2" ) < /dev/null >> "$weftrun_root/jobs/$1/supervisor.log" 2>&1 3<&- &
}

# Starts attempt $2 of submission $1, once however often it is called.
weftrun_go() {
  while [ ! -d "$weftrun_root/jobs/$1/go-$2" ]; do
    [ -d "$weftrun_root/jobs/$1" ] || return 93
    [ ! -e "$weftrun_root/jobs/$1/cancelled" ] || return 95
    weftrun_take "$1" "$2" || return $?
    job=$weftrun_root/jobs/$1
    weftrun_write_time "$job/ready-$token/at" 2> /dev/null || :   # a supervisor that does not begin is waited for from now on
    # It fails where another program was faster, or the claim has expired.
    mv "$job/ready-$token" "$job/go-$2" 2> /dev/null || continue
    weftrun_begin "$1" "$2"
  done
  job=$weftrun_root/jobs/$1 tries=0
  while weftrun_phase "$job"; [ "${said:--1}" -lt "$2" ]; do
    tries=$((tries + 1))
    # The program that made the folder may have been cut off before it started the supervisor.
    [ "$tries" != 20 ] || [ -e "$job/go-$2/supervisor" ] || weftrun_begin "$1" "$2"
    if [ "$tries" -gt 100 ]; then
      printf '%s/supervisor.log: %s\n' "$job" "$(tail -n 1 "$job/supervisor.log" 2> /dev/null)" >&2
      return 94
    fi
    sleep 0.1
  done
}

# Asks the supervisor of submission $1 for $2 (a word, then free text), and waits until it did it. $3 names the request. $4 is the attempt that it
# is for, which may have ended when it arrives; empty for whichever runs. Without a supervisor, ends what runs.
weftrun_ask() {
  job=$weftrun_root/jobs/$1
  [ -d "$job" ] || return 93
  [ -z "${4-}" ] || [ ! -d "$job/go-$(($4 + 1))" ] || return 95
  # Before the look at the state: an attempt that starts now sees it.
  [ "$2" != cancel ] || true > "$job/cancelled" || return 91
  weftrun_phase "$job"
  if [ "$phase" = ended ]; then weftrun_asked_at_end "$2"; return; fi
  weftrun_alive "$job"
  if [ "$alive" = none ]; then
    case $2 in cancel* | stop*)
      # What has not begun shall not.
      for ready in "$job"/ready-*; do [ ! -d "$ready" ] || mv "$ready" "$job/expired-${ready##*/ready-}" 2> /dev/null || :; done
      weftrun_alive "$job" -1 ;;
    esac
  fi
  if [ "$alive" = yes ]; then
    ask=$job/requests/${4:-any}.$3
    printf '%s\n' "$2" > "$ask.new" && mv "$ask.new" "$ask" || return 91
    tries=0
    while [ -e "$ask" ]; do
      tries=$((tries + 1))
      [ $((tries % 10)) != 0 ] || weftrun_alive "$job"
      [ "$alive" = yes ] && [ "$tries" -le 300 ] || break
      sleep 0.1
    done
    [ -e "$ask" ] || return 0
    [ "$alive" != yes ] || return 96
    # It may have ended by itself, and then has written its last state.
    rm -f "$ask"
    weftrun_phase "$job"
    if [ "$phase" = ended ]; then weftrun_asked_at_end "$2"; return; fi
  fi
  case $2 in
  cancel* | stop*)
    weftrun_read_job
    why='ended after its supervisor was gone'
    weftrun_end "$1" 10 || why="$why; could not be ended and may still run: processes $unended"
    how=cancelled; case $2 in stop*) how=stopped ;; esac
    weftrun_last "$job"; [ "$last" -ge 0 ] || last=0
    printf 'phase ended\nattempt %s\nhow %s\nwhy %s\n' "$last" "$how" "$why" > "$job/state.new" \
      && mv "$job/state.new" "$job/state" || return 91
    weftrun_forget_key "$1" ;;
  suspend) weftrun_read_job && weftrun_signal "$1" STOP ;;
  resume) weftrun_read_job && weftrun_signal "$1" CONT ;;
  signal*) weftrun_signal "$1" "${2#signal }" ;;
  esac
}

# Answers $1 for the job in $job, whose attempt has ended here: one that failed or was stopped would start again with the others, unless it
# is cancelled.
weftrun_asked_at_end() {
  [ "$1" = cancel ] || return 95
  grep -q -e '^how failed' -e '^how stopped' "$job/state" || return 95
  sed 's/^how .*/how cancelled/' "$job/state" > "$job/state.new" && mv "$job/state.new" "$job/state" || return 91
  weftrun_forget_key "${job##*/}"; rm -f "$job/key" "$job/key.pub"
}

# Keeps how the whole job ended ($2) beside submission $1.
weftrun_conclude() {
  cd "$weftrun_root/jobs/$1" || return 93
  [ -e verdict ] || { printf '%s\n' "$2" > "verdict.$$" && mv "verdict.$$" verdict; }
}

weftrun_signal() {
  signalled="$(weftrun_marked "$1")$(weftrun_still)"
  [ -z "$signalled" ] || kill "-$2" $signalled 2> /dev/null || :
  command -v weftrun_pause_containers > /dev/null || return 0
  case $2 in STOP) weftrun_pause_containers running pause ;; CONT) weftrun_pause_containers paused unpause ;; esac || :
}

# Ends every process of submission $1, and all that they and process $supervisor started: TERM, and KILL after $2 seconds. Fails where some do
# not end (another user's, or one that waits for a device), and sets $unended to them.
weftrun_end() {
  tree=$(weftrun_tree ${supervisor-} $(weftrun_marked "$1"))
  weftrun_signal "$1" TERM; weftrun_signal "$1" CONT
  weftrun_up; until=$((up + $2)) unended=
  # A process that is just becoming another program has no environment for a moment: what is gone is looked for twice.
  while [ -n "$(weftrun_marked "$1")$(weftrun_still)" ] || { sleep 0.1; [ -n "$(weftrun_marked "$1")$(weftrun_still)" ]; }; do
    weftrun_up
    if [ "$up" -ge $((until + 5)) ]; then unended="$(weftrun_marked "$1")$(weftrun_still)"; break; fi
    if [ "$up" -ge "$until" ]; then
      weftrun_end_containers
      tree=$(weftrun_tree $(weftrun_marked "$1"))
      weftrun_signal "$1" KILL
    fi
    sleep 0.1
  done
  weftrun_end_containers
  [ -z "$unended" ]
}

# Ends the containers of the job whose document was read: their processes are children of an engine, not of the program that started them,
# which may be gone.
weftrun_end_containers() { ! command -v weftrun_kill_containers > /dev/null || weftrun_kill_containers || :; }

# Removes jobs that ended more than $1 days ago, and what cut-off programs left.
weftrun_clean() {
  find "$weftrun_root/jobs" -mindepth 2 -maxdepth 2 -name state -mtime "+$1" 2> /dev/null | while read -r old; do
    old=${old%/state}; weftrun_phase "$old"
    [ "$phase" != ended ] || weftrun_remove "${old##*/}"
  done
  for old in "$weftrun_root"/jobs/*; do
    # Prepared, never started, and its claim has expired.
    set -- "$old"/expired-* "$old"/ready-* "$old"/go-*
    case "$*" in "$old/expired-*"*) ;; *"$old/ready-* $old/go-*") weftrun_remove "${old##*/}"; continue ;; esac
    # The supervisor that would have removed the key was killed, or the host was started again.
    grep -q "weftrun-${old##*/}\$" "$HOME/.ssh/authorized_keys" 2> /dev/null || continue
    weftrun_phase "$old"
    [ "$phase" != ended ] || continue
    weftrun_alive "$old"
    case $alive in no | rebooted) [ -n "$(weftrun_marked "${old##*/}")" ] || weftrun_forget_key "${old##*/}" ;; esac
  done
  find "$weftrun_root" -mindepth 1 -maxdepth 1 \( -name '.new-*' -o -name '.del-*' \) -mtime +1 -exec rm -rf {} + 2> /dev/null || :
}

# Reads the place file of the job in the working folder: the numbers of the job, and of this host in it.
weftrun_place() {
  world=0 nodes=0 first=0 count=0 role= replica=0 master= address=
  while read -r key value; do
    case $key in
    submission) submission=$value ;; launch) launch=$value ;; restarts) restarts=$value ;; grace) grace=$value ;;
    limit) limit=$value ;; node) node=$value ;; port) port=$value ;;
    host)
      set -f; set -- $value; set +f   # NAME ADDRESS PORT USER RANKS ROLE REPLICA
      [ "$nodes" != 0 ] || master=$2
      if [ "$nodes" = "$node" ]; then first=$world count=$5 role=$6 replica=$7 address=$2; fi
      world=$((world + $5)); nodes=$((nodes + 1)) ;;
    esac
  done < place
}

# Exports what a process of this host sees; with a local rank in $1, what that rank sees.
weftrun_numbers() {
  export WEFTRUN_SUBMISSION="$submission" MASTER_ADDR="$master" MASTER_PORT="$port" NNODES="$nodes" NODE_RANK="$node" GROUP_RANK="$node" \
    GROUP_WORLD_SIZE="$nodes" WORLD_SIZE="$world" LOCAL_WORLD_SIZE="$count" \
    PET_MASTER_ADDR="$master" PET_MASTER_PORT="$port" PET_NNODES="$nodes" PET_NODE_RANK="$node" PET_NPROC_PER_NODE="$count"
  [ -z "${1-}" ] || export RANK="$((first + $1))" LOCAL_RANK="$1" ROLE_NAME="$role" ROLE_RANK="$((replica * count + $1))"
}

# Becomes a command ($3 …) in submission $1 beside local rank $2: in the folder of its process, with the job's environment.
weftrun_beside() {
  cd "$weftrun_root/jobs/$1" || return 93
  weftrun_place
  id=$1 local=$2; shift 2
  weftrun_numbers "$local"
  . ./job && weftrun_environment
  case $launch:$count in per-rank:* | mpi:* | *:1) WEFTRUN_PROCESS=rank$((first + ${local:-0})) ;; *) WEFTRUN_PROCESS=node$node ;; esac
  for process in $(weftrun_marked "$id"); do
    [ -z "$local" ] || tr '\0' '\n' 2> /dev/null < "/proc/$process/environ" | grep -qx "LOCAL_RANK=$local" || continue
    folder=$(readlink "/proc/$process/cwd") && cd "$folder" 2> /dev/null && break
  done
  # It is not a process of the job, and may outlive it.
  unset WEFTRUN_SUBMISSION; export WEFTRUN_EXEC_OF="$id"
  if command -v weftrun_contained > /dev/null; then weftrun_contained "$id" "$@"; fi
  exec $weftrun_session "$@"
}

# Becomes a command as weftrun_beside does, with the caller's input ($1: -i) or terminal (-it).
weftrun_attach() {
  weftrun_session= weftrun_input=$1; shift
  weftrun_beside "$@"
}

# Runs a command as weftrun_beside does. It ends when the caller is gone, which closes descriptor 3.
weftrun_exec() {
  (weftrun_session=setsid weftrun_input=; weftrun_beside "$@") 3<&- &
  command=$!
  { cat <&3; kill -TERM -- "-$command" "$command"; } > /dev/null 2>&1 &
  watch=$!
  exec 3<&-
  wait $command; code=$?
  kill $watch 2> /dev/null
  return "$code"
}

# Lets key line $2 in while submission $1 is here, and takes it out. The file is the user's: it is replaced whole, by one program at a time
# (a home may be shared by many hosts), and is never cut short by a full disk.
weftrun_allow_key() {
  mkdir -p "$HOME/.ssh" || return 91
  weftrun_edit_keys "$1" "$2"
}
weftrun_forget_key() {
  grep -q "weftrun-$1\$" "$HOME/.ssh/authorized_keys" 2> /dev/null || return 0
  weftrun_edit_keys "$1" ''
}

# Adds line $2 of submission $1 to authorized_keys, or removes the line of $1 where $2 is empty. Each program writes a file of its own in a
# folder beside it, and moves it over the old one only if no other program's file was there after its own. The one with the first name waits
# for that, the others take theirs away. A file that others wait for too long is removed; its owner cannot move it then, and begins again.
weftrun_edit_keys() (
  LC_ALL=C; export LC_ALL
  keys=$(readlink -f "$HOME/.ssh/authorized_keys" 2> /dev/null) && [ -n "$keys" ] || keys=$HOME/.ssh/authorized_keys
  mine=$keys.weftrun/$1.$(uname -n).$(exec sh -c 'echo $$') waited=0
  while [ "$waited" -lt 600 ]; do
    # Another program's `rmdir` may come between the steps of `mkdir -p`.
    mkdir -p "$keys.weftrun" 2> /dev/null || mkdir -p "$keys.weftrun" 2> /dev/null || mkdir -p "$keys.weftrun" || exit 91
    weftrun_others || { weftrun_wait_for_others; continue; }
    { weftrun_replace_keys "$1" "$2"; code=$?; } 4> "$mine" || code=1
    rm -f "$mine"
    [ "$code" != 0 ] || rmdir "$keys.weftrun" 2> /dev/null
    [ "$code" = 1 ] || exit "$code"
    weftrun_wait_for_others
  done
  exit 91
)

# Whether there is no other program's file; sets $first to the first name of all.
weftrun_others() {
  first=; alone=yes
  for file in "$keys.weftrun"/*; do
    [ "$file" != "$keys.weftrun/*" ] || continue
    first=${first:-$file}
    [ "$file" = "$mine" ] || alone=
  done
  [ -n "$alone" ]
}

weftrun_wait_for_others() {
  waited=$((waited + 1))
  sleep 0.1
  [ $((waited % 100)) = 0 ] || return 0
  for file in "$keys.weftrun"/*; do [ "$file" = "$mine" ] || rm -f "$file"; done
}

weftrun_replace_keys() {
  until weftrun_others && [ "$first" = "$mine" ]; do
    [ "$first" = "$mine" ] && [ "$waited" -lt 600 ] || return 1
    weftrun_wait_for_others
  done
  if [ -n "$2" ]; then
    # awk ends a last line that has no newline.
    if [ -f "$keys" ]; then
      ! grep -q "weftrun-$1\$" "$keys" || return 0
      awk 1 "$keys" >&4 || return 91
    fi
    printf '%s\n' "$2" >&4 || return 91
  else
    grep -v "weftrun-$1\$" "$keys" >&4 || [ $? = 1 ] || return 91
  fi
  mv -f "$mine" "$keys" 2> /dev/null
}
