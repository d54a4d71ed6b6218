"""`python -m pydarknetbn`: the command line, where the script is not on the path."""

from .cli import main

main()
