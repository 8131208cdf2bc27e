-- What peers say of each other's work, and what a person adds: reviews, assessments, ideas.
-- None of it needs a claim. The same words again, under another operation id, are found.

local function check_role(c, a)
  local agent = agent_of(c, a.agent)
  if agent.v.roles == '' then
    refuse('agent_unknown', a.agent)
  end
  local roles = roles_of(agent, a.role)
  if #roles == 0 then
    refuse('role_mismatch', 'the role ' .. a.role .. ' on the roster of ' .. a.agent)
  end
  return roles[1]
end

local function hypothesis_of(c, a)
  local i = item_of(c, hash(c, c.p .. ':hyps').v[a.hyp])
  if not i then
    refuse('hypothesis_unknown', 'a hypothesis ' .. a.hyp)
  end
  return i
end

-- The same words of the same agent as its last ones are one record.
local function once(i, name, a, write)
  local digest = redis.sha1hex(a.body1)
  if i.v[name .. '_digest:' .. a.agent] == digest then
    return {'reused', i.v[name .. ':' .. a.agent]}
  end
  local rev = write()
  set(i, name .. '_digest:' .. a.agent, digest)
  set(i, name .. ':' .. a.agent, rev)
  return {'ok', int(rev)}
end

local function review(c, a)
  local role = check_role(c, a)
  local i = hypothesis_of(c, a)
  if i.v.ended_rev == '' then
    refuse('no_decision', 'a terminal decision on ' .. a.hyp, facts(c, i))
  elseif a.decision ~= i.v.ended_rev then
    refuse('decision_unknown', 'the decision at revision ' .. i.v.ended_rev, facts(c, i))
  end
  return once(i, 'reviewed', a, function()
    return emit(c, role, 'reviewed', {writer = role, role = role, agent = a.agent, todo = i.id, hyp = i.v.hyp,
      ref = i.v.ended_rev}, a.body1)
  end)
end

local function assess(c, a)
  a.role = 'proposer'
  check_role(c, a)
  local i = hypothesis_of(c, a)
  return once(i, 'assessed', a, function()
    local rev = emit(c, 'proposer', 'assessed', {writer = 'proposer', role = 'proposer', agent = a.agent,
      todo = i.id, hyp = i.v.hyp}, a.body1)
    touch(i, rev)
    -- what the owner approved has changed: the word is void, and the same question is asked again
    if i.v.owner == 'accepted' then
      set(i, 'owner', '')
      local quota = {writer = 'quota', role = 'proposer', agent = a.agent}
      if i.v.state == 'promotion_gate' and num(i, 'gates') == 0 then
        open_gate(c, 'proposer', quota, i, 'owner', OWNER)
        interrupt(c, i, {role = 'proposer', agent = a.agent})
      end
    end
    file(c, i)
    return rev
  end)
end

local function todo_add(c, a)
  check_operator(c, a)
  if c.goal.v.status ~= 'approved' then
    refuse('approved', GUARD_TEXT.approved)
  elseif closed(c) then
    refuse('not_closed', GUARD_TEXT.not_closed)
  end
  local texts = hash(c, c.p .. ':texts')
  if texts.v[a.text] ~= '' then
    refuse('duplicate', texts.v[a.text])
  end
  add(c.goal, 'idea_count', 1)
  add(c.goal, 'ideas', 1)
  local id = string.format('todo_idea_%04d', num(c.goal, 'idea_count'))
  local i = hash(c, c.p .. ':item:' .. id)
  i.id = id
  for field, value in pairs({kind = 'idea', state = 'open', version = '1', rank = '0', title = a.title,
    text = a.text}) do
    set(i, field, value)
  end
  set(texts, a.text, id)
  emit(c, 'operator', 'todo_added', {writer = 'operator', agent = a.agent, todo = id, version = 1}, a.body1)
  file(c, i)
  return {'ok', id}
end

offer('review', review)
offer('assess', assess)
offer('todo_add', todo_add)
