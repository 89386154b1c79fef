-- Reads only the oldest runs, which exceed the maximum. KEYS: runs, order. ARGV: id, value, start time,
-- maximum.
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('zadd', KEYS[2], ARGV[3], ARGV[1])
local many = redis.call('zcard', KEYS[2]) - tonumber(ARGV[4])
if many > 0 then
  local old = redis.call('zrange', KEYS[2], 0, many - 1)
  redis.call('zrem', KEYS[2], unpack(old))
  redis.call('hdel', KEYS[1], unpack(old))
end
