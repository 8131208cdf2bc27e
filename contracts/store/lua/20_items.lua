-- Items: where one is filed, how a claim ends, how an item moves. Nothing here checks permission.

local TERMINAL = {promoted = true, retired = true, closed = true}
local ROLE_OF_CLASS = {
  confirm = 'executor', retry = 'executor', start = 'executor',
  baseline = 'evaluator', cosign_evaluator = 'evaluator', sign = 'evaluator', holdout = 'evaluator',
  classify = 'evaluator', evaluate = 'evaluator',
  cosign_proposer = 'proposer', settle = 'proposer', propose = 'proposer', idea = 'proposer',
  successor = 'proposer',
  cosign_curator = 'curator',
}

local function ready_key(c, class)
  return c.p .. ':ready:' .. class
end

-- Goal-wide conditions ------------------------------------------------------------------------

-- The target is met by its value, and by as many held-out improvements as the contract asks for.
local function satisfied(c)
  return c.goal.v.target_met == '1' and num(c.goal, 'improvements') >= num(c.goal, 'improvements_required')
end

-- A person refused the baseline: nothing can be compared with it, so no attempt begins any more.
local function baseless(c)
  local todo = c.goal.v.baseline == '' and item_of(c, 'todo_baseline')
  return todo and todo.v.state == 'closed'
end

local function closed(c)
  local g = c.goal
  return baseless(c) or (g.v.stop == 'target' and satisfied(c))
    or num(g, 'attempts_used') >= num(g, 'max_attempts')
    or (num(g, 'deadline') > 0 and c.now >= num(g, 'deadline'))
    or (num(g, 'max_cost') > 0 and num(g, 'cost') >= num(g, 'max_cost'))
end

local function phase(c)
  local g = c.goal
  if g.v.status ~= 'approved' then
    return 'unapproved'
  end
  if g.v.baseline == '' then
    return baseless(c) and num(g, 'live') == 0 and 'escalate' or 'baseline'
  end
  local empty = g.v.source_open ~= '1' and g.v.successor == '' and num(g, 'ideas') == 0
  if num(g, 'live') == 0 and (closed(c) or empty) then
    return satisfied(c) and 'done' or 'escalate'
  end
  return 'iterate'
end

local function room(c)
  local g = c.goal
  return not closed(c) and num(g, 'lanes') < num(g, 'max_parallel')
    and num(g, 'attempts_used') + num(g, 'attempts_reserved') < num(g, 'max_attempts')
end

-- Items ---------------------------------------------------------------------------------------

-- A signature is void when the item was touched since, or, for a promotion, the champion moved.
local function signed(c, i)
  if i.v.signed_to == '' or i.v.signed_touched ~= i.v.touched then
    return ''
  end
  if i.v.signed_to == 'promoted' and num(c.goal, 'champion_rev') > num(i, 'signed_rev') then
    return ''
  end
  return i.v.signed_to
end

