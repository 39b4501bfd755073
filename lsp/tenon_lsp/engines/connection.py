"""A connection to an engine over HTTP: where it is, who is let in, and what went wrong, in one sentence.

The only module that knows the HTTP client, which is imported with the first connection: it takes a third of a second.
No sentence holds the token, whatever the other side says. Knows no fills.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tenon_lsp.engines.client import EngineError, EngineFault

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

CONNECT_S = 5.0
ANSWER_BYTES_MAX = 16 << 20
COMPLAINT_CHARACTERS_MAX = 300

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_HIDDEN = "…"


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine is: an http or https address, and for one on this machine perhaps a unix socket."""

    url: str
    socket: str | None = None
    token: str = dataclasses.field(default="", repr=False)
    ca_file: Path | None = None  # trusted instead of the system's authorities

    @staticmethod
    def at_socket(path: str, *, token: str = "") -> Endpoint:
        """The one that listens on a unix socket, where a request still has to name some host."""
        return Endpoint("http://localhost", socket=path, token=token)

    @property
    def name(self) -> str:
        """How the user knows it; nothing secret."""
        return self.socket or urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, where no proxy is in between."""
        return self.socket is not None or urlsplit(self.url).hostname in _LOCAL_HOSTS

    def address(self, route: str) -> str:
        """The address of a route such as "/v1/completions"; a URL that ends like one is the address itself."""
        base = self.url.rstrip("/")
        if base.endswith(route[route.rindex("/") :]):
            return base
        return base.removesuffix("/v1") + route  # a route has its own version, or none


class RefusedError(EngineError):
    """The other side has answered that it will not; `kind` is our own engine's code for the reason, '' for others'."""

    def __init__(
        self, sentence: str, *, status: int, complaint: str, kind: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(EngineFault.UNAVAILABLE, sentence)
        self.status = status
        self.complaint = complaint
        self.kind = kind
        self.retry_after_s = retry_after_s


class Connection:
    """A client of one endpoint. Everything it raises is an EngineError of the code UNAVAILABLE."""

    def __init__(self, endpoint: Endpoint, client: httpx.AsyncClient) -> None:
        self.endpoint = endpoint
        self._client = client

    @staticmethod
    async def open(locate: Callable[[], Endpoint]) -> Connection:
        """A connection to what `locate` finds, which may block. Nothing is sent yet."""
        return await _in_thread(lambda: _open(locate))

    @contextlib.asynccontextmanager
    async def answer(
        self,
        method: str,
        route: str,
        message: Mapping[str, object] | None = None,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        limit_s: float | None = None,
        silence_s: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """The answer to a request, its body not read yet; RefusedError when its status is not a success.

        It is given up when it is not complete after `limit_s`, or silent for `silence_s`. Leaving early closes it.
        """
        import anyio  # its time-outs, unlike asyncio's before Python 3.12, lose no cancellation
        import httpx

        content_type = {"Content-Type": "application/json"} if message is not None else {}
        with self._one_sentence(), anyio.fail_after(limit_s):
            async with self._client.stream(
                method,
                self.endpoint.address(route),
                content=None if message is None else _body(message),
                headers={**headers, **content_type},
                timeout=httpx.Timeout(silence_s, connect=CONNECT_S),
            ) as response:
                if not response.is_success:
                    raise await self._refusal(response)
                yield response

    async def document(self, response: httpx.Response) -> object:
        """The JSON that an answer is."""
        try:
            return json.loads(await _read(response))
        except (ValueError, RecursionError):
            raise self.malformed("it is not JSON") from None

    async def documents(self, response: httpx.Response) -> AsyncIterator[object]:
        """The JSON documents, one a line, that an answer consists of."""
        async for line in _lines(response):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                raise self.malformed("a line of it is not JSON") from None

    def malformed(self, reason: str) -> EngineError:
        """What to raise for an answer that is none."""
        sentence = f"the answer of the engine at {self.endpoint.name} is not understood ({reason})"
        return EngineError(EngineFault.UNAVAILABLE, sentence)

    def silent(self) -> EngineError:
        """What to raise for an other side that says nothing."""
        return EngineError(EngineFault.UNAVAILABLE, f"the engine at {self.endpoint.name} does not answer")

    async def close(self) -> None:
        """Close it, and with it every answer that is still being read."""
        await self._client.aclose()

    @contextlib.contextmanager
    def _one_sentence(self) -> Iterator[None]:
        """What the client library raises, as EngineErrors."""
        import httpx

        name = self.endpoint.name
        try:
            yield
        except (TimeoutError, httpx.ReadTimeout):
            raise self.silent() from None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            sentence = f"the engine at {name} cannot be reached ({self._shown(str(error)) or 'time-out'})"
        except (httpx.TransportError, httpx.StreamError) as error:
            why = self._shown(str(error)) or type(error).__name__
            sentence = f"the connection to the engine at {name} broke ({why})"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            sentence = f"the engine at {name} cannot be asked ({self._shown(str(error))})"
        except _TooLongError:
            raise self.malformed(f"it is longer than {ANSWER_BYTES_MAX >> 20} MiB") from None
        else:
            return
        raise EngineError(EngineFault.UNAVAILABLE, sentence) from None

    async def _refusal(self, response: httpx.Response) -> RefusedError:
        complaint, kind = _complaint(await _read(response))
        complaint = self._shown(complaint or response.reason_phrase)
        name, status = self.endpoint.name, response.status_code
        return RefusedError(
            f"the engine at {name} answers: {complaint} (status {status})",
            status=status,
            complaint=complaint,
            kind=kind,
            retry_after_s=_seconds(response.headers.get("Retry-After", "")),
        )

    def _shown(self, text: str) -> str:
        """A text of the other side as part of our sentence: one line, not too long, without the token."""
        if self.endpoint.token:
            text = text.replace(self.endpoint.token, _HIDDEN)
        line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
        cut = line[: COMPLAINT_CHARACTERS_MAX - 1].rstrip() + "…"
        return (line if len(line) <= COMPLAINT_CHARACTERS_MAX else cut).rstrip(".")


class _TooLongError(Exception):
    pass


async def _in_thread(work: Callable[[], T]) -> T:
    """Do blocking work in a thread that, unlike those of the event loop, nobody waits for at the end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(settler: Callable[[Any], None], value: object) -> None:
        if not done.done():  # else who waited was cancelled
            settler(value)

    def run() -> None:
        settler: Callable[[Any], None] = done.set_exception
        value: object = EngineError(EngineFault.UNAVAILABLE, "the search for the engine failed")
        try:
            settler, value = done.set_result, work()
        except EngineError as error:
            value = error
        finally:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(settle, settler, value)

    threading.Thread(target=run, daemon=True).start()
    return await done


