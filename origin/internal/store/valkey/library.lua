-- The functions. A check reads every counter of a call, decides all, then writes. How a counter of an algorithm is decided
-- stands in the files before this one, which are package limit's in Lua:
--
--   decide(value, now, count, window, cost, asked, extra) → status, value, fresh
--     value is what is stored, false for nothing; asked is cost, 1 for a cost of 0; extra is a bucket's capacity or a fixed
--     window's offset. The value that it returns is to be stored if the charge is made, or, of a refusal, whatever comes of
--     the call; fresh is the time until such a counter equals one that was never used.
--   give_back(value, now, count, window, cost, extra, charged) → value, fresh
--     nothing if there is nothing to give back to
--
-- check and peek: KEYS one counter each, each followed by its former name where it has one; then the key of the call's id
-- where it has one. ARGV[1] is packed: not_after, switch_at, flags (1: there is an id), then for each counter algorithm,
-- flags (1 shadow, 2 existing alone, 4 has a former name), count, window, cost, extra. The answer is packed as well: kind
-- (0 nothing enforced was charged, 1 charged, 2 not_after has passed, 3 the id is known), now, then for each counter status
-- (+ 4 if it exists) and what was stored if it exists and is ours, of a log three entries that decide the same.
--
-- refund: the same KEYS; ARGV[1] packed: switch_at, flags, then for each counter algorithm, flags, count, window, cost,
-- extra, the instant of its charge. The answer is nothing of use.
--
-- A value that is none of Weir's is left alone but for an expiry of two windows where it has none. In the same way a counter
-- that has lost its expiry gets one again, for which the time that it would need if charged is good enough.

local CHECK_HEAD, CHECK_HEAD_SIZE, CHECK_ONE, CHECK_ONE_SIZE = '<ddB', 17, '<BBdddd', 34
local REFUND_HEAD, REFUND_HEAD_SIZE, REFUND_ONE, REFUND_ONE_SIZE = '<dB', 9, '<BBddddd', 42
local ANSWER = '<Bi7'
local NOTHING, CHARGED, STALE, KNOWN = 0, 1, 2, 3
local LONGEST = 28 -- bytes of a counter that is no log

local decide = {
  [TOKEN_BUCKET] = token_decide, [GCRA] = cell_decide, [SLIDING_WINDOW] = sliding_decide, [FIXED_WINDOW] = fixed_decide,
  [LEAKY_BUCKET] = leaky_decide, [LEAKY_QUEUE] = queue_decide,
}
local give_back = {
  [TOKEN_BUCKET] = token_give_back, [GCRA] = cell_give_back, [SLIDING_WINDOW] = sliding_give_back,
  [FIXED_WINDOW] = fixed_give_back, [LEAKY_BUCKET] = leaky_give_back, [LEAKY_QUEUE] = queue_give_back,
}

-- What is stored under a key as GET gives it, but of a longer value than any counter no more than shows that: others may have
-- written 8 MB, which would cost the server 10 ms at each call.
local function read(key)
  local was = try('GETRANGE', key, 0, LONGEST)
  if was == '' and call('EXISTS', key) == 0 then
    return false
  end
  return was
end

-- What is to be written of each counter, from the first pass of a check to its second; kept from call to call, since a
-- table costs more to make than to fill.
local key_of, from_of, value_of, ttl_of, alone_of, answer = {}, {}, {}, {}, {}, {}

