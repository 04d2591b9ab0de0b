"""A simulated fleet: agents that speak the agent's protocol at a real broker, thousands in one process.

``wire.py`` is their MQTT 5, ``simulated.py`` an agent, ``world.py`` a fleet of them with its documents and broker,
``controller.py`` the real controller over them; ``python -m bench.fleet`` measures.
"""
