--- What a user may set, and what holds otherwise. A wrong value is named, and its default is used.
local M = {}

---@class tenon.Keys
---@field accept string|false
---@field accept_word string|false
---@field accept_line string|false
---@field next string|false
---@field prev string|false
---@field dismiss string|false
---@field trigger string|false

---@class tenon.Options
---@field cmd string[] the command that starts the language server
---@field filetypes string[]|false where it runs; false is everywhere
---@field root_markers string[] what a project's folder has in it
---@field enabled boolean suggest while typing
---@field core boolean let Neovim itself show the suggestions, where it can (0.12)
---@field keys tenon.Keys|false in insert mode, in buffers with a server; false maps none
---@field settings table the server's settings, without "tenon."

---@type tenon.Options
local DEFAULTS = {
  cmd = { "tenon", "lsp" },
  filetypes = false,
  root_markers = { ".git" },
  enabled = true,
  core = true,
  keys = {
    accept = "<Tab>",
    accept_word = "<M-Right>",
    accept_line = "<M-C-Right>",
    next = "<M-]>",
    prev = "<M-[>",
    dismiss = "<C-]>",
    trigger = "<M-Bslash>",
  },
  settings = {},
}

---@type tenon.Options
M.options = vim.deepcopy(DEFAULTS)

local function is_strings(value)
  return vim.islist(value)
    and vim.iter(value):all(function(each)
      return type(each) == "string"
    end)
end

---@type table<string, { holds: (fun(value: any): boolean), what: string }>
local CHECKS = {
  cmd = {
    what = "a list of strings",
    holds = function(value)
      return is_strings(value) and value[1] ~= nil
    end,
  },
  filetypes = {
    what = "a list of strings, or false",
    holds = function(value)
      return value == false or is_strings(value)
    end,
  },
  root_markers = { what = "a list of strings", holds = is_strings },
  enabled = {
    what = "true or false",
    holds = function(value)
      return type(value) == "boolean"
    end,
  },
  core = {
    what = "true or false",
    holds = function(value)
      return type(value) == "boolean"
    end,
  },
  keys = {
    what = "a table, or false",
    holds = function(value)
      return value == false or type(value) == "table"
    end,
  },
  settings = {
    what = "a table",
    holds = function(value)
      return type(value) == "table"
    end,
  },
}

---@param keys table
---@param complaints string[]
---@return tenon.Keys
local function read_keys(keys, complaints)
  local found = vim.deepcopy(DEFAULTS.keys) --[[@as tenon.Keys]]
  for name, lhs in pairs(keys) do
    if found[name] == nil then
      table.insert(complaints, ("there is no key %q."):format(tostring(name)))
    elseif lhs == false or (type(lhs) == "string" and lhs ~= "") then
      found[name] = lhs
    else
      table.insert(
        complaints,
        ("keys.%s must be a key such as %q, or false."):format(name, found[name])
      )
    end
  end
  return found
end

--- Work with these options from now on.
---@param given table?
---@return string[] complaints a sentence for each value that was not taken
function M.set(given)
  local complaints = {}
  local options = vim.deepcopy(DEFAULTS)
  for name, value in pairs(type(given) == "table" and given or {}) do
    local check = CHECKS[name]
    if not check then
      table.insert(complaints, ("there is no option %q."):format(tostring(name)))
    elseif not check.holds(value) then
      table.insert(complaints, ("%s must be %s."):format(name, check.what))
    elseif name == "keys" and value then
      options.keys = read_keys(value, complaints)
    else
      options[name] = vim.deepcopy(value)
    end
  end
  table.sort(complaints)
  M.options = options
  return complaints
end

return M
