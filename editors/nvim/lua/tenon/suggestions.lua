--- Which buffers have suggestions, who shows them there (Neovim's core or this plugin), and taking them.
local M = {}

local answer = require("tenon.answer")
local client_of = require("tenon.client")
local config = require("tenon.config")
local core = require("tenon.core")
local ghost = require("tenon.ghost")
local insertion = require("tenon.insertion")

---@class tenon.Display who asks for suggestions in a buffer and shows them
---@field open fun(bufnr: integer, client_id: integer, is_automatic: boolean)
---@field close fun(bufnr: integer)
---@field current fun(bufnr: integer): tenon.Shown? what is shown and fits
---@field count fun(bufnr: integer): integer of the texts that can be shown
---@field select fun(bufnr: integer, step: integer)
---@field ask fun(bufnr: integer) ask by hand
---@field clear fun(bufnr: integer)
---@field replace fun(bufnr: integer, client_id: integer, left: tenon.Answer) show this instead

---@type table<integer, { client_id: integer, display: tenon.Display }>
local attached = {}

---@param bufnr integer
local function open(bufnr)
  local entry = attached[bufnr]
  local is_on = M.is_on(bufnr)
  entry.display.close(bufnr)
  -- The core has no way to ask by hand alone.
  entry.display = config.options.core and is_on and core.is_usable() and core or ghost
  entry.display.open(bufnr, entry.client_id, is_on)
end

local function tell_servers()
  local is_wanted = config.options.enabled or vim.iter(pairs(attached)):any(M.is_on)
  client_of.tell_enabled(is_wanted)
end

--- Show suggestions of a client's server in a buffer.
---@param client vim.lsp.Client
---@param bufnr integer
function M.attach(client, bufnr)
  if client.server_capabilities.inlineCompletionProvider then
    require("tenon.colours").open()
    attached[bufnr] = { client_id = client.id, display = ghost }
    open(bufnr)
    tell_servers()
    require("tenon.keys").map(bufnr)
  end
end

--- The buffer's server has gone.
---@param bufnr integer
function M.detach(bufnr)
  local entry = attached[bufnr]
  attached[bufnr] = nil
  if entry and vim.api.nvim_buf_is_valid(bufnr) then
    entry.display.close(bufnr)
    require("tenon.keys").unmap(bufnr)
  end
end

--- Whether suggestions come while typing in a buffer.
---@param bufnr integer
---@return boolean
function M.is_on(bufnr)
  local own = vim.b[bufnr].tenon_enabled
  return own == nil and config.options.enabled or own == true
end

--- Have suggestions while typing, or not (nil: the other way round); in one buffer, or in all.
---@param is_on boolean?
---@param bufnr integer?
function M.switch(is_on, bufnr)
  if bufnr then
    vim.b[bufnr].tenon_enabled = is_on == nil and not M.is_on(bufnr) or is_on == true
  else
    config.options.enabled = is_on == nil and not config.options.enabled or is_on == true
  end
  for each in pairs(attached) do
    open(each)
  end
  tell_servers()
  vim.cmd.redrawstatus()
end

---@param cut fun(rest: string): string the part of the text that is taken
---@return boolean
local function take(cut)
  local bufnr = vim.api.nvim_get_current_buf()
  local display = attached[bufnr] and attached[bufnr].display
  local shown = display and display.current(bufnr)
  if not display or not shown then
    return false
  end
  local taken = cut(shown.rest)
  local is_whole = taken == shown.rest
  insertion.put(bufnr, taken, is_whole and shown.answer.anchor.replaced or 0)
  local client = vim.lsp.get_client_by_id(shown.client_id)
  if not is_whole and client then
    local place = vim.lsp.util.make_position_params(0, client.offset_encoding).position
    display.replace(
      bufnr,
      shown.client_id,
      answer.remainder(shown.answer, shown.rest:sub(#taken + 1), place)
    )
    return true
  end
  display.clear(bufnr)
  if shown.answer.command and client then
    client_of.execute(client, shown.answer.command, bufnr)
  end
  return true
end

--- Take the suggestion; false when there is none.
---@return boolean
function M.accept()
  return take(function(rest)
    return rest
  end)
end

--- Take its first word.
---@return boolean
function M.accept_word()
  return take(answer.word)
end

--- Take its first line.
---@return boolean
function M.accept_line()
  return take(answer.line)
end

--- Show the next one, or the one before; asks for alternatives when there is but one.
---@param step integer
---@return boolean
function M.select(step)
  local bufnr = vim.api.nvim_get_current_buf()
  local display = attached[bufnr] and attached[bufnr].display
  if not display or not display.current(bufnr) then
    return false
  end
  if display.count(bufnr) > 1 then
    display.select(bufnr, step)
  else
    display.ask(bufnr)
  end
  return true
end

--- Show no suggestion until the text changes.
---@return boolean
function M.dismiss()
  local bufnr = vim.api.nvim_get_current_buf()
  local display = attached[bufnr] and attached[bufnr].display
  if not display or not display.current(bufnr) then
    return false
  end
  display.clear(bufnr)
  return true
end

--- Ask for suggestions now.
---@return boolean
function M.trigger()
  local bufnr = vim.api.nvim_get_current_buf()
  local display = attached[bufnr] and attached[bufnr].display
  if display then
    display.ask(bufnr)
  end
  return display ~= nil
end

--- Whether a suggestion can be taken.
---@return boolean
function M.is_visible()
  local bufnr = vim.api.nvim_get_current_buf()
  local entry = attached[bufnr]
  return entry ~= nil and entry.display.current(bufnr) ~= nil
end

return M
