-- Whole numbers, exact. Numbers are doubles, which are exact below 2^53; a product that may be larger is held as two of
-- them, its rounded value and what that is off by, or is not computed at all.

local EXACT = 9007199254740992 -- 2^53
local HUGE = 1152921504606846976 -- stands for a quotient from 2^53 on, which is more than any count or wait
local SPLIT = 134217729 -- 2^27 + 1
local HALF = 67108864 -- 2^26: sums of a few numbers in two digits of this base stay exact

-- product is a·b as its double and the exact rest (Dekker 1971), a and b below 2^54
local function product(a, b)
  local p = a * b
  local t = SPLIT * a
  local a1 = t - (t - a)
  local a2 = a - a1
  t = SPLIT * b
  local b1 = t - (t - b)
  local b2 = b - b1
  return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2
end

-- at_most tells whether a·b <= c·d, all of them >= 0. Rounding keeps the order of products, so that only equal ones need
-- their rests.
local function at_most(a, b, c, d)
  local p, q = a * b, c * d
  if p ~= q or p < EXACT then
    return p <= q
  end
  local rest_p, rest_q
  p, rest_p = product(a, b)
  q, rest_q = product(c, d)
  return rest_p <= rest_q
end

-- divide_large is divide for a product from 2^53 on: a quotient near the true one, and its remainder in two digits, which
-- then says how near.
local function divide_large(a, b, plus, c)
  local p, rest_p = product(a, b)
  local q = floor((p + plus) / c)
  if q >= EXACT + 8 then
    return HUGE, 0
  end
  q = min(q, EXACT - 1) -- it may be off by a few
  local o, rest_o = product(q, c)
  local d = p - o
  local back = d - p
  local high, low = 0, 0
  for _, term in ipairs({d, (p - (d - back)) - (o + back), rest_p, -rest_o, plus}) do
    local digit = floor(term / HALF)
    high, low = high + digit, low + (term - digit * HALF)
  end
  local carry = floor(low / HALF)
  high, low = high + carry, low - carry * HALF
  local c_high = floor(c / HALF)
  local c_low = c - c_high * HALF
  while high < 0 do
    q, high, low = q - 1, high + c_high, low + c_low
    if low >= HALF then
      high, low = high + 1, low - HALF
    end
  end
  while high > c_high or high == c_high and low >= c_low do
    q, high, low = q + 1, high - c_high, low - c_low
    if q == EXACT then
      return HUGE, 0
    elseif low < 0 then
      high, low = high - 1, low + HALF
    end
  end
  return q, high * HALF + low
end

-- divide is (a·b + plus) / c as quotient and remainder, for a, b, a·b + plus >= 0, c > 0, all below 2^53 but the product;
-- HUGE for a larger quotient
local function divide(a, b, plus, c)
  local p = a * b
  local sum = p + plus
  if p < EXACT and sum < EXACT then
    local rest = sum % c
    return (sum - rest) / c, rest
  end
  return divide_large(a, b, plus, c)
end

-- divide_up is ceil((a·b + plus) / c), with the bounds of divide
local function divide_up(a, b, plus, c)
  local q, rest = divide(a, b, plus, c)
  if rest > 0 then
    return q + 1
  end
  return q
end

-- is_instant and is_count tell whether a number that was read is one that Weir writes
local function is_instant(n)
  return n >= -LARGEST and n <= LARGEST
end

local function is_count(n)
  return n >= 0 and n <= LARGEST
end
