--- A suggestion and where it belongs: as the server said it, noted when it came, compared with the buffer ever after.
--- Positions are bytes from here on, whatever the client and the server count in.
local M = {}

local positions = require("tenon.positions")

---@class tenon.Anchor where an answer begins, and what stood behind the cursor when it came
---@field row integer
---@field col integer
---@field after string the rest of the cursor's line
---@field replaced integer how many bytes of it the answer replaces

---@class tenon.Answer: lsp.InlineCompletionItem
---@field anchor tenon.Anchor?

---@class tenon.Shown what is on the screen
---@field rest string what is left of the text, its lines ended by "\n"
---@field answer tenon.Answer
---@field client_id integer

---@param bufnr integer
---@param row integer
---@return string
local function line_at(bufnr, row)
  return vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ""
end

--- Note where an answer belongs, in a buffer that is still as it was when the question was asked.
---@param answer tenon.Answer
---@param bufnr integer
---@param position lsp.Position of the question
---@param encoding string
function M.anchor(answer, bufnr, position, encoding)
  local cursor_line = line_at(bufnr, position.line)
  local cursor = positions.byte(cursor_line, position.character, encoding)
  local range = answer.range or { start = position, ["end"] = position }
  local stop = range["end"].line == position.line
      and positions.byte(cursor_line, range["end"].character, encoding)
    or cursor
  answer.insertText = answer.insertText:gsub("\r\n?", "\n")
  answer.anchor = {
    row = range.start.line,
    col = positions.byte(line_at(bufnr, range.start.line), range.start.character, encoding),
    after = cursor_line:sub(cursor + 1),
    replaced = math.max(stop - cursor, 0),
  }
end

--- What is left of an answer at the cursor; nil when the buffer is no longer one that it fits.
---@param answer tenon.Answer
---@param bufnr integer the current buffer
---@return string?
function M.rest(answer, bufnr)
  local anchor, text = answer.anchor, answer.insertText
  local cursor = vim.api.nvim_win_get_cursor(0)
  local row, col = cursor[1] - 1, cursor[2]
  if not anchor or row < anchor.row or (row == anchor.row and col < anchor.col) then
    return nil
  end
  if row - anchor.row > select(2, text:gsub("\n", "")) then
    return nil
  end
  local lines = vim.api.nvim_buf_get_lines(bufnr, anchor.row, row + 1, false)
  if #lines[1] < anchor.col or lines[#lines]:sub(col + 1) ~= anchor.after then
    return nil
  end
  lines[#lines] = lines[#lines]:sub(1, col)
  local typed = table.concat(lines, "\n"):sub(anchor.col + 1)
  if #typed >= #text or text:sub(1, #typed) ~= typed then
    return nil
  end
  return text:sub(#typed + 1)
end

--- The answer that is left when the text up to the cursor has been taken from one.
---@param answer tenon.Answer
---@param rest string
---@param position lsp.Position of the cursor
---@return tenon.Answer
function M.remainder(answer, rest, position)
  local cursor = vim.api.nvim_win_get_cursor(0)
  return {
    insertText = rest,
    range = { start = position, ["end"] = position },
    command = answer.command,
    anchor = {
      row = cursor[1] - 1,
      col = cursor[2],
      after = answer.anchor.after,
      replaced = answer.anchor.replaced,
    },
  }
end

--- The first word of a text, with the space before it; or the signs before the next word.
---@param text string
---@return string
function M.word(text)
  return text:match("^%s*[%w_\128-\255]+") or text:match("^%s*[^%w%s_\128-\255]+") or text
end

--- The first line of a text, without its end; with the ends before it when it begins with some.
---@param text string
---@return string
function M.line(text)
  return text:match("^\n*[^\n]+") or text
end

return M
