--- Grey text at the cursor, as the buffer would look with it: several lines, before other text, with tabs and wide
--- characters. Knows nothing of where the text comes from.
local M = {}

local namespace = vim.api.nvim_create_namespace("tenon.ghost")

local GROUP, GROUP_MORE = require("tenon.colours").GHOST, require("tenon.colours").MORE

---@param text string
---@param column integer where it begins on the screen
---@return string text with spaces for tabs, as virtual text shows one cell for a tab
local function without_tabs(text, column)
  local parts = {}
  local width = column
  for before, tab in text:gmatch("([^\t]*)(\t?)") do
    width = width + vim.fn.strdisplaywidth(before, width)
    local space = tab == "" and 0 or vim.fn.strdisplaywidth("\t", width)
    width = width + space
    table.insert(parts, before .. (" "):rep(space))
  end
  return table.concat(parts)
end

--- Take away what was drawn.
---@param bufnr integer
function M.clear(bufnr)
  if vim.api.nvim_buf_is_valid(bufnr) then
    vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
  end
end

--- Draw a text at the cursor, in place of what was drawn.
---@param bufnr integer the current buffer
---@param text string
---@param replaced integer how many bytes behind the cursor it replaces
---@param hint string what to say behind it
function M.draw(bufnr, text, replaced, hint)
  M.clear(bufnr)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local line = vim.api.nvim_get_current_line()
  local column = vim.fn.strdisplaywidth(line:sub(1, col))
  local after, kept = line:sub(col + 1), line:sub(col + replaced + 1)
  local lines = {}
  for index, each in ipairs(vim.split(text, "\n", { plain = true })) do
    lines[index] = { { without_tabs(each, index == 1 and column or 0), GROUP } }
  end
  local is_over = after ~= "" and (#lines > 1 or replaced > 0)
  if is_over then -- what stands behind the cursor is hidden, and shown where it would be
    table.insert(lines[#lines], { without_tabs(kept, 0), "Normal" })
    local hidden = vim.fn.strdisplaywidth(after, column)
      - vim.fn.strdisplaywidth(lines[1][1][1], column)
    table.insert(lines[1], { (" "):rep(hidden), GROUP })
  end
  if hint ~= "" then
    table.insert(lines[#lines], { hint, GROUP_MORE })
  end
  vim.api.nvim_buf_set_extmark(bufnr, namespace, row - 1, col, {
    virt_text = lines[1],
    virt_text_pos = is_over and "overlay" or "inline",
    virt_lines = vim.list_slice(lines, 2),
    hl_mode = "combine",
  })
end

return M
