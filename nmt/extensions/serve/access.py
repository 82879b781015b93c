"""Which requests the server accepts by their Host and Origin headers, and which proxies may name a client's address.

A browser lets any web page send requests to a server on the same machine, and tells the page's origin. A page whose own name
leads to this machine (DNS rebinding) counts as the server's own, but its name stands in the Host header.
"""

import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from nmt.errors import UserError, one_line, quoted
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError

HOST_WITH_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")
MISDIRECTED: Final = 421  # HTTP status


class Access:
    """Checks the Host and the Origin of requests.

    names: hosts that the server answers for; None for all
    """

    def __init__(self, options: ServeOptions) -> None:
        names = frozenset(map(str.lower, options.hosts))
        self.names = names | {options.host.lower()} if names or _is_loopback(options.host) else None
        self._named = names
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
        return origin in self._origins or (place != "" and (place == host.lower() or _name(place) in self._named))


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
    return name.lower() == "localhost" or name.lower().endswith(".localhost")


def trusted_proxies(options: ServeOptions) -> list[str]:
    """The addresses and networks of --proxies. Raises UserError."""
    for given in options.proxies:
        try:
            ipaddress.ip_network(given)
        except ValueError as error:
            raise UserError(f"--proxies {quoted(given)}: neither an address nor a network: {error}") from None
    return list(options.proxies)
