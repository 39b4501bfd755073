--- `:Tenon`: its subcommands, and how they are completed.
local M = {}

local actions = require("tenon.actions")
local insertion = require("tenon.insertion")
local voice = require("tenon.voice")

---@param call table
---@return tenon.Span? span of the range, nil without one
local function span_of(call)
  if call.range == 0 then
    return nil
  end
  local row, end_row = math.max(call.line1, 1) - 1, math.max(call.line2, 1) - 1
  local span = { row = row, col = 0, end_row = end_row, end_col = #vim.fn.getline(call.line2) }
  local from, to = vim.api.nvim_buf_get_mark(0, "<"), vim.api.nvim_buf_get_mark(0, ">")
  local is_selection = call.range == 2 and from[1] == call.line1 and to[1] == call.line2
  if is_selection and vim.fn.visualmode() == "v" then
    local last = vim.fn.getline(call.line2)
    local width = vim.o.selection == "exclusive" and 0
      or #vim.fn.matchstr(last:sub(to[2] + 1), "^.")
    span.col, span.end_col = from[2], math.min(to[2] + width, #last)
  end
  return span
end

---@return tenon.Span span nothing, at the cursor
local function at_cursor()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return { row = row - 1, col = col, end_row = row - 1, end_col = col }
end

---@param is_on boolean?
---@return fun(call: table, words: string[])
local function switch(is_on)
  return function(_, words)
    local bufnr = words[1] == "buffer" and vim.api.nvim_get_current_buf() or nil
    require("tenon.suggestions").switch(is_on, bufnr)
  end
end

---@param call table
---@param words string[]
local function rewrite(call, words)
  local span = span_of(call)
  if not span then
    return voice.say("select what is to be rewritten.", vim.log.levels.WARN)
  end
  if words[1] then
    return actions.run("rewrite", span, table.concat(words, " "))
  end
  local bufnr = vim.api.nvim_get_current_buf()
  local changedtick = vim.b[bufnr].changedtick
  vim.ui.input({ prompt = "Rewrite how? (empty: as the model likes) " }, function(instruction)
    local is_same = vim.api.nvim_get_current_buf() == bufnr
      and vim.b[bufnr].changedtick == changedtick
    if instruction and not is_same then
      voice.say("the text has changed meanwhile; nothing was done.")
    elseif instruction then
      actions.run("rewrite", span, instruction ~= "" and instruction or nil)
    end
  end)
end

---@param call table
---@param words string[]
local function refine(call, words)
  local span = span_of(call)
  if not span then
    return voice.say("select what is to be refined.", vim.log.levels.WARN)
  end
  actions.run("refine." .. (words[1] or "medium"), span)
end

local function show_log()
  local path = require("vim.lsp.log").get_filename()
  vim.cmd.tabedit(vim.fn.fnameescape(path))
  vim.cmd.normal({ "G", bang = true })
end

---@type table<string, { words: string[], run: fun(call: table, words: string[]) }>
local SUBCOMMANDS = {
  toggle = { words = { "buffer" }, run = switch(nil) },
  enable = { words = { "buffer" }, run = switch(true) },
  disable = { words = { "buffer" }, run = switch(false) },
  trigger = {
    words = {},
    run = function()
      if not insertion.is_in(vim.api.nvim_get_current_buf()) then
        voice.say("suggestions are asked for in insert mode.", vim.log.levels.WARN)
      else
        require("tenon.suggestions").trigger()
      end
    end,
  },
  rewrite = { words = {}, run = rewrite },
  refine = { words = { "light", "medium", "strong" }, run = refine },
  fill = {
    words = {},
    run = function(call)
      actions.run("fillHoles", span_of(call) or at_cursor())
    end,
  },
  restart = {
    words = {},
    run = function()
      require("tenon.client").restart()
    end,
  },
  status = {
    words = {},
    run = function()
      voice.say(require("tenon.health").summary())
    end,
  },
  log = { words = {}, run = show_log },
}

--- Run `:Tenon …`.
---@param call table as `nvim_create_user_command` gives it
function M.run(call)
  local name, words = call.fargs[1], vim.list_slice(call.fargs, 2)
  local subcommand = SUBCOMMANDS[name]
  local is_free = name == "rewrite"
  if
    not subcommand or not (is_free or not words[1] or vim.list_contains(subcommand.words, words[1]))
  then
    local known = subcommand and subcommand.words or vim.tbl_keys(SUBCOMMANDS)
    table.sort(known)
    local said = #known == 0 and ("%q takes nothing more."):format(name)
      or ("there is no %q. There is: %s"):format(
        table.concat(call.fargs, " "),
        table.concat(known, ", ")
      )
    return voice.say(said, vim.log.levels.ERROR)
  end
  subcommand.run(call, words)
end

--- What may come at the end of a command line.
---@param line string
---@return string[]
function M.complete(line)
  local said = line:match("Tenon%s+(.*)$") or ""
  local name, word = said:match("^(%S+)%s+(%S*)$")
  local words = name and SUBCOMMANDS[name] and SUBCOMMANDS[name].words
    or (not said:find("%s") and vim.tbl_keys(SUBCOMMANDS) or {})
  local found = vim.tbl_filter(function(each)
    return vim.startswith(each, word or said)
  end, words)
  table.sort(found)
  return found
end

return M
