"""The load script: what an engine that answers HTTP costs, and what it does under many clients at once."""
