-- Signatures: two roles end an item together; settled costs; late results.

local function promote(c, i)
  local g = c.goal
  local rev = num(g, 'rev')
  set(g, 'champion_rev', rev)
  set(g, 'champion_todo', i.id)
  set(g, 'champion_hyp', i.v.hyp)
  set(g, 'champion_commit', i.v.commit)
  set(g, 'promotions', num(g, 'promotions') + 1)
  local value, best = tonumber(i.v.decided_value), tonumber(g.v.best_value)
  local down = g.v.direction == 'minimize'
  if value and (not best or (down and value < best) or (not down and value > best)) then
    add(g, 'improvements', 1)
    set(g, 'best_value', i.v.decided_value)
  end
  if i.v.target_met == '1' then
    set(g, 'target_met', '1')
  end
  -- Only these two sets hold items that a moving champion sends elsewhere; both are short.
  for _, class in ipairs({'cosign_curator', 'holdout'}) do
    for _, todo in ipairs(redis.call('ZRANGE', ready_key(c, class), 0, -1)) do
      local other = item_of(c, todo)
      if other and todo ~= i.id then
        file(c, other)
      end
    end
  end
end

local function sign(c, a)
  local i = held(c, a)
  local list = records_of(a)
  check_item(c, i, a)
  check_seen(c, i, a.signature)
  local from, to, role = i.v.state, a.to, i.v.claim_role
  local rule = check_rule(c, i, a, 'sign:' .. from .. '>' .. to)
  local stands = signed(c, i)
  local order = stands == to and i.v.signed_role == rule.signers[1] and 2 or 1
  if role ~= rule.signers[order] then
    refuse('missing_signature', 'the signature of ' .. rule.signers[order], facts(c, i))
  end
  local base = {writer = role, role = role, agent = a.agent, inc = a.inc, todo = i.id, hyp = i.v.hyp,
    attempt = i.v.attempt, fence = a.fence, ref = i.v.touched}
  for _, each in ipairs(list) do
    if each.kind == 'decided' then
      if role ~= 'evaluator' then
        refuse('not_writer', 'the role evaluator', facts(c, i))
      end
      set(i, 'decided_rev', emit(c, role, 'decided', base, each.body))
      local ok, found = pcall(cjson.decode, each.body)
      found = ok and type(found) == 'table' and found.decision
      local value = type(found) == 'table' and tonumber(found.value)
      set(i, 'decided_value', value and string.format('%.17g', value) or '')
    end
  end
  if i.v.decided_rev == '' and (order == 2 or role == 'evaluator') then
    refuse('missing_record', 'the record decided', facts(c, i))
  end
  local body = a.signature
  recovered(i)
  if order == 1 then
    local rev = emit(c, role, 'signed', base, body)
    set(i, 'signed_to', to)
    set(i, 'signed_role', role)
    set(i, 'signed_by', a.agent)
    set(i, 'signed_rev', rev)
    set(i, 'signed_touched', i.v.touched)
    leave_lane(c, i)
    free(c, i)
    file(c, i)
    return and_next(c, a)
  end
  move(i, to)
  base.from, base.to, base.version = from, to, i.v.version
  local rev = emit(c, role, 'signed', base, body)
  if to == 'promoted' then
    promote(c, i)
  end
  unsign(i)
  free(c, i)
  end_item(c, i, rev)
  file(c, i)
  succeed(c, role, a, i, rev)
  return and_next(c, a)
end

local DISAGREE = '{"gate":{"after_no":"the item is retired with this decision as evidence",'
  .. '"after_yes":"the first role signs once more","kind":"disagreement","meanwhile":"the item waits",'
  .. '"question":"Two roles disagree on how this item ends. Go on?","schema_version":"operator_gate_v0"}}'

local function decline(c, a)
  local i = held(c, a)
  if signed(c, i) == '' then
    refuse('nothing_to_decline', 'a first signature', facts(c, i))
  end
  if i.v.doomed == '1' then
    refuse('operator_rejected', 'the retirement is the operator\'s word', facts(c, i))
  end
  local role = i.v.claim_role
  emit(c, role, 'signed', {writer = role, role = role, agent = a.agent, inc = a.inc, todo = i.id,
    hyp = i.v.hyp, fence = a.fence, ref = i.v.touched, reason = 'declined'}, a.body1)
  unsign(i)
  add(i, 'declines', 1)
  if num(i, 'declines') >= num(c.goal, 'max_lapses') then
    set(i, 'declines', '')
    open_gate(c, role, {writer = 'quota', role = role, agent = a.agent}, i, 'disagreement', DISAGREE)
  end
  free(c, i)
  file(c, i)
  return and_next(c, a)
end

local function spend(c, a)
  local i = held(c, a)
  if i.v.spent_attempt ~= '' and i.v.spent_attempt == i.v.attempt then
    refuse('already_settled', 'an attempt without a settled cost', facts(c, i))
  end
  settle_cost(c, i, a)
  return {'ok', int(num(c.goal, 'rev'))}
end

-- A late result under an old fence changes nothing, and is on record, once for each claim. After a
-- failover another may hold the item under the very number of the claim that was lost.
local function stale(c, a)
  local agent = agent_of(c, a.agent)
  local i = item_of(c, a.todo)
  if agent.v.roles == '' or not i or #roles_of(agent, a.role) == 0 then
    refuse('agent_unknown', a.agent)
  end
  local fence = string.match(a.fence or '', '^[1-9]%d*$') and tonumber(a.fence) or math.huge
  local live = i.v.claimed_by == a.agent
  if fence > num(i, 'fence') or (live and fence == num(i, 'fence')) then
    refuse('not_stale', 'the fence of a claim that has ended', facts(c, i))
  end
  local mark = ' ' .. int(fence) .. ' '
  if string.find(i.v.stale, mark, 1, true) then
    return {'ok', 'same'}
  end
  set(i, 'stale', (i.v.stale == '' and ' ' or i.v.stale) .. int(fence) .. ' ')
  emit(c, a.role, 'stale_result_rejected', {writer = 'quota', role = a.role, agent = a.agent, inc = a.inc,
    todo = i.id, hyp = i.v.hyp, fence = a.fence, reason = 'stale_fence'}, a.body1)
  return {'ok', int(num(c.goal, 'rev'))}
end
