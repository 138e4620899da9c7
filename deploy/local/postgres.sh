# shellcheck shell=bash
# A private PostgreSQL in a state folder. Sourced by services.sh.
# Uses: STATE, STATE_NAME, PG_PORT, PG_ADMIN_PASSWORD, PG_PASSWORD.

# PostgreSQL refuses to run as root.
postgres_user() { if is_root; then echo postgres; else echo "$ME"; fi; }

postgres_data() { echo "$STATE/postgres/data"; }

# postgres_psql DATABASE: runs the SQL on standard input as superuser.
postgres_psql() {
  PGPASSWORD=$PG_ADMIN_PASSWORD PGCONNECT_TIMEOUT=5 \
    "$PG_BIN/psql" -X -q -At -v ON_ERROR_STOP=1 \
    -h 127.0.0.1 -p "$PG_PORT" -U postgres -d "$1"
}

postgres_prepare() {
  local user data
  user=$(postgres_user)
  data=$(postgres_data)
  PG_BIN=$(find_postgres) || die 'PostgreSQL is missing: run deploy/local/setup.sh'
  mkdir -p "$STATE/postgres"
  chmod 0700 "$STATE/postgres"
  is_root && chown "$user:" "$STATE/postgres"
  # An initdb that was killed leaves a folder that no server can use.
  if [[ ! -e $STATE/postgres/ready ]]; then
    rm -rf "$data"
    printf '%s\n' "$PG_ADMIN_PASSWORD" | write_as "$user" 0400 "$STATE/postgres/password"
    as_user "$user" "$PG_BIN/initdb" -D "$data" -U postgres --auth=scram-sha-256 \
      --pwfile="$STATE/postgres/password" --encoding=UTF8 --locale=C.UTF-8 --no-instructions \
      >"$STATE/logs/initdb.log" 2>&1 ||
      { tail_log "$STATE/logs/initdb.log"; return 1; }
    rm -f "$STATE/postgres/password"
    echo "include_if_exists 'tenure.conf'" >>"$data/postgresql.conf"
  fi
  postgres_settings | write_as "$user" 0600 "$data/tenure.conf"
  touch "$STATE/postgres/ready"
}

postgres_settings() {
  # Durability is what the product promises, so what people try and measure has it.
  # Tests kill processes, not the machine: there it would only cost time.
  local fsync=on shared=256MB wal=1GB
  case $STATE_NAME in
    test*) fsync=off ;;
    bench*) shared=1GB wal=4GB ;;
  esac
  cat <<CONF
listen_addresses = '127.0.0.1'
port = $PG_PORT
unix_socket_directories = ''
max_connections = 300
shared_buffers = $shared
max_wal_size = $wal
fsync = $fsync
synchronous_commit = on
full_page_writes = $fsync
timezone = 'UTC'
log_timezone = 'UTC'
logging_collector = off
log_line_prefix = '%m [%p] %d '
log_min_duration_statement = 2s
CONF
}

postgres_adopt() { adopt postgres "$(postgres_data)/postmaster.pid" "$(postgres_data)"; }

postgres_start() {
  local user data
  user=$(postgres_user)
  data=$(postgres_data)
  # What a crash left may name a pid that is a stranger's by now, for whom PostgreSQL
  # would refuse to start. A server of this folder would have been adopted.
  rm -f "$data/postmaster.pid"
  # Children of a killed server hold its memory for a moment longer.
  wait_until 20 postgres_folder_is_idle || die "processes still work in $data"
  spawn postgres "$user" "$STATE/logs/postgres.log" "$PG_BIN/postgres" -D "$data"
}

postgres_folder_is_idle() {
  local folder
  for folder in /proc/[0-9]*; do
    [[ $(readlink "$folder/cwd" 2>/dev/null) != "$(postgres_data)" ]] || return 1
  done
}

postgres_is_ready() { postgres_psql postgres <<<'select 1' >/dev/null 2>&1; }

# postgres_complete: role and database of the application, once.
postgres_complete() {
  postgres_psql postgres <<SQL
select format('create role tenure login createdb password %L', '$PG_PASSWORD')
 where not exists (select from pg_roles where rolname = 'tenure') \gexec
select 'create database tenure owner tenure'
 where not exists (select from pg_database where datname = 'tenure') \gexec
SQL
}

# SIGINT is PostgreSQL's fast stop: it ends sessions and leaves a clean data folder.
postgres_stop() { end_process postgres 30 INT QUIT; }
