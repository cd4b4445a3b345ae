"""`python -m gnndelete` is the command line."""

from gnndelete.cli import main

if __name__ == "__main__":
    main()
