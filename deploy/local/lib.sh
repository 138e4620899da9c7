# shellcheck shell=bash
# What the scripts of the local stack share: messages, state folders, waiting,
# and processes that are started, recognised and ended by pid. Sourced, not run.

# Byte order and messages must not depend on the caller's language.
export LC_ALL=C.UTF-8
umask 022

LOCAL_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
REPO=$(cd "$LOCAL_DIR/../.." && pwd -P)
ME=$(id -un)

# A shell that was open before Rust's install does not have it on PATH yet.
if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]]; then
  PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
fi

say() { printf '%s\n' "$*"; }
warn() { printf 'tenure: %s\n' "$*" >&2; }
die() {
  warn "$*"
  exit 1
}

# heading TEXT: the title of a step for a person who watches.
heading() {
  if [[ -t 1 ]]; then
    printf '\n\033[1m== %s\033[0m\n' "$*"
  else
    printf '\n== %s\n' "$*"
  fi
}

is_root() { [[ $(id -u) -eq 0 ]]; }

user_exists() { id -u "$1" >/dev/null 2>&1; }

# as_user USER COMMAND…: runs the command as that user, as ourselves where it is us.
# setpriv replaces itself by the command, so the pid is the command's own.
as_user() {
  local user=$1
  shift
  if [[ $user == "$ME" ]]; then
    "$@"
  else
    setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups -- "$@"
  fi
}

# wait_until SECONDS COMMAND…: polls until the command succeeds, fails past the bound.
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

# random_hex BYTES: a secret that needs no quoting anywhere.
random_hex() { od -An -N "$1" -tx1 /dev/urandom | tr -d ' \n'; }

# export_line NAME VALUE: a line that a shell can source, whatever the value holds.
export_line() { printf 'export %s=%q\n' "$1" "$2"; }

# tail_log FILE: the end of a log, for the message about a failure.
tail_log() {
  [[ -r $1 ]] || return 0
  warn "the end of $1:"
  tail -n 40 "$1" >&2
}

# --- State folders -----------------------------------------------------------
# A state folder holds one set of private instances: data, logs, pids, secrets.

