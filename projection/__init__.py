"""Read models of a goal: graph, view, report, verification; nothing here can write to the store."""
