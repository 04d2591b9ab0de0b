"""What every room knows: event, chunk, frame, alert, log source, and the name of every counter and log event.

Facts only; nothing here does I/O.
Imports: nothing of Vedette.
"""
