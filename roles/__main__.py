"""Run the command line as `python -m roles`."""

from roles.cli import main

main()
