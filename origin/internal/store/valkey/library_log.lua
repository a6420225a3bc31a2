-- The log: sliding_log.go of package limit. It is one string, of which a call reads and writes a few bytes however long it
-- is: a head, then the entries but the last in the order of their instants. An entry has its instant and the sum of all
-- costs up to and with it, modulo 2^16, so that what is in view is a difference and an instant is found by halving. Entries
-- out of view stay in front until they are a good share of it. The head has the last entry, to which a late clock's charge
-- is added, with the first in view as of the last charge.

local LOG_HEAD, LOG_HEAD_SIZE = '<BHHHi7Hi7H', 25 -- tag, first, entries, sum before first, first entry, last entry
local LOG_ENTRY, LOG_ENTRY_SIZE = '<i7H', 9
local LOG_DIGEST = '<i7Hi7Hi7H'
local LOG_SUMS = 65536
local LOG_MOST = 2 * MAX_LOG -- entries, those out of view included, are never more
local LOG_SHORT = 32 -- entries: with fewer in view a log is stored anew, with more out of view it may be

-- The log at hand, and those of a call, kept for its second pass. Fields: key, there (it exists), the head's first, n, base,
-- first_at, first_sum, last_at, last_sum, and once settled used and stepped.
local log
local logs = {}

-- log_at has the i-th log of a call at hand
local function log_at(i)
  log = logs[i]
  if not log then
    log = {}
    logs[i] = log
  end
end

-- log_entry is the instant and sum of the i-th entry; nothing if it is not there
local function log_entry(i)
  if i == log.n - 1 then
    return log.last_at, log.last_sum
  elseif i == log.first then
    return log.first_at, log.first_sum
  end
  local from = LOG_HEAD_SIZE + i * LOG_ENTRY_SIZE
  local entry = call('GETRANGE', log.key, from, from + LOG_ENTRY_SIZE - 1)
  if #entry == LOG_ENTRY_SIZE then
    return unpack(LOG_ENTRY, entry)
  end
end

-- log_search is the first entry from i on, of which the last is one, at an instant past `after` and with at least `used` in
-- it and before it: its number, instant and sum, and the sum before it; nothing in a damaged log. It looks at entries near
-- i first.
local function log_search(i, after, used)
  local at, sum = log_entry(i)
  if not at then
    return
  elseif at > after and (sum - log.base) % LOG_SUMS >= used then
    return i, at, sum, log.base
  end
  -- low is before it, high is it or after it
  local low, below, step = i, sum, 1
  local high, high_at, high_sum = log.n - 1, log.last_at, log.last_sum
  while high - low > 1 do
    local middle = low + step
    if step == 0 or middle >= high then
      step, middle = 0, floor((low + high) / 2)
    end
    at, sum = log_entry(middle)
    if not at then
      return
    elseif at > after and (sum - log.base) % LOG_SUMS >= used then
      high, high_at, high_sum, step = middle, at, sum, 0
    else
      low, below, step = middle, sum, step * 2
    end
  end
  return high, high_at, high_sum, below
end

-- log_read reads the head of a log: true, false where there is none, nothing where it is no log of ours
local function log_read(key)
  log.key, log.there = key, false
  local head = try('GETRANGE', key, 0, LOG_HEAD_SIZE - 1)
  if type(head) ~= 'string' then
    return foreign(head)
  elseif #head ~= LOG_HEAD_SIZE then
    if #head > 0 or call('EXISTS', key) == 1 then
      return
    end
    return false
  end
  local tag, first, n, base, first_at, first_sum, last_at, last_sum = unpack(LOG_HEAD, head)
  local used, first_cost = (last_sum - base) % LOG_SUMS, (first_sum - base) % LOG_SUMS
  if tag == TAG + SLIDING_LOG and first < n and n <= LOG_MOST and is_instant(first_at) and is_instant(last_at)
    and first_at <= last_at and used > 0 and used <= MAX_LOG and first_cost > 0 and first_cost <= used
    and (first + 1 < n or first_at == last_at and first_sum == last_sum) then
    log.first, log.n, log.base, log.there = first, n, base, true
    log.first_at, log.first_sum, log.last_at, log.last_sum = first_at, first_sum, last_at, last_sum
    return true
  end
