--- The colours of suggestions. Neovim's own colour scheme has none for terminals without true colour, in which a suggestion
--- would look like text; there it is grey.
local M = {}

M.GHOST, M.MORE = "TenonGhost", "TenonGhostMore"

local CORE, DARK_GREY = "ComplHint", 8

local function set()
  local is_core_there = vim.fn.hlexists(CORE) == 1
  local shown = is_core_there and CORE or "Comment"
  vim.api.nvim_set_hl(0, M.GHOST, { link = shown, default = true })
  vim.api.nvim_set_hl(0, M.MORE, { link = M.GHOST, default = true })
  local name = is_core_there and CORE or M.GHOST
  local found = vim.api.nvim_get_hl(0, { name = name, link = false })
  if not (found.ctermfg or found.ctermbg or found.cterm) then
    found.ctermfg = DARK_GREY
    vim.api.nvim_set_hl(0, name, found)
  end
end

--- Set them, now and whenever the colour scheme changes.
function M.open()
  set()
  vim.api.nvim_create_autocmd("ColorScheme", {
    group = vim.api.nvim_create_augroup("tenon.colours", {}),
    callback = set,
  })
end

return M
