-- The commit: events get their place in the chain, and every change is written, all or nothing.

-- An event gets the next revision of the goal at once, its place in the chain at the commit. What
-- a body says is not the store's to judge, but a body that is no JSON object would stay for ever.
local function emit(c, stream, kind, fields, body)
  if body then
    local ok, value = pcall(cjson.decode, body)
    if not ok or type(value) ~= 'table' or string.sub(body, 1, 1) ~= '{' then
      refuse('bad_body', 'a JSON object as the body of ' .. kind)
    end
  end
  local rev = num(c.goal, 'rev') + 1
  set(c.goal, 'rev', rev)
  local flat = {'type', kind, 'rev', int(rev), 'at', int(c.now)}
  for _, name in ipairs({'writer', 'role', 'agent', 'inc', 'todo', 'hyp', 'attempt', 'from', 'to',
    'version', 'fence', 'ref', 'action', 'reason', 'gate', 'gaterev', 'until'}) do
    local value = fields[name]
    if value and value ~= '' then
      flat[#flat + 1] = name
      flat[#flat + 1] = type(value) == 'number' and int(value) or value
    end
  end
  flat[#flat + 1] = 'body'
  flat[#flat + 1] = body or '{}'
  c.events[#c.events + 1] = {stream = stream, fields = flat}
  return rev
end

local function chained(previous, seq, fields)
  local all = {}
  for n = 1, #fields do
    all[n] = fields[n]
  end
  all[#all + 1] = 'seq'
  all[#all + 1] = seq
  local parts = {previous}
  for n = 1, #all, 2 do
    parts[#parts + 1] = int(#all[n]) .. ':' .. all[n] .. '=' .. int(#all[n + 1]) .. ':' .. all[n + 1]
  end
  all[#all + 1] = 'digest'
  all[#all + 1] = redis.sha1hex(table.concat(parts, '|'))
  return all
end

local function expect_type(key, kind)
  local found = redis.call('TYPE', key)
  found = type(found) == 'table' and found.ok or found
  if found ~= kind and found ~= 'none' then
    error({refused = {'refused', 'wrong_type', key .. ' is a ' .. found .. ', not a ' .. kind}})
  end
end

local function has_moved(c)
  for _, z in pairs(c.zsets) do
    if next(z) then
      return true
    end
  end
  return false
end

-- Keep an operation's answer in the next slot of its caller's ring.
local function remember(op)
  local slot = int((tonumber(redis.call('HGET', op.key, 'next') or '0') or 0) % OPS_KEPT)
  local pushed_out = redis.call('HGET', op.key, 'slot:' .. slot)
  if pushed_out then
    redis.call('HDEL', op.key, 'op:' .. pushed_out)
  end
  redis.call('HSET', op.key, 'op:' .. op.id, op.answer, 'slot:' .. slot, op.id, 'next', int(slot + 1))
end

-- The caller's rights were judged on the keys it declared; a call appends to no other stream.
local function expect_stream(c, stream)
  local key = c.p .. ':events:' .. stream
  if not c.declared[key] then
    error({refused = {'refused', 'undeclared_key', 'the key ' .. key .. ' among those declared'}})
  end
  expect_type(key, 'stream')
end

-- What only a stranger puts behind a chain's last event is passed over, as far as that goes;
-- `labmates verify` names it.
local STRANGERS = 128

local function ends_at(key, head)
  for _, count in ipairs({1, STRANGERS}) do
    for _, entry in ipairs(redis.call('XREVRANGE', key, '+', '-', 'COUNT', int(count))) do
      local fields = kv(entry[2])
      if (fields.seq or '') .. ' ' .. (fields.digest or '') == head then
        return true
      end
    end
  end
  return false
end

-- Where the chains stand. The heads are derived state like any other, but a chain that went on from
-- a false one could never be mended: nothing is written until `doctor` has put them right.
local function chain_ends(c)
  expect_type(c.p .. ':heads', 'hash')
  local ends, sum = {}, 0
  local heads = kv(redis.call('HGETALL', c.p .. ':heads'))
  for _, head in pairs(heads) do
    sum = sum + (tonumber(string.match(head, '^(%d+) ')) or 0)
  end
  for _, ev in ipairs(c.events) do
    if not ends[ev.stream] then
      expect_stream(c, ev.stream)
      local key, head = c.p .. ':events:' .. ev.stream, heads[ev.stream]
      if redis.call('EXISTS', key) == (head and 0 or 1) or head and not ends_at(key, head) then
        error({refused = {'refused', 'head_differs', 'the head of ' .. key .. ' as its last event gives it'}})
      end
      local seq, digest = string.match(head or '0 ' .. c.name .. ':' .. ev.stream, '^(%d+) (.+)$')
      ends[ev.stream] = {seq = tonumber(seq), digest = digest}
    end
  end
  if sum ~= num(c.goal, 'rev') - #c.events then
    error({refused = {'refused', 'head_differs', 'as many events in the streams as the goal counts'}})
  end
  return ends
end

-- `unpack` and a sorted set take no more and nothing else.
local FIELDS = 1000

local function expect_writable(c, changed)
  for _, h in ipairs(changed) do
    expect_type(h.key, 'hash')
    if #h.put > FIELDS or #h.drop > FIELDS then
      error({refused = {'refused', 'bad_argument', 'at most ' .. int(FIELDS / 2) .. ' fields of ' .. h.key}})
    end
  end
  for key, z in pairs(c.zsets) do
    for member, score in pairs(z) do
      if score and not (tonumber(score) and math.abs(tonumber(score)) < math.huge) then
        error({refused = {'refused', 'bad_argument', 'a number as the rank of ' .. member}})
      end
    end
    if next(z) then
      expect_type(key, 'zset')
    end
  end
  for role in pairs(c.wakes) do
    expect_type(c.p .. ':wake:' .. role, 'list')
  end
  if #c.new_agents > 0 then
    expect_type(c.p .. ':agents', 'set')
  end
end

local function commit(c)
  local changed = {}
  for key, h in pairs(c.hashes) do
    local put, drop = {}, {}
    for field, value in pairs(h.v) do
      if value ~= '' and h.old[field] ~= value then
        put[#put + 1] = field
        put[#put + 1] = value
      elseif value == '' and h.old[field] then
        drop[#drop + 1] = field
      end
    end
    if #put > 0 or #drop > 0 then
      changed[#changed + 1] = {key = key, put = put, drop = drop}
    end
  end
  expect_writable(c, changed)
  -- A call that changed nothing needs no memory: run again, it does no harm.
  local remembers = c.op and (#changed > 0 or #c.events > 0 or has_moved(c))
  if remembers then
    expect_type(c.op.key, 'hash')
  end
  local ends = #c.events > 0 and chain_ends(c) or {}
  -- From here on only writes, and none of them can fail on what was checked above.
  c.writes = true
  for _, ev in ipairs(c.events) do
    local head = ends[ev.stream]
    head.seq = head.seq + 1
    local fields = chained(head.digest, int(head.seq), ev.fields)
    head.digest = fields[#fields]
    redis.call('XADD', c.p .. ':events:' .. ev.stream, '*', unpack(fields))
    redis.call('HSET', c.p .. ':heads', ev.stream, int(head.seq) .. ' ' .. head.digest)
  end
  for _, h in ipairs(changed) do
    if #h.put > 0 then
      redis.call('HSET', h.key, unpack(h.put))
    end
    if #h.drop > 0 then
      redis.call('HDEL', h.key, unpack(h.drop))
    end
  end
  for key, z in pairs(c.zsets) do
    for member, score in pairs(z) do
      if score then
        redis.call('ZADD', key, score, member)
      else
        redis.call('ZREM', key, member)
      end
    end
  end
  for _, agent in ipairs(c.new_agents) do
    redis.call('SADD', c.p .. ':agents', agent)
  end
  for role, n in pairs(c.wakes) do
    local key = c.p .. ':wake:' .. role
    for _ = 1, math.min(n, WAKE_LENGTH) do
      redis.call('RPUSH', key, '1')
    end
    redis.call('LTRIM', key, -WAKE_LENGTH, -1)
  end
  if remembers then
    remember(c.op)
  end
end

-- KEYS: the goal's hash first; then, in any order, the agent, the item, and each stream that the call
-- may append to. The item that a claim picks, ready sets, leases and wake lists are known here
-- alone; they carry the same hash tag.
local function open(keys)
  local prefix = string.match(keys[1] or '', '^(.*}):goal$')
  if not prefix then
    return nil
  end
  local declared = {}
  for _, key in ipairs(keys) do
    declared[key] = true
  end
  local c = {p = prefix, declared = declared, name = string.sub(prefix, 2, -2), now = now_ms(), hashes = {}, zsets = {},
    events = {}, wakes = {}, new_agents = {}}
  c.goal = hash(c, prefix .. ':goal')
  return c
end

local NO_GOAL = {'refused', 'undeclared_key', 'the hash of a goal as the first key'}

-- A goal that was restored is another incarnation: what a worker knows of the old one is void.
local function check_store(c, a)
  if a.store and a.store ~= '' and c.goal.exists and a.store ~= c.goal.v.store then
    refuse('store_changed', 'the store as it is since it was restored')
  end
end

-- Gives what `fn` answers, or its refusal. What Lua itself says before anything is written comes of
-- an argument that is missing or of another kind; an error of the server goes on.
local function attempt(c, fn)
  local ok, answer = pcall(fn)
  if ok then
    return answer
  elseif type(answer) == 'table' and answer.refused then
    return answer.refused
  elseif type(answer) == 'string' and not c.writes then
    return {'refused', 'bad_argument', 'what the function takes: ' .. answer}
  end
  error(answer)
end

-- Runs `fn(c, a)`; commits what it changed, once per operation id. A caller that says which library
-- it knows is served by that one only: it may have been replaced while the caller runs.
local function writing(fn)
  return function(keys, args)
    local c = open(keys)
    return c and attempt(c, function()
      local a = arguments(args)
      if a.lib and a.lib ~= LIBRARY_DIGEST then
        refuse('other_library', LIBRARY_DIGEST)
      end
      local key, id = c.p .. ':ops:' .. (a.agent or ''), a.op or ''
      local known = id ~= '' and redis.call('HGET', key, 'op:' .. id)
      if known then
        return cjson.decode(known)
      end
      check_store(c, a)
      local found = fn(c, a)
      if id ~= '' then
        c.op = {key = key, id = id, answer = cjson.encode(found)}
      end
      commit(c)
      return found
    end) or NO_GOAL
  end
end

local function reading(fn)
  return function(keys, args)
    local c = open(keys)
    return c and attempt(c, function() return fn(c, arguments(args)) end) or NO_GOAL
  end
end
