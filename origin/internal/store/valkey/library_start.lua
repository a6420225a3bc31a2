-- Decides counters of every algorithm in one atomic step. Written anew at each change: its names carry the hash of this
-- text. The numbers of statuses and algorithms and the bounds of package limit stand before it, written by library.go.

-- TAG + algorithm is the first byte of every value: no text in UTF-8 has such a byte.
local TAG = 248

-- What a library may not touch while it is loaded, set at the first call; no call looks it up again.
local call, try, pack, unpack, floor, min, max, concat
local mark = {} -- a status as the byte of an answer
local NO_DIGEST -- of a log with nothing in view

local function begin()
  if not call then
    call, try, pack, unpack = server.call, server.pcall, struct.pack, struct.unpack
    floor, min, max, concat = math.floor, math.min, math.max, table.concat
    for status = 0, 7 do
      mark[status] = string.char(status)
    end
    NO_DIGEST = string.rep('\0', 27)
  end
end

-- lifetime is a time as a store keeps it: whole ms, rounded up, at least 1, since none would delete the counter
local function lifetime(fresh)
  if fresh <= 1000 then
    return SPARE + 1
  end
  return SPARE - floor(-fresh / 1000)
end

-- foreign is for a reply that is no value of ours, or an error: it raises one that says anything else than that the value
-- is of another type, as of a user who may not read
local function foreign(reply)
  if type(reply) == 'table' and string.sub(reply.err, 1, 9) ~= 'WRONGTYPE' then
    error(reply)
  end
end
