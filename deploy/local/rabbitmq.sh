# shellcheck shell=bash
# A private RabbitMQ, with a port mapper of its own, in a state folder. Sourced by
# services.sh. Uses: STATE, AMQP_PORT, DIST_PORT, EPMD_PORT, AMQP_PASSWORD, NODE.

rabbitmq_user() { if is_root; then echo rabbitmq; else echo "$ME"; fi; }

# rabbitmq_environment: fills ENVIRONMENT. Everything that RabbitMQ would look for in
# the machine's own folders is named here, so that the two never meet.
rabbitmq_environment() {
  local home=$STATE/rabbitmq
  ENVIRONMENT=(
    "PATH=$PATH" "HOME=$home" "LC_ALL=$LC_ALL" "TENURE_INSTANCE=$STATE"
    "ERL_EPMD_ADDRESS=127.0.0.1" "ERL_EPMD_PORT=$EPMD_PORT"
    "RABBITMQ_NODENAME=$NODE"
    "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1" "RABBITMQ_NODE_PORT=$AMQP_PORT"
    "RABBITMQ_DIST_PORT=$DIST_PORT"
    "RABBITMQ_MNESIA_BASE=$home/data" "RABBITMQ_LOG_BASE=$home/log"
    "RABBITMQ_SCHEMA_DIR=$home/schema" "RABBITMQ_GENERATED_CONFIG_DIR=$home/config"
    "RABBITMQ_PID_FILE=$home/pid"
    "RABBITMQ_ENABLED_PLUGINS_FILE=$home/enabled_plugins"
    "RABBITMQ_CONF_ENV_FILE=/dev/null"
    "RABBITMQ_CONFIG_FILE=$home/rabbitmq.conf"
    "RABBITMQ_ADVANCED_CONFIG_FILE=$home/advanced.config"
    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}"
    # The commands open a port as well; the default range has room for eleven.
    "RABBITMQ_CTL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}"
    "RABBITMQ_CTL_DIST_PORT_MIN=18000" "RABBITMQ_CTL_DIST_PORT_MAX=18999"
    # Makes the start script replace itself by the server, so that the pid is the server's.
    "RUNNING_UNDER_SYSTEMD=true"
  )
}

rabbitmq_prepare() {
  local user home=$STATE/rabbitmq
  user=$(rabbitmq_user)
  RABBITMQ_BIN=$(find_rabbitmq) || die 'RabbitMQ is missing: run deploy/local/setup.sh'
  EPMD=$(find_epmd) || die "Erlang's epmd is missing: run deploy/local/setup.sh"
  mkdir -p "$home"
  chmod 0700 "$home"
  is_root && chown "$user:" "$home"
  [[ -e $home/.erlang.cookie ]] ||
    printf '%s' "$ERLANG_COOKIE" | write_as "$user" 0400 "$home/.erlang.cookie"
  printf '[].\n' | write_as "$user" 0600 "$home/enabled_plugins"
  printf '[].\n' | write_as "$user" 0600 "$home/advanced.config"
  # Read once, by the first start on an empty data folder: there is never a guest.
  write_as "$user" 0600 "$home/rabbitmq.conf" <<CONF
default_user = tenure
default_pass = $AMQP_PASSWORD
default_vhost = tenure
default_user_tags.administrator = true
default_permissions.configure = .*
default_permissions.read = .*
default_permissions.write = .*
log.console = false
log.file.level = info
CONF
  rabbitmq_wrapper
}

# The wrapper lets people and tests use rabbitmqctl on this node and no other.
rabbitmq_wrapper() {
  local file=$STATE/rabbitmqctl drop='' entry
  rabbitmq_environment
  if is_root; then
    drop="setpriv --reuid rabbitmq --regid $(id -g rabbitmq) --init-groups -- "
  fi
  {
    echo '#!/bin/sh'
    echo "# rabbitmqctl of the node $NODE; written by services.sh."
    echo 'cd / || exit'
    printf 'exec %senv -i' "$drop"
    for entry in "${ENVIRONMENT[@]}"; do
      # A command that hangs must not count as a leftover of the stack.
      [[ $entry == TENURE_INSTANCE=* ]] || printf " '%s'" "$entry"
    done
    printf " '%s' \"\$@\"\n" "$RABBITMQ_BIN/rabbitmqctl"
  } >"$file.new"
  chmod 0755 "$file.new"
  mv "$file.new" "$file"
}

# It works in no folder of its own, but its environment keeps our mark.
rabbitmq_adopt() {
  local pid
  if is_running rabbitmq || ! pid=$(head -n 1 "$STATE/rabbitmq/pid" 2>/dev/null); then return 0; fi
  if is_marked "$pid"; then record_process rabbitmq "$pid"; fi
}

rabbitmq_start() {
  local user
  user=$(rabbitmq_user)
  rabbitmq_environment
  if is_gone epmd; then
    spawn epmd "$user" "$STATE/logs/epmd.log" \
      env -i "${ENVIRONMENT[@]}" "$EPMD" -address 127.0.0.1 -port "$EPMD_PORT"
  fi
  (
    cd /
    spawn rabbitmq "$user" "$STATE/logs/rabbitmq.log" \
      env -i "${ENVIRONMENT[@]}" "$RABBITMQ_BIN/rabbitmq-server"
  )
}

rabbitmq_is_ready() { python3 "$LOCAL_DIR/net.py" amqp "$AMQP_PORT"; }

rabbitmq_complete() { :; }

# SIGTERM is RabbitMQ's orderly stop. The port mapper stays for the next start.
rabbitmq_stop() { end_process rabbitmq 30 TERM; }
