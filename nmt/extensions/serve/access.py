"""Which requests the server accepts: by their Host and Origin headers, API keys and rate; and which proxies it trusts.

A browser lets any web page send requests to a server on the same machine, and tells the page's origin. A page whose own name
leads to this machine (DNS rebinding) counts as the server's own, but its name stands in the Host header.
"""

import hmac
import ipaddress
import math
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from nmt.errors import UserError, one_line, quoted
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError, UnknownKeyError
from nmt.files import read_bytes
from nmt.log import log

HOST_WITH_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")
COMMENT: Final = re.compile(r"(^|\s)#.*")
HOST: Final = re.compile(r"[^\s/:,]+")
WEB_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/,]+")
MISDIRECTED: Final = 421  # HTTP status
SECONDS_PER_MINUTE: Final = 60.0
MAX_REMEMBERED_CLIENTS: Final = 100_000


class Access:
    """Checks the Host and the Origin of requests.

    names: hosts that the server answers for; None for all
    """

    def __init__(self, options: ServeOptions) -> None:
        """Raises UserError for a host or an origin that no request could have."""
        for host in options.hosts:
            if not (HOST.fullmatch(host) or _is_address(host.strip("[]"))):
                raise UserError(f"--hosts {quoted(host)}: give only the name, as in --hosts translate.example")
        for origin in options.cors:
            if origin != "*" and not WEB_ORIGIN.fullmatch(origin):
                raise UserError(
                    f"--cors {quoted(origin)}: not an origin (write it as in https://app.example, or use *)"
                )
        self._hosts = frozenset(map(str.lower, options.hosts))
        self.names = self._hosts | {options.host.lower()} if self._hosts or _is_loopback(options.host) else None
        self._origins = frozenset(options.cors)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise ProblemError for another server's name, or for a web page from elsewhere."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if host and not self._is_own(host):
            raise ProblemError(
                MISDIRECTED, f"this server does not answer for the host '{one_line(host)}' (use --hosts)"
            )
        if origin is None:
            site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
            is_foreign = site == "cross-site" and mode == "no-cors"
        else:
            is_foreign = headers.get("sec-fetch-site") != "same-origin" and not self._is_known(origin, host)
        if is_foreign and "*" not in self._origins:
            raise ProblemError(
                403, f"web pages from '{one_line(origin or 'other servers')}' may not use this server (use --cors)"
            )

    def _is_own(self, host: str) -> bool:
        """Whether the server answers for a Host header. Addresses are safe, because only a name can be led elsewhere."""
        return self.names is None or (name := _name(host)) in self.names or _is_loopback(name) or _is_address(name)

    def _is_known(self, origin: str, host: str) -> bool:
        """Whether an origin is the server's own, or one that --cors allows."""
        place = origin.partition("://")[2].lower()
        return origin in self._origins or (place != "" and (place == host.lower() or _name(place) in self._hosts))


class Gate:
    """Checks API keys and limits the rate of requests."""

    def __init__(self, options: ServeOptions) -> None:
        """Read the keys. Raises UserError for a file without keys."""
        self._limit, self._file = options.requests_per_minute, options.keys
        self._keys = _read_keys(self._file) if self._file is not None else []
        # The number of requests that each client may still send, and when this was last updated.
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def reload(self) -> None:
        """Read the file of keys again. If that fails, the old keys stay in use."""
        if self._file is None:
            return
        try:
            self._keys = _read_keys(self._file)
            log.info(f"--keys: {len(self._keys):,} keys")
        except (UserError, OSError) as error:
            log.warn(f"reading the keys failed, so the old ones stay in use: {one_line(str(error))}")

    def check_key(self, key: str) -> None:
        """Raise ProblemError for an unknown key."""
        if self._keys and not any([hmac.compare_digest(key.encode(), known) for known in self._keys]):
            raise UnknownKeyError

    def check(self, key: str, client: str) -> None:
        """Raise ProblemError for an unknown key, or for too many requests."""
        self.check_key(key)
        if not self._limit:
            return
        who, now = (key if self._keys else client), time.monotonic()
        left, since = self._tokens.pop(who, (float(self._limit), now))
        left = min(self._limit, left + (now - since) * self._limit / SECONDS_PER_MINUTE)
        is_allowed = left >= 1
        self._tokens[who] = left - is_allowed, now
        while len(self._tokens) > MAX_REMEMBERED_CLIENTS:
            self._tokens.popitem(last=False)
        if not is_allowed:
            seconds = (1 - left) * SECONDS_PER_MINUTE / self._limit
            raise ProblemError(429, "too many requests", {"Retry-After": str(math.ceil(seconds))})


def _read_keys(file: str) -> list[bytes]:
    """The keys in a file, one per line; a comment starts with `#`. Raises UserError if there are none."""
    text = read_bytes(Path(file)).decode("utf-8-sig", errors="replace")
    keys = [COMMENT.sub("", line).strip().encode() for line in text.split("\n")]
    if not any(keys):
        raise UserError(f"--keys {quoted(file)}: this file contains no keys (write one per line)")
    return list(filter(None, keys))


def _name(host: str) -> str:
    """The name or address in a Host header, in lower case and without the port."""
    found = HOST_WITH_PORT.fullmatch(host.lower())
    return found[1].strip("[]").removesuffix(".") if found else host


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


def _is_loopback(name: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return f".{name.lower()}".endswith(".localhost")


def trusted_proxies(options: ServeOptions) -> list[str]:
    """The addresses and networks of --proxies. Raises UserError."""
    for given in options.proxies:
        try:
            ipaddress.ip_network(given)
        except ValueError as error:
            raise UserError(
                f"--proxies {quoted(given)}: neither an address nor a network: {error} (for several, repeat the flag)"
            ) from None
    return list(options.proxies)
