"""`python -m tenon_engine` is `tenon`."""

import sys

from tenon_engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