local function check(keys, args, may_write)
  begin()
  local now = clock(args)
  local packed = args[1]
  local not_after, switch_at, head = unpack(CHECK_HEAD, packed)
  if now > not_after then
    return pack(ANSWER, STALE, now)
  end
  local n = (#packed - CHECK_HEAD_SIZE) / CHECK_ONE_SIZE
  -- Of any value two bytes tell that it is not '1'.
  local known = false
  if head == 1 then
    known = try('GETRANGE', keys[#keys], 0, 1)
    foreign(known)
    known = known == '1'
  end
  local all, k, at = true, 1, CHECK_HEAD_SIZE + 1
  for i = 1, n do
    local algorithm, flags, count, window, cost, extra
    algorithm, flags, count, window, cost, extra, at = unpack(CHECK_ONE, packed, at)
    local key, former, from = keys[k], nil, nil
    k = k + 1
    if flags >= 4 then
      flags = flags - 4
      if now < switch_at then
        key = keys[k]
      else
        former = keys[k]
      end
      k = k + 1
    end
    local asked = cost
    if cost == 0 then
      asked = 1
    end
    local status, value, fresh, was
    if algorithm == SLIDING_LOG then
      log_at(i)
      status, value, fresh, was = log_decide(key, now, count, window, cost, asked)
      if former and was == false then
        status, value, fresh, was = log_decide(former, now, count, window, cost, asked)
        from = was ~= false and former or nil
      end
    else
      was = read(key)
      if former and was == false then
        was = read(former)
        from = was and former
      end
      if not was or #was > 0 then -- a table, which has no length, is an error
        status, value, fresh = decide[algorithm](was, now, count, window, cost, asked, extra)
      else
        foreign(was)
        status = FOREIGN
      end
    end
    if status == FOREIGN then
      answer[2 * i], answer[2 * i + 1] = mark[FOREIGN], ''
      all = all and flags % 2 == 1
      value_of[i], ttl_of[i] = false, lifetime(2 * window)
    else
      if known then
        status = ADMITTED
      elseif flags >= 2 and not was then
        status = UNMADE
      end
      if was then
        answer[2 * i], answer[2 * i + 1] = mark[status + 4], was
        ttl_of[i] = lifetime(fresh)
      else
        answer[2 * i], answer[2 * i + 1] = mark[status], ''
        ttl_of[i] = status == ADMITTED and lifetime(fresh)
      end
      -- What is written whatever becomes of the other charges: a shadow's, and what a refusal has to keep.
      alone_of[i] = true
      if flags % 2 == 0 then
        if status == ADMITTED then
          alone_of[i] = false
        else
          all = false
        end
      end
      value_of[i] = not known and (status == REFUSED or status == ADMITTED and cost > 0) and value
    end
    key_of[i], from_of[i] = key, from
  end
  local kind = NOTHING
  if known then
    kind = KNOWN
  elseif all and may_write then
    kind = CHARGED
  end
  if may_write then
    local written = false
    for i = 1, n do
      local key, value, ttl = key_of[i], value_of[i], ttl_of[i]
      if value and (all or alone_of[i]) then
        written = true
        local from = from_of[i]
        if value == true then
          local _, _, count, _, cost = unpack(CHECK_ONE, packed, CHECK_HEAD_SIZE + 1 + (i - 1) * CHECK_ONE_SIZE)
          if from then
            call('RENAME', from, key)
          end
          log_at(i)
          log_write(key, now, count, cost, ttl)
        else
          call('SET', key, value, 'PX', ttl)
          if from then
            call('DEL', from)
          end
        end
      elseif ttl then
        call('PEXPIRE', from_of[i] or key, ttl, 'NX')
      end
    end
    if all and written and head == 1 then
      call('SET', keys[#keys], '1', 'PX', ID_KEPT)
    end
  end
  local first = pack(ANSWER, kind, now)
  if n == 1 then
    return first .. answer[2] .. answer[3]
  end
  answer[1] = first
  return concat(answer, '', 1, 2 * n + 1)
end

local function peek(keys, args)
  return check(keys, args, false)
end

local function take(keys, args)
  return check(keys, args, true)
end

local function refund(keys, args)
  begin()
  local now = clock(args)
  local packed = args[1]
  local switch_at, head = unpack(REFUND_HEAD, packed)
  local n = (#packed - REFUND_HEAD_SIZE) / REFUND_ONE_SIZE
  local k = 1
  for i = 1, n do
    local algorithm, flags, count, window, cost, extra, charged =
      unpack(REFUND_ONE, packed, REFUND_HEAD_SIZE + 1 + (i - 1) * REFUND_ONE_SIZE)
    local key = keys[k]
    k = k + 1
    if flags >= 4 then
      if now < switch_at or call('EXISTS', key) == 0 then
        key = keys[k]
      end
      k = k + 1
    end
    if algorithm == SLIDING_LOG then
      log_give_back(key, now, count, window, cost, charged)
    else
      local was = read(key)
      if was and #was == 0 then
        foreign(was)
      elseif was then
        local value, fresh = give_back[algorithm](was, now, count, window, cost, extra, charged)
        if value and fresh > 0 then
          call('SET', key, value, 'PX', lifetime(fresh))
        elseif value then
          call('DEL', key)
        end
      end
    end
  end
  if head == 1 then
    call('DEL', keys[#keys])
  end
  return 0
end
