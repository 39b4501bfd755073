--- What is done on a selection or the document when it is asked for: rewrite, refine, fill holes.
---
--- The server offers these as code actions and applies each as one edit, bound to the version it was made for.
local M = {}

local client_of = require("tenon.client")
local positions = require("tenon.positions")
local voice = require("tenon.voice")

local KIND = "refactor.rewrite.tenon."
local CARRY_OUT, REWRITE = "tenon.carryOut", "tenon.rewrite"
local CHANGED = -32801
local ATTACH_MS = 500 -- how long a server may take to see a buffer again, as after `:e!`

---@class tenon.Span bytes, from (row, col) up to and without (end_row, end_col), counted from 0
---@field row integer
---@field col integer
---@field end_row integer
---@field end_col integer

---@param bufnr integer
---@param row integer
---@param col integer
---@param encoding string
---@return lsp.Position
local function position(bufnr, row, col, encoding)
  local before = vim.api.nvim_buf_get_text(bufnr, row, 0, row, col, {})[1]
  return { line = row, character = positions.character(before, encoding) }
end

---@param bufnr integer
---@return vim.lsp.Client?
local function server_of(bufnr)
  if #client_of.all() > 0 then
    vim.wait(ATTACH_MS, function()
      return #client_of.all(bufnr) > 0
    end, 10)
  end
  return client_of.all(bufnr)[1]
end

---@param err lsp.ResponseError?
local function report(err)
  if err and err.code == CHANGED then
    voice.say("the text has changed meanwhile; nothing was done.")
  elseif err then
    voice.say(err.message, vim.log.levels.ERROR)
  end
end

--- Have the server do something with a span.
---@param deed string the last part of a code action's kind
---@param span tenon.Span
---@param instruction string?
function M.run(deed, span, instruction)
  local bufnr = vim.api.nvim_get_current_buf()
  if not vim.bo[bufnr].modifiable then
    return voice.say("this buffer cannot be changed.", vim.log.levels.WARN)
  end
  local client = server_of(bufnr)
  if not client then
    return voice.say("no server runs for this file. See :checkhealth tenon.", vim.log.levels.WARN)
  end
  local encoding = client.offset_encoding
  local params = {
    textDocument = vim.lsp.util.make_text_document_params(bufnr),
    range = {
      start = position(bufnr, span.row, span.col, encoding),
      ["end"] = position(bufnr, span.end_row, span.end_col, encoding),
    },
    context = { diagnostics = {}, only = { KIND .. deed } },
  }
  client_of.call(client, "request", "textDocument/codeAction", params, function(err, offers)
    local offer = offers and offers[1]
    if err then
      report(err)
    elseif not offer then
      voice.say("there is nothing here to do that with.")
    else
      local command = instruction and { command = REWRITE, arguments = { offer.data, instruction } }
        or { command = CARRY_OUT, arguments = { offer.data } }
      client_of.execute(client, command, bufnr, report)
    end
  end, bufnr)
end

return M
