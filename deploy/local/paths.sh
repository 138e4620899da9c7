# shellcheck shell=bash
# Where this machine keeps the programs of the three services. Sourced, not run.
# Distributions differ, and some keep server programs off PATH.

# find_postgres: the folder with initdb and postgres, of the highest version.
find_postgres() {
  local folder
  while read -r folder; do
    if [[ -x $folder/initdb && -x $folder/postgres && -x $folder/psql ]]; then
      printf '%s\n' "$folder"
      return 0
    fi
  done < <(
    printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin | sort -rV
    dirname "$(readlink -f "$(command -v initdb || echo /)")"
  )
  return 1
}

# find_rabbitmq: the folder with RabbitMQ's own start scripts. The commands on PATH are
# often wrappers that insist on the machine's own instance and user.
find_rabbitmq() {
  local folder
  while read -r folder; do
    if [[ -x $folder/rabbitmq-server && -x $folder/rabbitmqctl && -e $folder/rabbitmq-env ]]; then
      printf '%s\n' "$folder"
      return 0
    fi
  done < <(
    printf '%s\n' /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin | sort -rV
    printf '%s\n' /usr/lib/rabbitmq/bin
    dirname "$(readlink -f "$(command -v rabbitmq-server || echo /)")"
  )
  return 1
}

# find_redis: the server program.
find_redis() { command -v redis-server; }

# find_epmd: Erlang's port mapper, which RabbitMQ needs.
find_epmd() {
  command -v epmd && return 0
  local file
  for file in /usr/lib/erlang/bin/epmd /usr/lib/erlang/erts-*/bin/epmd; do
    if [[ -x $file ]]; then
      printf '%s\n' "$file"
      return 0
    fi
  done
  return 1
}
