-- Notes that a gateway is there, and counts those that were lately. KEYS: the set. ARGV: the
-- gateway, and for how many milliseconds one counts.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local keep = tonumber(ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - keep)
redis.call('PEXPIRE', KEYS[1], keep)
return redis.call('ZCARD', KEYS[1])
