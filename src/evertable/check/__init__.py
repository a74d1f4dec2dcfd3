"""Rules: pure functions of the model and of facts, to findings."""
