-- Buckets: token_bucket.go, leaky_bucket.go, leaky_queue.go and gcra.go of package limit. See library.lua for what decide
-- and give_back functions take and return.

local BUCKET, BUCKET_SIZE = '<Bi7i6i7i7', 28 -- tag, tokens or level, part, last, count
local CELL, CELL_SIZE = '<Bi7i7i7i6', 28 -- tag, spent, part, count, window

-- bucket_read is level, part, last and count of a stored bucket, a token bucket's or a leaky one's; nothing if it is none
local function bucket_read(value, algorithm)
  if #value ~= BUCKET_SIZE then
    return
  end
  local tag, level, part, last, measured = unpack(BUCKET, value)
  if tag == TAG + algorithm and is_count(level) and part >= 0 and is_instant(last) and is_count(measured) then
    return level, part, last, measured
  end
end

-- refill brings tokens, which may be negative, to now: tokens, part, last, count, and whether that is to be kept whatever
-- the verdict
local function refill(tokens, part, last, measured, now, count, window, capacity)
  local keep = false
  local rate = measured
  if rate ~= count and count > 0 then
    if rate == 0 then
      rate = count
    else
      keep = true
    end
    measured = count
  end
  if part >= window then
    part = 0
  end
  if tokens >= capacity then
    tokens, part = capacity, 0
  end
  local elapsed = now - last
  if elapsed <= 0 then
    if elapsed < 0 and count > 0 and -elapsed - 1 >= divide_up(capacity, window, 0, count) then
      return 0, 0, now, count, true
    end
    return tokens, part, last, measured, keep
  elseif tokens == capacity then
    return tokens, part, now, measured, keep
  end
  local gained, rest = divide(elapsed, rate, part, window)
  if gained >= capacity - tokens then
    return capacity, 0, now, measured, keep
  end
  return tokens + gained, rest, now, measured, keep
end

-- full_after is the time until a settled bucket is full; one without a rate is kept for as long as a value that is not ours
local function full_after(tokens, part, last, now, count, window, capacity)
  if count == 0 then
    return 2 * window
  elseif tokens >= capacity then
    return 0
  end
  local wait = divide_up(capacity - tokens, window, -part, count)
  if last > now then
    return last - now + wait
  end
  return wait
end

local function token_decide(value, now, count, window, cost, asked, capacity)
  local tokens, part, last, measured, keep
  if value then
    tokens, part, last, measured = bucket_read(value, TOKEN_BUCKET)
    if not tokens then
      return FOREIGN
    end
    tokens, part, last, measured, keep = refill(tokens, part, last, measured, now, count, window, capacity)
  else
    tokens, part, last, measured = capacity, 0, now, count
  end
  if asked <= tokens then
    tokens = tokens - cost
    return ADMITTED, pack(BUCKET, TAG + TOKEN_BUCKET, tokens, part, last, measured),
      full_after(tokens, part, last, now, count, window, capacity)
  end
  return REFUSED, keep and pack(BUCKET, TAG + TOKEN_BUCKET, tokens, part, last, measured),
    full_after(tokens, part, last, now, count, window, capacity)
end

local function token_give_back(value, now, count, window, cost, capacity)
  local tokens, part, last, measured = bucket_read(value, TOKEN_BUCKET)
  if not tokens then
    return
  end
  tokens, part, last, measured = refill(tokens, part, last, measured, now, count, window, capacity)
  if cost >= capacity - tokens then
    tokens, part = capacity, 0
  else
    tokens = tokens + cost
  end
  return pack(BUCKET, TAG + TOKEN_BUCKET, tokens, part, last, measured),
    full_after(tokens, part, last, now, count, window, capacity)
end

-- leaky_room is a leaky bucket at now as the token bucket of the room that is left; nothing if it is none
local function leaky_room(value, algorithm, now, count, window, capacity)
  local level, part, last, measured = bucket_read(value, algorithm)
  if not level then
    return
  end
  if level > capacity and count > 0 then -- what would take longer than the bound to drain is cut
    level = min(level, (divide(MAX_REFILL, count, 0, window)))
  end
  return refill(capacity - level, part, last, measured, now, count, window, capacity)
end

local function leaky_decide_as(algorithm)
  return function(value, now, count, window, cost, asked, capacity)
    local tokens, part, last, measured, keep
    if value then
      tokens, part, last, measured, keep = leaky_room(value, algorithm, now, count, window, capacity)
      if not tokens then
        return FOREIGN
      end
    else
      tokens, part, last, measured = refill(capacity, 0, 0, 0, now, count, window, capacity)
    end
    if asked <= tokens then
      tokens = tokens - cost
      return ADMITTED, pack(BUCKET, TAG + algorithm, capacity - tokens, part, last, measured),
        full_after(tokens, part, last, now, count, window, capacity)
    end
    return REFUSED, keep and pack(BUCKET, TAG + algorithm, capacity - tokens, part, last, measured),
      full_after(tokens, part, last, now, count, window, capacity)
  end
end

local leaky_decide = leaky_decide_as(LEAKY_BUCKET)
local queue_decide = leaky_decide_as(LEAKY_QUEUE)

-- leaky_refunded is what a leaky bucket gives to keep once cost was taken out of it
local function leaky_refunded(algorithm, tokens, part, last, measured, now, count, window, cost, capacity)
  if cost >= capacity - tokens then
    tokens, part = capacity, 0
  else
    tokens = tokens + cost
  end
  return pack(BUCKET, TAG + algorithm, capacity - tokens, part, last, measured),
    full_after(tokens, part, last, now, count, window, capacity)
