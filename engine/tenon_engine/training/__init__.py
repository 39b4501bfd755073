"""How the embedded model's adapter is made: the corpus, the holes, the objective, the loop, the packed result.

Nothing here is imported by the language server, by the engine at run time or by `tenon --help`.
"""
