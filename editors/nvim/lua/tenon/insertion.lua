--- Insert mode: whether somebody types in a buffer, and putting text where they do.
local M = {}

--- Whether this is the buffer that is typed in.
---@param bufnr integer
---@return boolean
function M.is_in(bufnr)
  return vim.api.nvim_get_current_buf() == bufnr
    and vim.startswith(vim.api.nvim_get_mode().mode, "i")
end

--- Press keys, before those that wait.
---@param keys string as in a mapping, `<Tab>`
---@param is_literal boolean without mappings
function M.press(keys, is_literal)
  local codes = vim.api.nvim_replace_termcodes(keys, true, true, true)
  vim.api.nvim_feedkeys(codes, is_literal and "in" or "im", false)
end

--- Put text at the cursor, which goes behind it, as a step of its own to undo.
---@param bufnr integer the current buffer
---@param text string
---@param replaced integer bytes behind the cursor that it replaces
function M.put(bufnr, text, replaced)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local lines = vim.split(text, "\n", { plain = true })
  vim.bo[bufnr].undolevels = vim.bo[bufnr].undolevels -- ends the step before this one
  vim.api.nvim_buf_set_text(bufnr, row - 1, col, row - 1, col + replaced, lines)
  local start = #lines == 1 and col or 0
  vim.api.nvim_win_set_cursor(0, { row + #lines - 1, start + #lines[#lines] })
  M.press("<C-g>u", true) -- ends this one
end

return M
