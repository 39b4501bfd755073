--- Tenon for Neovim: text that fits what stands before and after the cursor, from the language server `tenon lsp`.
---
--- This is the front door; it loads the rest when it is used.
local M = {}

--- Start the server for every file. See |tenon-options|.
---@param options tenon.Options?
function M.setup(options)
  vim.cmd.runtime("plugin/tenon.lua")
  local complaints = require("tenon.config").set(options)
  if #complaints > 0 then
    local voice = require("tenon.voice")
    voice.say(table.concat(complaints, " ") .. " See :help tenon-options", vim.log.levels.WARN)
  end
  require("tenon.client").enable()
end

--- Take the suggestion.
---@return boolean is_done false when there is none
function M.accept()
  return require("tenon.suggestions").accept()
end

--- Take the suggestion's first word.
---@return boolean is_done
function M.accept_word()
  return require("tenon.suggestions").accept_word()
end

--- Take the suggestion's first line.
---@return boolean is_done
function M.accept_line()
  return require("tenon.suggestions").accept_line()
end

--- Show the next suggestion; asks for alternatives when there is but one.
---@return boolean is_done
function M.next()
  return require("tenon.suggestions").select(1)
end

--- Show the suggestion before.
---@return boolean is_done
function M.prev()
  return require("tenon.suggestions").select(-1)
end

--- Show no suggestion until the text changes.
---@return boolean is_done
function M.dismiss()
  return require("tenon.suggestions").dismiss()
end

--- Ask for suggestions at the cursor, in insert mode.
---@return boolean is_done false without a server
function M.trigger()
  return require("tenon.suggestions").trigger()
end

--- Whether a suggestion is shown that can be taken.
---@return boolean
function M.is_visible()
  return require("tenon.suggestions").is_visible()
end

--- A few words for a status line; "" where no server runs.
---@param bufnr integer?
---@return string
function M.status(bufnr)
  return require("tenon.status").text(bufnr)
end

return M
