"""Export of trained models to other formats and engines, each checked."""