end

-- log_settle drops what has gone out of view at now from the log at hand, but not from the store: what is in use, and
-- whether it was re-anchored; nothing for a damaged log
local function log_settle(now, quota, window)
  local used, stepped = nil, false
  local gone = now - window -- and all before
  if log.last_at - now > window then
    used, stepped = quota, true
  elseif log.last_at <= gone then
    log.first, log.base, used = log.n, log.last_sum, 0
  else
    if log.first_at <= gone then
      local i, at, sum, below = log_search(log.first, gone, 0)
      if not i then
        return
      end
      log.base, log.first, log.first_at, log.first_sum = below, i, at, sum
    end
    used = (log.last_sum - log.base) % LOG_SUMS
  end
  log.used, log.stepped = used, stepped
  return used, stepped
end

-- log_digest are three entries that answer a call by which `excess` is too much like the whole log does: those before the
-- one with which enough goes out of view, that one, those after it. Without an excess, the first and the rest.
local function log_digest(used, excess)
  local i, at, sum, before = log.first, log.first_at, log.first_sum, log.base
  if excess > 0 then
    i, at, sum, before = log_search(log.first, -HUGE, excess)
    if not i then
      return
    end
  end
  return pack(LOG_DIGEST, log.first_at, (before - log.base) % LOG_SUMS, at, (sum - before) % LOG_SUMS, log.last_at,
    (log.last_sum - sum) % LOG_SUMS)
end

-- log_decide is like the decide functions of other algorithms, with the key in place of the value, the digest of what was
-- there as its fourth result, false for a counter that does not exist, and true in place of what to store: log_write knows.
local function log_decide(key, now, count, window, cost, asked)
  local quota = min(count, MAX_LOG)
  local there = log_read(key)
  if there == nil then
    return FOREIGN
  elseif not there then
    if asked <= quota then
      return ADMITTED, true, window, false
    end
    return REFUSED, nil, 0, false
  end
  local used, stepped = log_settle(now, quota, window)
  if not used then
    return FOREIGN
  elseif stepped then
    return REFUSED, true, window, pack(LOG_DIGEST, 0, 0, 0, 0, log.last_at, (log.last_sum - log.base) % LOG_SUMS)
  end
  if asked <= quota - used then
    local digest = NO_DIGEST
    if used > 0 then
      digest = log_digest(used, 0)
    end
    return ADMITTED, true, max(now, log.last_at) + window - now, digest
  end
  if used == 0 then
    return REFUSED, nil, 0, NO_DIGEST
  end
  local digest = log_digest(used, asked <= quota and used + asked - quota or 0)
  if not digest then
    return FOREIGN
  end
  return REFUSED, nil, log.last_at + window - now, digest
end

local function log_head()
  return pack(LOG_HEAD, TAG + SLIDING_LOG, log.first, log.n, log.base, log.first_at, log.first_sum, log.last_at,
    log.last_sum)
end

-- log_one stores a log of one entry
local function log_one(key, at, cost, ttl)
  if cost == 0 then
    call('DEL', key)
    return
  end
  call('SET', key, pack(LOG_HEAD, TAG + SLIDING_LOG, 0, 1, 0, at, cost, at, cost), 'PX', ttl)
end

