"""Any text: in sentences, with tags, by a glossary, and translated again where it came out broken."""
