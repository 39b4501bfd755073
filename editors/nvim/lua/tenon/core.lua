--- Suggestions shown by Neovim 0.12 itself (`vim.lsp.inline_completion`).
---
--- Neovim asks while typing and draws. It has no public way to look at what is shown, to ask by hand, or to show the rest
--- of what was taken in part: for that this module uses the object behind it, and is not usable when that has changed.
local M = {}

local answer = require("tenon.answer")
local insertion = require("tenon.insertion")

local NAME = "inline_completion"
local INVOKED, AUTOMATIC = 1, 2
local NEEDED = { "abort", "count_items", "get_item", "hide", "request", "select" }

---@return table? class
local function completors()
  local is_there, capability = pcall(require, "vim.lsp._capability")
  return is_there and vim.tbl_get(capability, "all", NAME) or nil
end

--- Whether this Neovim has it, as it is known here.
---@return boolean
function M.is_usable()
  local class = vim.lsp[NAME] and completors()
  return class ~= nil
    and type(class.active) == "table"
    and vim.iter(NEEDED):all(function(name)
      return type(class[name]) == "function"
    end)
end

---@param bufnr integer
---@return table? completor
local function completor_of(bufnr)
  local class = completors()
  return class and class.active[bufnr]
end

---@param bufnr integer
---@return string
local function group_name(bufnr)
  return ("tenon.core.%d"):format(bufnr)
end

---@param bufnr integer
local function hide_what_does_not_fit(bufnr)
  local completor = completor_of(bufnr)
  local current = completor and completor.current
  local client = current and vim.lsp.get_client_by_id(current.client_id)
  if client and client.name == "tenon" and not M.current(bufnr) then
    completor.current = nil
    completor:hide()
  end
end

---@param bufnr integer
function M.open(bufnr)
  vim.lsp.inline_completion.enable(true, { bufnr = bufnr })
  local group = vim.api.nvim_create_augroup(group_name(bufnr), {})
  vim.api.nvim_create_autocmd({ "CursorMovedI", "TextChangedI", "TextChangedP" }, {
    group = group,
    buffer = bufnr,
    callback = function()
      hide_what_does_not_fit(bufnr)
    end,
  })
  vim.api.nvim_create_autocmd("ModeChanged", { -- the core's InsertLeave does not come after <C-c>
    group = group,
    pattern = "i*:[^i]*",
    callback = function()
      M.clear(bufnr)
    end,
  })
  vim.schedule(function() -- by then the core has made its object
    local completor = completor_of(bufnr)
    if completor and insertion.is_in(bufnr) then
      completor:request(AUTOMATIC)
    end
  end)
end

---@param bufnr integer
function M.close(bufnr)
  vim.lsp.inline_completion.enable(false, { bufnr = bufnr })
  vim.api.nvim_create_augroup(group_name(bufnr), {})
end

---@param bufnr integer
---@return tenon.Shown?
function M.current(bufnr)
  local completor = completor_of(bufnr)
  if not completor or not completor.current then
    return nil
  end
  local client_id, found = completor:get_item(completor.current._index)
  local rest = found and type(found.insertText) == "string" and answer.rest(found, bufnr)
  return rest and { rest = rest, answer = found, client_id = client_id } or nil
end

---@param bufnr integer
---@return integer
function M.count(bufnr)
  local completor = completor_of(bufnr)
  return completor and completor:count_items() or 0
end

---@param bufnr integer
---@param step integer
function M.select(bufnr, step)
  vim.lsp.inline_completion.select({ bufnr = bufnr, count = step })
end

---@param bufnr integer
function M.ask(bufnr)
  local completor = completor_of(bufnr)
  if completor then
    completor:abort()
    completor:request(INVOKED)
  end
end

---@param bufnr integer
function M.clear(bufnr)
  local completor = completor_of(bufnr)
  if completor then
    completor:abort()
  end
end

---@param bufnr integer
---@param client_id integer
---@param left tenon.Answer
function M.replace(bufnr, client_id, left)
  local completor = completor_of(bufnr)
  if completor and completor.client_state[client_id] then
    completor.client_state[client_id].items = { left }
    completor:select(1)
  end
end

return M
