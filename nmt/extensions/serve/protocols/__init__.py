"""The protocols that clients speak, a file each: routes, fields, and the shape of errors."""
