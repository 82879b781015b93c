"""How texts are stored. The core reads plain and compressed files, and defines the interface for other storages."""
