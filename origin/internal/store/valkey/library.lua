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

local decide = {
  [TOKEN_BUCKET] = token_decide, [GCRA] = cell_decide, [SLIDING_WINDOW] = sliding_decide, [FIXED_WINDOW] = fixed_decide,
  [LEAKY_BUCKET] = leaky_decide, [LEAKY_QUEUE] = queue_decide,
}
local give_back = {
  [TOKEN_BUCKET] = token_give_back, [GCRA] = cell_give_back, [SLIDING_WINDOW] = sliding_give_back,
  [FIXED_WINDOW] = fixed_give_back, [LEAKY_BUCKET] = leaky_give_back, [LEAKY_QUEUE] = queue_give_back,
}

-- What is to be written of each counter, from the first pass of a check to its second; kept from call to call, since a
-- table costs more to make than to fill.
local key_of, from_of, status_of, value_of, ttl_of, shadow_of, args_of = {}, {}, {}, {}, {}, {}, {}

-- read is what is stored under a key, false for nothing, nil for another type
local function read(key)
  local value = try('GET', key)
  if type(value) ~= 'table' then
    return value
  end
end

-- standing is the key that a counter goes by, with where its state is read from until that exists
local function standing(keys, k, has_former, now, switch_at)
  if not has_former then
    return keys[k], nil
  elseif now < switch_at then
    return keys[k + 1], nil
  end
  return keys[k], keys[k + 1]
end

local function check(keys, args, may_write)
  begin()
  local now = clock(args)
  local packed = args[1]
  local not_after, switch_at, head = unpack(CHECK_HEAD, packed)
  if now > not_after then
    return pack(ANSWER, STALE, now)
  end
  local n = (#packed - CHECK_HEAD_SIZE) / CHECK_ONE_SIZE
  local known = head == 1 and call('EXISTS', keys[#keys]) == 1
  local all, k, answer = true, 1, ''
  log_key = nil
  for i = 1, n do
    local at = CHECK_HEAD_SIZE + 1 + (i - 1) * CHECK_ONE_SIZE
    local algorithm, flags, count, window, cost, extra = unpack(CHECK_ONE, packed, at)
    local key, former = keys[k], nil
    if flags >= 4 then
      key, former = standing(keys, k, true, now, switch_at)
      flags, k = flags - 4, k + 1
    end
    k = k + 1
    local asked = cost
    if cost == 0 then
      asked = 1
    end
    local status, value, fresh, was, from
    if algorithm == SLIDING_LOG then
      status, value, fresh, was = log_decide(key, now, count, window, cost, asked)
      if former and was == false then
        status, value, fresh, was = log_decide(former, now, count, window, cost, asked)
        from = former
      end
    else
      was = read(key)
      if former and was == false then
        was, from = read(former), former
      end
      if was == nil then
        status = FOREIGN
      else
        status, value, fresh = decide[algorithm](was, now, count, window, cost, asked, extra)
      end
    end
    if status == FOREIGN then
      answer = answer .. mark[FOREIGN + 4]
      fresh = 2 * window
    else
      if known then
        status = ADMITTED
      elseif flags >= 2 and not was then
        status = UNMADE
      end
      if was then
        answer = answer .. mark[status + 4] .. was
      else
        answer = answer .. mark[status]
      end
    end
    local shadow = flags % 2 == 1
    all = all and (shadow or status == ADMITTED)
    if status == ADMITTED and cost == 0 then
      value = nil
    end
    key_of[i], from_of[i], status_of[i], value_of[i], shadow_of[i] = key, from, status, value, shadow
    ttl_of[i] = (was or status == ADMITTED or status == FOREIGN) and lifetime(fresh)
    args_of[i] = at
  end
  if may_write then
    local charged = false
    for i = 1, n do
      local key, from, status, value, ttl = key_of[i], from_of[i], status_of[i], value_of[i], ttl_of[i]
      if value and not known and (status == ADMITTED and (all or shadow_of[i]) or status == REFUSED) then
        charged = true
        if value == true then
          local _, _, count, window, cost = unpack(CHECK_ONE, packed, args_of[i])
          if from then
            call('RENAME', from, key)
          end
          log_write(key, now, count, window, cost, ttl)
        else
          call('SET', key, value, 'PX', ttl)
          if from then
            call('DEL', from)
          end
        end
      elseif ttl then
        call('PEXPIRE', from or key, ttl, 'NX')
      end
    end
    if all and charged and head == 1 then
      call('SET', keys[#keys], '1', 'PX', ID_KEPT)
    end
  end
  local kind = NOTHING
  if known then
    kind = KNOWN
  elseif all and may_write then
    kind = CHARGED
  end
  return pack(ANSWER, kind, now) .. answer
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
    local key, former = keys[k], nil
    if flags >= 4 then
      key, former = standing(keys, k, true, now, switch_at)
      k = k + 1
    end
    k = k + 1
    if former and call('EXISTS', key) == 0 then
      key = former
    end
    if algorithm == SLIDING_LOG then
      log_give_back(key, now, count, window, cost, charged)
    else
      local was = read(key)
      if was then
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
