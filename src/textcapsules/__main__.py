"""`python -m textcapsules`: the command line, for a Python that is not on the path."""

from textcapsules.cli import main

if __name__ == "__main__":
    main()
