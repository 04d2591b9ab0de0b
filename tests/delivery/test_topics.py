"""Topics between agents and their region: whose a message is and what it is stands in its topic, and nowhere else."""

from __future__ import annotations

import pytest

from vedette.delivery.topics import UP, AgentTopic, agent_topic, parse


@pytest.mark.parametrize("leaf", UP)
def test_what_agents_publish_comes_back(leaf: str) -> None:
    assert parse(agent_topic("plants", "edge-1", leaf)) == AgentTopic("plants", "edge-1", leaf)


@pytest.mark.parametrize(
    "topic",
    [
        "vedette/v1/plants/edge-1/receipts", "vedette/v1/plants/edge-1/commands", "vedette/v1/plants/edge-1/alerts/x",
        "vedette/v1/plants/alerts", "vedette/v1/plants//alerts", "vedette/v1/plants/../alerts", "vedette/v1/+/#/alerts",
        "vedette/v2/plants/edge-1/alerts", "x/vedette/v1/plants/edge-1/alerts", "vedette/v1/plants/edge-1/alerts\n",
    ],
)  # fmt: skip
def test_other_topics_are_no_agents(topic: str) -> None:
    """Those that come down, and names that no topic, folder or file may have."""
    with pytest.raises(ValueError, match="not a topic of an agent"):
        parse(topic)
