-- Work: proposals, transitions, records, signatures. Every function checks all it needs, then writes.

local GUARD = {
  approved = function(c) return c.goal.v.status == 'approved' end,
  not_paused = function(c) return c.goal.v.paused ~= '1' end,
  not_closed = function(c) return not closed(c) end,
  not_doomed = function(_, i) return i.v.doomed ~= '1' end,
  reserved = function(_, i) return i.v.reserved == '1' end,
  base_current = function(c, i, a)
    return tonumber(a.base_rev or i.v.base_rev or '') == num(c.goal, 'champion_rev')
  end,
  base_moved = function(c, i) return num(i, 'base_rev') ~= num(c.goal, 'champion_rev') end,
  unattempted = function(_, i) return i.v.attempt == '' end,
  attempted = function(_, i) return i.v.attempt ~= '' end,
  confirmation_wanted = function(_, i) return i.v.wants_confirm ~= '' end,
  no_confirmation_wanted = function(_, i) return i.v.wants_confirm == '' end,
  evidence = function(_, i) return i.v.evidence_rev ~= '' end,
  evaluation = function(_, i) return i.v.evaluation_rev ~= '' end,
  holdout = function(c, i, _, kinds)
    return c.goal.v.holdout_required ~= '1' or i.v.holdout_rev ~= '' or kinds.holdout_recorded
  end,
  holdout_passed = function(c, i)
    return c.goal.v.holdout_required ~= '1' or i.v.holdout_pass == '1'
  end,
  holdout_not_required = function(c) return c.goal.v.holdout_required ~= '1' end,
  owner_accepted = function(c, i)
    return c.goal.v.owner_gate ~= '1' or i.v.owner == 'accepted'
  end,
  retries_left = function(c, i) return num(i, 'retries') <= num(c.goal, 'retries') end,
}

local function facts(c, i)
  return {state = i.v.state, version = i.v.version, fence = i.v.fence, claimed_by = i.v.claimed_by,
    hyp = i.v.hyp, revision = int(num(c.goal, 'rev'))}
end

local function contains(list, value)
  for _, each in ipairs(list) do
    if each == value then
      return true
    end
  end
  return false
end

local function records_of(a)
  local list, kinds = {}, {}
  for n = 1, tonumber(a.records or '0') or 0 do
    list[n] = {kind = a['type' .. n], body = a['body' .. n]}
    if not list[n].kind or not list[n].body then
      refuse('missing_record', 'the type and the body of record ' .. int(n))
    end
    kinds[list[n].kind] = true
  end
  return list, kinds
end

local function check_rule(c, i, a, name)
  local rule = RULES[name]
  local more = facts(c, i)
  if not rule then
    refuse('no_such_transition', 'a row ' .. string.sub(name, 6) .. ' in the table', more)
  end
  local list, kinds = records_of(a)
  if #rule.signers == 0 then
    for _, kind in ipairs(rule.records) do
      if not kinds[kind] then
        refuse('missing_record', 'the record ' .. kind, more)
      end
    end
    for _, each in ipairs(list) do
      if not contains(rule.records, each.kind) and not contains(rule.may, each.kind) then
        refuse('foreign_record', 'a row that carries ' .. each.kind, more)
      end
    end
  end
  for _, guard in ipairs(rule.guards) do
    if not GUARD[guard](c, i, a, kinds) then
      refuse(guard, GUARD_TEXT[guard], more)
    end
  end
  if #rule.signers == 0 and not contains(rule.writers, i.v.claim_role) then
    refuse('not_writer', 'the role ' .. rule.writers[1], more)
  end
  return rule
end

local function check_item(c, i, a)
  local more = facts(c, i)
  if a.version ~= i.v.version then
    refuse('version', 'version ' .. i.v.version, more)
  end
  if num(i, 'gates') > 0 and not GATED[i.v.state .. '>' .. a.to] then
    refuse('blocked_by_gate', 'the decision of ' .. i.v.gate, more)
  end
end

-- Proposals ------------------------------------------------------------------------------------

