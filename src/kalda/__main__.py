"""``python -m kalda`` is the `kalda` command."""

from kalda.cli import main

if __name__ == "__main__":
    main()
