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
local LOG_SPARE = 32 -- entries out of view that are not worth a rewrite

-- The log at hand, of the counter whose head was read last. Fields of one table would cost more than these.
local log_key, log_used, log_stepped, log_first, log_n, log_base, log_first_at, log_first_sum, log_last_at, log_last_sum

-- log_entry is the instant and sum of the i-th entry; nothing if it is not there
local function log_entry(i)
  if i == log_n - 1 then
    return log_last_at, log_last_sum
  elseif i == log_first then
    return log_first_at, log_first_sum
  end
  local from = LOG_HEAD_SIZE + i * LOG_ENTRY_SIZE
  local entry = call('GETRANGE', log_key, from, from + LOG_ENTRY_SIZE - 1)
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
  elseif at > after and (sum - log_base) % LOG_SUMS >= used then
    return i, at, sum, log_base
  end
  -- low is before it, high is it or after it
  local low, below, step = i, sum, 1
  local high, high_at, high_sum = log_n - 1, log_last_at, log_last_sum
  while high - low > 1 do
    local middle = low + step
    if step == 0 or middle >= high then
      step, middle = 0, floor((low + high) / 2)
    end
    at, sum = log_entry(middle)
    if not at then
      return
    elseif at > after and (sum - log_base) % LOG_SUMS >= used then
      high, high_at, high_sum, step = middle, at, sum, 0
    else
      low, below, step = middle, sum, step * 2
    end
  end
  return high, high_at, high_sum, below
end

-- log_read reads the head of a log: true, false where there is none, nothing where it is no log of ours
local function log_read(key)
  local head = try('GETRANGE', key, 0, LOG_HEAD_SIZE - 1)
  if type(head) ~= 'string' then
    return
  elseif #head ~= LOG_HEAD_SIZE then
    if #head > 0 or call('EXISTS', key) == 1 then
      return
    end
    return false
  end
  local tag
  tag, log_first, log_n, log_base, log_first_at, log_first_sum, log_last_at, log_last_sum = unpack(LOG_HEAD, head)
  log_key = key
  local used = (log_last_sum - log_base) % LOG_SUMS
  local first_cost = (log_first_sum - log_base) % LOG_SUMS
  if tag == TAG + SLIDING_LOG and log_first < log_n and log_n <= LOG_MOST and is_instant(log_first_at) and is_instant(log_last_at)
    and log_first_at <= log_last_at and used > 0 and used <= MAX_LOG and first_cost > 0 and first_cost <= used
    and (log_first + 1 < log_n or log_first_at == log_last_at and log_first_sum == log_last_sum) then
    return true
  end
end

-- log_settle drops what has gone out of view at now from the log at hand, in these variables alone: what is in use, and
-- whether it was re-anchored; nothing for a damaged log
local function log_settle(now, quota, window)
  if log_last_at - now > window then
    return quota, true
  elseif log_last_at <= now - window then
    log_first, log_base = log_n, log_last_sum
    return 0, false
  elseif log_first_at <= now - window then
    local i, at, sum, below = log_search(log_first, now - window, 0)
    if not i then
      return
    end
    log_base = below
    log_first, log_first_at, log_first_sum = i, at, sum
  end
  return (log_last_sum - log_base) % LOG_SUMS, false
end

-- log_digest are three entries that answer a call by which `excess` is too much like the whole log does: those before the
-- one with which enough goes out of view, that one, those after it. Without an excess, the first and the rest.
local function log_digest(used, excess)
  local i, at, sum, before = log_first, log_first_at, log_first_sum, log_base
  if excess > 0 then
    i, at, sum, before = log_search(log_first, -HUGE, excess)
    if not i then
      return
    end
  end
  return pack(LOG_DIGEST, log_first_at, (before - log_base) % LOG_SUMS, at, (sum - before) % LOG_SUMS, log_last_at,
    (log_last_sum - sum) % LOG_SUMS)
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
  log_used, log_stepped = used, stepped
  if not used then
    return FOREIGN
  elseif stepped then
    return REFUSED, true, window, pack(LOG_DIGEST, 0, 0, 0, 0, log_last_at, (log_last_sum - log_base) % LOG_SUMS)
  end
  if asked <= quota - used then
    local digest = NO_DIGEST
    if used > 0 then
      digest = log_digest(used, 0)
    end
    return ADMITTED, true, max(now, log_last_at) + window - now, digest
  end
  if used == 0 then
    return REFUSED, nil, 0, NO_DIGEST
  end
  local digest = log_digest(used, asked <= quota and used + asked - quota or 0)
  if not digest then
    return FOREIGN
  end
  return REFUSED, nil, log_last_at + window - now, digest
