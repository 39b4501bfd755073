--- What the server says it is doing, and how a status line says it.
local M = {}

---@class tenon.Status as the server tells it; what it does not know is absent
---@field message string "stopped", "starting", "loading", "ready", "busy" or "failed"
---@field busy boolean
---@field kind "Normal"|"Warning"|"Error"|"Inactive"
---@field model string?
---@field device string?
---@field percent integer? while loading
---@field latencyMs integer? of the last suggestion

---@type tenon.Status?
local told

--- Take note of a status; nil when there is no server any more.
---@param status tenon.Status?
function M.set(status)
  told = status
  vim.api.nvim_exec_autocmds("User", { pattern = "TenonStatus", modeline = false })
  vim.cmd.redrawstatus()
end

--- The last status.
---@return tenon.Status?
function M.get()
  return told
end

--- A few words on a buffer's suggestions: "tenon", "tenon 40%", "tenon …", "tenon off", "tenon: failed"; "" without a
--- server.
---@param bufnr integer?
---@return string
function M.text(bufnr)
  bufnr = bufnr or vim.api.nvim_get_current_buf()
  if #vim.lsp.get_clients({ name = "tenon", bufnr = bufnr }) == 0 then
    return ""
  end
  if not require("tenon.suggestions").is_on(bufnr) then
    return "tenon off"
  elseif not told then
    return "tenon"
  elseif told.kind == "Error" or told.kind == "Warning" then
    return "tenon: " .. told.message
  elseif told.percent and told.busy then
    return ("tenon %d%%"):format(told.percent)
  end
  return told.busy and "tenon …" or "tenon"
end

return M
