-- Lives of an agent: the one live incarnation, and its end.

local function enlist(c, a)
  local agent = agent_of(c, a.agent)
  if agent.v.roles == '' and agent.v.declared == '' then
    refuse('agent_unknown', a.agent)
  end
  if agent.v.declared == '' and #roles_of(agent, a.role) == 0 then
    refuse('role_mismatch', a.role .. ' on the roster of ' .. a.agent)
  end
  if a.dead ~= agent.v.inc then
    check_incarnation(c, a)
  end
  set(agent, 'inc', a.inc)
  set(agent, 'inc_host', a.host)
  set(agent, 'inc_pid', a.pid)
  set(agent, 'inc_start', a.start)
  set(agent, 'inc_died', a.died or '')
  set(agent, 'inc_until', c.now + num(c.goal, 'lease_ms'))
  return {'ok', agent.v.claim, c.goal.v.store}
end

local LIFE = {'inc', 'inc_host', 'inc_pid', 'inc_start', 'inc_until', 'inc_died'}

local function leave(c, a)
  local agent = agent_of(c, a.agent)
  for _, field in ipairs(agent.v.inc == a.inc and LIFE or {}) do
    set(agent, field, '')
  end
  return {'ok', '0'}
end
