-- Takes tokens from the bucket of a user. KEYS: the bucket. ARGV: tokens in a second, the most
-- that the bucket holds, how many are wanted. Answers with how many were given and, where
-- that is less, in how many microseconds there is another one. Redis's own clock decides;
-- one that goes back brings nothing.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local rate, burst, want = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(kept[1]), tonumber(kept[2])
if not tokens or not at then
    tokens, at = burst, now
end
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local given = math.max(0, math.min(want, math.floor(tokens)))
tokens = tokens - given
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 60000)
local wait = 0
if given < want then
    wait = math.ceil(math.max(0, 1 - tokens) / rate * 1000000)
end
return { given, wait }
