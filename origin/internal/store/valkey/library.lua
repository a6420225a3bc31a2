-- Decides sliding windows in one atomic step. Written anew at each change: its names carry the hash of this text.
--
-- KEYS   one counter each
-- ARGV   not_after µs, then for each counter: count, window µs, cost
-- reply  8-byte little-endian integers: 0, now µs, then for each counter: status, start, current, previous as they were
--        before; or 1, now µs if not_after has passed: nothing was read or written
-- status 0 admitted, 1 refused, 2 foreign (no counter of ours is stored there)
--
-- The arithmetic is package limit's (sliding_window.go). Numbers are doubles, exact below 2^53, so a product that may
-- be larger is compared in limbs.

local EXACT = 9007199254740992 -- 2^53
local LIMB = 16777216 -- 2^24: three products of limbs and a carry stay exact

-- limbs of x·y, least significant first, x and y below 2^72
local function product(x, y)
  local a, b, p = {}, {}, {0, 0, 0, 0, 0, 0}
  for i = 1, 3 do
    a[i], b[i] = math.fmod(x, LIMB), math.fmod(y, LIMB)
    x, y = (x - a[i]) / LIMB, (y - b[i]) / LIMB
  end
  local carry = 0
  for k = 2, 7 do
    local sum = carry
    for i = math.max(1, k - 3), math.min(3, k - 1) do
      sum = sum + a[i] * b[k - i]
    end
    p[k - 1] = math.fmod(sum, LIMB)
    carry = (sum - p[k - 1]) / LIMB
  end
  return p
end

-- at_most tells whether a·b <= c·d, all of them >= 0
local function at_most(a, b, c, d)
  local ab, cd = a * b, c * d
  if ab < EXACT and cd < EXACT then
    return ab <= cd
  end
  ab, cd = product(a, b), product(c, d)
  for i = 6, 1, -1 do
    if ab[i] ~= cd[i] then
      return ab[i] < cd[i]
    end
  end
  return true
end

-- div_up is ceil(a·b/c) for b < c: near it in doubles, then to the exact one
local function div_up(a, b, c)
  local q = math.max(0, math.floor(a * (b / c)) - 2)
  while not at_most(a, b, q, c) do
    q = q + 1
  end
  while q > 0 and at_most(a, b, q - 1, c) do
    q = q - 1
  end
  return q
end

-- read gives {status, start, current, previous}; a missing counter is one never used
local function read(key, window)
  local value = server.pcall('GET', key)
  if value == false then
    return {0, 0, 0, 0}
  end
  if type(value) == 'string' and #value == 24 then
    local start, current, previous = struct.unpack('<i8i8i8', value)
    if start >= 0 and start < EXACT and math.fmod(start, window) == 0
      and current >= 0 and current <= EXACT and previous >= 0 and previous <= EXACT then
      return {0, start, current, previous}
    end
  end
  return {2, 0, 0, 0}
end

-- settle brings the windows to now; the last result tells a clock that stepped back by more than a window
local function settle(counter, now, count, window)
  local start, current, previous = counter[2], counter[3], counter[4]
  local here = now - math.fmod(now, window)
  if start > here + window then
    return here, div_up(count, now - here, window), count, true
  elseif start >= here then
    return start, current, previous, false
  elseif start == here - window then
    return here, 0, current, false
  end
  return here, 0, 0, false
end

-- keep stores a state until it equals a fresh one, at least 1 ms: a zero expiry would delete it
local function keep(key, now, window, start, current, previous)
  local fresh = start + 2 * window
  if current == 0 then
    fresh = start + window
  end
  local ttl = math.max(1, math.ceil((fresh - now) / 1000))
  server.call('SET', key, struct.pack('<i8i8i8', start, current, previous), 'PX', string.format('%.0f', ttl))
end

local function check(keys, args)
  local now = clock(args)
  if now > tonumber(args[1]) then
    return struct.pack('<i8i8', 1, now)
  end
  local reply, planned, all = {0, now}, {}, true
  for i = 1, #keys do
    local count, window, cost = tonumber(args[3 * i - 1]), tonumber(args[3 * i]), tonumber(args[3 * i + 1])
    local counter = read(keys[i], window)
    local start, current, previous, stepped = settle(counter, now, count, window)
    if counter[1] == 0 then
      local room = count - current - math.max(cost, 1)
      local in_view = window - math.max(0, now - start)
      if room < 0 or not at_most(previous, in_view, room, window) then
        counter[1] = 1
      end
    end
    all = all and counter[1] == 0
    planned[i] = {window, cost, start, current, previous, stepped}
    for j = 1, 4 do
      reply[#reply + 1] = counter[j]
    end
  end
  for i = 1, #keys do
    local window, cost, start, current, previous, stepped = unpack(planned[i])
    local status = reply[4 * i - 1]
    if status == 2 then
      server.call('PEXPIRE', keys[i], string.format('%.0f', math.ceil(2 * window / 1000)), 'NX')
    elseif all and cost > 0 then
      keep(keys[i], now, window, start, current + cost, previous)
    elseif stepped then
      keep(keys[i], now, window, start, current, previous)
    elseif reply[4 * i + 1] > 0 or reply[4 * i + 2] > 0 then
      -- Nothing is charged, but a counter that somebody left without an expiry would stand for ever.
      server.call('PEXPIRE', keys[i], string.format('%.0f', math.max(1, math.ceil((start + 2 * window - now) / 1000))), 'NX')
    end
  end
  for i = 1, #reply do
    reply[i] = struct.pack('<i8', reply[i])
  end
  return table.concat(reply)
end
