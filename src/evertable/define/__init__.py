"""How a pipeline gets written: YAML or Python, both to the same model."""
