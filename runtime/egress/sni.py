"""Reads the server name from a TLS ClientHello. Does not answer the ClientHello.

Source: RFC 8446 sections 4.1.2 and 5.1; RFC 6066 section 3
"""

from typing import Final

# Maximum bytes of a ClientHello with all its records. Browsers send about 2 kB.
MAX_CLIENT_HELLO_BYTES: Final = 16_384
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


class NotTls(Exception):
    """The bytes are not the beginning of a TLS connection."""


def parse_server_name(data: bytes) -> str | None:
    """Return the server name in a ClientHello, or "" if the ClientHello contains none. The name is in lower case.
    Raises NotTls.

    Returns None if more bytes are needed, because a ClientHello may consist of several records.
    """
    hello = _read_handshake(data)
    if hello is None:
        return None
    try:
        return _read_server_name(_ByteReader(hello))
    except IndexError as error:
        raise NotTls from error


def _read_handshake(data: bytes) -> bytes | None:
    """Return the body of the first handshake message. Joins the records that contain the message."""
    message, offset = b"", 0
    while True:
        if len(message) >= 4:
            if message[0] != _CLIENT_HELLO:
                raise NotTls
            length = int.from_bytes(message[1:4], "big")
            if length > MAX_CLIENT_HELLO_BYTES:
                raise NotTls
            if len(message) >= 4 + length:
                return message[4 : 4 + length]
        header = data[offset : offset + 5]
        if header and (header[0] != _HANDSHAKE or header[1:2] not in (b"", b"\x03")):
            raise NotTls
        if len(header) < 5:
            return None
        length = int.from_bytes(header[3:5], "big")
        if not 0 < length <= MAX_CLIENT_HELLO_BYTES:
            raise NotTls
        # The bytes of a record that is not complete yet are used, too. So a message of another type is
        # rejected early.
        message += data[offset + 5 : offset + 5 + length]
        if len(data) < offset + 5 + length:
            return None
        offset += 5 + length


def _read_server_name(hello: "_ByteReader") -> str:
    hello.take(2 + 32)  # Version and random bytes.
    hello.take_vector(1)  # Session id.
    hello.take_vector(2)  # Cipher suites.
    hello.take_vector(1)  # Compression methods.
    if hello.is_empty:
        return ""
    extensions = _ByteReader(hello.take_vector(2))
    name = ""
    while not extensions.is_empty:
        kind = int.from_bytes(extensions.take(2), "big")
        body = extensions.take_vector(2)
        if kind != _SERVER_NAME:
            continue
        names = _ByteReader(_ByteReader(body).take_vector(2))
        if name or names.take(1)[0] != _HOST_NAME:
            raise NotTls  # There are two names, or one of an unknown type. No legitimate client sends this.
        name = names.take_vector(2).decode("ascii", "replace").lower()
        if not name or not names.is_empty:
            raise NotTls
    return name


class _ByteReader:
    """Reads bytes from the start of a message. Raises IndexError if too few bytes are left."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def is_empty(self) -> bool:
        return not self._data

    def take(self, count: int) -> bytes:
        if len(self._data) < count:
            raise IndexError
        data, self._data = self._data[:count], self._data[count:]
        return data

    def take_vector(self, width: int) -> bytes:
        """Return a field that is preceded by its length. The length has `width` bytes."""
        return self.take(int.from_bytes(self.take(width), "big"))
