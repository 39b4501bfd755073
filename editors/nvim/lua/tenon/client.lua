--- The language server as Neovim's client of it: its configuration, its life, and what differs between versions of
--- Neovim. A server that cannot run is named once and left alone until `:Tenon restart`.
local M = {}

local config = require("tenon.config")
local status = require("tenon.status")
local voice = require("tenon.voice")

local NAME = "tenon"
local POLL_MS = 20
local PATIENCE_MS = 3000 -- for a server that was asked to end

M.OLDEST = "0.1.0" -- of the servers that this plugin can work with
M.STEADY_MS = 60000 -- a server that ran for so long is started again when it ends; one that did not is not

local HAS_METHODS = vim.fn.has("nvim-0.11") == 1
local has_given_up = false
local was_enabled = false

--- Call a client's function, as this Neovim has it.
---@param client vim.lsp.Client
---@param name string
---@return any ...
function M.call(client, name, ...)
  if HAS_METHODS then
    return client[name](client, ...)
  end
  return client[name](...)
end

--- All our clients that run, or the one of a buffer.
---@param bufnr integer?
---@return vim.lsp.Client[]
function M.all(bufnr)
  return vim.lsp.get_clients({ name = NAME, bufnr = bufnr })
end

--- Whether a server can be started; says why not.
---@return boolean
local function may_start()
  local program = config.options.cmd[1]
  if not has_given_up and vim.fn.executable(program) == 0 then
    voice.fault(
      "missing",
      ("there is no program %q. Install Tenon, or name it: require('tenon').setup({ cmd = { '/path/to/tenon', 'lsp' } })"):format(
        program
      )
    )
    return false
  end
  return not has_given_up
end

---@param fault string
---@param sentence string
local function give_up(fault, sentence)
  has_given_up = true
  voice.fault(fault, sentence)
end

---@param clients vim.lsp.Client[]
---@param act fun()
local function when_gone(clients, act)
  local started = vim.uv.now()
  local is_forced = false
  local function look()
    local left = vim.tbl_filter(function(client)
      return vim.lsp.get_client_by_id(client.id) ~= nil
    end, clients)
    local waited_ms = vim.uv.now() - started
    if #left == 0 or waited_ms > 2 * PATIENCE_MS then -- one that cannot even be killed is left behind
      return act()
    end
    if not is_forced and waited_ms > PATIENCE_MS then
      is_forced = true
      for _, client in ipairs(left) do
        M.call(client, "stop", true)
      end
    end
    vim.defer_fn(look, POLL_MS)
  end
  look()
end

---@param bufnr integer
---@return boolean
local function is_file(bufnr)
  return vim.api.nvim_buf_is_loaded(bufnr)
    and vim.bo[bufnr].buftype == ""
    and vim.bo[bufnr].filetype ~= ""
    and vim.api.nvim_buf_get_name(bufnr) ~= "" -- all without one would be one document to a server
end

---@param bufnr integer
local function start(bufnr)
  if not is_file(bufnr) or not may_start() then
    return
  end
  local found = HAS_METHODS and vim.deepcopy(vim.lsp.config[NAME]) or M.config()
  if not found.filetypes or vim.list_contains(found.filetypes, vim.bo[bufnr].filetype) then
    found.root_dir = vim.fs.root(bufnr, config.options.root_markers)
    vim.lsp.start(found, { bufnr = bufnr })
  end
end

local function start_everywhere()
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    start(bufnr)
  end
end

---@param server vim.lsp.rpc.PublicClient
---@param ran_ms integer
---@param ending string
local function on_crash(server, ran_ms, ending)
  status.set(nil)
  local client = vim.iter(M.all()):find(function(each)
    return each.rpc == server
  end)
  if client and ran_ms >= M.STEADY_MS then
    when_gone({ client }, start_everywhere)
  else
    give_up(
      "crash",
      ("the language server ended (%s). `:Tenon log` shows what it said, `:Tenon restart` starts it again."):format(
        ending
      )
    )
  end
end

