"""A working plug-in of each kind, which `nmt new-plugin` copies under other names; none is imported from here."""
