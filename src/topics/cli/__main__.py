"""`python -m topics.cli` is `topics`."""

from topics.cli import main

main()
