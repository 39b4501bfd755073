--- `:checkhealth tenon`.
local M = {}

local client_of = require("tenon.client")
local config = require("tenon.config")
local status = require("tenon.status")

local VERSION_MS = 10000

--- The engine's state in a line.
---@return string
function M.summary()
  local bufnr = vim.api.nvim_get_current_buf()
  local told = status.get()
  if #client_of.all(bufnr) == 0 then
    return "no server runs for this file"
  elseif not told then
    return "the server runs; the model is loaded when you begin to type"
  end
  local parts = { told.message }
  table.insert(parts, told.percent and told.busy and ("%d %%"):format(told.percent) or nil)
  table.insert(parts, told.model)
  table.insert(parts, told.device)
  table.insert(
    parts,
    told.latencyMs and ("last suggestion after %d ms"):format(told.latencyMs) or nil
  )
  if not require("tenon.suggestions").is_on(bufnr) then
    table.insert(parts, "suggestions while typing are off here")
  end
  return table.concat(parts, ", ")
end

local function check_neovim()
  local health = vim.health
  local version = tostring(vim.version())
  if vim.fn.has("nvim-0.10") == 0 then
    return health.error(("Neovim %s is too old; 0.10 is the oldest that works"):format(version))
  end
  health.ok("Neovim " .. version)
  local by_core = config.options.core and require("tenon.core").is_usable()
  health.info("suggestions are shown by " .. (by_core and "Neovim itself" or "this plugin"))
end

local function check_program()
  local health = vim.health
  local program = config.options.cmd[1]
  local path = vim.fn.exepath(program)
  if path == "" then
    return health.error(("there is no program %q"):format(program), {
      "install Tenon (its README says how)",
      "or name it: require('tenon').setup({ cmd = { '/path/to/tenon', 'lsp' } })",
    })
  end
  health.ok(program == path and path or ("%s is %s"):format(program, path))
  local is_run, done = pcall(function()
    return vim.system({ path, "--version" }, { text = true }):wait(VERSION_MS)
  end)
  local said = is_run and done.code == 0 and vim.trim(done.stdout) or ""
  local found = vim.version.parse(said:match("%d.*") or "")
  if not found then
    health.error(("`%s --version` does not answer with a version"):format(program), {
      "run it in a terminal; it may say what is wrong",
    })
  elseif vim.version.lt(found, client_of.OLDEST) then
    health.error(("%s is too old; this plugin needs %s"):format(said, client_of.OLDEST))
  else
    health.ok(said)
  end
end

local function check_server()
  local health = vim.health
  local clients = client_of.all()
  if #clients == 0 then
    return health.warn("no server runs", {
      "open a file; if that does not start one, call require('tenon').setup() or vim.lsp.enable('tenon')",
      ":Tenon log shows what a server said that ended, :Tenon restart starts it again",
    })
  end
  for _, client in ipairs(clients) do
    local where = client.config.root_dir or "files without a project"
    local count = vim.tbl_count(client.attached_buffers)
    health.ok(
      ("a server runs for %s (buffers: %d, positions in %s)"):format(
        where,
        count,
        client.offset_encoding
      )
    )
  end
end

local function check_model()
  local health = vim.health
  local told = status.get()
  if not told then
    return health.info("the model is loaded when you begin to type")
  end
  local parts = vim.tbl_filter(function(part)
    return part ~= ""
  end, { told.message, told.model or "", told.device or "" })
  local line = "the model: " .. table.concat(parts, ", ")
  if told.kind == "Error" then
    health.error(line, { "`tenon doctor` in a terminal says what is missing" })
  else
    health.ok(line)
  end
end

--- The checks, as `:checkhealth` runs them.
function M.check()
  vim.health.start("tenon")
  check_neovim()
  check_program()
  check_server()
  check_model()
end

return M