-- log_store stores the log at hand, with `body` as its entries from i on if there is one: in place, or anew where that
-- costs little, since a string that grows in place takes up to twice its length
local function log_store(i, body, ttl)
  local live = log.n - log.first
  if live > LOG_SHORT and (log.first < LOG_SHORT or log.first * 4 < live) then
    if body then
      call('SETRANGE', log.key, LOG_HEAD_SIZE + i * LOG_ENTRY_SIZE, body)
    end
    call('SETRANGE', log.key, 0, log_head())
    call('PEXPIRE', log.key, ttl)
    return
  end
  local kept, entries = body and i or log.n - 1, ''
  if kept > log.first then
    local from = LOG_HEAD_SIZE + log.first * LOG_ENTRY_SIZE
    entries = call('GETRANGE', log.key, from, LOG_HEAD_SIZE + kept * LOG_ENTRY_SIZE - 1)
  end
  log.first, log.n = 0, live
  call('SET', log.key, log_head() .. entries .. (body or ''), 'PX', ttl)
end

-- log_write stores what log_decide said of the log at hand: a charge, or of a refusal a log that was re-anchored
local function log_write(key, now, count, cost, ttl)
  log.key = key -- no longer the former name
  if log.there and log.stepped then
    return log_one(key, now, min(count, MAX_LOG), ttl)
  elseif not log.there or log.used == 0 then
    return log_one(key, now, cost, ttl)
  end
  local sum = (log.last_sum + cost) % LOG_SUMS
  if log.last_at >= now then
    if log.first == log.n - 1 then
      log.first_sum = sum
    end
    log.last_sum = sum
    return log_store(nil, nil, ttl)
  end
  local i, body = log.n - 1, pack(LOG_ENTRY, log.last_at, log.last_sum)
  log.n, log.last_at, log.last_sum = log.n + 1, now, sum
  return log_store(i, body, ttl)
end

-- log_give_back writes by itself. It goes over the entries since the charge, the last first in most cases.
local function log_give_back(key, now, count, window, cost, charged)
  local quota = min(count, MAX_LOG)
  log_at(1)
  if now - charged >= window or not log_read(key) then
    return
  end
  local used, stepped = log_settle(now, quota, window)
  if not used then
    return
  elseif stepped then
    if now >= charged then
      quota = max(0, quota - cost)
    end
    return log_one(key, now, quota, lifetime(window))
  elseif used == 0 then
    call('DEL', key)
    return
  elseif log.last_at < charged then
    return log_store(nil, nil, lifetime(log.last_at + window - now))
  end
  local from, at, sum, before = log_search(log.first, charged - 1, 0)
  if not from then
    return
  end
  -- Entries that remain, from `from` on: their bytes but the last's.
  local bytes = ''
  if from < log.n - 1 then
    local start = LOG_HEAD_SIZE + from * LOG_ENTRY_SIZE
    bytes = call('GETRANGE', log.key, start, LOG_HEAD_SIZE + (log.n - 1) * LOG_ENTRY_SIZE - 1)
    if #bytes ~= (log.n - 1 - from) * LOG_ENTRY_SIZE then
      return
    end
  end
  local body, n, back, last_sum = {}, from, cost, before
  local left_at, left_sum -- the last that remains so far
  if from > log.first then
    left_at, left_sum = log_entry(from - 1)
    if not left_at then
      return
    end
  end
  local new_first_at, new_first_sum = log.first_at, log.first_sum
  local previous = before
  for i = from, log.n - 1 do
    if i == log.n - 1 then
      at, sum = log.last_at, log.last_sum
    else
      at, sum = unpack(LOG_ENTRY, bytes, (i - from) * LOG_ENTRY_SIZE + 1)
    end
    local held = (sum - previous) % LOG_SUMS
    previous = sum
    local taken = min(back, held)
    back = back - taken
    if held > taken then
      if n > from then
        body[n - from] = pack(LOG_ENTRY, left_at, left_sum)
      end
      last_sum = (last_sum + held - taken) % LOG_SUMS
      if n == log.first then
        new_first_at, new_first_sum = at, last_sum
      end
      left_at, left_sum, n = at, last_sum, n + 1
    end
  end
  if n == log.first then
    call('DEL', key)
    return
  end
  log.n, log.last_at, log.last_sum, log.first_at, log.first_sum = n, left_at, left_sum, new_first_at, new_first_sum
  log_store(from, n > from + 1 and concat(body), lifetime(log.last_at + window - now))
end
