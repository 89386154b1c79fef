"""The name of the server in a TLS ClientHello, read without answering it.

Source: RFC 8446 sections 4.1.2 and 5.1; RFC 6066 section 3
"""

from typing import Final

MOST: Final = 16_384  # bytes of a ClientHello with all its records; browsers send 2 kB
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


class NotTls(Exception):
    """These bytes do not begin a TLS connection."""


def server_name(data: bytes) -> str | None:
    """The name that a ClientHello asks for, lower-case; "" when it names none.

    None: more bytes are needed. A hello may come in several records. Raises NotTls.
    """
    hello = _handshake(data)
    if hello is None:
        return None
    try:
        return _name(_Bytes(hello))
    except IndexError as error:
        raise NotTls from error


def _handshake(data: bytes) -> bytes | None:
    """The body of the first handshake message, out of as many records as it takes."""
    message, at = b"", 0
    while True:
        if len(message) >= 4:
            if message[0] != _CLIENT_HELLO:
                raise NotTls
            length = int.from_bytes(message[1:4], "big")
            if length > MOST:
                raise NotTls
            if len(message) >= 4 + length:
                return message[4 : 4 + length]
        header = data[at : at + 5]
        if header and (header[0] != _HANDSHAKE or header[1:2] not in (b"", b"\x03")):
            raise NotTls
        if len(header) < 5:
            return None
        length = int.from_bytes(header[3:5], "big")
        if not 0 < length <= MOST:
            raise NotTls
        # What is here of an unfinished record counts already, so that a hello of another type is seen early.
        message += data[at + 5 : at + 5 + length]
        if len(data) < at + 5 + length:
            return None
        at += 5 + length


def _name(hello: "_Bytes") -> str:
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session
    hello.vector(2)  # ciphers
    hello.vector(1)  # compressions
    if hello.is_empty:
        return ""
    extensions = _Bytes(hello.vector(2))
    name = ""
    while not extensions.is_empty:
        kind = int.from_bytes(extensions.take(2), "big")
        body = extensions.vector(2)
        if kind != _SERVER_NAME:
            continue
        names = _Bytes(_Bytes(body).vector(2))
        if name or names.take(1)[0] != _HOST_NAME:
            raise NotTls  # two of them, or one of an unknown type: nobody honest sends that
        name = names.vector(2).decode("ascii", "replace").lower()
        if not name or not names.is_empty:
            raise NotTls
    return name


class _Bytes:
    """Bytes that are taken from the front. Raises IndexError when there are not as many."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def is_empty(self) -> bool:
        return not self._data

    def take(self, count: int) -> bytes:
        if len(self._data) < count:
            raise IndexError
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def vector(self, width: int) -> bytes:
        """A field that begins with its own length, in `width` bytes."""
        return self.take(int.from_bytes(self.take(width), "big"))
