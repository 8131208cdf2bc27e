-- The operator: birth and approval of a goal, the roster, pause, gates.

-- What a person does is written under a person's name, never under an agent's.
local function check_operator(c, a)
  if string.sub(a.agent or '', 1, 9) ~= 'operator:' or agent_of(c, a.agent).v.roles ~= '' then
    refuse('not_operator', 'an operator, not ' .. (a.agent or 'nobody'))
  end
end

local function create(c, a)
  check_operator(c, a)
  if c.goal.exists then
    refuse('goal_exists', 'a new goal id', {status = c.goal.v.status, contract_hash = c.goal.v.contract_hash})
  end
  set(c.goal, 'status', 'created')
  set(c.goal, 'contract_hash', a.contract_hash)
  set(c.goal, 'store', a.born or '')
  for n = 1, tonumber(a.fields) do
    set(c.goal, a['field' .. n], a['value' .. n])
  end
  local who = {writer = 'operator', role = 'curator', agent = a.agent}
  emit(c, 'curator', 'goal_created', who, a.body1)
  who.todo, who.to, who.version = 'todo_contract', 'contract_ready', 1
  emit(c, 'curator', 'contract_proposed', who, a.body2)
  local i = hash(c, c.p .. ':item:todo_contract')
  i.id = 'todo_contract'
  for field, value in pairs({kind = 'contract', state = 'contract_ready', version = '1'}) do
    set(i, field, value)
  end
  return {'ok', int(num(c.goal, 'rev'))}
end

local function open_todo(c, a, kind, rank)
  local i = hash(c, c.p .. ':item:todo_' .. kind)
  i.id = 'todo_' .. kind
  for field, value in pairs({kind = kind, state = 'open', version = '1', rank = rank, title = a.title or ''}) do
    set(i, field, value)
  end
  emit(c, 'operator', 'todo_added', {writer = 'operator', agent = a.agent, todo = i.id, version = 1},
    '{"kind":"' .. kind .. '"}')
  file(c, i)
end

local function approve(c, a)
  check_operator(c, a)
  if not c.goal.exists then
    refuse('goal_unknown', c.name)
  end
  if c.goal.v.status == 'approved' then
    refuse('already_approved', 'a contract that waits for approval', {contract_hash = c.goal.v.contract_hash})
  end
  if a.contract_hash ~= c.goal.v.contract_hash then
    refuse('contract_changed', 'the hash ' .. c.goal.v.contract_hash, {contract_hash = c.goal.v.contract_hash})
  end
  set(c.goal, 'status', 'approved')
  if num(c.goal, 'deadline_s') > 0 then
    set(c.goal, 'deadline', c.now + 1000 * num(c.goal, 'deadline_s'))
  end
  set(c.goal, 'source_open', '1')
  emit(c, 'operator', 'approved', {writer = 'operator', agent = a.agent}, a.body1)
  open_todo(c, a, 'baseline', '0')
  open_todo(c, a, 'propose', '0')
  return {'ok', int(num(c.goal, 'rev'))}
end

