-- Core of the labmates function library: one call is one unit of work.
--
-- Theory of operation. A call loads what it needs (`hash`), checks, and changes only Lua tables;
-- `commit` writes everything at the end, after checking the type of every key it will touch. A
-- refusal is raised with `refuse` and leaves nothing behind, by construction. A reading call runs
-- the same code and never commits, so `should-run` and `claim` are one decision.
--
-- Keys of a goal, all under its hash tag P = "{goal_id}":
--   P:goal          hash    contract numbers, counters, champion, revision
--   P:item:<todo>   hash    one todo
--   P:ready:<class> zset    todos that a role may claim, score = rank
--   P:leases        zset    todo -> end of its lease, ms of the store's clock
--   P:agent:<id>    hash    roster entry, incarnation, claim
--   P:ops:<caller>  hash    the last operations of an agent or operator: id -> answer, slots, next
--   P:agents        set     ids of the roster
--   P:gate:<id>     hash    an operator gate
--   P:gates         zset    gate -> revision it was opened at
--   P:texts         hash    digest of a normalized text -> its hypothesis, or the idea that waits
--   P:hyps          hash    hypothesis id -> todo id
--   P:heads         hash    stream -> "<seq> <digest>"
--   P:events:<s>    stream  the truth; nothing is ever trimmed
--   P:wake:<role>   list    tokens that wake a waiting worker; never part of the truth
--
-- Not handled here: what the records say (opaque JSON made in Python; `contracts.guards` checks it
-- before the call, `labmates verify` on every replay) and who may use which stream (ACL).

local WAKE_LENGTH = 64
-- A caller's processes share these; a call is sent again for 8 s at most, so none is pushed out then.
local OPS_KEPT = 128

local function kv(args)
  local t = {}
  for n = 1, #args, 2 do
    t[args[n]] = args[n + 1]
  end
  return t
end

local function int(n)
  return string.format('%.0f', n)
end

local function refuse(code, missing, more)
  local answer = {'refused', code, missing or ''}
  for k, v in pairs(more or {}) do
    answer[#answer + 1] = k
    answer[#answer + 1] = v
  end
  error({refused = answer})
end

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- A hash, loaded once per call. An absent field reads as "".
local function hash(c, key)
  local h = c.hashes[key]
  if not h then
    local flat = redis.call('HGETALL', key)
    local old, new = {}, {}
    for n = 1, #flat, 2 do
      old[flat[n]] = flat[n + 1]
      new[flat[n]] = flat[n + 1]
    end
    setmetatable(new, {__index = function() return '' end})
    h = {old = old, v = new, exists = #flat > 0}
    c.hashes[key] = h
  end
  return h
end

local function num(h, field)
  return tonumber(h.v[field]) or 0
end

local function set(h, field, value)
  if type(value) == 'number' then
    value = int(value)
  end
  h.v[field] = value
end

local function add(h, field, by)
  h.v[field] = int(num(h, field) + by)
end

local function item_of(c, todo)
  local h = hash(c, c.p .. ':item:' .. todo)
  if not h.exists and h.v.state == '' then
    return nil
  end
  h.id = todo
  return h
end

local function agent_of(c, agent)
  return hash(c, c.p .. ':agent:' .. agent)
end

-- Sorted sets: changes are kept beside the stored set until the commit.
local function zset(c, key)
  local z = c.zsets[key]
  if not z then
    z = {}
    c.zsets[key] = z
  end
  return z
end

local function zput(c, key, member, score)
  zset(c, key)[member] = score
end

local function zdrop(c, key, member)
  zset(c, key)[member] = false
end

-- The first member by score, then by name.
local function zfirst(c, key)
  local changed = zset(c, key)
  local best, best_score
  local offset = 0
  repeat
    local page = redis.call('ZRANGE', key, offset, offset + 15, 'WITHSCORES')
    for n = 1, #page, 2 do
      if not best and changed[page[n]] == nil then
        best, best_score = page[n], tonumber(page[n + 1])
      end
    end
    offset = offset + 16
  until best or #page < 32
  for member, score in pairs(changed) do
    if score and (not best or score < best_score or (score == best_score and member < best)) then
      best, best_score = member, score
    end
  end
  return best
end

local function zcount(c, key)
  local n = redis.call('ZCARD', key)
  for member, score in pairs(zset(c, key)) do
    local there = redis.call('ZSCORE', key, member)
    if score and not there then
      n = n + 1
    elseif not score and there then
      n = n - 1
    end
  end
  return n
end

local function wake(c, role)
  c.wakes[role] = (c.wakes[role] or 0) + 1
end

local function wake_all(c)
  for _, role in ipairs({'curator', 'proposer', 'executor', 'evaluator'}) do
    wake(c, role)
  end
end

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
      expect_type(key, 'hash')
      changed[#changed + 1] = {key = key, put = put, drop = drop}
    end
  end
  for key, z in pairs(c.zsets) do
    if next(z) then
      expect_type(key, 'zset')
    end
  end
  for role in pairs(c.wakes) do
    expect_type(c.p .. ':wake:' .. role, 'list')
  end
  -- A call that changed nothing needs no memory: run again, it does no harm.
  local remembers = c.op and (#changed > 0 or #c.events > 0 or has_moved(c))
  if remembers then
    expect_type(c.op.key, 'hash')
  end
  local heads = {}
  if #c.events > 0 then
    expect_type(c.p .. ':heads', 'hash')
    for _, ev in ipairs(c.events) do
      expect_stream(c, ev.stream)
      if not heads[ev.stream] then
        local head = redis.call('HGET', c.p .. ':heads', ev.stream) or ('0 ' .. c.name .. ':' .. ev.stream)
        local seq, digest = string.match(head, '^(%d+) (.+)$')
        heads[ev.stream] = {seq = tonumber(seq), digest = digest}
      end
    end
  end
  -- From here on only writes, and none of them can fail on what was checked above.
  for _, ev in ipairs(c.events) do
    local head = heads[ev.stream]
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

-- Gives what `fn` answers, or its refusal; any other error goes on.
local function attempt(fn)
  local ok, answer = pcall(fn)
  if ok then
    return answer
  elseif type(answer) == 'table' and answer.refused then
    return answer.refused
  end
  error(answer)
end

-- Runs `fn(c, a)`; commits what it changed, once per operation id. A caller that says which library
-- it knows is served by that one only: it may have been replaced while the caller runs.
local function writing(fn)
  return function(keys, args)
    local a = kv(args)
    if a.lib and a.lib ~= LIBRARY_DIGEST then
      return {'refused', 'other_library', LIBRARY_DIGEST}
    end
    local c = open(keys)
    if not c then
      return NO_GOAL
    end
    local key, id = c.p .. ':ops:' .. (a.agent or ''), a.op or ''
    local known = id ~= '' and redis.call('HGET', key, 'op:' .. id)
    if known then
      return cjson.decode(known)
    end
    local answer = attempt(function()
      check_store(c, a)
      local found = fn(c, a)
      if id ~= '' then
        c.op = {key = key, id = id, answer = cjson.encode(found)}
      end
      commit(c)
      return found
    end)
    return answer
  end
end

local function reading(fn)
  return function(keys, args)
    local c = open(keys)
    return c and attempt(function() return fn(c, kv(args)) end) or NO_GOAL
  end
end