def _open(locate: Callable[[], Endpoint]) -> Connection:
    import httpx

    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs whole addresses, which may hold secrets
    endpoint = locate()
    context = _trusting(endpoint.ca_file)
    client = httpx.AsyncClient(
        transport=_local_transport(endpoint, context) if endpoint.is_local else None,
        verify=context,
        trust_env=not endpoint.is_local,
        headers={"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {},
    )
    return Connection(endpoint, client)


def _local_transport(endpoint: Endpoint, context: ssl.SSLContext) -> httpx.AsyncHTTPTransport:
    """A way to this machine that no proxy of the environment is put into."""
    import httpx

    if endpoint.socket is None:
        return httpx.AsyncHTTPTransport(verify=context)
    from tenon_lsp.engines.socket import transport_to

    return transport_to(endpoint.socket)


def _trusting(ca_file: Path | None) -> ssl.SSLContext:
    """A context that trusts the given authority alone, or those that everybody trusts."""
    import httpx

    if ca_file is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # ssl.SSLError, of what is no certificate, is an OSError
        reason = getattr(error, "strerror", None) or "it holds no certificate"
        raise EngineError(
            EngineFault.UNAVAILABLE, f"the CA file {ca_file} cannot be used ({reason})"
        ) from None


def _body(message: Mapping[str, object]) -> bytes:
    """JSON that every side can read: a half of a character, which has no UTF-8 form, becomes U+FFFD."""
    text = json.dumps(message, ensure_ascii=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


async def _read(response: httpx.Response) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise _TooLongError
        parts.append(part)
    return b"".join(parts)


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Lines that say something; only LF ends one, for text may hold other characters that look like line ends."""
    rest = b""
    async for part in response.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        if len(rest) > ANSWER_BYTES_MAX:
            raise _TooLongError
        for line in filter(bytes.strip, whole):
            yield line
    if rest.strip():
        yield rest


def _complaint(body: bytes) -> tuple[str, str]:
    """What an error's body says, in any of the usual forms, and its code where it is a word."""
    text = body.decode("utf-8", errors="replace")
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        return ("" if text.lstrip().startswith("<") else text), ""
    kind = ""
    for _ in range(3):
        match form:
            case str():
                return form, kind
            case {"message": inner, "code": str(kind)}:
                form = inner
            case {"error": inner} | {"message": inner} | {"detail": inner} | {"msg": inner} | [inner, *_]:
                form = inner
            case _:
                break
    return (form, kind) if isinstance(form, str) else ("", kind)


def _seconds(header: str) -> float:
    """Retry-After in its usual form, within a minute."""
    return min(float(header), 60.0) if header.isascii() and header.isdecimal() else 0.0
