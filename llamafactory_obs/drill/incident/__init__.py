"""Does `diagnose` name an incident's cause from the record alone? Incidents made on purpose, beside a healthy twin."""
