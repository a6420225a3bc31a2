-- Windows: sliding_window.go and fixed_window.go of package limit. See library.lua for what decide and give_back functions
-- take and return.

local WINDOW_SLIDING, WINDOW_SLIDING_SIZE = '<Bi7i7i7', 22 -- tag, start, current, previous
local WINDOW_FIXED, WINDOW_FIXED_SIZE = '<Bi7i7', 15 -- tag, start, used

-- sliding_settle is start, current and previous of a stored state at now, and whether a clock that stepped back had it
-- re-anchored; nothing if it is none
local function sliding_settle(value, now, count, window)
  if #value ~= WINDOW_SLIDING_SIZE then
    return
  end
  local tag, start, current, previous = unpack(WINDOW_SLIDING, value)
  if tag ~= TAG + SLIDING_WINDOW or not is_instant(start) or not is_count(current) or not is_count(previous) then
    return
  end
  local here = now - now % window
  if start == here then
    return start, current, previous, false
  end
  local r = start % window
  if r > 0 then -- the window's length changed
    start, current, previous = start - r + window, min(current + previous, LARGEST), 0
  end
  local ahead = start - here
  if ahead > window then
    return here, divide_up(count, now - here, 0, window), count, true
  elseif ahead >= 0 then
    return start, current, previous, false
  elseif ahead == -window then
    return here, 0, current, false
  end
  return here, 0, 0, false
end

local function sliding_fresh(start, current, previous, now, window)
  if current > 0 then
    return 2 * window + start - now
  elseif previous > 0 then
    return window + start - now
  end
  return 0
end

local function sliding_decide(value, now, count, window, cost, asked)
  local start, current, previous, stepped
  if value then
    start, current, previous, stepped = sliding_settle(value, now, count, window)
    if not start then
      return FOREIGN
    end
  else
    start, current, previous = now - now % window, 0, 0
  end
  local room, in_view = count - current - asked, window
  if now > start then
    in_view = window - (now - start)
  end
  if room >= 0 and at_most(previous, in_view, room, window) then
    current = current + cost
    return ADMITTED, pack(WINDOW_SLIDING, TAG + SLIDING_WINDOW, start, current, previous),
      sliding_fresh(start, current, previous, now, window)
  end
  return REFUSED, stepped and pack(WINDOW_SLIDING, TAG + SLIDING_WINDOW, start, current, previous),
    sliding_fresh(start, current, previous, now, window)
end

local function sliding_give_back(value, now, count, window, cost, _, charged)
  local start, current, previous = sliding_settle(value, now, count, window)
  if not start then
    return
  end
  local from = charged - charged % window
  if from == start then
    current = max(0, current - cost)
  elseif from == start - window then
    previous = max(0, previous - cost)
  else
    return
  end
  return pack(WINDOW_SLIDING, TAG + SLIDING_WINDOW, start, current, previous),
    sliding_fresh(start, current, previous, now, window)
end

-- fixed_settle is start and used of a stored state at now, and whether it was re-anchored; nothing if it is none
local function fixed_settle(value, now, count, window, offset)
  if #value ~= WINDOW_FIXED_SIZE then
    return
  end
  local tag, start, used = unpack(WINDOW_FIXED, value)
  if tag ~= TAG + FIXED_WINDOW or not is_instant(start) or not is_count(used) then
    return
  end
  local here = now - (now - offset) % window
  if used == 0 then
    return here, 0, false
  end
  local r = (start - offset) % window
  if r > 0 then -- the window's length changed
    start = start - r + window
  end
  local ahead = start - here
  if ahead > window then
    return here, count, true
  elseif ahead >= 0 then
    return start, used, false
  end
  return here, 0, false
end

local function fixed_fresh(start, used, now, window)
  if used == 0 then
    return 0
  end
  return start + window - now
end

local function fixed_decide(value, now, count, window, cost, asked, offset)
  local start, used, stepped
  if value then
    start, used, stepped = fixed_settle(value, now, count, window, offset)
    if not start then
      return FOREIGN
    end
  else
    start, used = now - (now - offset) % window, 0
  end
  if asked <= count - used then
    used = used + cost
    return ADMITTED, pack(WINDOW_FIXED, TAG + FIXED_WINDOW, start, used), fixed_fresh(start, used, now, window)
  end
  return REFUSED, stepped and pack(WINDOW_FIXED, TAG + FIXED_WINDOW, start, used), fixed_fresh(start, used, now, window)
end

local function fixed_give_back(value, now, count, window, cost, offset, charged)
  local start, used = fixed_settle(value, now, count, window, offset)
  if not start or charged - (charged - offset) % window ~= start then
    return
  end
  used = max(0, used - cost)
  return pack(WINDOW_FIXED, TAG + FIXED_WINDOW, start, used), fixed_fresh(start, used, now, window)
end
