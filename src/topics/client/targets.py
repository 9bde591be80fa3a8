"""Which log a command or a job means: a server's address or a directory, and the key for it.

    1  an address or a directory that was named outright
    2  a context that was named
    3  TOPICS_URL, with the key in TOPICS_TOKEN
    4  the current context
    5  http://127.0.0.1:4000

The first of these that is there decides. A context is a name for an address or a directory; a key
is never written into the file of contexts, only the path of the file that holds it.

A key goes only to the server it was meant for: that of a context stays with the context, and
TOPICS_TOKEN is not sent to an address other than TOPICS_URL when there is one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import msgspec

from topics.client._address import split_address, tls_context
from topics.errors import InvalidRequest, InvalidSetting, NotFound, TopicsError

DEFAULT_URL = "http://127.0.0.1:4000"
URL_VARIABLE = "TOPICS_URL"
TOKEN_VARIABLE = "TOPICS_TOKEN"
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}/?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Target(msgspec.Struct, frozen=True):
    """One log: either `url` or `path` is set. `source` says, for people, what chose it."""

    url: str | None = None
    path: str | None = None
    token: str | None = None
    source: str = ""
    ca_file: str | None = None

    def __str__(self) -> str:
        return self.url or self.path or ""

    def __repr__(self) -> str:
        key = "None" if self.token is None else "'...'"  # a key must not get into tracebacks
        return f"Target(url={self.url!r}, path={self.path!r}, token={key}, source={self.source!r})"


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named target: the address of a server or a directory, and where its key is kept.

    `ca_file` holds the certificates of the authority that vouches for the server.
    """

    url: str | None = None
    dir: str | None = None
    token_file: str | None = None
    ca_file: str | None = None


class Contexts(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of a user's contexts, and the one that is used when nothing else is said."""

    contexts: dict[str, Context] = {}
    current: str | None = None

    def get(self, name: str) -> Context:
        """The context of that name."""
        if name not in self.contexts:
            raise UnknownContext(name, known=sorted(self.contexts))
        return self.contexts[name]

    def with_context(self, name: str, context: Context) -> Contexts:
        """With one more, or another one in its place; the first becomes the current one."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} is no name for a context; use up to 64 letters, digits, '.', '_', '-'"
            )
        if (context.url is None) == (context.dir is None):
            raise InvalidRequest("a context is either the address of a server or a directory")
        current = self.current if self.contexts else name
        return Contexts({**self.contexts, name: context}, current)

    def without(self, name: str) -> Contexts:
        """With one less; if it was the current one, there is none."""
        self.get(name)
        left = {other: context for other, context in self.contexts.items() if other != name}
        return Contexts(left, None if self.current == name else self.current)

    def using(self, name: str) -> Contexts:
        """With another one as the current one."""
        self.get(name)
        return Contexts(self.contexts, name)


class UnknownContext(NotFound):
    """The named context does not exist."""

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        hint = f"there are: {', '.join(known)}" if known else "add one with `topics context add`"
        TopicsError.__init__(self, f'context "{name}" does not exist; {hint}')


def resolve(
    url: str | None = None,
    dir: str | None = None,
    context: str | None = None,
    token: str | None = None,
    env: Mapping[str, str] = os.environ,
) -> Target:
    """The target that is meant. `token` replaces the key that would otherwise be used."""
    if url is not None and dir is not None:
        raise InvalidRequest("name the address of a server or a directory, not both")
    if dir is not None:
        return Target(path=os.path.abspath(os.path.expanduser(dir)), source="directory")
    if url is not None:
        asked = checked_url(url)
        return Target(url=asked, token=token or _token_for(asked, env), source="address")
    if context is not None:
        return _of_context(context, load_contexts(env), token)
    if env.get(URL_VARIABLE):
        asked = checked_url(env[URL_VARIABLE], URL_VARIABLE)
        return Target(url=asked, token=token or _token_for(asked, env), source=URL_VARIABLE)
    contexts = load_contexts(env)
    if contexts.current is not None:
        return _of_context(contexts.current, contexts, token)
    return Target(url=DEFAULT_URL, token=token or _token_for(DEFAULT_URL, env), source="default")


def checked_url(url: str, setting: str = "url") -> str:
    """An address as it is used: scheme, host and port, without a slash at the end.

    `localhost:4000` is taken for `http://localhost:4000`.
    """
    url = _in_full(url)
    parts = split_address(url)
    if parts is None or parts.query or parts.fragment:
        raise InvalidSetting(setting, allowed="like http://host:4000", got=repr(url))
    if parts.username is not None or parts.password is not None:
        raise InvalidSetting(
            setting, allowed="without a key in it: keep that in a file", got="one with a key"
        )
    return url


def _in_full(url: str) -> str:
    scheme = "http://" if _HOST_AND_PORT.fullmatch(url) else ""
    return f"{scheme}{url}".rstrip("/")


def read_token(path: str) -> str:
    """The key in a file; white space around it is no part of it."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(
            "token_file", allowed="a file that can be read", got=f"{path} ({error})"
        ) from error
    if not token or any(mark.isspace() for mark in token):
        raise InvalidSetting("token_file", allowed="a file with one key in it", got=path)
    return token


def checked_ca_file(path: str) -> str:
    """The path of a file with certificates, as it is used from any directory."""
    found = os.path.abspath(os.path.expanduser(path))
    tls_context(found)
    return found


def contexts_path(env: Mapping[str, str] = os.environ) -> str:
    """Where a user's contexts are kept."""
    home = env.get("XDG_CONFIG_HOME") or os.path.join(
        env.get("HOME") or os.path.expanduser("~"), ".config"
    )
    return os.path.join(home, "topics", "contexts.json")


def load_contexts(env: Mapping[str, str] = os.environ) -> Contexts:
    """The contexts as they are kept; none when there is no such file."""
    path = contexts_path(env)
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except msgspec.DecodeError as error:
        raise InvalidSetting(
            path, allowed="a file as `topics context add` writes it", got=str(error)
        ) from error


def save_contexts(contexts: Contexts, env: Mapping[str, str] = os.environ) -> None:
    """Replace the file in one step, readable by its owner only."""
    path = contexts_path(env)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    scratch = f"{path}.{os.getpid()}"
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _of_context(name: str, contexts: Contexts, token: str | None) -> Target:
    context = contexts.get(name)
    source = f"context {name}"
    if context.dir is not None:
        return Target(path=context.dir, source=source)
    if token is None and context.token_file is not None:
        token = read_token(context.token_file)
    url = checked_url(context.url or "", source)
    return Target(url=url, token=token, source=source, ca_file=context.ca_file)


def _token_for(url: str, env: Mapping[str, str]) -> str | None:
    meant_for = env.get(URL_VARIABLE)
    if meant_for and _in_full(meant_for) != url:
        return None
    return env.get(TOKEN_VARIABLE) or None
