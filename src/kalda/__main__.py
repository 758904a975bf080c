"""Runs the `kalda` command for ``python -m kalda``."""

from kalda.cli import main

if __name__ == "__main__":
    main()
