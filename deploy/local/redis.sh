# shellcheck shell=bash
# A private Redis in a state folder. Sourced by services.sh.
# Uses: STATE, REDIS_PORT, REDIS_PASSWORD.

redis_user() { if is_root && user_exists redis; then echo redis; else echo "$ME"; fi; }

redis_prepare() {
  local user
  user=$(redis_user)
  REDIS_BIN=$(find_redis) || die 'Redis is missing: run deploy/local/setup.sh'
  mkdir -p "$STATE/redis"
  chmod 0700 "$STATE/redis"
  is_root && chown "$user:" "$STATE/redis"
  # Only a cache: nothing is kept on disk, and old entries make room.
  write_as "$user" 0600 "$STATE/redis/redis.conf" <<CONF
bind 127.0.0.1
port $REDIS_PORT
requirepass $REDIS_PASSWORD
dir $STATE/redis
pidfile $STATE/redis/pid
save ""
appendonly no
maxmemory 256mb
maxmemory-policy allkeys-lru
daemonize no
CONF
}

redis_adopt() { adopt redis "$STATE/redis/pid" "$STATE/redis"; }

redis_start() {
  rm -f "$STATE/redis/pid"
  spawn redis "$(redis_user)" "$STATE/logs/redis.log" "$REDIS_BIN" "$STATE/redis/redis.conf"
}

redis_is_ready() {
  [[ $(REDISCLI_AUTH=$REDIS_PASSWORD redis-cli -h 127.0.0.1 -p "$REDIS_PORT" ping 2>/dev/null) == PONG ]]
}

redis_complete() { :; }

redis_stop() { end_process redis 10 TERM; }
