"""Read models: the evidence graph, the report, verification."""
