"""Which interpreter ran: one built with profile-guided optimisation is faster in every row.

How it was built is only known as far as the builder left it on record.

    configured with `--enable-optimizations`, or profile flags among the compiler's    yes
    configured without, and the flags for it stand where `configure` puts them         no
    anything else: other systems, or a builder who took the flags out of the record    unknown

Debian is of the last kind: it builds with profiles without that option, and removes the flags.
"""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Mapping

_OPTION = "--enable-optimizations"
_PROFILE_FLAGS = ("-fprofile-use", "-fprofile-instr-use")
_COMPILER_FLAGS = ("CFLAGS", "CFLAGS_NODIST", "PY_CFLAGS_NODIST", "PY_CORE_CFLAGS")


def name() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def is_profile_guided(record: Mapping[str, object] | None = None) -> bool | None:
    """Whether profiles guided its build, by these variables of the build; None if unknown."""
    known = sysconfig.get_config_vars() if record is None else record
    flags = " ".join(str(known.get(variable) or "") for variable in _COMPILER_FLAGS)
    options = str(known.get("CONFIG_ARGS") or "")
    if _OPTION in options or any(flag in flags for flag in _PROFILE_FLAGS):
        return True
    return False if options and known.get("PGO_PROF_USE_FLAG") else None


def described() -> str:
    """A line for people."""
    said = {True: "yes", False: "no", None: "unknown"}[is_profile_guided()]
    return f"{name()}, built with profile-guided optimisation: {said}"
