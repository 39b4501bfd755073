--- The plugin's only voice to the user. What is wrong is said once, until a restart.
local M = {}

---@type table<string, true>
local said = {}

--- Answer something that the user has asked for; this is said every time.
---@param sentence string
---@param level integer?
function M.say(sentence, level)
  vim.schedule(function() -- an error said inside an autocommand would show its stack
    vim.notify("Tenon: " .. sentence, level or vim.log.levels.INFO)
  end)
end

--- Tell the user of a fault, unless it has been told.
---@param fault string
---@param sentence string
function M.fault(fault, sentence)
  if not said[fault] then
    said[fault] = true
    M.say(sentence, vim.log.levels.ERROR)
  end
end

--- Whatever was wrong may be over.
function M.forget()
  said = {}
end

return M
