# shellcheck shell=bash
# Tenure's own programs: building, starting and stopping them in a state folder.
# Sourced by stack.sh. Uses: STATE, RUN_DIR.

# The first gives the addresses that callers use; all workers are alike.
BINARIES=(gateway dead-letter-admin sweeper worker)

# Settings for trials that reach the binaries from the caller's environment. They are
# kept in the state folder, so that a restart has them as well.
PASSED_ON=(TENURE_LEASE TENURE_SLOTS TENURE_SWEEP_INTERVAL TENURE_BACKOFF_BASE
  TENURE_SHUTDOWN_GRACE TENURE_LOG RUST_BACKTRACE)

READY_SECONDS=60

# passed_on: names that reach the binaries: those above, and every exact setting
# (TENURE_SECTION__KEY).
passed_on() {
  printf '%s\n' "${PASSED_ON[@]}"
  compgen -e TENURE_ | grep '__' || true
}

# target_dir PROFILE: the folder of the built programs.
target_dir() {
  local root
  root=$(cd "$REPO" && cargo metadata --format-version 1 --no-deps --offline |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
  printf '%s/%s\n' "$root" "$1"
}

build_binaries() {
  say 'building (the first time takes some minutes)'
  (cd "$REPO" && cargo build --locked --workspace --bins)
  BIN=$(target_dir debug)
}

# process_names NAME: the processes of a binary: worker is worker-1, worker-2, …
process_names() {
  if [[ $1 == worker ]]; then
    seq -f 'worker-%.0f' 1 "${TENURE_WORKERS:-1}"
  else
    echo "$1"
  fi
}

all_names() {
  local binary
  for binary in "${BINARIES[@]}"; do process_names "$binary"; done
}

# chosen_names NAME: what a person may name: a binary or one of its processes.
chosen_names() {
  if [[ " ${BINARIES[*]} " == *" $1 "* ]]; then
    process_names "$1"
  elif all_names | grep -qxF -e "$1"; then
    echo "$1"
  else
    die "there is no process '$1'; there are: $(all_names | tr '\n' ' ')"
  fi
}

save_settings() {
  local name
  {
    export_line TENURE_WORKERS "${TENURE_WORKERS:-1}"
    for name in $(passed_on); do
      if [[ -n ${!name:-} ]]; then export_line "$name" "${!name}"; fi
    done
  } >"$STATE/settings"
}

# load_settings_of_stack: what `up` saved; the caller's environment wins.
load_settings_of_stack() {
  local name line
  [[ -e $STATE/settings ]] || return 0
  while read -r line; do
    name=${line#export }
    name=${name%%=*}
    if [[ -z ${!name:-} ]]; then eval "$line"; fi
  done <"$STATE/settings"
}

# ports_of NAME: its gRPC and HTTP port, chosen once, so that a restart keeps them.
ports_of() {
  local file=$RUN_DIR/$1.ports
  [[ -e $file ]] || python3 "$LOCAL_DIR/net.py" ports 2 | tr '\n' ' ' >"$file"
  cat "$file"
}

start_binary() {
  local name=$1 grpc http
  if is_running "$name"; then return 0; fi
  read -r grpc http <<<"$(ports_of "$name")"
  (
    binary_environment "$name" "$grpc" "$http"
    cd "$STATE" || exit 1
    spawn "$name" "$ME" "$STATE/logs/$name.log" "$BIN/tenure-${name%-[0-9]*}"
  )
}

# binary_environment NAME GRPC HTTP: leaves only what the process is to see. Secrets are
# exported and not given to env(1), whose arguments everybody can read.
binary_environment() {
  local name keep
  load_settings_of_stack
  keep=" PATH HOME LC_ALL TZ TMPDIR $(passed_on | tr '\n' ' ')"
  for name in $(compgen -e); do
    [[ $keep == *" $name "* ]] || unset "$name"
  done
  # Not the superuser's address, which lies in the same file.
  # shellcheck source=/dev/null
  source <(grep -E '^export (DATABASE_URL|AMQP_URL|REDIS_URL)=' "$STATE/services.env")
  export TENURE_JWT_SECRET_FILE=$STATE/jwt-secret
  # The caller may have named a bucket instead.
  if [[ -z ${TENURE_FILES__URL:-} ]]; then export TENURE_FILES=$STATE/files; fi
  export TENURE_DIAGNOSTICS=true
  export TENURE_GATEWAY__LISTEN=127.0.0.1:$2
  export TENURE_DEAD_LETTER_ADMIN__LISTEN=127.0.0.1:$2
  export TENURE_SERVICE__HTTP_LISTEN=127.0.0.1:$3
  export TENURE_SERVICE__ADDRESS_FILE=$RUN_DIR/$1.address
}

http_of() {
  local _ http
  read -r _ http <<<"$(ports_of "$1")"
  printf 'http://127.0.0.1:%s\n' "$http"
}

grpc_of() {
  local grpc _
  read -r grpc _ <<<"$(ports_of "$1")"
  printf 'http://127.0.0.1:%s\n' "$grpc"
}

answers_ready() { python3 "$LOCAL_DIR/net.py" http "$(http_of "$1")/readyz"; }

ready_or_gone() { is_gone "$1" || answers_ready "$1"; }

await_binary() {
  wait_until "$READY_SECONDS" ready_or_gone "$1" ||
    warn "$1 is not ready after $READY_SECONDS s"
  if is_gone "$1" || ! answers_ready "$1"; then
    warn "$1 did not start"
    tail_log "$STATE/logs/$1.log"
    return 1
  fi
}

# stop_seconds: the grace that the processes have, and ten seconds more.
stop_seconds() {
  local grace
  grace=$(load_settings_of_stack && printf '%s' "${TENURE_SHUTDOWN_GRACE:-30s}")
  case $grace in
    *[!0-9]*[smh] | *d) echo 130 ;;
    *m) echo $((${grace%m} * 60 + 10)) ;;
    *s) echo $((${grace%s} + 10)) ;;
    *) echo 130 ;;
  esac
}

# stop_binaries NAME…: all at once, each in its orderly way.
stop_binaries() {
  local name seconds pid failed=no
  local -a jobs=()
  seconds=$(stop_seconds)
  for name in "$@"; do
    end_process "$name" "$seconds" TERM &
    jobs+=($!)
  done
  for pid in "${jobs[@]}"; do wait "$pid" || failed=yes; done
  [[ $failed == no ]]
}
