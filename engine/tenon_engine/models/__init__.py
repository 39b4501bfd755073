"""Model families, one file each; `registry` maps a name to a loader."""
