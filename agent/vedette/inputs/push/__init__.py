"""Protocols of pushes by HTTP: a file and a row a protocol (``http_listen.py``). Bytes in, events and an answer out."""
