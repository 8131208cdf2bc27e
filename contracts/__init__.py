"""What two processes must agree on: records, events, the table, the store."""
