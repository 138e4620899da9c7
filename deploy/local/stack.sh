#!/usr/bin/env bash
# The whole of Tenure on this machine: private services and the four binaries.
# Usage: stack.sh up|down|wipe|status [STATE]
#        stack.sh start|stop|restart|kill gateway|worker|worker-N|sweeper|dead-letter-admin [STATE]
#
# STATE is a folder, by default $TENURE_STATE, else .local/stack. `up` writes STATE/env
# (for the default folder also .local/env) with addresses and tokens, for a shell to
# source. `up` builds and starts everything that does not run, `down` stops it and keeps the
# data, `wipe` stops it and removes the data, `status` tells what runs. `start`, `stop` and
# `restart` (with what was built last) are for one binary; `kill` sends it SIGKILL.
# From the environment: TENURE_LEASE, TENURE_SLOTS, TENURE_SWEEP_INTERVAL,
# TENURE_BACKOFF_BASE, TENURE_SHUTDOWN_GRACE, TENURE_LOG, and TENURE_WORKERS, the number
# of worker processes.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$LOCAL_DIR/binaries.sh"

# stop_recorded: whatever binary has a pid file, also of an `up` with more workers.
stop_recorded() {
  local file name
  local -a names=()
  for file in "$RUN_DIR"/*.pid; do
    name=$(basename "$file" .pid)
    case $name in
      '*' | postgres | rabbitmq | redis | s3 | epmd) ;;
      *) names+=("$name") ;;
    esac
  done
  ((${#names[@]} == 0)) || stop_binaries "${names[@]}"
}

env_files() {
  echo "$STATE/env"
  if [[ $STATE -ef $REPO/.local/stack ]]; then echo "$REPO/.local/env"; fi
}

stack_is_up() {
  local name
  [[ -e $STATE/env && -e $STATE/services.env ]] || return 1
  for name in $(load_settings_of_stack && all_names); do is_running "$name" || return 1; done
}

up() {
  local name
  [[ ${TENURE_WORKERS:-1} =~ ^[1-9][0-9]?$ ]] || die "TENURE_WORKERS is a number from 1 to 99, not '$TENURE_WORKERS'"
  "$LOCAL_DIR/setup.sh" build services
  if stack_is_up; then
    say "Tenure is already up; its addresses are in $(env_files | tail -n 1)"
    return 0
  fi
  build_binaries
  trap 'failed_up' EXIT
  # Halves of a stack that crashed are started anew, all on new ports.
  stop_recorded
  rm -f "$RUN_DIR"/*.ports "$RUN_DIR"/*.address
  "$LOCAL_DIR/services.sh" up "$STATE"
  mkdir -p "$STATE/files"
  [[ -s $STATE/jwt-secret ]] || (umask 077 && random_hex 32 >"$STATE/jwt-secret")
  save_settings
  say 'applying the schema'
  (
    binary_environment sweeper 0 0
    "$BIN/tenure-sweeper" migrate
  ) >"$STATE/logs/migrate.log" 2>&1 || {
    tail_log "$STATE/logs/migrate.log"
    if grep -q 'with another content' "$STATE/logs/migrate.log"; then
      warn "the data in $STATE is of another version; 'make reset' removes it"
    fi
    exit 1
  }
  say "starting $(all_names | tr '\n' ' ')"
  for name in $(all_names); do start_binary "$name"; done
  for name in $(all_names); do await_binary "$name" || exit 1; done
  write_env
  trap - EXIT
  say "Tenure is up: source $(env_files | tail -n 1)"
}

failed_up() {
  trap - EXIT
  warn 'Tenure did not start; stopping what was started'
  down
  exit 1
}

write_env() {
  local -a files
  local file tenure=$BIN/tenure
  export TENURE_JWT_SECRET_FILE=$STATE/jwt-secret
  mapfile -t files < <(env_files)
  (
    umask 077
    {
      echo "# Addresses and tokens of the local stack; written by stack.sh."
      export_line TENURE_GATEWAY "$(grpc_of gateway)"
      export_line TENURE_DEAD_LETTER_ADMIN "$(grpc_of dead-letter-admin)"
      export_line TENURE_TOKEN "$("$tenure" token --user demo --role submitter --expires 7d)"
      export_line TENURE_OPERATOR_TOKEN \
        "$("$tenure" token --user operator --role operator --role admin --expires 7d)"
      export_line TENURE_JWT_SECRET_FILE "$TENURE_JWT_SECRET_FILE"
      export_line TENURE_FILES "$STATE/files"
      export_line TENURE_GATEWAY_HTTP "$(http_of gateway)"
      export_line TENURE_WORKER_HTTP "$(http_of worker-1)"
      export_line TENURE_SWEEPER_HTTP "$(http_of sweeper)"
      export_line TENURE_DEAD_LETTER_ADMIN_HTTP "$(http_of dead-letter-admin)"
      grep -E '^export (DATABASE_URL|AMQP_URL|REDIS_URL)=' "$STATE/services.env"
    } >"$STATE/env.draft"
    for file in "${files[@]}"; do
      cp "$STATE/env.draft" "$file.new"
      mv "$file.new" "$file"
    done
    rm -f "$STATE/env.draft"
  )
}

down() {
  local failed=no
  stop_recorded || failed=yes
  env_files | while read -r file; do rm -f "$file"; done
  "$LOCAL_DIR/services.sh" down "$STATE" || failed=yes
  [[ $failed == no ]] || die 'not everything could be stopped; see the messages above'
  say "everything that was started in $STATE is stopped"
}

status() {
  local name pid
  for name in $(load_settings_of_stack && all_names); do
    if pid=$(process_pid "$name"); then
      say "$name: running, pid $pid, $(http_of "$name")"
    else
      say "$name: stopped"
    fi
  done
  "$LOCAL_DIR/services.sh" status "$STATE"
}

# control VERB NAME: one binary (all workers where it is `worker`) of a stack that is up.
control() {
  local verb=$1 name pid
  local -a names
  [[ -e $STATE/services.env ]] || die 'the stack is not up: run make up'
  load_settings_of_stack
  mapfile -t names < <(chosen_names "$2")
  ((${#names[@]})) || exit 1
  case $verb in
    kill)
      for name in "${names[@]}"; do
        if pid=$(process_pid "$name"); then kill -s KILL "$pid"; fi
        wait_until 10 is_gone "$name" || die "$name could not be killed"
        forget_process "$name"
      done
      ;;
    stop) stop_binaries "${names[@]}" ;;
    start | restart)
      BIN=$(target_dir debug)
      [[ $verb == start ]] || stop_binaries "${names[@]}"
      for name in "${names[@]}"; do start_binary "$name"; done
      for name in "${names[@]}"; do await_binary "$name" || exit 1; done
      ;;
  esac
}

# usage: what the head of this file says.
usage() {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" | sed '/^shellcheck /d'
}

main() {
  local verb=${1:-} name='' folder
  case $verb in
    -h | --help | help)
      usage
      return 0
      ;;
    up | down | wipe | status) shift ;;
    start | stop | restart | kill)
      [[ $# -ge 2 ]] || die "usage: stack.sh $verb NAME [STATE]"
      name=$2
      shift 2
      ;;
    *) die 'usage: stack.sh up|down|wipe|status|start|stop|restart|kill … [STATE]' ;;
  esac
  folder=${1:-${TENURE_STATE:-.local/stack}}
  if [[ $verb != up ]] && ! state_exists "$folder"; then
    say "nothing was started in $folder"
    return 0
  fi
  use_state "$folder"
  mkdir -p "$STATE/logs"
  if [[ $verb != status ]]; then lock_state stack; fi
  if [[ -n $name ]]; then
    control "$verb" "$name"
  elif [[ $verb == wipe ]]; then
    down
    remove_state "$folder"
  else
    "$verb"
  fi
}

main "$@"
