-- The decision: what an agent may take next. One function, with effect (`claim`) and without.

local ALLOWED = {
  baseline = 'measure_baseline', propose = 'propose', idea = 'propose', successor = 'propose',
  settle = 'repropose_or_retire',
  cosign_proposer = 'cosign', cosign_evaluator = 'cosign', cosign_curator = 'cosign',
  confirm = 'confirm', retry = 'select', start = 'select', evaluate = 'evaluate',
  classify = 'classify', holdout = 'measure_holdout', sign = 'sign',
}
local ROLE_ORDER = {'curator', 'proposer', 'executor', 'evaluator'}

-- What is furthest along comes first: a promotion that waits makes every other measurement stale.
-- A pause ends claims that begin something; what was started is evaluated and signed all the same.
local function classes_for(c, role)
  local over = closed(c)
  local paused = c.goal.v.paused == '1'
  if role == 'curator' then
    return {'cosign_curator'}
  elseif role == 'proposer' then
    local classes = {'cosign_proposer', 'settle'}
    if over then
      classes[#classes + 1] = 'retry'
      classes[#classes + 1] = 'start'
    elseif not paused then
      classes = {'cosign_proposer', 'settle', 'idea', 'successor'}
      if c.goal.v.source_open == '1' and zcount(c, ready_key(c, 'start')) < num(c.goal, 'low_water') then
        classes[#classes + 1] = 'propose'
      end
    end
    return classes
  elseif role == 'executor' then
    if paused or c.goal.v.baseline == '' or not room(c) then
      return {}
    end
    return {'confirm', 'retry', 'start'}
  end
  local classes = {'cosign_evaluator', 'sign', 'holdout'}
  if not paused then
    table.insert(classes, 1, 'baseline')
  end
  if over then
    classes[#classes + 1] = 'confirm'
  end
  classes[#classes + 1] = 'classify'
  classes[#classes + 1] = 'evaluate'
  return classes
end

local function action_of(c, class)
  if closed(c) then
    if class == 'start' or class == 'retry' then
      return 'repropose_or_retire'
    elseif class == 'confirm' then
      return 'measure_holdout'
    end
  end
  return ALLOWED[class]
end

local function pick(c, roles)
  for _, role in ipairs(roles) do
    for _, class in ipairs(classes_for(c, role)) do
      local todo = zfirst(c, ready_key(c, class))
      if todo then
        return {todo = todo, role = role, class = class, action = action_of(c, class)}
      end
    end
  end
  return nil
end

-- The roles this call is about: the one asked for, or all of the agent's, in a fixed order.
local function roles_of(agent, wanted)
  local held = {}
  for role in string.gmatch(agent.v.roles, '[^,]+') do
    held[role] = true
  end
  if wanted and wanted ~= '' then
    return held[wanted] and {wanted} or {}
  end
  local roles = {}
  for _, role in ipairs(ROLE_ORDER) do
    if held[role] then
      roles[#roles + 1] = role
    end
  end
  return roles
end

local function no_reason(c, roles)
  local now = phase(c)
  if now == 'done' then
    return 'goal_done'
  elseif now == 'escalate' then
    return 'goal_escalated'
  end
  if c.goal.v.paused == '1' then
    return 'goal_paused'
  end
  local executor = false
  for _, role in ipairs(roles) do
    executor = executor or role == 'executor'
  end
  if executor then
    if c.goal.v.baseline == '' then
      return 'baseline_missing'
    end
    if closed(c) or num(c.goal, 'attempts_used') + num(c.goal, 'attempts_reserved') >= num(c.goal, 'max_attempts') then
      return 'budget_exhausted'
    end
    if num(c.goal, 'lanes') >= num(c.goal, 'max_parallel')
      and (zcount(c, ready_key(c, 'start')) > 0 or zcount(c, ready_key(c, 'retry')) > 0
        or zcount(c, ready_key(c, 'confirm')) > 0) then
      return 'parallel_limit'
    end
  end
  if zcount(c, ready_key(c, 'blocked')) > 0 then
    return 'blocked_by_gate'
  end
  return 'frontier_empty'
end

local function budget_fields(c)
  local g = c.goal
  return {'attempts_used', int(num(g, 'attempts_used')), 'attempts_reserved', int(num(g, 'attempts_reserved')),
    'attempts_limit', int(num(g, 'max_attempts')), 'lanes', int(num(g, 'lanes')),
    'lanes_limit', int(num(g, 'max_parallel')), 'cost', int(num(g, 'cost')),
    'cost_limit', int(num(g, 'max_cost')), 'holdouts', int(num(g, 'holdouts')),
    'holdout_limit', int(num(g, 'holdout_limit')), 'deadline', int(num(g, 'deadline')),
    'now', int(c.now)}
end

local function blocked_list(c, agent)
  local list, total = {}, redis.call('ZCARD', c.p .. ':leases')
  local held = redis.call('ZRANGE', c.p .. ':leases', 0, 9)
  for _, todo in ipairs(held) do
    local i = item_of(c, todo)
    if i and i.v.claimed_by ~= '' and i.v.claimed_by ~= agent then
      list[#list + 1] = {todo, 'claim:' .. i.v.claimed_by}
    else
      total = total - 1
    end
  end
  total = total + zcount(c, ready_key(c, 'blocked'))
  for _, todo in ipairs(redis.call('ZRANGE', ready_key(c, 'blocked'), 0, 9)) do
    local i = item_of(c, todo)
    if #list < 10 and i then
      list[#list + 1] = {todo, 'gate:' .. i.v.gate}
    end
  end
  return list, total
end

local function next_lease_end(c)
  local first = redis.call('ZRANGE', c.p .. ':leases', 0, 0, 'WITHSCORES')
  local ends = first[2] and tonumber(first[2]) or 0
  local deadline = num(c.goal, 'deadline')
  if deadline > c.now and (ends == 0 or deadline < ends) then
    ends = deadline
  end
  return int(ends)
end

local function describe(c, answer, i, role, action)
  local flat = {'todo', i.id, 'kind', i.v.kind, 'hyp', i.v.hyp, 'state', i.v.state, 'version', i.v.version,
    'action', action, 'rank', i.v.rank, 'rank_reason', i.v.rank_reason, 'selected_role', role,
    'fence', i.v.fence, 'attempt', i.v.attempt, 'title', i.v.title, 'claimed_action', i.v.action,
    'next_attempt', i.v.next_attempt}
  local lease = redis.call('ZSCORE', c.p .. ':leases', i.id)
  local changed = zset(c, c.p .. ':leases')[i.id]
  flat[#flat + 1] = 'lease_until'
  flat[#flat + 1] = int(tonumber(changed or lease or '0') or 0)
  for n = 1, #flat do
    answer[#answer + 1] = flat[n]
  end
end

-- The claim itself, after `pick`. Selecting and confirming reserve an attempt and its lane.
local function take(c, a, picked)
  local i = item_of(c, picked.todo)
  local agent = agent_of(c, a.agent)
  local rev = num(c.goal, 'rev') + 1
  local ends = c.now + num(c.goal, 'lease_ms')
  set(i, 'claimed_by', a.agent)
  set(i, 'claim_role', picked.role)
  set(i, 'incarnation', a.inc)
  set(i, 'action', picked.action)
  set(i, 'fence', rev)
  set(agent, 'claim', i.id)
  zput(c, c.p .. ':leases', i.id, ends)
  emit(c, picked.role, 'claimed', {writer = 'quota', role = picked.role, agent = a.agent, inc = a.inc,
    todo = i.id, hyp = i.v.hyp, version = i.v.version, fence = rev, action = picked.action,
    ['until'] = ends})
  if picked.action == 'select' or picked.action == 'confirm' then
    set(i, 'reserved', '1')
    add(c.goal, 'attempt_count', 1)
    set(i, 'next_attempt', c.goal.v.attempt_count)
    add(c.goal, 'attempts_reserved', 1)
    add(c.goal, 'lanes', 1)
  end
  if picked.action == 'select' then
    local from = i.v.state
    set(i, 'selected_from', from)
    move(i, 'frontier_selected')
    emit(c, picked.role, 'selected', {writer = 'quota', role = picked.role, agent = a.agent,
      todo = i.id, hyp = i.v.hyp, from = from, to = 'frontier_selected', version = i.v.version,
      fence = rev})
  end
  file(c, i)
  return i
end

-- An agent's own claim: the same incarnation goes on, a new one takes it over under a new fence.
local function resume(c, a, i)
  if i.v.incarnation == a.inc then
    return i
  end
  local died = agent_of(c, a.agent).v.inc_died
  if num(i, 'lapses') + 1 >= num(c.goal, 'max_lapses') then
    give_back(c, i, 'released', 'crash', true, {role = i.v.claim_role, agent = a.agent, detail = died})
    return nil
  end
  local rev = num(c.goal, 'rev') + 1
  note_recovery(i, rev, 'crash', died)
  local ends = c.now + num(c.goal, 'lease_ms')
  set(i, 'incarnation', a.inc)
  set(i, 'fence', rev)
  zput(c, c.p .. ':leases', i.id, ends)
  emit(c, i.v.claim_role, 'claimed', {writer = 'quota', role = i.v.claim_role, agent = a.agent, inc = a.inc,
    todo = i.id, hyp = i.v.hyp, attempt = i.v.attempt, version = i.v.version, fence = rev,
    action = 'resume', ['until'] = ends})
  return i
end

-- `effect`: claim what is found. Without it nothing is committed, whatever is changed here.
local function decide(c, a, effect)
  local answer = {}
  local function finish(should, reason, roles)
    local head = {'should_run', should and '1' or '0', 'reason', reason, 'role', roles and roles[1] or '',
      'phase', phase(c), 'until', next_lease_end(c), 'revision', int(num(c.goal, 'rev')),
      'open_gate', '', 'pause_note', c.goal.v.pause_note}
    local gate = redis.call('ZRANGE', c.p .. ':gates', 0, 0)
    if gate[1] and zset(c, c.p .. ':gates')[gate[1]] ~= false then
      head[14] = gate[1]
    end
    for _, part in ipairs({answer, budget_fields(c)}) do
      for n = 1, #part do
        head[#head + 1] = part[n]
      end
    end
    if a.brief ~= '1' then
      local list, total = blocked_list(c, a.agent)
      head[#head + 1] = 'blocked'
      head[#head + 1] = list
      head[#head + 1] = 'blocked_total'
      head[#head + 1] = int(total)
    end
    return head
  end
  if not c.goal.exists then
    refuse('goal_unknown', c.name)
  end
  local agent = agent_of(c, a.agent)
  if agent.v.roles == '' then  -- a role beyond the four is never handed an item
    return finish(false, agent.v.declared ~= '' and 'frontier_empty' or 'agent_unknown')
  end
  local roles = roles_of(agent, a.role)
  if #roles == 0 then
    return finish(false, 'role_mismatch')
  end
  if c.goal.v.status ~= 'approved' then
    return finish(false, 'contract_unapproved', roles)
  end
  lapse_due(c, {role = roles[1], agent = a.agent})
  if agent.v.claim ~= '' then
    local i = item_of(c, agent.v.claim)
    if not i or i.v.claimed_by ~= a.agent then
      i = set(agent, 'claim', '') -- the todo is gone: nothing holds its agent up
    elseif effect and ((a.role or '') == '' or a.role == i.v.claim_role) then
      -- a claim of another role is resumed by the call that is made in it
      i = resume(c, a, i)
    end
    if i then
      describe(c, answer, i, i.v.claim_role, 'resume')
      return finish(true, 'resume_claim', {i.v.claim_role})
    end
  end
  local picked = pick(c, roles)
  if not picked then
    return finish(false, no_reason(c, roles), roles)
  end
  if a.todo and a.todo ~= '' and a.todo ~= picked.todo then
    refuse('not_recommended', picked.todo .. ' comes first')
  end
  local i = item_of(c, picked.todo)
  if effect then
    i = take(c, a, picked)
  end
  describe(c, answer, i, picked.role, picked.action)
  return finish(true, 'ready', {picked.role})
end

local function check_incarnation(c, a)
  local agent = agent_of(c, a.agent)
  if agent.v.inc ~= '' and agent.v.inc ~= a.inc and num(agent, 'inc_until') > c.now then
    refuse('incarnation_live', 'incarnation ' .. agent.v.inc .. ' of ' .. a.agent,
      {host = agent.v.inc_host, pid = agent.v.inc_pid, start = agent.v.inc_start})
  end
end

local function claim(c, a)
  check_incarnation(c, a)
  return decide(c, a, true)
end

local function should_run(c, a)
  return decide(c, a, false)
end

-- The claim that the caller says it holds. The clock is not asked: only a written end ends a claim.
local function held(c, a)
  local i = item_of(c, a.todo or '')
  if not i then
    refuse('todo_unknown', a.todo)
  end
  local agent = agent_of(c, a.agent)
  if agent.v.roles == '' then
    refuse('agent_unknown', a.agent)
  end
  local more = {state = i.v.state, version = i.v.version, fence = i.v.fence, claimed_by = i.v.claimed_by,
    hyp = i.v.hyp}
  if i.v.claimed_by ~= a.agent then
    refuse('not_claimed', 'a live claim of ' .. a.agent, more)
  end
  if i.v.fence ~= a.fence or i.v.incarnation ~= a.inc then
    refuse('stale_fence', 'the fence ' .. i.v.fence .. ' of the live claim', more)
  end
  if a.role and a.role ~= i.v.claim_role then
    refuse('role_mismatch', 'the role ' .. i.v.claim_role, more)
  end
  return i
end

local function and_next(c, a)
  if a.next == '1' then
    return decide(c, a, true)
  end
  return {'ok', int(num(c.goal, 'rev'))}
end

local function renew(c, a)
  local agent = agent_of(c, a.agent)
  if agent.v.inc == a.inc and a.inc ~= '' then
    set(agent, 'inc_until', c.now + num(c.goal, 'lease_ms'))
  end
  if not a.todo or a.todo == '' then
    return {'ok', '0'}
  end
  local i = held(c, a)
  local ends = c.now + num(c.goal, 'lease_ms')
  zput(c, c.p .. ':leases', i.id, ends)
  return {'ok', int(ends)}
end

local CHOSEN = {stopped = true, goal_paused = true, goal_closed = true, stale_base = true, blocked_by_gate = true,
  changed_since_read = true}

local function release(c, a)
  local i = held(c, a)
  if i.v.state == 'attempt_running' then
    refuse('attempt_running', 'evidence or a retry packet', {state = i.v.state, version = i.v.version})
  end
  give_back(c, i, 'released', a.reason, not CHOSEN[a.reason], {role = i.v.claim_role, agent = a.agent,
    detail = a.detail})
  return and_next(c, a)
end
