-- For `vim.lsp.enable("tenon")` without `require("tenon").setup()`.
return require("tenon.client").config()
