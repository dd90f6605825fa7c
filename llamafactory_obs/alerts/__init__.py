"""The life of an alert (raised, repeated, resolved) and where it is told outside of the record. No torch."""
