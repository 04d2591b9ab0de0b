"""A lease of a folder in an object store: one process at a time holds it, and whoever was killed holds it no longer.

Under ``FOLDER/.NAME.lock`` lie objects that are called by a number, and created only where there is none
(``If-None-Match``). The newest one names the holder; an empty object says that the lease was given back. A holder
creates the next number every ``RENEWED`` seconds, and deletes the one before. Who wants the lease, and sees none for
``DEAD`` seconds, creates it, and has the lease if it is the newest then: one that comes late finds a newer one. So of
two only one succeeds, the newest number never falls, and no two clocks are compared.

A holder that has not the newest number was stopped for longer than ``DEAD``, and has lost the lease: its process ends
at once, as by a kill, since what it has begun is done again by whoever writes next.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from uuid import uuid4

from spark_jobs.tables import storage

log = logging.getLogger(__name__)

RENEWED = 10.0
DEAD = 60.0
STORES = re.compile("(s3[an]?|gs|az|abfss?)://")
"""What creates an object only where there is none."""


@contextmanager
def leased(folder: str, name: str) -> Iterator[None]:
    """Hold the lease ``name`` of ``folder``; waits up to ``DEAD`` seconds for a holder that may have been killed.

    Raises BlockingIOError when somebody else holds it, ImportError without obstore.
    """
    objects = f"{folder}/.{name}.lock"
    holder = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "token": uuid4().hex})
    number = _acquired(objects, holder, f"{folder}: another {name} is writing these tables")
    ended = Event()
    renewing = Thread(target=_renew, args=(objects, holder, number, ended), name=f"lease-{name}", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()


def _acquired(objects: str, holder: str, refusal: str) -> int:
    """The number of the first object of ``holder``. Raises BlockingIOError."""
    watched: int | None = None
    since = time.monotonic()
    while True:
        numbers = _numbers(objects)
        number = max(numbers, default=0)
        other = storage.text(f"{objects}/{number}") if number else ""
        watched = number if watched is None else watched
        if other and number > watched:
            about = json.loads(other)
            raise BlockingIOError(f"{refusal} ({about['host']}, process {about['pid']}); wait for its end")
        # None: it has been deleted since, so there is a newer one.
        free = other == "" or (other is not None and time.monotonic() - since >= DEAD)
        if free and _created(objects, number + 1, holder):
            for former in numbers:
                storage.delete(f"{objects}/{former}")
            return number + 1
        time.sleep(RENEWED / 5)


def _renew(objects: str, holder: str, number: int, ended: Event) -> None:
    """Keep the lease until ``ended``, and give it back."""
    while not ended.wait(RENEWED):
        try:
            if not _created(objects, number + 1, holder):
                log.critical("%s: taken over by another job, as this one was not heard of; ends at once", objects)
                os._exit(1)
            storage.delete(f"{objects}/{number}")
            number += 1
        except Exception as error:  # whatever the store has: the next time it may succeed
            log.warning("%s: not renewed, and tried again: %s", objects, error)
    try:
        storage.create(f"{objects}/{number + 1}", "")
        storage.delete(f"{objects}/{number}")
    except Exception as error:  # it ends by itself
        log.warning("%s: not given back: %s", objects, error)


def _created(objects: str, number: int, holder: str) -> bool:
    """Create an object: whether it is the newest one, and of ``holder``."""
    path = f"{objects}/{number}"
    # It may be there already: the store's answer to a former request was lost.
    return (storage.create(path, holder) or storage.text(path) == holder) and max(_numbers(objects)) == number


def _numbers(objects: str) -> list[int]:
    return [int(name) for name in storage.names(objects) if name.isdecimal()]
