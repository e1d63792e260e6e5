"""PEM: what is good enough to be handed to TLS.

Files are caught while they are being replaced: half a certificate, a new key beside the old
certificate. Both are recognised here, before they reach a connection, so that whoever keeps the
last good ones can go on using them. OpenSSL itself is the judge, because it is the one that will
have to use them.
"""

import ssl

import msgspec

from backstay.seam.tls import UnusablePem, client_context, file_in_memory
from backstay.seam.transport import Tls


class Unusable(ValueError):
    """Not what it should be; the message completes a sentence and quotes nothing secret."""


class KeyPair(msgspec.Struct, frozen=True):
    """A client certificate (with its chain) and the key that belongs to it, both PEM."""

    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


def trusted_authorities(data: bytes) -> bytes:
    """The certificates in ``data``, every one of them whole. Raises ``Unusable``."""
    try:
        client_context(Tls(ca=data))
    except UnusablePem:
        raise Unusable("no complete certificate authority in PEM form") from None
    return data


def key_pair(cert: bytes, key: bytes) -> KeyPair:
    """Both, if they are whole and belong together. Raises ``Unusable``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with file_in_memory(cert) as cert_path, file_in_memory(key) as key_path:
        try:
            # Without a password given, OpenSSL would ask at the terminal for an encrypted key's.
            context.load_cert_chain(cert_path, key_path, password=b"")
        except ssl.SSLError as error:
            raise Unusable(_why(error, key)) from None
    return KeyPair(cert, key)


def _why(error: ssl.SSLError, key: bytes) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "a key that does not belong to the certificate"
    if b"ENCRYPTED" in key:
        return "a key that needs a passphrase, which nobody is there to type"
    return "no complete certificate and key in PEM form"
