"""The living fleet: what agents and the controller publish, and what the console orders and asks of them.

Nothing is believed that is not signed, but a heartbeat's figures, which are shown as what an agent reports of itself.
Nothing here lands an alert or moves a roll-out: documents, orders and requests are signed by keys that the console was
given, agents and the controller decide on them as if a command had sent them, and go on without the console.

In reading order: ``models`` and ``models_asked`` (what is shown), ``means`` (what it steers with), ``live``
(what is heard), ``documents`` (what is signed), ``overview`` (desired against actual), ``rollouts``, ``propose``;
``desk`` (requests in the background), ``hunts``, ``evidence``, ``questions``; ``authoring`` and ``backtest`` (children
at work); ``service``.
"""
