"""What senders push by HTTP: a file and a row a protocol (``table.py``). Bytes in, events and an answer out."""