-- The rank, a finite number and the one that the record names, spelled as shortly as it can be.
local function rank_of(a)
  local ok, body = pcall(cjson.decode, a.body1 or '')
  local record = ok and type(body) == 'table' and type(body.hypothesis) == 'table' and body.hypothesis
  local rank = tonumber(a.rank or '')
  local named = record and tonumber(record.frontier_rank)
  if not rank or rank ~= rank or math.abs(rank) == math.huge or named and named ~= rank then
    refuse('bad_rank', 'the rank that the hypothesis names, a finite number')
  end
  for _, spelling in ipairs({'%.15g', '%.16g'}) do
    local text = string.format(spelling, rank)
    if tonumber(text) == rank then
      return text
    end
  end
  return string.format('%.17g', rank)
end

local function add_hypothesis(c, a, source)
  local rank = rank_of(a)
  local texts = hash(c, c.p .. ':texts')
  if texts.v[a.text] ~= '' and texts.v[a.text] ~= a.todo then
    local same = item_of(c, hash(c, c.p .. ':hyps').v[texts.v[a.text]])
    refuse('duplicate', texts.v[a.text], same and {same = same.id, same_state = same.v.state, gate = same.v.gate})
  end
  local n = num(c.goal, 'hypothesis_count') + 1
  add(c.goal, 'hypothesis_count', 1)
  local todo, hyp = string.format('todo_%04d', n), string.format('hyp_%04d', n)
  local rev = emit(c, 'proposer', 'hypothesis_added', {writer = 'proposer', role = 'proposer',
    agent = a.agent, inc = a.inc, todo = todo, hyp = hyp, fence = a.fence, version = 1,
    from = source, to = 'hypothesis_proposed'}, a.body1)
  local i = item_of(c, todo) or hash(c, c.p .. ':item:' .. todo)
  i.id = todo
  for field, value in pairs({kind = 'hypothesis', state = 'hypothesis_proposed', version = '1', hyp = hyp,
    rank = rank, rank_reason = a.rank_reason or '', title = a.title or '', family = a.family or '',
    touched = int(rev), added_rev = int(rev)}) do
    set(i, field, value)
  end
  set(texts, a.text, hyp)
  set(hash(c, c.p .. ':hyps'), hyp, todo)
  add(c.goal, 'live', 1)
  file(c, i)
  return i
end

local function propose(c, a)
  local i = held(c, a)
  local child
  if SOURCES[i.v.kind] then
    check_rule(c, i, a, 'move:contract_ready>hypothesis_proposed')
    if i.v.kind == 'idea' and a.text ~= i.v.text then
      refuse('foreign_text', 'the text of the idea', facts(c, i))
    elseif i.v.kind ~= 'idea' then
      set(c.goal, 'source_cursor', a.cursor or '')
    end
    child = add_hypothesis(c, a, 'contract_ready')
    used(c, i)
    recovered(i)
    free(c, i)
    file(c, i)
  else
    a.to = 'hypothesis_proposed'
    check_item(c, i, a)
    check_seen(c, i, a.body2)
    check_rule(c, i, a, 'move:' .. i.v.state .. '>hypothesis_proposed')
    child = add_hypothesis(c, a, 'contradicted')
    local rev = emit(c, 'proposer', 'signed', {writer = 'proposer', role = 'proposer', agent = a.agent,
      todo = i.id, hyp = i.v.hyp, fence = a.fence, version = i.v.version}, a.body2)
    set(i, 'signed_to', 'retired')
    set(i, 'signed_role', 'proposer')
    set(i, 'signed_by', a.agent)
    set(i, 'signed_rev', rev)
    set(i, 'signed_touched', i.v.touched)
    recovered(i)
    free(c, i)
    file(c, i)
  end
  local answer = and_next(c, a)
  return {'added', child.id, child.v.hyp, answer}
end

-- The source has nothing more, and that is on record; a successor's no ends the cycle for good.
local function close_source(c, a)
  local i = held(c, a)
  if not SOURCES[i.v.kind] then
    refuse('wrong_kind', 'the propose todo', facts(c, i))
  end
  if i.v.kind ~= 'idea' then
    set(c.goal, 'source_cursor', a.cursor or '')
  end
  shut(c, i)
  add(i, 'version', 1)
  local rev = emit(c, 'proposer', 'released', {writer = 'quota', role = 'proposer', agent = a.agent, todo = i.id,
    fence = a.fence, version = i.v.version, reason = SOURCES[i.v.kind]})
  free(c, i)
  file(c, i)
  if i.v.kind ~= 'successor' then
    succeed(c, 'proposer', a, i, rev)
  end
  if phase(c) ~= 'iterate' then
    wake_all(c)
  end
  return and_next(c, a)
