"""How texts are stored. The core reads files, plain or compressed, and defines what another storage is."""
