--- Between a client's positions and ours, which are bytes of a line.
local M = {}

--- The byte that a position means; the end of the line for one beyond it.
---@param line string
---@param character integer
---@param encoding string "utf-8", "utf-16" or "utf-32"
---@return integer
function M.byte(line, character, encoding)
  if encoding == "utf-8" then
    return math.min(character, #line)
  end
  local units, byte = 0, 0
  while units < character and byte < #line do
    local lead = line:byte(byte + 1)
    local width = lead < 0xC0 and 1 or lead < 0xE0 and 2 or lead < 0xF0 and 3 or 4
    units = units + ((encoding == "utf-16" and width == 4) and 2 or 1)
    byte = math.min(byte + width, #line)
  end
  return byte
end

--- How a client counts what stands before a position.
---@param before string
---@param encoding string
---@return integer
function M.character(before, encoding)
  if encoding == "utf-8" then
    return #before
  end
  local _, continued = before:gsub("[\128-\191]", "")
  local _, astral = before:gsub("[\240-\247]", "")
  return #before - continued + (encoding == "utf-16" and astral or 0)
end

return M
