#!/usr/bin/env bash
# Private PostgreSQL, RabbitMQ and Redis on loopback.
# Usage: services.sh up [--s3] [STATE]
#        services.sh down|wipe|status [STATE]
#        services.sh service postgres|rabbitmq|redis|s3 start|stop|restart [STATE]
#
# With --s3 there is an S3-compatible store as well, which keeps its content in memory.
# STATE is a folder, by default $TENURE_STATE, else .local/stack. `up` writes
# STATE/services.env, whose lines a shell can source. `down` keeps the data, `wipe`
# removes it. Only processes that were started for STATE are ever touched.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$LOCAL_DIR/paths.sh"
source "$LOCAL_DIR/postgres.sh"
source "$LOCAL_DIR/rabbitmq.sh"
source "$LOCAL_DIR/redis.sh"
source "$LOCAL_DIR/s3.sh"

SERVICES=(postgres rabbitmq redis)
READY_SECONDS=90

# write_as USER MODE FILE: standard input becomes the file, never readable by others.
write_as() {
  local file=$3
  (umask 077 && cat >"$file.new")
  if is_root; then chown "$1:" "$file.new"; fi
  chmod "$2" "$file.new"
  mv -f "$file.new" "$file"
}

# load_settings: secrets and ports of this state folder. Secrets are made once, since
# the data folders hold them too. Ports are kept while they are free.
load_settings() {
  local secrets=$STATE/secrets ports=$STATE/ports
  if [[ ! -e $secrets ]]; then
    for name in PG_ADMIN_PASSWORD PG_PASSWORD AMQP_PASSWORD REDIS_PASSWORD ERLANG_COOKIE; do
      echo "$name=$(random_hex 20)"
    done | write_as "$ME" 0600 "$secrets"
    # Data without its secrets is of no use.
    rm -rf "$STATE/postgres" "$STATE/rabbitmq"
  fi
  # shellcheck source=/dev/null
  source "$secrets"
  if [[ ! -e $ports ]]; then new_ports; fi
  # shellcheck source=/dev/null
  source "$ports"
  if [[ -z ${S3_PORT:-} ]]; then
    # A folder from before there was such a service.
    S3_PORT=$(python3 "$LOCAL_DIR/net.py" ports 1)
    echo "S3_PORT=$S3_PORT" >>"$ports"
  fi
  if [[ -e $STATE/with-s3 ]]; then SERVICES+=(s3); fi
  NODE=tenure-$(printf '%s' "$STATE" | sha256sum | cut -c1-10)@localhost
}