end

-- Transitions of one role -----------------------------------------------------------------------

local OWNER = '{"gate":{"after_no":"the hypothesis is retired with your reason as evidence",'
  .. '"after_yes":"evaluator and curator sign, the champion moves","kind":"owner",'
  .. '"meanwhile":"the other lanes go on; nothing is lost",'
  .. '"question":"Promote this hypothesis?","schema_version":"operator_gate_v0"}}'

local function settle_cost(c, i, a)
  local cost = tonumber(a.cost or '0') or 0
  if not (cost >= 0 and cost < 2 ^ 53 and cost % 1 == 0) then
    refuse('bad_cost', 'whole millionths of a dollar', facts(c, i))
  end
  if cost > 0 and i.v.spent_attempt ~= i.v.attempt then
    set(i, 'spent_attempt', i.v.attempt)
    add(c.goal, 'cost', cost)
    emit(c, i.v.claim_role, 'spent', {writer = 'quota', role = i.v.claim_role, agent = a.agent, todo = i.id,
      hyp = i.v.hyp, attempt = i.v.attempt, fence = a.fence}, a.spent_body)
  end
end

local function start_attempt(c, i, a)
  set(i, 'reserved', '')
  set(i, 'in_lane', '1')
  add(c.goal, 'attempts_reserved', -1)
  add(c.goal, 'attempts_used', 1)
  set(i, 'attempt', i.v.next_attempt)
  set(i, 'next_attempt', '')
  set(i, 'base_rev', a.base_rev)
  set(i, 'base_commit', c.goal.v.champion_commit)
  set(i, 'replay_of', a.replay_of or '')
  for _, field in ipairs({'selected_from', 'wants_confirm', 'evidence_rev', 'evaluation_rev', 'holdout_rev',
    'holdout_pass', 'commit', 'owner'}) do
    set(i, field, '')
  end
end

-- Retries are attempts without a score. One that improved and failed the guard is reworked instead,
-- and one that changed nothing is tried once more only.
local UNCHANGED = {no_change = true, hook_blocked = true}

local function count_retry(c, i, from, reason)
  if from == 'evaluated' and reason == 'guard_rework' then
    if num(i, 'reworks') >= GUARD_REWORKS then
      refuse('reworks_left', 'a rework left (' .. GUARD_REWORKS .. ' were made)', facts(c, i))
    end
    add(i, 'reworks', 1)
    return
  end
  add(i, 'retries', 1)
  if UNCHANGED[reason] then
    if i.v.unchanged == '1' then
      set(i, 'retries', math.max(num(i, 'retries'), num(c.goal, 'retries') + 1))
    end
    set(i, 'unchanged', '1')
  end
end

