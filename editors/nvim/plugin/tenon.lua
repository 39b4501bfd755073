-- The command, the `<Plug>` keys, and what happens when a server attaches. Everything else is loaded when it is used.
if vim.g.loaded_tenon then
  return
end
vim.g.loaded_tenon = true

vim.api.nvim_create_user_command("Tenon", function(call)
  require("tenon.commands").run(call)
end, {
  nargs = "+",
  range = true,
  desc = "Tenon: fill, rewrite, switch on and off",
  complete = function(_, line)
    return require("tenon.commands").complete(line)
  end,
})

local group = vim.api.nvim_create_augroup("tenon", {})

vim.api.nvim_create_autocmd("LspAttach", {
  group = group,
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == "tenon" then
      require("tenon.suggestions").attach(client, event.buf)
    end
  end,
})

vim.api.nvim_create_autocmd("LspDetach", {
  group = group,
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == "tenon" then
      require("tenon.suggestions").detach(event.buf)
    end
  end,
})

vim.api.nvim_create_autocmd("BufFilePre", {
  group = group,
  callback = function(event)
    require("tenon.client").leave(event.buf)
  end,
})

vim.api.nvim_create_autocmd({ "BufFilePost", "BufWritePost" }, {
  group = group,
  callback = function(event)
    require("tenon.client").enter(event.buf)
  end,
})

for _, action in ipairs({
  "accept",
  "accept_word",
  "accept_line",
  "next",
  "prev",
  "dismiss",
  "trigger",
}) do
  vim.keymap.set("i", ("<Plug>(tenon-%s)"):format(action:gsub("_", "-")), function()
    require("tenon")[action]()
  end, { desc = "Tenon: " .. action:gsub("_", " ") })
end