local function register(c, a)
  check_operator(c, a)
  if not c.goal.exists then
    refuse('goal_unknown', c.name)
  end
  local agent = agent_of(c, a.member)
  local declared = a.declared or ''
  if agent.v.roles == a.roles and agent.v.declared == declared then
    return {'ok', 'same'}
  end
  if a.roles == '' and agent.v.claim ~= '' then
    refuse('agent_busy', 'the end of its claim on ' .. agent.v.claim)
  end
  set(agent, 'roles', a.roles)
  set(agent, 'declared', declared)
  c.new_agents[#c.new_agents + 1] = a.member
  emit(c, 'operator', 'agent_registered', {writer = 'operator', agent = a.agent}, a.body1)
  return {'ok', int(num(c.goal, 'rev'))}
end

local function pause(c, a)
  check_operator(c, a)
  if not c.goal.exists then
    refuse('goal_unknown', c.name)
  end
  if c.goal.v.paused == a.value or (a.value == '0' and c.goal.v.paused == '') then
    return {'ok', 'same'}
  end
  set(c.goal, 'paused', a.value == '1' and '1' or '')
  set(c.goal, 'pause_note', a.value == '1' and a.note or '')
  emit(c, 'operator', a.value == '1' and 'paused' or 'resumed', {writer = 'operator', agent = a.agent}, a.body1)
  wake_all(c)
  return {'ok', int(num(c.goal, 'rev'))}
end

-- The person opens a gate in the operator's stream; a curator or an evaluator in its own.
local ASKS = {curator = true, evaluator = true}

local function gate_open(c, a)
  local role = a.role ~= '' and a.role or nil
  if role and (not ASKS[role] or #roles_of(agent_of(c, a.agent), role) == 0) then
    refuse('not_writer', 'the role curator or evaluator on the roster of ' .. a.agent)
  elseif not role then
    check_operator(c, a)
  end
  local i = item_of(c, a.todo)
  if not i or TERMINAL[i.v.state] then
    refuse('todo_unknown', 'an open todo ' .. a.todo)
  end
  if num(i, 'gates') > 0 then
    refuse('already_gated', 'the decision of ' .. i.v.gate, facts(c, i))
  end
  local by = role or 'operator'
  local gate = open_gate(c, by, {writer = by, role = role, agent = a.agent}, i, a.kind, a.body1)
  interrupt(c, i, {stream = by, role = role, agent = a.agent})
  return {'ok', gate}
end

local function gate_decide(c, a)
  check_operator(c, a)
  local gate = hash(c, c.p .. ':gate:' .. a.gate)
  if not gate.exists then
    refuse('gate_unknown', 'a gate ' .. a.gate)
  end
  if gate.v.status ~= 'open' then
    refuse('already_decided', 'an open gate', {status = gate.v.status, by = gate.v.by})
  end
  local i = item_of(c, gate.v.todo)
  if a.touched ~= i.v.touched then
    refuse('changed_since_shown', 'revision ' .. i.v.touched, {shown = a.touched})
  end
  set(gate, 'status', a.verdict)
  set(gate, 'by', a.agent)
  zdrop(c, c.p .. ':gates', a.gate)
  local rev = emit(c, 'operator', 'gate_decided', {writer = 'operator', agent = a.agent, todo = i.id,
    hyp = i.v.hyp, gate = a.gate, gaterev = gate.v.opened_rev}, a.body1)
  set(i, 'gates', num(i, 'gates') - 1)
  set(i, 'gate', '')
  recovered(i)
  if a.verdict == 'approved' then
    if gate.v.kind == 'owner' then
      set(i, 'owner', 'accepted')
    elseif num(i, 'retries') > num(c.goal, 'retries') then
      set(i, 'retries', num(c.goal, 'retries'))
    end
  elseif i.v.kind == 'hypothesis' then
    set(i, 'doomed', '1')
  else
    shut(c, i)
  end
  touch(i, rev)
  file(c, i)
  return {'ok', int(rev)}
end

-- A library is loaded without `pairs` and friends: one plain call per function.
local function offer(name, fn)
  redis.register_function('lm_' .. name .. '_v1', writing(fn))
end

offer('create', create)
offer('approve', approve)
offer('register', register)
offer('pause', pause)
offer('gate_open', gate_open)
offer('gate_decide', gate_decide)
offer('enlist', enlist)
offer('leave', leave)
offer('claim', claim)
offer('renew', renew)
offer('release', release)
offer('propose', propose)
offer('close_source', close_source)
offer('advance', advance)
offer('record', record)
offer('sign', sign)
offer('decline', decline)
offer('spend', spend)
offer('stale', stale)
redis.register_function{function_name = 'lm_should_run_v1', callback = reading(should_run), flags = {'no-writes'}}
redis.register_function{function_name = 'lm_version_v1', flags = {'no-writes'},
  callback = function() return LIBRARY_DIGEST end}
