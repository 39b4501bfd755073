--- Suggestions shown by this plugin: for Neovim before 0.12, and where only what is asked for by hand shall come.
---
--- A buffer's ghost asks the server at every move in insert mode, and draws what is left of the answer at the cursor. What
--- does not fit the buffer any more is hidden at once.
local M = {}

local answer = require("tenon.answer")
local client_of = require("tenon.client")
local drawing = require("tenon.drawing")
local insertion = require("tenon.insertion")

local INLINE_COMPLETION = "textDocument/inlineCompletion"
local INVOKED, AUTOMATIC = 1, 2
local DELAY_MS = 15 -- for the events of one key; the server waits for more keys itself

---@class tenon.Ghost
---@field client_id integer
---@field is_automatic boolean
---@field answers tenon.Answer[]
---@field index integer of the one that is shown
---@field question integer counts the questions; only the last one's answer is shown
---@field request_id integer?
---@field timer uv.uv_timer_t

---@type table<integer, tenon.Ghost>
local ghosts = {}

---@param bufnr integer
---@return string
local function group_name(bufnr)
  return ("tenon.ghost.%d"):format(bufnr)
end

---@param ghost tenon.Ghost
local function forget_question(ghost)
  ghost.timer:stop()
  ghost.question = ghost.question + 1
  local client = ghost.request_id and vim.lsp.get_client_by_id(ghost.client_id)
  if client then
    client_of.call(client, "cancel_request", ghost.request_id)
  end
  ghost.request_id = nil
end

---@param bufnr integer
local function draw(bufnr)
  local shown = M.current(bufnr)
  if not shown then
    return drawing.clear(bufnr)
  end
  local ghost = ghosts[bufnr]
  local hint = #ghost.answers > 1 and (" (%d/%d)"):format(ghost.index, #ghost.answers) or ""
  drawing.draw(bufnr, shown.rest, shown.answer.anchor.replaced, hint)
end

---@param bufnr integer
---@param answers tenon.Answer[]
local function show(bufnr, answers)
  ghosts[bufnr].answers, ghosts[bufnr].index = answers, 1
  draw(bufnr)
end

---@param bufnr integer
---@param kind integer
local function ask(bufnr, kind)
  local ghost = ghosts[bufnr]
  local client = ghost and vim.lsp.get_client_by_id(ghost.client_id)
  if not client or not insertion.is_in(bufnr) then
    return
  end
  forget_question(ghost)
  local question = ghost.question
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = kind }
  local is_sent, id = client_of.call(
    client,
    "request",
    INLINE_COMPLETION,
    params,
    function(_, result)
      if ghosts[bufnr] ~= ghost or ghost.question ~= question then
        return
      end
      ghost.request_id = nil
      if result and insertion.is_in(bufnr) then
        show(bufnr, result.items or result)
      end
    end,
    bufnr
  )
  ghost.request_id = is_sent and id or nil
end

---@param bufnr integer
local function on_move(bufnr)
  local ghost = ghosts[bufnr]
  draw(bufnr)
  if ghost.is_automatic then
    ghost.timer:start(
      DELAY_MS,
      0,
      vim.schedule_wrap(function()
        ask(bufnr, AUTOMATIC)
      end)
    )
  end
end

--- Show suggestions of a client's server in a buffer.
---@param bufnr integer
---@param client_id integer
---@param is_automatic boolean whether to ask while typing
function M.open(bufnr, client_id, is_automatic)
  ghosts[bufnr] = {
    client_id = client_id,
    is_automatic = is_automatic,
    answers = {},
    index = 1,
    question = 0,
    timer = assert(vim.uv.new_timer()),
  }
  local group = vim.api.nvim_create_augroup(group_name(bufnr), {})
  vim.api.nvim_create_autocmd({ "InsertEnter", "CursorMovedI", "TextChangedI", "TextChangedP" }, {
    group = group,
    buffer = bufnr,
    callback = function()
      on_move(bufnr)
    end,
  })
  vim.api.nvim_create_autocmd("BufLeave", {
    group = group,
    buffer = bufnr,
    callback = function()
      M.clear(bufnr)
    end,
  })
  vim.api.nvim_create_autocmd("ModeChanged", { -- InsertLeave does not come after <C-c>
    group = group,
    pattern = "i*:[^i]*",
    callback = function()
      M.clear(bufnr)
    end,
  })
  on_move(bufnr)
end

--- Show none any more.
---@param bufnr integer
function M.close(bufnr)
  local ghost = ghosts[bufnr]
  if ghost then
    M.clear(bufnr)
    ghost.timer:close()
    ghosts[bufnr] = nil
    vim.api.nvim_del_augroup_by_name(group_name(bufnr))
  end
end

---@param bufnr integer
---@return tenon.Shown?
function M.current(bufnr)
  local ghost = ghosts[bufnr]
  local found = ghost and ghost.answers[ghost.index]
  local rest = found and insertion.is_in(bufnr) and answer.rest(found, bufnr)
  return rest and { rest = rest, answer = found, client_id = ghost.client_id } or nil
end

---@param bufnr integer
---@return integer
function M.count(bufnr)
  return #ghosts[bufnr].answers
end

---@param bufnr integer
---@param step integer
function M.select(bufnr, step)
  local ghost = ghosts[bufnr]
  ghost.index = (ghost.index - 1 + step) % #ghost.answers + 1
  draw(bufnr)
end

---@param bufnr integer
function M.ask(bufnr)
  ask(bufnr, INVOKED)
end

---@param bufnr integer
function M.clear(bufnr)
  forget_question(ghosts[bufnr])
  show(bufnr, {})
end

---@param bufnr integer
---@param left tenon.Answer
function M.replace(bufnr, _, left)
  show(bufnr, { left })
end

return M
