"""The protocols that clients speak, one per file: routes, fields, and the format of errors."""
