"""What a role does with a claim: one module per role, and what they share."""
