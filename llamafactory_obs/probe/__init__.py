"""The probe: what does each saved checkpoint really say? Watcher, backends, judge."""
