# The supervisor of one attempt on one host: starts the processes, waits for them, ends them, and writes what happened.
# Its working folder is the job's; $1 is the attempt. What it is asked is in requests/.
set -u
attempt=$1 supervisor=$$
weftrun_root=$(cd ../.. && pwd)
weftrun_boot; weftrun_start $$; weftrun_last .
# It fails where nobody waits for it any more.
weftrun_supervise . $$ "$start" "$boot" || exit 1
weftrun_place
. ./job
weftrun_up; began=$up
how= code= rank= why= stopping=

# Writes the state; a reader sees the old or the new one.
say() {
  weftrun_up
  {
    printf 'phase %s\nattempt %s\nelapsed %s\n' "$1" "$attempt" "$((up - began))" &&
      { [ -z "$how" ] || printf 'how %s\n' "$how"; } && { [ -z "$code" ] || printf 'code %s\n' "$code"; } &&
      { [ -z "$rank" ] || printf 'rank %s\n' "$rank"; } && { [ -z "$why" ] || printf 'why %s\n' "$why"; } &&
      { [ -z "${full-}" ] || printf 'full yes\n'; }
  } > state.new 2> /dev/null && mv state.new state
}

# Notices that the disk is full: the processes' own lines may be lost, which nobody else can tell.
look_at_disk() {
  [ -z "${full-}" ] || return 0
  set -f; set -- $(df -Pk . 2> /dev/null | tail -n 1); set +f
  case ${4-} in '' | *[!0-9]*) ;; *) [ "$4" -ge 128 ] || full=yes ;; esac
}

# The disk may be full: the reserve is given up, and it is tried again.
say_at_last() {
  say ended && return
  rm -f reserve; full=yes
  tries=0; until say ended; do tries=$((tries + 1)); [ "$tries" -lt 600 ] || return 1; sleep 1; done
}

# Starts a process in a session of its own: $1 is its name, $2 its local rank or nothing, $3 the function of the job that it runs.
start_process() {
  (
    weftrun_numbers "$2"
    case $1 in rank*) WEFTRUN_PROCESS=$1 ;; *) WEFTRUN_PROCESS=$1$node ;; esac
    export WEFTRUN_PROCESS
    setsid /bin/sh -c '. ./job && weftrun_environment && '"$3" < /dev/null >> "logs/$attempt/$1.log" 2>&1
    ended=$?
    # On a full disk it is tried until it can be written: without the code, the job would not end.
    until printf '%s\n' "$ended" > "run-$attempt/$1.new" 2> /dev/null && mv "run-$attempt/$1.new" "run-$attempt/$1"; do
      [ -d "run-$attempt" ] || exit
      rm -f reserve; sleep 1
    done
  ) &
  names="$names $1"
}

# Waits until all processes ended well, one failed, or the job is to stop. Sets $how.
wait_for() {
  ticks=0
  while :; do
    left=
    for name in $names; do
      done=; { read -r done < "run-$attempt/$name"; } 2> /dev/null || { left=yes; continue; }
      [ "$done" != 0 ] || continue
      how=failed code=$done
      case $name in rank*) rank=${name#rank} ;; esac
      return
    done
    take_requests
    [ -z "$how" ] || return 0
    if [ "$limit" != 0 ]; then weftrun_up; if [ $((up - began)) -ge "$limit" ]; then how=time-limit; return; fi; fi
    [ -n "$left" ] || return 0
    ticks=$((ticks + 1))
    [ $((ticks % 50)) != 0 ] || { look_at_disk; tree=$(weftrun_tree "$supervisor"); }
    if [ "$ticks" -lt 300 ]; then sleep 0.2; else sleep 1; fi
  done
}

