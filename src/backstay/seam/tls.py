"""TLS contexts from values.

Certificates and keys arrive as PEM in memory (``Tls``, ``ServerTls``) and stay there: OpenSSL
wants a file for a private key, so it gets one that exists in memory only. A kubeconfig that
works with kubectl works here: an intermediate certificate may be the trust anchor.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from backstay.seam.serve import ServerTls
from backstay.seam.transport import Tls


class UnusablePem(ValueError):
    """A certificate or key that OpenSSL does not take, in a sentence without its content."""


def client_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is None:
        context.load_default_certs()
    else:
        _trust(context, tls.ca, "the CA certificate")
    if tls.cert is not None or tls.key is not None:
        _identify(context, tls.cert, tls.key, "the client certificate")
    return context


def server_context(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _identify(context, tls.cert, tls.key, "the server certificate")
    if tls.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, tls.client_ca, "the CA certificate for clients")
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Authentication happens in the first handshake or never, so that an alert about it proves
    # that no request was looked at.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])


def _trust(context: ssl.SSLContext, ca: bytes, what: str) -> None:
    try:
        # Bundles carry comments in any encoding between the certificates.
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise UnusablePem(f"{what} is not usable PEM: {in_words(error)}") from None


def _identify(context: ssl.SSLContext, cert: bytes | None, key: bytes | None, what: str) -> None:
    if cert is None:
        raise UnusablePem(f"there is a key but no certificate for {what}")
    with ExitStack() as files:
        certfile = files.enter_context(file_in_memory(cert))
        keyfile = files.enter_context(file_in_memory(key)) if key is not None else None
        try:
            # An explicit, wrong password, because OpenSSL asks at the terminal when it has none.
            context.load_cert_chain(certfile, keyfile, password="")
        except (ssl.SSLError, ValueError) as error:
            raise UnusablePem(f"{what} or its key is not usable PEM: {in_words(error)}") from None


@contextmanager
def file_in_memory(data: bytes) -> Iterator[str]:
    """A path under which ``data`` can be read, without a disk where the kernel allows it."""
    try:
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    except OSError:
        with file_on_disk(data) as path:
            yield path
        return
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


@contextmanager
def file_on_disk(data: bytes) -> Iterator[str]:
    """A file that only we can read, removed at the end of the block."""
    with tempfile.NamedTemporaryFile(prefix="backstay-") as file:
        file.write(data)
        file.flush()
        yield file.name


def in_words(error: Exception) -> str:
    """What OpenSSL says, without its file names and line numbers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error)
