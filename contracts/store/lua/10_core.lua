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

-- Every sequence of more than one byte that UTF-8 allows; one that is none would stop each reader.
local SEQUENCES = {'[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]', '\237[\128-\159][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]', '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]'}

local function is_text(value)
  for _, sequence in ipairs(SEQUENCES) do
    if not string.find(value, '[\128-\255]') then
      return true
    end
    value = string.gsub(value, sequence, '')
  end
  return not string.find(value, '[\128-\255]')
end

local function kv(flat)
  local t = {}
  for n = 1, #flat, 2 do
    t[flat[n]] = flat[n + 1]
  end
  return t
end

-- The arguments by name; one that may be left out reads as nil.
local function arguments(args)
  if #args % 2 == 1 then
    refuse('bad_argument', 'a value of ' .. args[#args])
  end
  for n = 1, #args do
    if not is_text(args[n]) then
      refuse('bad_text', 'UTF-8 as ' .. (n % 2 == 0 and args[n - 1] or 'the name of an argument'))
    end
  end
  return kv(args)
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
