--- Keys in insert mode. A key with nothing to do does what it did before.
local M = {}

local config = require("tenon.config")
local insertion = require("tenon.insertion")

---@type table<integer, table<string, table>> by buffer and key: the buffer's own mapping before ours, or {}
local before = {}
---@type table<integer, table<string, fun()>> by buffer and key: ours
local ours = {}

---@param lhs string
---@return table mapping as `maparg` describes it, {} for none
local function mapping_of(lhs)
  return vim.fn.maparg(lhs, "i", false, true)
end

---@param bufnr integer
---@param lhs string
---@return table
local function mapping_before(bufnr, lhs)
  local own = before[bufnr] and before[bufnr][lhs]
  if own and next(own) then
    return own
  end
  local codes = vim.api.nvim_replace_termcodes(lhs, true, true, true)
  return vim.iter(vim.api.nvim_get_keymap("i")):find(function(map)
    return map.lhsraw == codes or map.lhsrawalt == codes
  end) or {}
end

---@param map table
---@return string keys
local function evaluated(map)
  if map.callback then
    local keys = map.callback()
    return type(keys) == "string" and keys or "" -- as Neovim takes it
  end
  return vim.api.nvim_eval((map.rhs:gsub("<SID>", ("<SNR>%d_"):format(map.sid))))
end

--- What a key did before it was mapped here.
---@param bufnr integer
---@param lhs string
local function press(bufnr, lhs)
  local map = mapping_before(bufnr, lhs)
  if not next(map) then
    return insertion.press("<C-]>" .. lhs, true) -- without <C-]>, no abbreviation would be expanded
  end
  if map.expr == 0 and map.callback then
    return map.callback()
  end
  local keys = map.expr == 1 and evaluated(map) or map.rhs
  local begins_anew = vim.startswith(keys:lower(), lhs:lower()) -- Vim does not map that a second time
  if map.expr == 1 and map.replace_keycodes ~= 1 then
    return vim.api.nvim_feedkeys(keys, (map.noremap == 1 or begins_anew) and "in" or "im", false)
  end
  insertion.press(keys, map.noremap == 1 or begins_anew)
end

---@return boolean
local function is_in_menu()
  return vim.fn.pumvisible() == 1 and vim.fn.complete_info({ "selected" }).selected >= 0
end

--- Map the keys in a buffer.
---@param bufnr integer
function M.map(bufnr)
  if before[bufnr] or not config.options.keys then
    return
  end
  before[bufnr], ours[bufnr] = {}, {}
  for action, lhs in pairs(config.options.keys) do
    if lhs then
      local map = vim.api.nvim_buf_call(bufnr, function()
        return mapping_of(lhs)
      end)
      before[bufnr][lhs] = map.buffer == 1 and map or {}
      ours[bufnr][lhs] = function()
        if is_in_menu() or not require("tenon")[action]() then
          press(bufnr, lhs)
        end
      end
      local description = "Tenon: " .. action:gsub("_", " ")
      vim.keymap.set("i", lhs, ours[bufnr][lhs], { buffer = bufnr, desc = description })
    end
  end
end

--- Give a buffer's keys back; one that was mapped anew since, or unmapped, is left as it is.
---@param bufnr integer
function M.unmap(bufnr)
  local maps, set = before[bufnr] or {}, ours[bufnr] or {}
  before[bufnr], ours[bufnr] = nil, nil
  if not vim.api.nvim_buf_is_loaded(bufnr) then
    return
  end
  vim.api.nvim_buf_call(bufnr, function()
    for lhs, map in pairs(maps) do
      if mapping_of(lhs).callback == set[lhs] then
        vim.keymap.del("i", lhs, { buffer = bufnr })
        if next(map) then
          vim.fn.mapset(map)
        end
      end
    end
  end)
end

return M