new_ports() {
  local -a port
  mapfile -t port < <(python3 "$LOCAL_DIR/net.py" ports 6)
  ((${#port[@]} == 6)) || die 'no free ports'
  printf '%s\n' "PG_PORT=${port[0]}" "AMQP_PORT=${port[1]}" "DIST_PORT=${port[2]}" \
    "EPMD_PORT=${port[3]}" "REDIS_PORT=${port[4]}" "S3_PORT=${port[5]}" >"$STATE/ports.new"
  mv "$STATE/ports.new" "$STATE/ports"
  # shellcheck source=/dev/null
  source "$STATE/ports"
}

all_running() {
  local service
  for service in "${SERVICES[@]}"; do is_running "$service" || return 1; done
}

# settled SERVICE: there is something to report, good or bad.
settled() { is_gone "$1" || "$1_is_ready"; }

# start_service NAME: returns when the service answers; says why where it doesn't.
start_service() {
  if is_running "$1" && "$1_is_ready"; then return 0; fi
  is_running "$1" || "$1_start"
  wait_until "$READY_SECONDS" settled "$1" || warn "$1 does not answer after $READY_SECONDS s"
  if is_gone "$1" || ! "$1_is_ready"; then
    warn "$1 did not start"
    tail_log "$STATE/logs/$1.log"
    return 1
  fi
  "$1_complete"
}

write_environment() {
  {
    echo '# Addresses of the private services; written by services.sh.'
    export_line DATABASE_URL "postgres://tenure:$PG_PASSWORD@127.0.0.1:$PG_PORT/tenure"
    export_line AMQP_URL "amqp://tenure:$AMQP_PASSWORD@127.0.0.1:$AMQP_PORT/tenure"
    export_line REDIS_URL "redis://default:$REDIS_PASSWORD@127.0.0.1:$REDIS_PORT/0"
    export_line TENURE_PG_ADMIN_URL \
      "postgres://postgres:$PG_ADMIN_PASSWORD@127.0.0.1:$PG_PORT/postgres"
    export_line TENURE_PSQL "$PG_BIN/psql"
    export_line TENURE_PG_PID "$(process_pid postgres)"
    export_line TENURE_PG_PID_FILE "$RUN_DIR/postgres.pid"
    export_line TENURE_RABBITMQ_PID_FILE "$RUN_DIR/rabbitmq.pid"
    export_line TENURE_RABBITMQCTL "$STATE/rabbitmqctl"
    export_line TENURE_SERVICE_CONTROL "$STATE/service"
    if [[ -e $STATE/with-s3 ]]; then
      export_line TENURE_TEST_S3 "http://127.0.0.1:$S3_PORT"
      export_line TENURE_TEST_S3_BUCKET "$S3_BUCKET"
    fi
  } | write_as "$ME" 0600 "$STATE/services.env"
}

# The wrapper by which a test stops and starts one service on its own port and data.
write_control() {
  {
    echo '#!/bin/sh'
    echo '# service postgres|rabbitmq|redis|s3 start|stop|restart; written by services.sh.'
    printf "exec '%s' service \"\$1\" \"\$2\" '%s'\n" "${LOCAL_DIR//\'/\'\\\'\'}/services.sh" "$STATE"
  } >"$STATE/service.new"
  chmod 0755 "$STATE/service.new"
  mv "$STATE/service.new" "$STATE/service"
}

up() {
  local service pid failed=no
  local -a jobs=()
  if all_running; then
    say "services in $STATE are already up"
  else
    # Nothing of ours runs but what has a pid file: the rest is a crash's leftover.
    if ! is_running postgres && ! is_running rabbitmq && ! is_running redis && ! is_running s3; then
      end_process epmd 5 TERM
      end_marked
      python3 "$LOCAL_DIR/net.py" free "$PG_PORT" "$AMQP_PORT" "$DIST_PORT" "$EPMD_PORT" "$REDIS_PORT" "$S3_PORT" ||
        new_ports
    fi
    say "starting ${SERVICES[*]} in $STATE"
  fi
  for service in "${SERVICES[@]}"; do
    "${service}_prepare"
    start_service "$service" &
    jobs+=($!)
  done
  for pid in "${jobs[@]}"; do wait "$pid" || failed=yes; done
  if [[ $failed == yes ]]; then
    down
    die 'the services did not start; see the messages above'
  fi
  write_environment
  write_control
}

# down: what has a pid file in its orderly way, then whatever a crash has left.
down() {
  local service pid failed=no
  local -a jobs=()
  if ! all_down; then say "stopping the services in $STATE"; fi
  for service in "${SERVICES[@]}"; do
    "${service}_stop" &
    jobs+=($!)
  done
  for pid in "${jobs[@]}"; do wait "$pid" || failed=yes; done
  end_process epmd 5 TERM
  end_marked
  rm -f "$STATE/services.env"
  [[ $failed == no ]] || die 'a service could not be stopped; see the messages above'
}

all_down() {
  local service
  for service in "${SERVICES[@]}" epmd; do is_gone "$service" || return 1; done
}

status() {
  local service pid
  for service in "${SERVICES[@]}"; do
    if pid=$(process_pid "$service"); then
      say "$service: running, pid $pid"
    else
      say "$service: stopped"
    fi
  done
}

control() {
  local service=$1 verb=$2
  [[ " ${SERVICES[*]} " == *" $service "* ]] || die "there is no service '$service'"
  case $verb in
    stop) "${service}_stop" ;;
    start | restart)
      "${service}_prepare"
      [[ $verb == start ]] || "${service}_stop"
      start_service "$service" || exit 1
      ;;
    *) die "a service can start, stop or restart, not '$verb'" ;;
  esac
}

main() {
  local verb=${1:-} service='' action='' folder name with_s3=no
  case $verb in
    up | down | wipe | status) shift ;;
    service)
      [[ $# -ge 3 ]] || die 'usage: services.sh service NAME start|stop|restart [STATE]'
      service=$2 action=$3
      shift 3
      ;;
    *) die 'usage: services.sh up|down|wipe|status|service … [STATE]' ;;
  esac
  if [[ $verb == up && ${1:-} == --s3 ]]; then
    with_s3=yes
    shift
  fi
  folder=${1:-${TENURE_STATE:-.local/stack}}
  if [[ $verb != up ]] && ! state_exists "$folder"; then
    say "nothing was started in $folder"
    return 0
  fi
  use_state "$folder"
  if [[ $verb != status ]]; then lock_state services; fi
  if [[ $verb == up ]]; then "$LOCAL_DIR/setup.sh" services; fi
  mkdir -p "$STATE/logs"
  if [[ $with_s3 == yes ]]; then touch "$STATE/with-s3"; fi
  load_settings
  for name in "${SERVICES[@]}"; do "${name}_adopt"; done
  case $verb in
    service) control "$service" "$action" ;;
    wipe)
      down
      remove_state "$folder"
      ;;
    *) "$verb" ;;
  esac
}

main "$@"