end

local function leaky_give_back(value, now, count, window, cost, capacity)
  local tokens, part, last, measured = leaky_room(value, LEAKY_BUCKET, now, count, window, capacity)
  if tokens then
    return leaky_refunded(LEAKY_BUCKET, tokens, part, last, measured, now, count, window, cost, capacity)
  end
end

-- a queue gives the last place back alone: charged is when its call leaves
local function queue_give_back(value, now, count, window, cost, capacity, charged)
  if count == 0 then
    return
  end
  local tokens, part, last, measured = leaky_room(value, LEAKY_QUEUE, now, count, window, capacity)
  if not tokens then
    return
  end
  local level, leaves = capacity - tokens, nil
  if level > cost or level == cost and part == 0 then
    leaves = last + divide_up(level - cost, window, -part, count)
  else
    leaves = last - (divide(cost - level, window, part, count))
  end
  if leaves == charged then
    return leaky_refunded(LEAKY_QUEUE, tokens, part, last, measured, now, count, window, cost, capacity)
  end
end

-- needs is the time that a cell of this part takes to earn q + r/count µs' worth, in whole µs
local function needs(q, r, part, count)
  if r == 0 and part == 0 then
    return q
  elseif r <= count - part then
    return q + 1
  end
  return q + 2
end

-- earlier moves spent back by q + r/count µs
local function earlier(spent, part, q, r, count)
  if part < r then
    return spent - q - 1, part - r + count
  end
  return spent - q, part - r
end

-- cell_holding is spent and part of a cell that holds level + rest/window tokens at now
local function cell_holding(now, level, rest, count, window)
  local q, r = divide(level, window, rest, count)
  return earlier(now, 0, q, r, count)
end

-- cell_settle is spent and part of a stored cell as measured by the limit at hand, and whether that is to be kept whatever
-- the verdict; nothing if it is none
local function cell_settle(value, now, count, window, capacity)
  if #value ~= CELL_SIZE then
    return
  end
  local tag, spent, part, measured, length = unpack(CELL, value)
  if tag ~= TAG + GCRA or not is_instant(spent) or not is_count(measured) or not is_count(part) or length < MIN_WINDOW
    or length > MAX_WINDOW or part >= measured and measured + part > 0 then
    return
  end
  if count == 0 then
    return spent, part, false
  end
  local keep = false
  if measured ~= count or length ~= window then
    keep = true
    local elapsed = now - spent
    if measured == 0 then
      spent, part = now, 0
    elseif elapsed <= 0 then
      if part > 0 then
        spent, part = spent + 1, 0
      end
    else
      local level, rest = divide(elapsed, measured, -part, length)
      if level >= capacity then
        spent, part = cell_holding(now, capacity, 0, count, window)
      else
        spent, part = cell_holding(now, level, (divide(rest, window, 0, length)), count, window)
      end
    end
  end
  if now < spent and spent - now - 1 >= divide_up(capacity, window, 0, count) then
    return now, 0, true
  end
  return spent, part, keep
end

local function cell_decide(value, now, count, window, cost, asked, capacity)
  if count == 0 then
    if value and not cell_settle(value, now, count, window, capacity) then
      return FOREIGN
    end
    return REFUSED, nil, 2 * window
  end
  local q, r = divide(capacity, window, 0, count)
  local spent, part, keep
  if value then
    spent, part, keep = cell_settle(value, now, count, window, capacity)
    if not spent then
      return FOREIGN
    end
  else
    spent, part = earlier(now, 0, q, r, count)
  end
  local elapsed, admitted = now - spent, false
  if asked <= capacity and elapsed > 0 then
    if elapsed >= needs(q, r, part, count) then
      admitted = true
      spent, part = cell_holding(now, capacity - cost, 0, count, window)
    else
      local cost_q, cost_r = divide(asked, window, 0, count)
      if elapsed >= needs(cost_q, cost_r, part, count) then
        admitted = true
        if cost > 0 then
          if cost_r >= count - part then
            spent, part = spent + cost_q + 1, cost_r - (count - part)
          else
            spent, part = spent + cost_q, part + cost_r
          end
        end
      end
    end
  end
  local fresh = spent + needs(q, r, part, count) - now
  if admitted then
    return ADMITTED, pack(CELL, TAG + GCRA, spent, part, count, window), fresh
  end
  return REFUSED, keep and pack(CELL, TAG + GCRA, spent, part, count, window), fresh
end

local function cell_give_back(value, now, count, window, cost, capacity)
  local spent, part = cell_settle(value, now, count, window, capacity)
  if not spent or count == 0 then
    return
  end
  local full = cost >= capacity
  if not full and now > spent then
    local q, r = divide(capacity - cost, window, 0, count)
    full = now - spent >= needs(q, r, part, count)
  end
  if full then
    spent, part = cell_holding(max(now, spent), capacity, 0, count, window)
  else
    local q, r = divide(cost, window, 0, count)
    spent, part = earlier(spent, part, q, r, count)
  end
  local q, r = divide(capacity, window, 0, count)
  return pack(CELL, TAG + GCRA, spent, part, count, window), spent + needs(q, r, part, count) - now
end