---@param dispatchers vim.lsp.rpc.Dispatchers
---@return vim.lsp.rpc.PublicClient
local function connect(dispatchers)
  local started = vim.uv.now()
  local server
  server = require("tenon.wire").start(config.options.cmd, dispatchers, function(code, signal)
    local ending = signal ~= 0 and ("signal %d"):format(signal) or ("exit code %d"):format(code)
    on_crash(server, vim.uv.now() - started, ending)
  end)
  return server
end

---@param client vim.lsp.Client
---@param result lsp.InitializeResult
local function check_version(client, result)
  local found = vim.version.parse(vim.tbl_get(result, "serverInfo", "version") or "")
  if found and vim.version.lt(found, M.OLDEST) then
    give_up(
      "old",
      ("tenon %s is too old for this plugin, which needs %s. Upgrade it, then `:Tenon restart`."):format(
        found,
        M.OLDEST
      )
    )
    vim.schedule(function()
      M.call(client, "stop")
    end)
  end
end

--- The client's configuration, as `vim.lsp.config` and `vim.lsp.start` take it.
---@return vim.lsp.ClientConfig
function M.config()
  local options = config.options
  local capabilities = vim.lsp.protocol.make_client_capabilities()
  capabilities.textDocument.inlineCompletion = { dynamicRegistration = false }
  return {
    name = NAME,
    cmd = connect,
    filetypes = options.filetypes or nil,
    root_dir = function(bufnr, on_dir)
      if is_file(bufnr) and may_start() then
        on_dir(vim.fs.root(bufnr, options.root_markers))
      end
    end,
    capabilities = capabilities,
    init_options = vim.tbl_extend("force", options.settings, {
      editorInfo = { name = "Neovim", version = tostring(vim.version()) },
    }),
    before_init = function(params)
      params.initializationOptions.enabled = config.options.enabled
    end,
    on_init = check_version,
    handlers = {
      didChangeStatus = function(_, told)
        status.set(told)
      end,
    },
  }
end

--- Start a server for every file from now on, and for those that are open.
function M.enable()
  was_enabled = true
  if HAS_METHODS then
    vim.lsp.config(NAME, M.config())
    vim.lsp.enable(NAME)
    return
  end
  vim.api.nvim_create_autocmd("FileType", {
    group = vim.api.nvim_create_augroup("tenon.start", {}),
    callback = function(event)
      start(event.buf)
    end,
  })
  start_everywhere()
end

--- A buffer is about to have another name: to the server it is another document then.
---@param bufnr integer
function M.leave(bufnr)
  for _, client in ipairs(M.all(bufnr)) do
    vim.lsp.buf_detach_client(bufnr, client.id)
  end
end

--- A buffer has a name: it gets a server, unless it has one.
---@param bufnr integer
function M.enter(bufnr)
  local is_enabled = was_enabled or vim.lsp.is_enabled and vim.lsp.is_enabled(NAME)
  if is_enabled and #M.all(bufnr) == 0 then
    start(bufnr)
  end
end

--- End the servers that run and start them again, whatever happened to them before.
function M.restart()
  voice.forget()
  has_given_up = false
  local clients = M.all()
  for _, client in ipairs(clients) do
    M.call(client, "stop")
  end
  when_gone(clients, function()
    status.set(nil)
    start_everywhere()
  end)
end

--- Tell the servers whether anything is to be suggested while typing; one that is not to loads no model then.
---@param is_on boolean
function M.tell_enabled(is_on)
  for _, client in ipairs(M.all()) do
    local told = client.settings[NAME] or client.config.init_options
    if told.enabled ~= is_on then
      client.settings[NAME] =
        vim.tbl_extend("force", client.settings[NAME] or {}, { enabled = is_on })
      M.call(client, "notify", "workspace/didChangeConfiguration", { settings = client.settings })
    end
  end
end

--- Run a command of the server.
---@param client vim.lsp.Client
---@param command { command: string, arguments: any[]? }
---@param bufnr integer
---@param on_reply fun(err: lsp.ResponseError?)?
function M.execute(client, command, bufnr, on_reply)
  local params = { command = command.command, arguments = command.arguments }
  M.call(client, "request", "workspace/executeCommand", params, on_reply or function() end, bufnr)
end

return M