local function advance(c, a)
  local i = held(c, a)
  local list = records_of(a)
  check_item(c, i, a)
  local from, to, role = i.v.state, a.to, i.v.claim_role
  local rule = check_rule(c, i, a, 'move:' .. from .. '>' .. to)
  if contains(rule.records, 'hypothesis_added') then -- the item asked about stays where it is
    refuse('by_proposal', 'a proposal, which makes an item of its own', facts(c, i))
  end
  local keep = to == 'attempt_running' or to == 'evaluated'
  if to == 'attempt_running' then
    if from == 'supported' then
      add(i, 'confirmations', i.v.wants_confirm == 'noise' and 1 or 0)
    end
    start_attempt(c, i, a)
  end
  local record = ''
  for _, each in ipairs(list) do
    record = emit(c, role, each.kind, {writer = role, role = role, agent = a.agent, inc = a.inc, todo = i.id,
      hyp = i.v.hyp, attempt = i.v.attempt, fence = a.fence}, each.body)
    if each.kind == 'evidence_recorded' then
      set(i, 'evidence_rev', record)
      set(i, 'commit', a.commit or '')
    elseif each.kind == 'evaluation_recorded' then
      set(i, 'evaluation_rev', record)
      set(i, 'wants_confirm', a.confirmation or '')
    elseif each.kind == 'holdout_recorded' then
      set(i, 'holdout_rev', record)
      set(i, 'holdout_pass', a.holdout_pass or '')
      set(i, 'target_met', a.target_met or '')
    end
    touch(i, record)
  end
  recovered(i)
  move(i, to)
  local rev = emit(c, role, 'transitioned', {writer = role, role = role, agent = a.agent, todo = i.id, hyp = i.v.hyp,
    attempt = i.v.attempt, from = from, to = to, version = i.v.version, fence = a.fence, ref = record,
    reason = a.reason}, a.note)
  if from == 'attempt_running' then
    settle_cost(c, i, a)
  end
  if to == 'needs_retry' then
    count_retry(c, i, from, a.reason)
  elseif to == 'supported' then
    set(i, 'retries', '')
    if from == 'promotion_gate' then
      unsign(i)
      set(i, 'wants_confirm', 'champion_moved')
      set(i, 'owner', '')
    end
  end
  if not keep and (to ~= 'evidence_recorded' or num(i, 'gates') > 0) then
    leave_lane(c, i)
  end
  if to == 'retired' then
    end_item(c, i, rev)
    succeed(c, role, a, i, rev)
  end
  if to == 'promotion_gate' and c.goal.v.holdout_required ~= '1' then
    set(i, 'target_met', a.target_met or '')
  end
  if to == 'promotion_gate' and c.goal.v.owner_gate == '1' then
    open_gate(c, role, {writer = 'quota', role = role, agent = a.agent}, i, 'owner', OWNER)
  end
  if keep then
    return {'ok', int(num(c.goal, 'rev')), 'version', i.v.version, 'attempt', i.v.attempt}
  end
  free(c, i)
  file(c, i)
  return and_next(c, a)
end

-- Records of the evaluator that move nothing ----------------------------------------------------

local function record(c, a)
  local i = held(c, a)
  local list = records_of(a)
  if #list ~= 1 then
    refuse('missing_record', 'one record', facts(c, i))
  end
  local kind, body = list[1].kind, list[1].body
  local role = i.v.claim_role
  if role ~= 'evaluator' then
    refuse('not_writer', 'the role evaluator', facts(c, i))
  end
  local function write()
    return emit(c, role, kind, {writer = role, role = role, agent = a.agent, inc = a.inc, todo = i.id,
      hyp = i.v.hyp, attempt = i.v.attempt, fence = a.fence}, body)
  end
  if kind == 'baseline_recorded' and i.v.kind == 'baseline' then
    local rev = write()
    set(c.goal, 'baseline', rev)
    set(c.goal, 'champion_rev', rev)
    set(c.goal, 'champion_commit', a.commit)
    set(i, 'state', 'closed')
    add(i, 'version', 1)
    free(c, i)
    file(c, i)
    wake(c, 'executor')
    wake(c, 'proposer')
    return and_next(c, a)
  elseif kind == 'holdout_recorded' and i.v.state == 'supported' then
    if num(i, 'gates') > 0 then
      refuse('blocked_by_gate', 'the decision of ' .. i.v.gate, facts(c, i))
    end
    if a.status == 'asked' then
      if num(c.goal, 'holdouts') >= num(c.goal, 'holdout_limit')
        or num(i, 'holdouts') >= num(c.goal, 'holdout_per_item') then
        refuse('holdout_used_up', 'a held-out question left', facts(c, i))
      end
      add(c.goal, 'holdouts', 1)
      add(i, 'holdouts', 1)
      write()
      return {'ok', int(num(c.goal, 'rev'))}
    end
    local rev = write()
    set(i, 'holdout_rev', rev)
    set(i, 'holdout_pass', a.holdout_pass or '')
    set(i, 'target_met', a.target_met or '')
    touch(i, rev)
    return {'ok', int(num(c.goal, 'rev'))}
  end
  refuse('wrong_state', 'a claim that allows ' .. kind, facts(c, i))
end