-- The ready set an item belongs to: a function of the item (and its signatures' validity) alone.
local function class_of(c, i)
  local state = i.v.state
  if i.v.claimed_by ~= '' or TERMINAL[state] or state == 'frontier_selected'
    or state == 'attempt_running' then
    return ''
  end
  if num(i, 'gates') > 0 then
    return 'blocked'
  end
  if i.v.kind ~= 'hypothesis' then
    return i.v.kind
  end
  local doomed = i.v.doomed == '1'
  local to = signed(c, i)
  if to == 'retired' then
    return i.v.signed_role == 'evaluator' and 'cosign_proposer' or 'cosign_evaluator'
  end
  if to == 'promoted' then
    return 'cosign_curator'
  end
  if state == 'hypothesis_proposed' then
    return doomed and 'settle' or 'start'
  end
  if state == 'needs_retry' then
    return (doomed or num(i, 'retries') > num(c.goal, 'retries')) and 'settle' or 'retry'
  end
  if state == 'contradicted' then
    return 'settle'
  end
  if state == 'evidence_recorded' then
    return 'evaluate'
  end
  if state == 'evaluated' then
    return 'classify'
  end
  if state == 'supported' then
    return (i.v.wants_confirm ~= '' and not doomed) and 'confirm' or 'holdout'
  end
  if state == 'promotion_gate' then
    return 'sign'
  end
  return ''
end

local function file(c, i)
  -- A supported item whose base is no longer the champion must be measured again on the new one.
  if i.v.state == 'supported' and i.v.claimed_by == '' and i.v.wants_confirm == ''
    and num(i, 'base_rev') ~= num(c.goal, 'champion_rev') then
    set(i, 'wants_confirm', 'champion_moved')
  end
  local class = class_of(c, i)
  if class ~= i.v.class then
    if i.v.class ~= '' then
      zdrop(c, ready_key(c, i.v.class), i.id)
    end
    set(i, 'class', class)
  end
  if class ~= '' then
    zput(c, ready_key(c, class), i.id, tonumber(i.v.rank) or 0)
    if ROLE_OF_CLASS[class] then
      wake(c, ROLE_OF_CLASS[class])
    end
  end
end

-- The claim ends. The fence stays as the number of the last claim, and no claim matches it.
local function free(c, i)
  zdrop(c, c.p .. ':leases', i.id)
  if i.v.claimed_by ~= '' then
    local holder = agent_of(c, i.v.claimed_by)
    if holder.v.claim == i.id then
      set(holder, 'claim', '')
    end
  end
  for _, field in ipairs({'claimed_by', 'claim_role', 'incarnation', 'action'}) do
    set(i, field, '')
  end
end

local function unsign(i)
  for _, field in ipairs({'signed_to', 'signed_role', 'signed_by', 'signed_rev', 'signed_touched', 'decided_rev',
    'decided_value'}) do
    set(i, field, '')
  end
end

-- Evidence, evaluation, gates, assessments: whatever names them makes signatures void.
local function touch(i, rev)
  set(i, 'touched', rev)
  unsign(i)
end

local function move(i, to)
  set(i, 'state', to)
  add(i, 'version', 1)
end

-- An attempt holds a lane from its reservation until it is evaluated, given up or given back.
local function refund(c, i)
  if i.v.reserved == '1' then
    set(i, 'reserved', '')
    add(c.goal, 'attempts_reserved', -1)
    add(c.goal, 'lanes', -1)
    wake(c, 'executor')
  end
end

local function leave_lane(c, i)
  if i.v.in_lane == '1' then
    set(i, 'in_lane', '')
    add(c.goal, 'lanes', -1)
    wake(c, 'executor')
  end
end

local function end_item(c, i, rev)
  leave_lane(c, i)
  set(i, 'ended_rev', rev)
  add(c.goal, 'live', -1)
  if phase(c) == 'done' or phase(c) == 'escalate' then
    wake_all(c)
  end
end

local function open_gate(c, stream, fields, i, kind, body)
  local gate = string.format('gate_%04d', num(c.goal, 'gate_count') + 1)
  add(c.goal, 'gate_count', 1)
  fields.todo, fields.hyp, fields.gate = i.id, i.v.hyp, gate
  local rev = emit(c, stream, 'gate_opened', fields, body)
  local h = hash(c, c.p .. ':gate:' .. gate)
  set(h, 'status', 'open')
  set(h, 'kind', kind)
  set(h, 'todo', i.id)
  set(h, 'opened_rev', rev)
  set(h, 'opened_at', c.now)
  set(h, 'body', body)
  zput(c, c.p .. ':gates', gate, rev)
  add(i, 'gates', 1)
  set(i, 'gate', gate)
  if i.v.state ~= 'attempt_running' then
    leave_lane(c, i)
  end
  touch(i, rev)
  return gate
end

local POISON = {after_no = 'the item is retired with this decision as evidence',
  after_yes = 'the item may be tried again', kind = 'poison',
  meanwhile = 'nobody can take the item; the others go on', schema_version = 'operator_gate_v0'}

-- A claim ended without its step. What is known of it stays until a step of the item ends well; the
-- gate of kind poison shows it. The holder is read before the claim is freed.
local function note_recovery(i, rev, reason, detail)
  local list = i.v.recoveries == '' and {} or cjson.decode(i.v.recoveries)
  add(i, 'lapses', 1)
  local found = {revision = rev, reason = reason, agent_id = i.v.claimed_by, role = i.v.claim_role,
    incarnation = i.v.incarnation, fence = num(i, 'fence')}
  if i.v.attempt ~= '' then
    found.attempt = num(i, 'attempt')
  end
  if detail and detail ~= '' then
    found.detail = string.sub(detail, 1, 600)
  end
  list[#list + 1] = found
  set(i, 'recoveries', cjson.encode(list))
end

-- A step of the item ended well, or a person decided: the count begins anew.
local function recovered(i)
  set(i, 'lapses', '')
  set(i, 'recoveries', '')
end

-- An item that costs too many recoveries in a row waits for a person, in whatever state.
local function quarantine(c, i, stream, fields)
  local lapses = num(i, 'lapses')
  if lapses >= num(c.goal, 'max_lapses') and num(i, 'gates') == 0 and not TERMINAL[i.v.state] then
    local gate = {question = 'This item has cost ' .. int(lapses) .. ' recoveries in a row. Try it again?',
      recoveries = cjson.decode(i.v.recoveries)}
    for name, text in pairs(POISON) do
      gate[name] = text
    end
    if i.v.evidence_rev ~= '' then
      gate.evidence_revision = num(i, 'evidence_rev')
    end
    open_gate(c, stream, {writer = 'quota', role = fields.role, agent = fields.agent}, i, 'poison',
      cjson.encode({gate = gate}))
  end
end

-- A claim ends without its step: by its lease, by its holder, or by a new incarnation.
local function give_back(c, i, kind, reason, counts, by)
  local from, to = i.v.state, ''
  local fields = {writer = 'quota', role = by.role, agent = by.agent, todo = i.id, hyp = i.v.hyp,
    attempt = i.v.attempt, fence = i.v.fence, reason = reason}
  if from == 'frontier_selected' then
    to = i.v.selected_from
    set(i, 'selected_from', '')
  elseif from == 'attempt_running' then
    to = 'needs_retry'
    add(i, 'retries', 1)
    leave_lane(c, i)
  end
  if to ~= '' then
    move(i, to)
    fields.from, fields.to, fields.version = from, to, i.v.version
  end
  refund(c, i)
  local rev = emit(c, by.stream or by.role, kind, fields)
  if counts then
    note_recovery(i, rev, reason, by.detail)
  end
  if from == 'attempt_running' then
    touch(i, rev)
  end
  free(c, i)
  quarantine(c, i, by.stream or by.role, by)
  file(c, i)
end

-- A gate was opened on an item: a claim whose step cannot be delivered any more ends.
local function interrupt(c, i, by)
  if i.v.claimed_by ~= '' and i.v.state ~= 'attempt_running' then
    give_back(c, i, 'released', 'blocked_by_gate', false, by)
  end
  file(c, i)
end

local function lapse_due(c, by)
  local due = redis.call('ZRANGEBYSCORE', c.p .. ':leases', '-inf', int(c.now), 'LIMIT', 0, 16)
  for _, todo in ipairs(due) do
    local i = item_of(c, todo)
    if zset(c, c.p .. ':leases')[todo] == nil and i and i.v.claimed_by ~= '' then
      give_back(c, i, 'lease_expired', 'lease_expired', true, by)
    end
  end
end
