"""`python -m textcapsules`: the command line, its script need not be on the path."""

from textcapsules.cli import main

if __name__ == "__main__":
    main()
