"""Who may take what next, and what may still be spent."""
