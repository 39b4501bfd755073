"""The benchmark of the language server: `python -m tenon_lsp.bench`."""
