"""A lease of a folder in an object store: one process at a time holds it, and whoever was killed holds it no longer.

Under ``FOLDER/.NAME.lock`` lie objects that are called by a number, and created only where there is none
(``If-None-Match``). The newest one names the holder; an empty object says that the lease was given back. A holder
creates the next number every ``RENEWED`` seconds, and deletes the one before. Who wants the lease, and sees none for
``DEAD`` seconds, creates it, and has the lease if it is the newest then: one that comes late finds a newer one. So of
two only one succeeds, the newest number never falls, and no two clocks are compared.

A holder that has not the newest number was stopped for longer than ``DEAD``, and has lost the lease; one that could
create no number for ``ENDS`` seconds, as the store refuses it or does not answer, is about to. Its process ends at
once, as by a kill, since what it has begun is done again by whoever writes next.
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
from dataclasses import dataclass, field
from threading import Event, Thread
from uuid import uuid4

from spark_jobs.tables import storage

log = logging.getLogger(__name__)

RENEWED = 10.0
ENDS = 40.0
"""Less than ``DEAD`` by more than it takes to notice."""
DEAD = 60.0
STORES = re.compile("(s3[an]?|gs|az|abfss?)://")
"""What creates an object only where there is none."""


@dataclass(slots=True)
class _Lease:
    """Its newest object has ``number``, and had not been created at ``renewed``."""

    objects: str
    holder: str
    number: int = 0
    renewed: float = 0.0
    ended: Event = field(default_factory=Event)

    def create(self, number: int) -> bool:
        """Create an object: whether it is the newest one, and of this holder."""
        path, began = f"{self.objects}/{number}", time.monotonic()
        # It may be there already: the store's answer to a former request was lost.
        if not (storage.create(path, self.holder) or storage.text(path) == self.holder):
            return False
        if max(_numbers(self.objects), default=0) != number:
            return False
        self.number, self.renewed = number, began
        return True


@contextmanager
def leased(folder: str, name: str) -> Iterator[None]:
    """Hold the lease ``name`` of ``folder``; waits up to ``DEAD`` seconds for a holder that may have been killed.

    Raises BlockingIOError when somebody else holds it, ImportError without obstore.
    """
    objects = f"{folder}/.{name}.lock"
    holder = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "token": uuid4().hex})
    lease = _Lease(objects, holder)
    _acquire(lease, f"{folder}: another {name} is writing these tables")
    renewing = Thread(target=_renew, args=(lease,), name=f"lease-{name}", daemon=True)
    Thread(target=_watch, args=(lease,), daemon=True).start()
    renewing.start()
    try:
        yield
    finally:
        lease.ended.set()
        renewing.join()


def _acquire(lease: _Lease, refusal: str) -> None:
    """Create the first object of ``lease``. Raises BlockingIOError."""
    objects = lease.objects
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
        if free and lease.create(number + 1):
            for former in numbers:
                storage.delete(f"{objects}/{former}")
            return
        time.sleep(RENEWED / 5)


def _renew(lease: _Lease) -> None:
    """Keep the lease until it has ``ended``, and give it back."""
    while not lease.ended.wait(RENEWED):
        former = lease.number
        try:
            if not lease.create(former + 1):
                _end(f"{lease.objects}: taken over by another job, as this one was not heard of; ends at once")
            storage.delete(f"{lease.objects}/{former}")
        except Exception as error:  # whatever the store has: the next time it may succeed
            log.warning("%s: not renewed, and tried again: %s", lease.objects, error)
    try:
        storage.create(f"{lease.objects}/{lease.number + 1}", "")
        storage.delete(f"{lease.objects}/{lease.number}")
    except Exception as error:  # it ends by itself
        log.warning("%s: not given back: %s", lease.objects, error)


def _watch(lease: _Lease) -> None:
    """End the process when the lease was not renewed for too long, even where the store does not answer."""
    while not lease.ended.wait(RENEWED / 5):
        if time.monotonic() - lease.renewed > ENDS:
            _end(f"{lease.objects}: not renewed for {ENDS:g} s, so another job may take over; ends at once")


def _end(why: str) -> None:
    log.critical(why)
    os._exit(1)


def _numbers(objects: str) -> list[int]:
    return [int(name) for name in storage.names(objects) if name.isdecimal()]