take_requests() {
  # It may have been asked of the attempt before.
  if [ -e cancelled ]; then how=cancelled; say stopping; fi
  for request in requests/*; do
    case $request in
    *.new | 'requests/*') continue ;;
    requests/any.* | "requests/$attempt".*) ;;
    *) rm -f "$request"; continue ;;   # for an attempt that has ended
    esac
    word= text=; read -r word text < "$request" || :
    case $word in
    cancel) how=cancelled; say stopping ;;
    stop) how=stopped why=$text; say stopping ;;
    finish) how=done ;;
    suspend) weftrun_signal "$submission" STOP; say suspended ;;
    resume) weftrun_signal "$submission" CONT; say running ;;
    signal) weftrun_signal "$submission" "$text" ;;
    esac
    rm -f "$request"
  done
}

# Writes how the first host reaches the others. With -F, the user's own configuration holds only where it is included.
write_ssh_config() {
  {
    while read -r key name address port user rest; do
      [ "$key" = host ] || continue
      # A command's own `mpirun -H` may name it either way.
      printf 'Host %s %s\n  HostName %s\n  Port %s\n  User %s\n' "$address" "$name" "$address" "$port" "$user"
      [ ! -f key ] || printf '  IdentityFile "%s/key"\n  IdentitiesOnly yes\n' "$PWD"
    done < place
    printf 'Host *\n  BatchMode yes\n  ConnectTimeout 10\n  LogLevel ERROR\n  UserKnownHostsFile "%s/known_hosts" ~/.ssh/known_hosts\n' "$PWD"
    [ ! -r "$HOME/.ssh/config" ] || printf 'Include ~/.ssh/config\n'
  } > ssh_config
}

run_attempt() {
  how= code= rank= why= names=
  mkdir -p "run-$attempt" "logs/$attempt" || { how=failed code=1 why="its folder cannot be written"; return; }
  say starting
  start_process prepare '' weftrun_prepare
  wait_for
  if [ -n "$how" ]; then
    [ "$how" != failed ] || why="the host could not be prepared (see its log)"
    return
  fi
  names=
  case $launch in
  per-rank) local=0; while [ "$local" -lt "$count" ]; do start_process "rank$((first + local))" "$local" weftrun_process; local=$((local + 1)); done ;;
  mpi | once)
    # One launcher, on the first host. The others are there for the ranks that it starts, until they are told that it has ended.
    if [ "$node" = 0 ]; then write_ssh_config; start_process launcher '' weftrun_process; else names=member; fi ;;
  *)
    if [ "$count" = 1 ]; then start_process "rank$first" 0 weftrun_process; else start_process node '' weftrun_process; fi ;;
  esac
  say running
  wait_for
  [ -n "$how" ] || how=done code=0
}

# The other hosts of an MPI job wait for its launcher; mpirun's way to them tells that it has ended. One that failed may start again.
tell_members() {
  word=finish; [ "$how" != failed ] || word='stop the launcher failed'
  [ "$launch" = mpi ] && [ "$node" = 0 ] && [ "$nodes" -gt 1 ] || return 0
  folder=${weftrun_root%/hosts/*}
  case $folder in "$HOME"/*) folder="\$HOME/${folder#"$HOME"/}" ;; esac   # homes need not have the same path
  while read -r key name address rest; do
    [ "$key" = host ] && [ "$address" != "$master" ] || continue
    ./rsh "$address" "cd \"$folder/hosts/\$(uname -n)/jobs/$submission/requests\" && echo $word > $attempt.launcher.new && mv $attempt.launcher.new $attempt.launcher" < /dev/null
  done < place
}

while :; do
  run_attempt
  look_at_disk
  [ "$how" = done ] || say stopping
  weftrun_end "$submission" "$grace" || why="${why:+$why; }could not be ended and may still run: processes $unended"
  rm -rf "run-$attempt"
  if [ "$how" = failed ] && [ -e cancelled ]; then how=cancelled; fi
  tell_members
  # A job on one host starts again by itself; with several, weftrun starts all of them again once all have ended.
  if [ "$how" = failed ] && [ "$nodes" = 1 ] && [ "$attempt" -lt "$restarts" ] &&
    mkdir next && cp "go-$attempt/supervisor" next/ && mv next "go-$((attempt + 1))"; then
    attempt=$((attempt + 1))
    continue
  fi
  break
done
say_at_last
# A key is for all attempts.
if { [ "$how" != failed ] && [ "$how" != stopped ]; } || [ "$attempt" -ge "$restarts" ]; then weftrun_forget_key "$submission"; rm -f key key.pub; fi
rm -f reserve
