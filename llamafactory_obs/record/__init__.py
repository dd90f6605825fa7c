"""The run record, `<output_dir>/obs/`: schema, writer, reader. Imports no torch."""
