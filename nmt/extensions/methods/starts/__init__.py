"""Components that change how a run starts: they freeze parameters, add adapters or layers, or load a training state."""
