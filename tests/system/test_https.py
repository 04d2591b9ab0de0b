"""Requests by urllib3: the reason of an error, ``Retry-After``, and a blocked request that is interrupted."""

from __future__ import annotations

import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import urllib3

from tests.waits import DEADLINE
from vedette.system.https import Connections, reason, retry_after


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), (" 120 ", 120.0), ("9" * 400, 999_999_999.0), ("-1", None), ("soon", None), ("", None), (None, None),
     ("٣", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 21 Oct 99999 07:28:00 GMT", None)],
)  # fmt: skip
def test_how_long_to_wait(text: str | None, seconds: float | None) -> None:
    """A number or a date (RFC 9110, 10.2.3), else nothing."""
    assert retry_after(text) == seconds


def test_a_date_to_come() -> None:
    wait = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True))
    assert wait is not None
    assert 60 < wait <= 90


def test_a_wait_can_be_ended_and_its_reason_names_no_url() -> None:
    """A server that never answers: the thread that waits for it fails when its connection is shut down."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE)
        connections, failed = Connections(), list[str]()
        manager = connections.manager("", None, None, None, num_pools=1)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/?key=secret"

        def ask() -> None:
            try:
                manager.request("GET", url, retries=False)
            except urllib3.exceptions.HTTPError as error:
                failed.append(reason(error))

        asking = threading.Thread(target=ask)
        asking.start()
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(DEADLINE)
            assert accepted.recv(1 << 12).startswith(b"GET /?key=secret")
            connections.shut_down()
            asking.join()  # while the server says nothing
    (text,) = failed
    assert text
    assert "secret" not in text


def test_who_refuses_is_said_without_where() -> None:
    """An object's address in the text of urllib3 is left out, and so is the path."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(urllib3.exceptions.HTTPError) as raised:
        Connections().manager("", None, None, None).request("GET", f"http://127.0.0.1:{port}/key", retries=False)
    text = reason(raised.value)
    assert "refused" in text
    assert "0x" not in text
    assert "key" not in text
