"""The language server of Tenon: documents, positions, what to ask and when. Never imports torch."""
