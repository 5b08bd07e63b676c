"""`python -m posbias` is the command `posbias`."""

from posbias.cli import main

if __name__ == "__main__":
    main()
