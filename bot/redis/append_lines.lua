-- Appends lines to a stream. Returns the length of the stream, -1 if another writer holds the lease, or -2 if
-- nobody holds the lease. KEYS: lease, stream, unarchived. ARGV: token, lease in ms, number of the first line,
-- run ("" if it is not archived), lines.
local holder = redis.call('get', KEYS[1])
if not holder then return -2 end
if holder ~= ARGV[1] then return -1 end
redis.call('pexpire', KEYS[1], ARGV[2])
local there = redis.call('xlen', KEYS[2])
if there == tonumber(ARGV[3]) then
  for number = 5, #ARGV do redis.call('xadd', KEYS[2], '*', 'entry', ARGV[number]) end
  if #ARGV > 4 then
    redis.call('persist', KEYS[2])
    if ARGV[4] ~= '' then redis.call('zadd', KEYS[3], redis.call('time')[1], ARGV[4]) end
  end
end
return redis.call('xlen', KEYS[2])
