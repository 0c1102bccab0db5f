"""`python -m stickymoe` is the command line."""

from stickymoe.cli import main

if __name__ == "__main__":
    main()
