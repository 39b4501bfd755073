--- The way to the server: starts it, and looks at what passes.
---
--- An answer for a text that has changed since is dropped here, so that nobody has to show it; one that still holds is
--- noted where it belongs. Also knows whether the server ended because it was told to.
local M = {}

local answer = require("tenon.answer")

local INLINE_COMPLETION = "textDocument/inlineCompletion"
local OUT_OF_DATE = { [-32800] = true, [-32801] = true, [-32802] = true } -- cancelled, changed, cancelled by the server

--- What a question's answer goes through.
---@param params lsp.InlineCompletionParams
---@param callback fun(err: lsp.ResponseError?, result: any, ...)
---@param encoding string
local function checked(params, callback, encoding)
  local bufnr = vim.uri_to_bufnr(params.textDocument.uri)
  local changedtick = vim.b[bufnr].changedtick
  return function(err, result, ...)
    local is_loaded = vim.api.nvim_buf_is_loaded(bufnr)
    if
      (err and OUT_OF_DATE[err.code])
      or not is_loaded
      or vim.b[bufnr].changedtick ~= changedtick
    then
      return callback(nil, nil, ...)
    end
    for _, each in ipairs(result and (result.items or result) or {}) do
      answer.anchor(each, bufnr, params.position, encoding)
    end
    return callback(err, result, ...)
  end
end

--- Start the server, as `cmd` of a client does.
---@param command string[]
---@param dispatchers vim.lsp.rpc.Dispatchers
---@param on_crash fun(code: integer, signal: integer) it ended without having been told to
---@return vim.lsp.rpc.PublicClient
function M.start(command, dispatchers, on_crash)
  local is_told, encoding = false, "utf-16"
  local ended = dispatchers.on_exit
  dispatchers.on_exit = function(code, signal)
    if is_told then
      return ended(code, signal)
    end
    vim.schedule(function()
      on_crash(code, signal)
    end)
    ended(0, 0) -- or Neovim says in other words what on_crash says
  end
  local server = vim.lsp.rpc.start(command, dispatchers)
  local request, terminate = server.request, server.terminate

  function server.terminate()
    is_told = true
    terminate()
  end

  function server.request(method, params, callback, ...)
    if method == "shutdown" then
      is_told = true
    elseif method == "initialize" then
      local initialized = callback
      callback = function(err, result, ...)
        encoding = vim.tbl_get(result or {}, "capabilities", "positionEncoding") or encoding
        return initialized(err, result, ...)
      end
    elseif method == INLINE_COMPLETION then
      callback = checked(params, callback, encoding)
    end
    return request(method, params, callback, ...)
  end

  return server
end

return M
