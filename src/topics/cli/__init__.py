"""The command-line program `topics`: commands that parse, call and print.

Nothing here knows how data is stored or decided. Commands import what they need when they run, so
that `topics --help` answers at once.

    exit code  meaning
            0  done
            1  done, and the answer is no: damage was found, a check failed; or it failed on the way
            2  the command was not understood
            3  what it was asked about is not there
            4  refused: the key does not allow it, or something stands against it
            5  the server cannot be reached, or is not ready
          130  interrupted
"""

from topics.cli._app import main, run

__all__ = ["main", "run"]
