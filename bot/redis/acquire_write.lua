-- Returns for how many milliseconds to wait. Redis runs a script atomically, and its clock is the same for all
-- processes.
local interval, blocked, queue, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ticket, priority, gap, expiry, progress = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', now - expiry)) do
  redis.call('ZREM', queue, expired)
  redis.call('ZREM', alive, expired)
end
if ARGV[2] ~= progress then
  redis.call('ZADD', queue, 'NX', priority * 1e13 + now, ticket)
  redis.call('ZADD', alive, now, ticket)
  redis.call('EXPIRE', queue, ARGV[6])
  redis.call('EXPIRE', alive, ARGV[6])
end
local wait = math.max(redis.call('PTTL', interval), redis.call('PTTL', blocked))
if wait > 0 then return wait end
local first = redis.call('ZRANGE', queue, 0, 0)[1]
if first and first ~= ticket then return tonumber(ARGV[7]) end
redis.call('ZREM', queue, ticket)
redis.call('ZREM', alive, ticket)
redis.call('SET', interval, ticket, 'PX', gap)
return 0
