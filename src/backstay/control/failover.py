"""The failover loop: from facts about nodes to decisions, and through the guard to deeds."""