# use_state FOLDER: sets STATE (the real folder, made where missing), STATE_NAME and
# RUN_DIR. PostgreSQL and RabbitMQ run as users of their own when we are root; where
# those can't reach the folder (a checkout below a closed home), or where its path
# holds characters that RabbitMQ's start scripts would split on, the real folder lies
# under /var/tmp and the wanted one is a link to it.
use_state() {
  local wanted=$1 parent real
  [[ $wanted == /* ]] || wanted=$REPO/$wanted
  parent=$(dirname "$wanted")
  STATE_NAME=$(basename "$wanted")
  mkdir -p "$parent"
  parent=$(cd "$parent" && pwd -P)
  wanted=$parent/$STATE_NAME
  if [[ -L $wanted ]]; then
    real=$(readlink "$wanted")
    [[ -d $real ]] || rm -f "$wanted"
  fi
  if [[ ! -e $wanted ]]; then
    if path_is_plain "$wanted" && path_is_open "$parent"; then
      mkdir "$wanted"
    else
      real=/var/tmp/tenure-$(id -u)-$(printf '%s' "$parent" | sha256sum | cut -c1-12)
      [[ -d $real ]] || mkdir "$real"
      # Others may write to /var/tmp: a folder that is not ours is not to be trusted.
      [[ -O $real && ! -L $real ]] || die "$real exists and is not ours; remove it"
      chmod 0711 "$real"
      real=$real/$STATE_NAME
      mkdir -p "$real"
      ln -s "$real" "$wanted"
    fi
  fi
  STATE=$(cd "$wanted" && pwd -P)
  chmod 0711 "$STATE"
  RUN_DIR=$STATE/run
  mkdir -p "$RUN_DIR"
}

# state_exists FOLDER: there is something to stop or to look at.
state_exists() {
  local wanted=$1
  [[ $wanted == /* ]] || wanted=$REPO/$wanted
  [[ -d $wanted ]]
}

# remove_state FOLDER: once its services are stopped and its data is wiped.
remove_state() {
  local wanted=$1
  [[ $wanted == /* ]] || wanted=$REPO/$wanted
  rm -rf "$STATE"
  if [[ -L $wanted ]]; then
    rm -f "$wanted"
    rmdir --ignore-fail-on-non-empty "$(dirname "$STATE")"
  fi
}

path_is_plain() { [[ $1 =~ ^[A-Za-z0-9/._+-]+$ && ${#1} -le 160 ]]; }

path_is_open() {
  is_root || return 0
  local user
  for user in postgres rabbitmq redis; do
    if user_exists "$user"; then
      as_user "$user" test -x "$1" || return 1
    fi
  done
}

# lock_state NAME: one script of that name at a time works on a state folder.
lock_state() {
  exec 9>"$STATE/$1.lock"
  flock -w 180 9 || die "another script has been working on $STATE for three minutes"
}

# --- Processes ---------------------------------------------------------------
# Each process has run/NAME.pid and run/NAME.start. A pid alone may have been given
# to a stranger since; with the start time from /proc it can't be mistaken.

# process_start PID: start time in clock ticks since boot; fails where the process
# has ended, also when nobody has collected its exit status yet.
process_start() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  stat=${stat##*) }
  local -a field
  read -ra field <<<"$stat"
  [[ ${field[0]} != Z && ${field[0]} != X ]] || return 1
  printf '%s' "${field[19]}"
}

# record_process NAME PID
record_process() {
  process_start "$2" >"$RUN_DIR/$1.start" || true
  printf '%s\n' "$2" >"$RUN_DIR/$1.pid"
}

forget_process() { rm -f "$RUN_DIR/$1.pid" "$RUN_DIR/$1.start"; }

# process_pid NAME: the pid where that process of ours still runs.
process_pid() {
  local pid start
  { read -r pid <"$RUN_DIR/$1.pid"; } 2>/dev/null || return 1
  # The start time has no end of line.
  { start=$(cat "$RUN_DIR/$1.start"); } 2>/dev/null || return 1
  [[ $pid =~ ^[0-9]+$ && -n $start && $(process_start "$pid") == "$start" ]] || return 1
  printf '%s' "$pid"
}

is_running() { process_pid "$1" >/dev/null; }
is_gone() { ! is_running "$1"; }

# spawn NAME USER LOG COMMAND…: starts the command in the background, free of our
# terminal and of every file that we hold open. TENURE_INSTANCE marks it, and what it
# starts in turn, as belonging to this state folder.
spawn() {
  local name=$1 user=$2 log=$3
  shift 3
  (
    exec </dev/null >>"$log" 2>&1
    for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done
    export TENURE_INSTANCE=$STATE
    if [[ $user == "$ME" ]]; then
      exec setsid "$@"
    else
      exec setsid setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups -- "$@"
    fi
  ) &
  record_process "$name" $!
}

# end_process NAME SECONDS SIGNAL…: sends the signals one after the other, each with
# that long to act, then SIGKILL.
end_process() {
  local name=$1 seconds=$2 pid signal
  shift 2
  for signal in "$@" KILL; do
    pid=$(process_pid "$name") || break
    kill -s "$signal" "$pid" 2>/dev/null || true
    if wait_until "$seconds" is_gone "$name"; then break; fi
    warn "$name (pid $pid) still runs $seconds s after SIG$signal"
  done
  is_gone "$name" || die "$name could not be ended"
  forget_process "$name"
}

# adopt NAME PID_FILE FOLDER: a server that writes a pid file of its own and works in a
# folder that only it uses is ours, even where our own record of it was lost.
adopt() {
  local pid
  if is_running "$1" || ! pid=$(head -n 1 "$2" 2>/dev/null); then return 0; fi
  if [[ $pid =~ ^[0-9]+$ && $(readlink "/proc/$pid/cwd" 2>/dev/null) == "$3" ]]; then
    record_process "$1" "$pid"
  fi
}

# marked_pids: pids of the processes that carry this state folder's mark.
marked_pids() {
  local folder
  for folder in /proc/[0-9]*; do
    if is_marked "${folder#/proc/}"; then printf '%s\n' "${folder#/proc/}"; fi
  done
}

is_marked() {
  grep -qszFx "TENURE_INSTANCE=$STATE" "/proc/$1/environ" 2>/dev/null &&
    process_start "$1" >/dev/null
}

no_marked_pids() { [[ -z $(marked_pids) ]]; }

# end_marked: ends what a crash left behind without a pid file. Only processes that
# were started by spawn for this very folder carry the mark.
end_marked() {
  local pid signal
  for signal in TERM KILL; do
    for pid in $(marked_pids); do kill -s "$signal" "$pid" 2>/dev/null || true; done
    if wait_until 10 no_marked_pids; then return 0; fi
  done
  die "processes of $STATE could not be ended: $(marked_pids | tr '\n' ' ')"
}