end

local function log_head()
  return pack(LOG_HEAD, TAG + SLIDING_LOG, log_first, log_n, log_base, log_first_at, log_first_sum, log_last_at,
    log_last_sum)
end

-- log_one stores a log of one entry
local function log_one(key, at, cost, ttl)
  if cost == 0 then
    call('DEL', key)
    return
  end
  call('SET', key, pack(LOG_HEAD, TAG + SLIDING_LOG, 0, 1, 0, at, cost, at, cost), 'PX', ttl)
end

-- log_store stores the head of the log at hand, after `body` at the entries from i on if there is one
local function log_store(i, body, ttl)
  if body then
    call('SETRANGE', log_key, LOG_HEAD_SIZE + i * LOG_ENTRY_SIZE, body)
  end
  if log_first >= LOG_SPARE and log_first * 4 >= log_n - log_first then
    local from = LOG_HEAD_SIZE + log_first * LOG_ENTRY_SIZE
    local entries = call('GETRANGE', log_key, from, LOG_HEAD_SIZE + (log_n - 1) * LOG_ENTRY_SIZE - 1)
    log_first, log_n = 0, log_n - log_first
    call('SET', log_key, log_head() .. entries, 'PX', ttl)
    return
  end
  call('SETRANGE', log_key, 0, log_head())
  call('PEXPIRE', log_key, ttl)
end

-- log_write stores what log_decide said of a key: a charge, or with cost 0 a log that was re-anchored. Another log may
-- have been at hand since.
local function log_write(key, now, count, window, cost, ttl)
  local quota = min(count, MAX_LOG)
  if log_key ~= key then
    if not log_read(key) then
      return log_one(key, now, cost, ttl)
    end
    log_used, log_stepped = log_settle(now, quota, window)
  end
  if log_stepped then
    return log_one(key, now, quota, ttl)
  elseif log_used == 0 then
    return log_one(key, now, cost, ttl)
  end
  local sum = (log_last_sum + cost) % LOG_SUMS
  if log_last_at >= now then
    if log_first == log_n - 1 then
      log_first_sum = sum
    end
    log_last_sum = sum
    return log_store(nil, nil, ttl)
  end
  local i, body = log_n - 1, pack(LOG_ENTRY, log_last_at, log_last_sum)
  log_n, log_last_at, log_last_sum = log_n + 1, now, sum
  return log_store(i, body, ttl)
end

-- log_give_back writes by itself. It goes over the entries since the charge, the last first in most cases.
local function log_give_back(key, now, count, window, cost, charged)
  local quota = min(count, MAX_LOG)
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
  elseif log_last_at < charged then
    return log_store(nil, nil, lifetime(log_last_at + window - now))
  end
  local from, at, sum, before = log_search(log_first, charged - 1, 0)
  if not from then
    return
  end
  -- Entries that remain, from `from` on: their bytes but the last's.
  local bytes = ''
  if from < log_n - 1 then
    local start = LOG_HEAD_SIZE + from * LOG_ENTRY_SIZE
    bytes = call('GETRANGE', log_key, start, LOG_HEAD_SIZE + (log_n - 1) * LOG_ENTRY_SIZE - 1)
    if #bytes ~= (log_n - 1 - from) * LOG_ENTRY_SIZE then
      return
    end
  end
  local body, n, back, last_sum = {}, from, cost, before
  local left_at, left_sum -- the last that remains so far
  if from > log_first then
    left_at, left_sum = log_entry(from - 1)
    if not left_at then
      return
    end
  end
  local new_first_at, new_first_sum = log_first_at, log_first_sum
  local previous = before
  for i = from, log_n - 1 do
    if i == log_n - 1 then
      at, sum = log_last_at, log_last_sum
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
      if n == log_first then
        new_first_at, new_first_sum = at, last_sum
      end
      left_at, left_sum, n = at, last_sum, n + 1
    end
  end
  if n == log_first then
    call('DEL', key)
    return
  end
  log_n, log_last_at, log_last_sum, log_first_at, log_first_sum = n, left_at, left_sum, new_first_at, new_first_sum
  log_store(from, n > from + 1 and concat(body), lifetime(log_last_at + window - now))
end
