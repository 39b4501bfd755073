"""The commands of `tenon`, one module each with `add_parser`; importing one is cheap and imports no torch."""
