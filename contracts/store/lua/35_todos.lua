-- Todos that back no hypothesis yet: the source, a person's ideas, the successor of an unmet cycle.

local SOURCES = {propose = 'source_empty', successor = 'no_follow_up', idea = 'no_follow_up'}

local function shut(c, i)
  set(i, 'state', 'closed')
  if i.v.kind == 'propose' then
    set(c.goal, 'source_open', '0')
  elseif i.v.kind == 'successor' then
    set(c.goal, 'successor', '')
  elseif i.v.kind == 'idea' then
    add(c.goal, 'ideas', -1)
    local texts = hash(c, c.p .. ':texts')
    if texts.v[i.v.text] == i.id then
      set(texts, i.v.text, '')
    end
  end
end

-- The todo gave a hypothesis. One that did for a successor says that its source has more.
local function used(c, i)
  if i.v.kind == 'propose' then
    return
  end
  shut(c, i)
  add(i, 'version', 1)
  if i.v.kind == 'successor' then
    set(c.goal, 'source_open', '1')
    local source = item_of(c, 'todo_propose')
    if source and source.v.state == 'closed' then
      set(source, 'state', 'open')
      add(source, 'version', 1)
      file(c, source)
    end
  end
end

-- An unmet target never ends in silence: the step that leaves nothing to do adds the todo that asks
-- once more, in the same call. `ref` is the event that ended the cycle.
local function succeed(c, role, a, i, ref)
  local g = c.goal
  if g.v.successors ~= '1' or g.v.baseline == '' or satisfied(c) or closed(c) or num(g, 'live') > 0
    or g.v.source_open == '1' or g.v.successor ~= '' or num(g, 'ideas') > 0 then
    return
  end
  add(g, 'successor_count', 1)
  local s = hash(c, c.p .. string.format(':item:todo_successor_%04d', num(g, 'successor_count')))
  s.id = string.format('todo_successor_%04d', num(g, 'successor_count'))
  for field, value in pairs({kind = 'successor', state = 'open', version = '1', rank = '0'}) do
    set(s, field, value)
  end
  set(g, 'successor', s.id)
  emit(c, role, 'successor_added', {writer = role, role = role, agent = a.agent, todo = s.id, version = 1,
    ref = ref}, '{"after_todo_id":"' .. i.id .. '","target_role":"proposer"}')
  file(c, s)
end

-- What a signature says it saw must be what is there.
local function check_seen(c, i, body)
  local ok, value = pcall(cjson.decode, body or '')
  local found = ok and type(value) == 'table' and value.signature
  local seen = type(found) == 'table' and tonumber(found.evidence_revision)
  if seen and seen ~= num(i, 'touched') then
    refuse('changed_since_read', 'the evidence at revision ' .. i.v.touched,
      {state = i.v.state, version = i.v.version, fence = i.v.fence, hyp = i.v.hyp,
        revision = int(num(c.goal, 'rev'))})
  end
end
